//! The options of `exec`.

use crate::args::{Flag, list, switch, value};

/// The options of `exec`. Those that `run` has too mean the same.
pub const EXEC: &[(&str, &[Flag])] = &[
    (
        "Environment",
        &[
            list("env", "NAME[=VALUE]", "Set a variable, or pass the caller's value").short('e'),
            list("env-file", "FILE", "Read variables from FILE, one a line"),
            value("workdir", "DIR", "Working directory in the sandbox").short('w'),
            value("user", "UID[:GID]|NAME", "User of the command, among those that the session maps").short('u'),
            value("umask", "MODE", "File mode creation mask, octal"),
        ],
    ),
    (
        "Limits",
        &[
            value("memory", "SIZE", "Memory limit of the command's process tree").short('m'),
            value("cpus", "N", "CPU limit of the tree, such as 0.5"),
            value("pids-limit", "N", "Limit on processes and threads of the tree"),
            value("timeout", "TIME", "End the command after this wall-clock time, such as 30s"),
            value("cpu-time", "TIME", "End the command after this CPU time of the tree"),
            value("idle-timeout", "TIME", "End the command after this time without output"),
            value("kill-after", "TIME", "Time between the first signal and SIGKILL"),
        ],
    ),
    (
        "Input, output and report",
        &[
            switch("interactive", "Pass standard input to the command").short('i'),
            switch("tty", "Give the command a terminal of its own").short('t'),
            switch("detach", "Do not wait for the command, and print its id").short('d'),
            value(
                "output-limit",
                "SIZE[,head|tail|kill]",
                "Limit on the output of each stream: keep the start or the end, or end the command",
            ),
            value("report", "FILE|fd:N", "Write the report of the command to FILE or descriptor N"),
            switch("explain-denials", "List what the command was denied, by which rule, and what would allow it"),
            switch("summary", "Print status, time, CPU, memory and denials to standard error at the end"),
            switch("quiet", "Do not print which limit was reached").short('q'),
        ],
    ),
];
