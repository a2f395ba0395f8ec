//! What the manual pages say beyond the table of verbs: exit codes, examples, and the page about policies. Only tests build it.

use std::ffi::OsString;

use serde_json::{Map, Value};

use super::grammar::STOCKADE;
use crate::args::{Args, Dialect};

/// The exit codes of most verbs.
const USUAL: &[(&str, &str)] = &[("0", "Done."), ("125", "It failed. Standard error says why.")];
/// Those of verbs that run a command.
const OF_A_COMMAND: &[(&str, &str)] = &[
    ("N", "The command returned N."),
    ("128+N", "Signal N ended the command."),
    ("124", "A limit on time or network traffic ended the command."),
    ("125", "Stockade failed, or refused to start the command. Standard error says why."),
    ("126", "The command was found but could not be executed."),
    ("127", "The command was not found."),
];
/// Those of verbs that answer a question.
const OF_A_CHECK: &[(&str, &str)] = &[
    ("0", "Everything is in order."),
    ("1", "Something is not; the output says what."),
    ("125", "It could not be found out."),
];

const OF_A_QUESTION: &[(&str, &str)] = &[
    ("0", "It is allowed. For a path, this is about reading, or what --to names."),
    ("1", "It is refused."),
    ("2", "It depends on what is not known before the run."),
    ("125", "A run with these options would be refused here. Standard error says why."),
];

const OF_A_LESSON: &[(&str, &str)] = &[
    ("0", "The policy was written and holds."),
    ("1", "The policy was written, but the command failed, or the policy does not hold. Standard error says which."),
    ("125", "No policy was written. Standard error says why."),
    ("126, 127", "The same: the command could not be executed, or was not found."),
];

type Example = (&'static str, &'static str);

/// Exit codes and examples of a page.
struct More {
    page: &'static str,
    status: &'static [(&'static str, &'static str)],
    examples: &'static [Example],
}

const fn more(
    page: &'static str,
    status: &'static [(&'static str, &'static str)],
    examples: &'static [Example],
) -> More {
    More { page, status, examples }
}

