use std::ffi::OsString;

use super::*;

static PROGRAM: Verb = verb("program", "A program")
    .options(&[("Options", &[value("log", "FILE", "Log to FILE"), switch("debug", "")])])
    .verbs(&[
        verb("run", "Run a command").more(MORE).options(RUN).operands(&[Operand::Command("COMMAND")]),
        verb("exec", "").options(RUN).operands(&[Operand::Word("ID", ""), Operand::Command("COMMAND")]),
        verb("sum", "").operands(&[Operand::Word("NAME", "A name"), Operand::Numbers("N", "Numbers", 2)]),
        verb("rm", "").operands(&[Operand::Words("ID", "Their ids")]),
        verb("shell", "").operands(&[Operand::Choice("SHELL", "", &["bash", "zsh"])]),
    ]);

const MORE: &str = "A text that is longer than one line of the help can be, so that it is wrapped at a blank before that \
                    width is reached.";

const RUN: &[(&str, &[Flag])] = &[(
    "Limits",
    &[
        value("memory", "SIZE", "Memory limit").short('m'),
        switch("tty", "A terminal").short('t'),
        switch("interactive", "").short('i'),
        list("env", "NAME=VALUE", "A variable").short('e'),
    ],
)];

/// The verb, options and words, and the object of the error.
fn read(dialect: Dialect, line: &str) -> (String, Vec<String>, Vec<OsString>, Option<String>) {
    let words: Vec<OsString> = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
    let (args, result) = Args::read(&PROGRAM, dialect, &words);
    let names = ["log", "debug", "memory", "tty", "interactive", "env"];
    let given =
        |name: &'static str| args.all(name).map(move |value| format!("{name}={}", value.display())).collect::<Vec<_>>();
    let options = names.into_iter().flat_map(given).collect();
    (args.name(), options, args.words, result.err().map(|error| error.object))
}

#[test]
fn a_commands_own_options_are_not_read() {
    let (verb, options, words, error) =
        read(Dialect::Stockade, "run -it -m1G -e A=-x -e -b --memory=2 -m=3 --memory 4 cmd -m 5 --env 4 -- x");
    assert_eq!((verb.as_str(), error), ("run", None));
    assert_eq!(
        options,
        ["memory=1G", "memory=2", "memory=3", "memory=4", "tty=", "interactive=", "env=A=-x", "env=-b"]
    );
    assert_eq!(words, ["cmd", "-m", "5", "--env", "4", "--", "x"]);
    assert_eq!(read(Dialect::Stockade, "run -t -- -m x").2, ["-m", "x"]);
    assert_eq!(read(Dialect::Stockade, "run -").2, ["-"]);
    let (_, options, words, _) = read(Dialect::Oci, "exec -t id ls -t --log=/x");
    assert_eq!((options, words.len()), (vec!["tty=".to_owned()], 4));
}

#[test]
fn other_options_may_follow_words() {
    let (_, options, words, error) = read(Dialect::Oci, "-debug=1 exec -memory 1 --tty=false --log /l -i id sh");
    assert_eq!(options, ["log=/l", "debug=", "memory=1", "interactive="]);
    assert_eq!((words.len(), error), (2, None));
    assert_eq!(read(Dialect::Stockade, "sum x -1 2").2, ["x", "-1", "2"]);
    assert_eq!(read(Dialect::Stockade, "sum x -y").3.as_deref(), Some("-y"));
}

#[test]
fn wrong_words_are_named_and_reading_goes_on() {
    for (line, object) in [
        ("run --bogus", "--bogus"),
        ("run --bogus=3", "--bogus"),
        ("run -tx", "-x"),
        ("run -m", "--memory"),
        ("run --memory", "--memory"),
        ("run --tty=1", "--tty"),
        ("run --mem 1G", "--mem"),
        ("run --=x", "--"),
        ("run --log x", "--log"),
        ("--memory 1 run", "--memory"),
        ("rum", "rum"),
        ("", ""),
        ("sum", "NAME"),
        ("sum a 1 2 3", "3"),
        ("shell", "SHELL"),
        ("shell csh", "SHELL"),
    ] {
        assert_eq!(read(Dialect::Stockade, line).3.as_deref(), Some(object), "{line}");
    }
    let (_, options, _, error) = read(Dialect::Stockade, "run --bogus -z --env a cmd --env not-mine");
    assert_eq!((options, error.as_deref()), (vec!["env=a".to_owned()], Some("--bogus")));
}

#[test]
fn help_lists_what_there_is_in_short_lines() {
    let text = help("program run", &PROGRAM.verbs[0]);
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    for part in [
        "Usage: program run [OPTIONS] [--] COMMAND [ARG]...\n",
        "width is reached.\n",
        "\nLimits:\n  -m, --memory <SIZE>       ",
        "  -e, --env <NAME=VALUE>...  A variable\n",
        "\nOptions:\n  -h, --help  Print help\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let text = help("program", &PROGRAM);
    assert!(text.contains("\nVerbs:\n  run    Run a command\n"), "{text}");
}
