//! Errors of policy files, with position and suggestion.

use toml::de::{DeTable, DeValue};

use crate::error::{Error, Step, nearest};

/// Keys of tables that are easily written without their table.
const IN_TABLES: [(&str, &[&str]); 7] = [
    ("budget", &["memory", "pids", "cpus", "memory_high", "swap"]),
    ("deadlines", &["timeout", "cpu_time", "idle_timeout", "kill_after"]),
    ("network", &["allow", "deny", "publish", "dns"]),
    ("landlock", &["read", "write", "execute", "connect", "bind"]),
    ("seccomp", &["profile"]),
    ("user", &["uid", "gid", "home"]),
    ("env", &["pass", "keep"]),
];

fn table_of(key: &str) -> Option<&'static str> {
    IN_TABLES.iter().find(|(_, keys)| keys.contains(&key)).map(|(table, _)| *table)
}

/// The error for an invalid policy file: `FILE:LINE:COLUMN: key: reason`.
pub fn explain(file: &str, text: &str, error: &toml::de::Error) -> Error {
    let (line, column) = position(text, error.span().map_or(0, |span| span.start));
    let message: String = error.message().chars().take(2_000).flat_map(one_line).collect();
    let mut path = key_path(error);
    let (reason, hint) = match unknown(&message) {
        Some((wrong, known)) => {
            // The keys of `ulimits` are an enum, so serde reports them as variants.
            let is_key = message.starts_with("unknown field") || path.as_deref() == Some("ulimits");
            let what = if is_key { "key" } else { "value" };
            let near = nearest(wrong, known.iter().copied());
            let table = table_of(wrong).filter(|_| is_key && path.as_deref().is_none_or(|path| path == wrong));
            // serde gives only the path of the table, so the key is appended.
            if is_key && path.as_ref().is_none_or(|path| path.rsplit('.').next() != Some(wrong)) {
                path = Some(path.map_or(wrong.to_owned(), |table| format!("{table}.{wrong}")));
            }
            let hint = match (near, known.is_empty()) {
                _ if table.is_some() => table.map(|table| format!("it stands below [{table}], or as {table}.{wrong}")),
                (Some(name), _) => Some(format!("did you mean `{name}`?")),
                (None, false) => Some(format!("known: {}", known.join(", "))),
                (None, true) => None,
            };
            (format!("unknown {what} `{wrong}`"), hint)
        }
        None => (message.replace("missing field", "missing key"), other_language(text)),
    };
    let path = path.map(|path| format!(": {path}")).unwrap_or_default();
    let error = Error::new(Step::Policy, format!("{file}:{line}:{column}{path}"), reason);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// A hint for text that is not TOML at all.
fn other_language(text: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next()?;
    let key = first.split(':').next().unwrap_or_default();
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    let language = match first {
        _ if first.starts_with('{') => "JSON",
        "---" => "YAML",
        _ if is_key && first.contains(':') && !first.contains('=') => "YAML",
        _ => return None,
    };
    Some(format!("this looks like {language}; a policy is TOML: `key = value`, and tables such as [budget]"))
}

/// The line, from 1, on which a key of the top table stands.
pub fn line_of(key: &str, text: &str) -> usize {
    let is_here = |line: &str| line.trim_start().trim_start_matches(['"', '\'']).starts_with(key);
    text.lines().position(is_here).map_or(1, |index| index + 1)
}

/// Where a key such as `mounts[1].source` stands, `LINE:COLUMN`; if it is not there, where the table above it stands.
pub fn place_of(key: &str, text: &str) -> Option<String> {
    let table = DeTable::parse(text).ok()?;
    let (mut span, mut here) = (table.span(), None::<&DeValue<'_>>);
    for name in key.split('.') {
        let (name, index) = name
            .strip_suffix(']')
            .and_then(|name| name.split_once('['))
            .map_or((name, None), |(name, index)| (name, index.parse().ok()));
        let inner = match here {
            None => table.get_ref().get(name),
            Some(value) => value.as_table().and_then(|table| table.get(name)),
        };
        let inner = inner.and_then(|inner| match index {
            Some::<usize>(index) => inner.get_ref().as_array()?.get(index),
            None => Some(inner),
        });
        let Some(inner) = inner else { break };
        (span, here) = (inner.span(), Some(inner.get_ref()));
    }
    here?;
    let (line, column) = position(text, span.start);
    Some(format!("{line}:{column}"))
}

fn one_line(c: char) -> Vec<char> {
    if c == '\n' { c.escape_default().collect() } else { vec![c] }
}

/// The dotted key that the error is about. toml has no accessor for it, but prints it if the error has no input text.
fn key_path(error: &toml::de::Error) -> Option<String> {
    let mut error = error.clone();
    error.set_input(None);
    let printed = error.to_string();
    let path = printed.strip_prefix(error.message())?.trim().strip_prefix("in `")?.strip_suffix('`')?;
    (!path.is_empty()).then(|| path.chars().take(200).flat_map(one_line).collect())
}

/// The wrong name and the known ones in serde's message about an unknown field or variant.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `").or_else(|| message.strip_prefix("unknown variant `"))?;
    let (wrong, known) = match rest.rfind("`, expected ").or_else(|| rest.rfind("`, there are no ")) {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest.strip_suffix('`')?, ""),
    };
    Some((wrong, known.split('`').skip(1).step_by(2).collect()))
}

/// Line and column of a byte offset, both from 1. The column counts characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_a_table_is_one_and_none_is_of_a_policy() {
        for (table, key) in IN_TABLES.iter().flat_map(|(table, keys)| keys.iter().map(move |key| (table, key))) {
            let said = |text: String| match crate::policy::parse("p.toml", &text) {
                Ok(_) => String::new(),
                Err(error) => error.to_string(),
            };
            assert!(!said(format!("version = 1\n[{table}]\n{key} = 1.5")).contains("unknown key"), "{table}.{key}");
            assert!(said(format!("version = 1\n{key} = 1.5")).contains("unknown key"), "{key}");
        }
    }
}
