//! What `stockade` and `stockade run` print when they are called without a word: the least that helps.

const STOCKADE: &str = "\
Usage: stockade VERB ...

  stockade run -- COMMAND      run a command in a sandbox
  stockade plan -- COMMAND     print what a run would do
  stockade doctor              test what this host can enforce
  stockade run -d --name box   make a session, for stockade exec box -- COMMAND

`stockade --help` lists all verbs, `stockade man run` shows a page of the manual.
";

const RUN: &str = "\
Usage: stockade run [OPTIONS] [--] COMMAND [ARG]...

  stockade run ls -la /                            no network, no files of yours
  stockade run --workspace . -- make test          the current directory, read-write, at /workspace
  stockade run --ro . -w . -it bash                the current directory, read-only, and a terminal
  stockade run -m 512M --timeout 30s -- ./program  limits of the whole process tree

`stockade run --help` lists the options.
";

/// The short usage for a verb that was called without any word.
pub fn short(verb: &str) -> Option<&'static str> {
    match verb {
        "" => Some(STOCKADE),
        "run" => Some(RUN),
        _ => None,
    }
}
