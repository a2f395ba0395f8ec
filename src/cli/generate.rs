//! Generates completions and manual pages from the grammar, and JSON Schemas from the types.
//!
//! The repository holds copies. A test compares them and names the command that updates them.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::grammar;
use super::say;
use super::top::Frame;
use crate::audit::Line;
use crate::error::{Error, Result, Step};
use crate::policy::Settings;
use crate::report::Report;

/// `stockade completions SHELL`.
pub fn completions(words: &[OsString]) -> Result<u8> {
    let Some(words) = super::read("completions", words)? else { return Ok(0) };
    let shell = match words.operands.first().and_then(|word| word.to_str()) {
        Some("zsh") => Shell::Zsh,
        Some("fish") => Shell::Fish,
        _ => Shell::Bash,
    };
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut grammar::command(), "stockade", &mut out);
    say(&String::from_utf8_lossy(&out))
}

/// `stockade man [DIR]`.
pub fn man(words: &[OsString]) -> Result<u8> {
    let Some(words) = super::read("man", words)? else { return Ok(0) };
    let top = || page(grammar::command(), "stockade VERB [OPTIONS] ...");
    let Some(directory) = words.operands.first() else { return say(&top()?) };
    let mut pages = vec![("stockade.1".to_owned(), top()?)];
    for verb in grammar::VERBS {
        // A manual page has the whole name: stockade-run(1).
        let name = format!("stockade-{}", verb.name);
        pages.push((format!("{name}.1"), page(verb.command().name(name), &verb.usage())?));
    }
    let tools = super::seccomp::command();
    let synopsis = "stockade seccomp TOOL [OPTIONS] NAME|FILE ...";
    let listed = tools.get_subcommands().map(|tool| tool.clone().name(format!("stockade-seccomp-{}", tool.get_name())));
    for tool in listed.collect::<Vec<_>>() {
        let usage = tool.get_name().replace('-', " ") + " [OPTIONS] NAME|FILE ...";
        pages.push((format!("{}.1", tool.get_name()), page(tool, &usage)?));
    }
    pages.push(("stockade-seccomp.1".to_owned(), page(tools.name("stockade-seccomp"), synopsis)?));
    for (name, text) in pages {
        let path = Path::new(directory).join(name);
        std::fs::write(&path, text).map_err(|error| Error::io(Step::Output, path.display().to_string(), &error))?;
    }
    Ok(0)
}

/// One manual page. It has no date, so that it changes only with the grammar. The synopsis is ours, because clap's lists
/// every option.
fn page(command: Command, synopsis: &str) -> Result<String> {
    let has_verbs = command.has_subcommands();
    let man = clap_mangen::Man::new(command).manual("Stockade").source(concat!("stockade ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    let written = man
        .render_title(&mut out)
        .and_then(|()| man.render_name_section(&mut out))
        .and_then(|()| writeln!(out, ".SH SYNOPSIS\n{}", synopsis.replace('-', "\\-")))
        .and_then(|()| man.render_description_section(&mut out))
        .and_then(|()| {
            if has_verbs { man.render_subcommands_section(&mut out) } else { man.render_options_section(&mut out) }
        });
    written.map_err(|error| Error::new(Step::Output, "manual page", error.to_string()))?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// `stockade schema policy|report|audit|top`. Not in the help, because only this repository uses it.
pub fn schema(words: &[OsString]) -> Result<u8> {
    let generator = || SchemaSettings::draft2020_12().into_generator();
    let mut schema = match words.first().and_then(|word| word.to_str()) {
        Some("policy") => generator().into_root_schema_for::<Settings>().to_value(),
        Some("report") => generator().into_root_schema_for::<Report>().to_value(),
        Some("audit") => generator().into_root_schema_for::<Line>().to_value(),
        Some("top") => generator().into_root_schema_for::<Frame>().to_value(),
        _ => return Err(Error::new(Step::Usage, "schema", "name one of policy, report, audit and top")),
    };
    if words.first().is_some_and(|word| word == "policy") {
        without_null(&mut schema);
    }
    let text = serde_json::to_string_pretty(&schema);
    say(&(text.map_err(|error| Error::new(Step::Output, "schema", error.to_string()))? + "\n"))
}

/// Removes `null` from the types: TOML has no null, an optional key is left out instead.
fn without_null(schema: &mut Value) {
    let null = json!({ "type": "null" });
    match schema {
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Object(keys) => {
            keys.values_mut().for_each(without_null);
            if let Some(Value::Array(types)) = keys.get_mut("type") {
                types.retain(|name| name != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    keys.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(forms)) = keys.get_mut("anyOf") {
                forms.retain(|form| *form != null);
                // A single form needs no `anyOf`.
                if let [Value::Object(only)] = forms.as_slice() {
                    let only = only.clone();
                    keys.remove("anyOf");
                    keys.extend(only);
                }
            }
        }
        _ => {}
    }
}
