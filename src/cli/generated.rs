//! Generates the manual pages and completions from the table of verbs, and the JSON Schemas from the types.
//!
//! The repository holds the files, and the program prints them. `STOCKADE_REGENERATE=1 cargo test --lib generated` writes them.

use std::ffi::OsString;
use std::path::Path;

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::grammar::STOCKADE;
use super::manual;
use super::pages::PAGES;
use super::ps::Row;
use super::top::Frame;
use super::why::Shown;
use stockade_seccomp::builtin::Group;

use crate::args::{Args, Dialect, Flag, HELP, Operand, Verb};
use crate::audit::Line;
use crate::plan::{Capability, Facility, RlimitResource};
use crate::policy::Settings;
use crate::policy::builtin;
use crate::report::Report;
use crate::session::protocol::Object;

#[test]
fn generated_files_are_current() {
    let mut files = vec![
        ("profiles/policy.schema.json".to_owned(), schema::<Settings>(without_null)),
        ("profiles/report.schema.json".to_owned(), schema::<Report>(|_| ())),
        ("profiles/audit.schema.json".to_owned(), schema::<Line>(|_| ())),
        ("profiles/top.schema.json".to_owned(), schema::<Frame>(|_| ())),
        ("profiles/ps.schema.json".to_owned(), schema::<Row>(|_| ())),
        ("profiles/why.schema.json".to_owned(), schema::<Shown>(|_| ())),
        ("profiles/session.schema.json".to_owned(), schema::<Object>(|_| ())),
        ("profiles/net-log.schema.json".to_owned(), schema::<stockade_egress::record::Line>(|_| ())),
    ];
    for (shell, name) in [(Shell::Bash, "stockade.bash"), (Shell::Zsh, "_stockade"), (Shell::Fish, "stockade.fish")] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command(&STOCKADE), "stockade", &mut text);
        files.push((format!("docs/completions/{name}"), with_sessions(shell, String::from_utf8(text).unwrap())));
    }
    let policy = manual::policy_page(&serde_json::from_str(&schema::<Settings>(without_null)).unwrap());
    let mut pages = vec![("stockade-policy.5".to_owned(), policy)];
    add_pages(&[&STOCKADE], &mut pages);
    let mut names: Vec<_> = PAGES.iter().map(|(name, _)| *name).collect();
    assert!(pages.iter().all(|(name, _)| names.contains(&name.as_str())), "{names:?} lacks a verb's page");
    names.retain(|name| !pages.iter().any(|(page, _)| page == name) && *name != "stockade-oci.1");
    assert!(names.is_empty(), "these pages have no verb: {names:?}");
    files.extend(pages.into_iter().map(|(name, text)| (format!("docs/man/{name}"), text)));
    for (name, text) in files {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&name);
        if std::env::var_os("STOCKADE_REGENERATE").is_some() {
            std::fs::write(&path, text).unwrap();
        } else {
            let current = std::fs::read_to_string(&path).unwrap_or_default() == text;
            assert!(current, "{name} is out of date: `STOCKADE_REGENERATE=1 cargo test --lib generated` writes it");
        }
    }
}

/// How many verbs have the name of a session as their first word: this one, and those below it.
fn with_session(verb: &Verb) -> usize {
    let own =
        usize::from(matches!(verb.operands.first(), Some(Operand::Word("SESSION", _) | Operand::Words("SESSION", _))));
    own + verb.verbs.iter().map(with_session).sum::<usize>()
}

/// The verbs that name a session, of these.
fn verbs_of_sessions(verbs: &[Verb]) -> Vec<&'static str> {
    verbs.iter().filter(|verb| verb.verbs.is_empty() && with_session(verb) > 0).map(|verb| verb.name).collect()
}

/// The verbs that have such verbs below them, and these.
fn verbs_above_sessions() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let above = STOCKADE.verbs.iter().filter(|verb| !verb.verbs.is_empty() && with_session(verb) > 0);
    above.map(|verb| (verb.name, verbs_of_sessions(verb.verbs)))
}