const MORE: &[More] = &[
    more(
        "stockade",
        OF_A_COMMAND,
        &[
            ("Run a program for at most ten seconds:", "stockade run --timeout 10s -- python3 job.py"),
            ("See what this host can enforce:", "stockade doctor"),
        ],
    ),
    more(
        "stockade-run",
        OF_A_COMMAND,
        &[
            (
                "Run a job with limits, a directory of its own and a report:",
                "stockade run --timeout 30s -m 512M --workspace job --report report.json -- python3 main.py",
            ),
            ("Filter what somebody sent:", "stockade run -i -p strict -- sort"),
            (
                "Build in a directory without network:",
                "stockade run -p build --workspace project --network none -- make",
            ),
            (
                "Allow one host:",
                "stockade run --allow-net api.example.com --net-log net.log -- curl -sS https://api.example.com/",
            ),
            ("Find out what a program was refused:", "stockade run --explain-denials -- ./program"),
            ("Make a sandbox that stays:", "stockade run -d --name web --lifetime 1h"),
        ],
    ),
    more(
        "stockade-exec",
        OF_A_COMMAND,
        &[
            ("Run a command in a session, for at most ten seconds:", "stockade exec --timeout 10s web -- make test"),
            ("Open a shell:", "stockade exec -it web -- sh"),
        ],
    ),
    more("stockade-ps", USUAL, &[("List the names only:", "stockade ps -q")]),
    more("stockade-inspect", USUAL, &[("Print what a session may do and used:", "stockade inspect web")]),
    more("stockade-logs", USUAL, &[("Follow the output:", "stockade logs -f web")]),
    more("stockade-attach", OF_A_COMMAND, &[("Watch a session's command until it ends:", "stockade attach web")]),
    more(
        "stockade-cp",
        OF_A_CHECK,
        &[
            ("Copy a file into a session:", "stockade cp data.csv web:/tmp/data.csv"),
            ("Copy a directory out of it:", "stockade cp web:/workspace/out ."),
        ],
    ),
    more("stockade-wait", USUAL, &[("Wait for the end:", "stockade wait web")]),
    more("stockade-stop", USUAL, &[("End a session, with two seconds to clean up:", "stockade stop -t 2s web")]),
    more(
        "stockade-kill",
        USUAL,
        &[
            ("End a session at once:", "stockade kill web"),
            ("Interrupt one command:", "stockade kill -s INT --command c1 web"),
        ],
    ),
    more("stockade-pause", USUAL, &[("Stop the processes of a session for a while:", "stockade pause web")]),
    more("stockade-unpause", USUAL, &[("Let them continue:", "stockade unpause web")]),
    more("stockade-net", USUAL, &[("Allow a host from now on:", "stockade net allow web api.example.com")]),
    more(
        "stockade-net-allow",
        USUAL,
        &[("Allow a host and its subdomains on port 443:", "stockade net allow web '*.example.com:443'")],
    ),
    more(
        "stockade-net-deny",
        USUAL,
        &[("End and refuse connections to a host:", "stockade net deny web api.example.com")],
    ),
    more("stockade-net-log", USUAL, &[("Follow the connections of a session:", "stockade net log -f web")]),
    more("stockade-rm", USUAL, &[("End a session and remove what is kept of it:", "stockade rm -f web")]),
    more(
        "stockade-plan",
        USUAL,
        &[
            ("See what a policy allows:", "stockade plan -p build --workspace . -- make"),
            ("The same as data:", "stockade plan --json -p strict -- sort"),
        ],
    ),
    more(
        "stockade-why",
        OF_A_QUESTION,
        &[
            ("Ask about a path, a host and a system call:", "stockade why /etc/hosts"),
            ("", "stockade why --allow-net '*.example.com' api.example.com:443"),
            ("", "stockade why -p strict socket"),
            (
                "Ask in a script whether a policy lets a directory be changed:",
                "stockade why -p ./job.toml --to write /data",
            ),
        ],
    ),
    more(
        "stockade-learn",
        OF_A_LESSON,
        &[
            (
                "Write a policy for a job, and try it:",
                "stockade learn --workspace . -o ../job.toml --check -- python3 job.py",
            ),
            ("Use it:", "stockade run -p ../job.toml -- python3 job.py"),
            (
                "Learn which hosts of a domain a program needs:",
                "stockade learn --allow-net '*.example.com' --workspace . -o ../fetch.toml -- ./fetch",
            ),
        ],
    ),
    more("stockade-doctor", OF_A_CHECK, &[("Print every finding as data:", "stockade doctor --json")]),
    more("stockade-top", USUAL, &[("Print one sample for a script:", "stockade top --once --json")]),
    more("stockade-gc", OF_A_CHECK, &[("Remove what killed supervisors left behind:", "stockade gc")]),
    more("stockade-audit", OF_A_CHECK, &[("Check a log:", "stockade audit verify runs.log")]),
    more(
        "stockade-audit-verify",
        OF_A_CHECK,
        &[(
            "Check a log, and that nothing was cut off since its head was noted:",
            "stockade audit verify --head 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef runs.log",
        )],
    ),
    more("stockade-completions", USUAL, &[("Print the completions for bash:", "stockade completions bash")]),
    more("stockade-man", USUAL, &[("Write all pages to a directory:", "stockade man man1")]),
    more("stockade-seccomp", OF_A_CHECK, &[("Ask why a call is refused:", "stockade seccomp explain default unshare")]),
    more(
        "stockade-seccomp-check",
        OF_A_CHECK,
        &[("Check a profile, and fail on warnings:", "stockade seccomp check --strict profile.json")],
    ),
    more(
        "stockade-seccomp-compile",
        USUAL,
        &[("Compile a profile for --seccomp-bpf:", "stockade seccomp compile -o profile.bpf profile.json")],
    ),
    more(
        "stockade-seccomp-dump",
        USUAL,
        &[("Print the program of the default profile:", "stockade seccomp dump default")],
    ),
    more(
        "stockade-seccomp-explain",
        USUAL,
        &[("Print the rule that decides a call with these arguments:", "stockade seccomp explain default socket 2 1")],
    ),
];

/// Text for roff: blanks stay, and no line begins a request.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    text.lines()
        .map(|line| if line.starts_with('.') { format!("\\&{line}") } else { line.to_owned() })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The sections that follow the options of a page: exit codes, examples, and related pages.
pub(super) fn more_sections(page: &str) -> String {
    let more =
        MORE.iter().find(|more| more.page == page).unwrap_or_else(|| panic!("{page} has no examples in manual.rs"));
    let mut text = ".SH EXIT STATUS\n".to_owned();
    for (code, meaning) in more.status {
        text += &format!(".TP\n\\fB{code}\\fR\n{}\n", escaped(meaning));
    }
    text += ".SH EXAMPLES\n";
    for (what, command) in more.examples {
        let what = if what.is_empty() { String::new() } else { format!(".PP\n{}\n", escaped(what)) };
        text += &format!("{what}.PP\n.nf\n.RS 4\n{}\n.RE\n.fi\n", escaped(command));
    }
    let above =
        page.rsplit_once('-').map_or("stockade\\-run", |(above, _)| above).replace("\\-", "-").replace('-', "\\-");
    text + &format!(".SH \"SEE ALSO\"\n\\fB{above}\\fR(1), \\fBstockade\\-policy\\fR(5)\n")
}