/// Completes the names of sessions too, which clap's files cannot: they are known only when the shell asks.
fn with_sessions(shell: Shell, text: String) -> String {
    let verbs = verbs_of_sessions(STOCKADE.verbs);
    match shell {
        // By the kind of value that `operand` gives them, which no other word has.
        Shell::Zsh => {
            let named = text.replace(":_users", ":_stockade_sessions");
            assert_eq!(named.matches(":_stockade_sessions").count(), with_session(&STOCKADE));
            let named = named.replace(":_hosts", ":_stockade_files");
            let lines = named.lines().map(|line| with_words(&without_colons(line)));
            let named = lines.collect::<Vec<_>>().join("\n") + "\n";
            let function = "\n_stockade_sessions() {\n    compadd -- ${(f)\"$(stockade ps -q 2>/dev/null)\"}\n}\n\
                 \n_stockade_files() {\n    compadd -S '' -- ${(f)\"$(stockade ps -q 2>/dev/null | sed 's/$/:/')\"}\n    _files\n}\n";
            named.replacen("\n_stockade() {", &format!("{function}\n_stockade() {{"), 1)
        }
        Shell::Fish => {
            let verbs = verbs.join(" ");
            let beside: String = words_beside().map(|(flag, words)| {
                let letter = flag.short.map(|letter| format!(" -s {letter}")).unwrap_or_default();
                let (long, words) = (flag.long, words.join(" "));
                format!("complete -c stockade -n \"__fish_stockade_using_subcommand {OF_RUN}\"{letter} -l {long} -r -a \"{words}\"\n")
            }).collect();
            let below: String = verbs_above_sessions().map(|(verb, below)| {
                let below = below.join(" ");
                format!("complete -c stockade -n \"__fish_stockade_using_subcommand {verb}; and __fish_seen_subcommand_from {below}\" -f -a \"(stockade ps -q 2>/dev/null)\"\n")
            }).collect();
            text + &beside
                + &below
                + &format!(
                    "complete -c stockade -n \"__fish_seen_subcommand_from {verbs}\" -f -a \"(stockade ps -q 2>/dev/null)\"\n\
                 complete -c stockade -n \"__fish_seen_subcommand_from cp\" -F -a \"(stockade ps -q 2>/dev/null | string replace -r '\\$' ':')\"\n"
                )
        }
        _ => {
            let verbs = verbs.join("|");
            let of_run = OF_RUN.replace(' ', "|");
            let beside: String = words_beside()
                .map(|(flag, words)| {
                    let letter = flag.short.map(|letter| format!("-{letter}|")).unwrap_or_default();
                    let (long, words) = (flag.long, words.join(" "));
                    format!("                {letter}--{long}) COMPREPLY+=($(compgen -W \"{words}\" -- \"$2\")) ;;\n")
                })
                .collect();
            let sessions = "COMPREPLY+=($(compgen -W \"$(stockade ps -q 2>/dev/null)\" -- \"$2\"))";
            let below: String = verbs_above_sessions()
                .map(|(verb, below)| {
                    let below = below.join("|*:");
                    format!("        {verb})\n            case \"$2:${{COMP_WORDS[2]}}\" in\n                -*) ;;\n                *:{below}) {sessions} ;;\n            esac ;;\n")
                })
                .collect();
            let function = format!(
                "\n_stockade_or_session() {{\n    _stockade \"$@\"\n    case \"${{COMP_WORDS[1]}}\" in\n        {verbs})\n            case \
                 \"$2\" in\n                -*) ;;\n                *) COMPREPLY+=($(compgen -W \"$(stockade ps -q 2>/dev/null)\" -- \
                 \"$2\")) ;;\n            esac ;;\n{below}        {of_run})\n            case \"$3\" in\n{beside}            esac ;;\n        cp)\n            case \"$2\" in\n                -*) ;;\n                *)\n                    \
                 compopt -o nospace\n                    COMPREPLY+=($(compgen -W \"$(stockade ps -q 2>/dev/null | sed 's/$/:/')\" -- \"$2\") \
                 $(compgen -f -- \"$2\")) ;;\n            esac ;;\n    esac\n}}\n"
            );
            let (before, after) = text.split_once("\nif [[ \"${BASH_VERSINFO[0]}\"").expect("the end of clap's file");
            let after = after.replace("complete -F _stockade ", "complete -F _stockade_or_session ");
            format!("{before}\n{function}\nif [[ \"${{BASH_VERSINFO[0]}}\"{after}")
        }
    }
}

/// Adds the page of the last verb and those of the verbs below it.
fn add_pages(verbs: &[&'static Verb], pages: &mut Vec<(String, String)>) {
    let names: Vec<_> = verbs.iter().map(|verb| verb.name).collect();
    let verb = verbs[verbs.len() - 1];
    // A manual page has the whole name: stockade-run(1).
    let name = names.join("-");
    let text = page(command(verb).name(name.clone()), &verb.usage(&names.join(" "))) + &manual::more_sections(&name);
    pages.push((format!("{name}.1"), text));
    for below in verb.verbs {
        add_pages(&[verbs, &[below]].concat(), pages);
    }
}

/// One manual page. It has no date, so that it changes only with the table. The synopsis is ours, because clap's lists
/// every option.
fn page(command: Command, synopsis: &str) -> String {
    use std::io::Write as _;
    let has_verbs = command.has_subcommands();
    let man = clap_mangen::Man::new(command).manual("Stockade").source(concat!("stockade ", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    man.render_title(&mut out).unwrap();
    man.render_name_section(&mut out).unwrap();
    writeln!(out, ".SH SYNOPSIS\n{}", synopsis.replace('-', "\\-")).unwrap();
    man.render_description_section(&mut out).unwrap();
    match has_verbs {
        true => man.render_subcommands_section(&mut out).unwrap(),
        false => man.render_options_section(&mut out).unwrap(),
    }
    String::from_utf8(out).unwrap()
}

/// The verb, for clap.
fn command(verb: &'static Verb) -> Command {
    let mut command = Command::new(verb.name)
        .about(verb.about)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .subcommands(verb.verbs.iter().map(self::command))
        .args(verb.operands.iter().map(operand));
    if !verb.more.is_empty() {
        command = command.long_about(format!("{}.\n\n{}", verb.about, verb.more));
    }
    for (heading, flags) in verb.options {
        command = command.args(flags.iter().map(|flag| option(flag).help_heading(*heading)));
    }
    command.arg(option(&HELP).action(ArgAction::Help).help_heading("Options"))
}

fn operand(operand: &'static Operand) -> Arg {
    match *operand {
        Operand::Word(name @ "SESSION", help) => {
            Arg::new(name).help(help).required(true).value_hint(ValueHint::Username) // see `with_sessions`
        }
        Operand::Word(name @ ("SRC" | "DST"), help) => {
            Arg::new(name).help(help).required(true).value_hint(ValueHint::Hostname) // see `with_sessions`
        }
        Operand::Words(name, help) => {
            Arg::new(name).help(help).required(true).num_args(1..).value_hint(ValueHint::Username) // as for one
        }
        Operand::Word(name, help) => Arg::new(name).help(help).required(true).value_hint(ValueHint::FilePath),
        Operand::Optional(name, help) => Arg::new(name).help(help),
        Operand::Choice(name, help, known) => Arg::new(name).help(help).value_parser(known.to_vec()).required(true),
        Operand::Numbers(name, help, most) => Arg::new(name).help(help).num_args(0..=most).allow_negative_numbers(true),
        Operand::Command(name) => {
            let command = Arg::new("command").value_name(name).hide(true).help("The command and its arguments");
            command.num_args(0..).trailing_var_arg(true).value_hint(ValueHint::CommandWithArguments)
        }
    }
}

/// Every value that an option can have; empty if there are too many to list.
fn known(flag: &Flag) -> Vec<String> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let Some(value) = flag.value else { return Vec::new() };
    match (flag.long, value) {
        ("allow-degraded", _) => Facility::ALL.iter().map(|facility| facility.name().to_owned()).collect(),
        ("toolchain", _) => names(&["python", "node", "rust", "java", "go", "auto"]),
        (_, "GROUP") => Group::ALL.iter().map(|group| group.name().to_owned()).collect(),
        (_, "CAP") => {
            Capability::all().iter().map(|one| one.to_string().trim_start_matches("CAP_").to_owned()).collect()
        }
        _ if words_of(value).len() == value.split('|').count() => words_of(value),
        _ => Vec::new(),
    }
}

/// The words among the forms of a value, such as `root` in `UID[:GID]|root`.
fn words_of(value: &str) -> Vec<String> {
    let is_word = |form: &&str| !form.is_empty() && form.bytes().all(|byte| byte.is_ascii_lowercase());
    let words: Vec<_> = value.split('|').filter(is_word).map(str::to_owned).collect();
    if value.contains('|') { words } else { Vec::new() }
}

/// The verbs with the options of `run`.
const OF_RUN: &str = "run plan why learn";

/// The options of `run` that take one of some words, or something else: these words.
fn words_beside() -> impl Iterator<Item = (&'static Flag, Vec<String>)> {
    let run = STOCKADE.verbs.iter().find(|verb| verb.name == "run").expect("there is run");
    run.flags().filter_map(|flag| {
        let value = flag.value.filter(|_| known(flag).is_empty())?;
        let words: Vec<String> = match flag.long {
            "profile" => builtin::ALL.iter().map(|(name, _)| (*name).to_owned()).collect(),
            "ulimit" => RlimitResource::ALL.iter().map(|one| format!("{}=", one.name())).collect(),
            _ => words_of(value),
        };
        (!words.is_empty()).then_some((flag, words))
    })
}

/// A line of an option for zsh, which takes a colon in the name of a value for its end: `SRC[:DST]`.
fn without_colons(line: &str) -> String {
    match (line.find("]:"), line.rfind(":_")) {
        (Some(help), Some(action)) if help + 2 < action => {
            let (before, name, after) = (&line[..help + 2], &line[help + 2..action], &line[action..]);
            format!("{before}{}{after}", name.replace(':', "\\:"))
        }
        _ => line.to_owned(),
    }
}

/// A line of the file for zsh, in which an option takes these words too.
fn with_words(line: &str) -> String {
    let is_it = |flag: &Flag| {
        let letter = flag.short.is_some_and(|letter| line.contains(&format!("-{letter}+[")));
        letter && line.contains(flag.help.split(['\'', ':']).next().unwrap_or_default())
            || line.contains(&format!("--{}=[", flag.long))
    };
    let Some((_, words)) = words_beside().find(|(flag, _)| is_it(flag)) else { return line.to_owned() };
    let words = words.join(" ");
    for (action, files) in [(":_files' \\", "; _files"), (":_default' \\", "")] {
        if let Some(before) = line.strip_suffix(action) {
            return format!("{before}:{{compadd -- {words}{files}}}' \\");
        }
    }
    line.to_owned()
}

fn option(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.long).long(flag.long).help(flag.help);
    let arg = flag.short.into_iter().fold(arg, Arg::short);
    let hint = match flag.value {
        Some("DIR") => ValueHint::DirPath,
        Some("PATH" | "PATH[:optional]") => ValueHint::AnyPath,
        Some(value) if value.starts_with("FILE") || value.contains("|FILE") || value.contains("SRC") => {
            ValueHint::AnyPath
        }
        _ => ValueHint::Unknown,
    };
    let arg = if hint == ValueHint::Unknown { arg } else { arg.value_hint(hint) };
    let known: Vec<&'static str> = known(flag).into_iter().map(|word| &*word.leak()).collect();
    let arg = if known.is_empty() { arg } else { arg.value_parser(known).hide_possible_values(true) };
    match (flag.value, flag.many) {
        (Some(value), true) => arg.value_name(value).action(ArgAction::Append),
        (Some(value), false) => arg.value_name(value),
        (None, _) => arg.action(ArgAction::SetTrue),
    }
}

fn schema<T: JsonSchema>(change: fn(&mut Value)) -> String {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    change(&mut schema);
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
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

/// The completions come from clap, so both readers must read a command line alike.
#[test]
fn clap_reads_the_same() {
    for line in [
        "run -it -m1G true",
        "run --memory=1G -e A=b -eC=d -v /a:/b -- -x y",
        "run --cpus 2 --cpus 3 a b -c",
        "run -itm=5 x",
        "seccomp explain default --cap CHOWN ioctl --cap=KILL 1 -1 --no-network",
        "seccomp compile -oout default",
        "audit verify log --head 1",
        "man",
        "exec -it -m1G web -- sh -c x",
        "exec web sh -c x",
        "kill -s TERM --command c1 web",
    ] {
        let line: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let (ours, result) = Args::read(&STOCKADE, Dialect::Stockade, &line);
        result.unwrap();
        let command = command(&STOCKADE).no_binary_name(true).args_override_self(true);
        let matches = command.try_get_matches_from(&line).unwrap();
        let mut clap = &matches;
        while let Some((_, below)) = clap.subcommand() {
            clap = below;
        }
        let words = |name: &str| clap.get_many::<String>(name).into_iter().flatten().map(OsString::from).collect();
        for flag in ours.verb().flags() {
            if flag.value.is_none() {
                assert_eq!(ours.is_on(flag.long), clap.get_flag(flag.long), "{}", flag.long);
                continue;
            }
            let theirs: Vec<OsString> = words(flag.long);
            let mut given: Vec<OsString> = ours.all(flag.long).map(Into::into).collect();
            if !flag.many {
                given.drain(..given.len().saturating_sub(1));
            }
            assert_eq!(given, theirs, "{}", flag.long);
        }
        let theirs: Vec<OsString> =
            ours.verb().operands.iter().flat_map(|one| -> Vec<_> { words(operand(one).get_id().as_str()) }).collect();
        assert_eq!(ours.words, theirs);
    }
}

/// Names and letters are unique, and no option hides another.
#[test]
fn clap_finds_nothing_wrong_with_the_table() {
    command(&STOCKADE).debug_assert();
}