/// stockade-policy(5), from the schema of policies.
pub(super) fn policy_page(schema: &Value) -> String {
    let defs = &schema["$defs"];
    let mut text = format!(
        ".TH stockade-policy 5 \"\" \"stockade {}\" Stockade\n.SH NAME\nstockade\\-policy \\- what a run may do, as a file\n\
         .SH DESCRIPTION\nA policy is a file in TOML. \\fBstockade run \\-p FILE\\fR loads it, and options override it. \
         \\fBdefault\\fR, \\fBstrict\\fR and \\fBbuild\\fR are built in. A key that is left out keeps the value of the policy that \
         this one extends; lists and tables marked \\(lqAdds\\(rq are added to its. An unknown key is an error. \
         \\fBstockade plan \\-p FILE\\fR prints what comes of it.\n.SH KEYS\n",
        env!("CARGO_PKG_VERSION")
    );
    let top = schema["properties"].as_object().unwrap();
    let table = |key: &Value| table_of(defs, key).is_some();
    keys(&mut text, defs, top.iter().filter(|(_, key)| !table(key)));
    for (name, key) in top.iter().filter(|(_, key)| table(key)) {
        let (brackets, properties) = table_of(defs, key).unwrap();
        let head = brackets.replace("NAME", name);
        text += &format!(".SS \"{head}\"\n{}\n", escaped(&sentence(key["description"].as_str().unwrap_or(""))));
        keys(&mut text, defs, properties.iter());
    }
    text + ".SH FILES\n.TP\n\\fI/usr/share/stockade/profiles\\fR\nThe built\\-in policies, and the JSON Schema of this format.\n\
            .SH EXAMPLES\n.PP\nHalf a minute and half a gigabyte for Python, in a file job.toml:\n.PP\n.nf\n.RS 4\nversion = 1\n\
            extends = \"strict\"\nproc = \"full\"\n\n[budget]\nmemory = \"512M\"\n\n[deadlines]\ntimeout = \"30s\"\n.RE\n.fi\n.PP\n\
            Run with it:\n.PP\n.nf\n.RS 4\nstockade run \\-p ./job.toml \\-\\- python3 job.py\n.RE\n.fi\n\
            .SH \"SEE ALSO\"\n\\fBstockade\\-run\\fR(1), \\fBstockade\\-plan\\fR(1)\n"
}

/// The properties of a key that is a table or a list of tables, and its header.
fn table_of<'s>(defs: &'s Value, key: &'s Value) -> Option<(&'static str, &'s Map<String, Value>)> {
    let (brackets, key) = if key["type"] == "array" { ("[[NAME]]", &key["items"]) } else { ("[NAME]", key) };
    let mut definition = resolved(defs, key);
    // A value with another form for what is not text.
    if definition["description"].as_str().is_some_and(|text| !text.ends_with('.')) {
        return None;
    }
    if let Some(forms) = definition["anyOf"].as_array().or(definition["oneOf"].as_array()) {
        definition = forms.iter().map(|form| resolved(defs, form)).find(|form| form["properties"].is_object())?;
    }
    Some((brackets, definition["properties"].as_object()?))
}

fn resolved<'s>(defs: &'s Value, key: &'s Value) -> &'s Value {
    let name = key["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/"));
    name.map_or(key, |name| &defs[name])
}

fn keys<'s>(text: &mut String, defs: &Value, keys: impl Iterator<Item = (&'s String, &'s Value)>) {
    for (name, key) in keys {
        let description = sentence(key["description"].as_str().unwrap_or(""));
        *text +=
            &format!(".TP\n\\fB{}\\fR = {}\n{}\n", escaped(name), escaped(&kind(defs, key)), escaped(&description));
    }
}

/// What a value looks like.
fn kind(defs: &Value, key: &Value) -> String {
    let definition = resolved(defs, key);
    if key["type"] == "array" {
        return format!("[{}, …]", kind(defs, &key["items"]));
    }
    if let Some(words) = definition["enum"].as_array() {
        return words.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
    }
    let forms = definition["anyOf"].as_array().or(definition["oneOf"].as_array());
    if let (true, Some(forms)) = (definition["description"].as_str().is_none_or(|text| text.ends_with('.')), forms) {
        let mut kinds: Vec<_> = forms
            .iter()
            .map(|form| form["const"].as_str().map_or_else(|| kind(defs, form), |word| format!("\"{word}\"")))
            .collect();
        kinds.dedup();
        return kinds.join(" or ");
    }
    match (definition["description"].as_str(), definition["type"].as_str()) {
        (Some(text), _) if !text.ends_with('.') && !std::ptr::eq(definition, key) => text.to_owned(),
        (_, Some("boolean")) => "true or false".to_owned(),
        (_, Some("object")) => "a table".to_owned(),
        (_, Some(name)) => format!("a{} {name}", if name.starts_with(['a', 'i', 'o']) { "n" } else { "" }),
        _ => "a value".to_owned(),
    }
}

/// A description without the marks of Markdown.
fn sentence(text: &str) -> String {
    text.replace('`', "")
}

#[test]
fn every_example_is_a_command_line() {
    for (_, command) in MORE.iter().flat_map(|more| more.examples) {
        let words: Vec<OsString> = command.split(' ').skip(1).map(Into::into).collect();
        Args::read(&STOCKADE, Dialect::Stockade, &words).1.unwrap_or_else(|error| panic!("{command}: {error:?}"));
    }
}
