//! The command line of `stockade`, as a table.

mod exec;
mod foreign;
mod learn;
mod network;
mod why;

use self::exec::EXEC;
use crate::args::{Flag, Operand, Verb, list, switch, value, verb};

/// The program, with its verbs in the order of the help.
pub static STOCKADE: Verb = verb("stockade", "Run untrusted programs in a sandbox, with limits and a report of what they used")
    .options(&[("Options", &[switch("version", "Print version").short('V')])])
    .verbs(&[
        verb("run", "Run a command in a sandbox")
            .more(
                "The sandbox has namespaces of its own, a read-only view of the host's /usr, no network but its own loopback, no capabilities and no \
                 files of the caller's home. The exit code is the command's own; 128+N if signal N ended it; 124 if it \
                 reached a time limit; 125 if stockade could not start it; 126 if it was found but could not be executed; 127 \
                 if it was not found. Sizes are bytes, or K, M, G, T in powers of 1024, such as 1.5G. Times are 500ms, 30s, 5m, 1h30m or plain \
                 seconds.",
            )
            .options(RUN)
            .foreign(foreign::RUN)
            .operands(COMMAND),
        verb("exec", "Run a command in a session")
            .more(
                "The command has the confinement of a run, and a cgroup, deadlines, streams and a report of its own. Its exit \
                 codes are those of run. It dies with its whole process tree if this program does, unless -d detaches it.",
            )
            .options(EXEC)
            .foreign(foreign::EXEC)
            .operands(&[SESSION, Operand::Command("COMMAND")]),
        verb("ps", "List the sessions of this user").options(&[(
            "Options",
            &[
                switch("json", "Print one line of JSON per session"),
                switch("quiet", "Print only names").short('q'),
                switch("all", "Accepted as in docker ps: sessions that have ended are always listed").short('a'),
            ],
        )]),
        verb("inspect", "Print the plan, usage and commands of a session, as JSON").operands(&[SESSION]),
        verb("logs", "Print what the command of a session printed")
            .more("The last MiB of each stream is kept until rm. The command is the one that run -d was given.")
            .options(&[("Options", &[switch("follow", "Continue until the command ends").short('f')])])
            .operands(&[SESSION]),
        verb("attach", "Print what the command of a session prints from now on")
            .more(
                "Passes signals on, and exits with the command's exit code. The second SIGINT, or SIGHUP, ends this program and not the \
                 command.",
            )
            .operands(&[SESSION]),
        verb("cp", "Copy files between the host and a session")
            .more(
                "What lands where is as with docker cp: a directory is copied into one that exists, and SRC/. is its content. Modes and \
                 times are kept, but not owners and set-user-id bits. Symlinks are copied as such. FIFOs, sockets and devices are left \
                 out with a warning. Exits with 1 if a file became shorter while it was copied.",
            )
            .options(&[("Options", &[switch("follow-link", "Copy what SRC points to, if it is a symlink").short('L')])])
            .operands(&[
                Operand::Word("SRC", "SESSION:PATH, a path, or - for an archive of tar on standard input"),
                Operand::Word("DST", "SESSION:PATH, a path, or - for an archive of tar on standard output"),
            ]),
        verb("wait", "Wait until sessions end, and print their exit codes").operands(&[SESSIONS]),
        verb("stop", "End sessions: SIGTERM to their commands, and SIGKILL to what is left")
            .options(&[("Options", &[value("time", "TIME", "Time between the two, 10s by default").short('t')])])
            .operands(&[SESSIONS]),
        verb("kill", "Send a signal to the command of a session, or to another one of its commands")
            .more("With SIGKILL and without --command, the whole session ends at once.")
            .options(&[(
                "Options",
                &[
                    value("signal", "SIGNAL", "The signal, KILL by default").short('s'),
                    value("command", "ID", "A command, such as c1, or all"),
                ],
            )])
            .operands(&[SESSIONS]),
        verb("pause", "Stop all processes of sessions").operands(&[SESSIONS]),
        verb("unpause", "Let the processes of paused sessions continue").operands(&[SESSIONS]),
        verb("net", "Change the hosts that a session may reach, and show what it reached").verbs(&[
            verb("allow", "Allow hosts")
                .more("The rule is as for run --allow-net. It also lifts a --deny-net of exactly this rule.")
                .operands(&[SESSION, RULE]),
            verb("deny", "Deny hosts, and end the connections to them")
                .more("The rule is as for run --deny-net, and wins over what is allowed.")
                .operands(&[SESSION, RULE]),
            verb("log", "Print the last thousand lines of the network log, as JSON")
                .options(&[("Options", &[switch("follow", "Continue until the session ends").short('f')])])
                .operands(&[SESSION]),
        ]),
        verb("rm", "Remove what is kept of sessions that have ended")
            .options(&[("Options", &[switch("force", "End those first that run").short('f')])])
            .operands(&[SESSIONS]),
        verb("plan", "Print what a run would do, without running it")
            .more("Takes the options of run. Writes no report and no line of an audit log.")
            .options(PLAN)
            .foreign(foreign::RUN)
            .operands(COMMAND),
        verb("why", "Say whether a run may read a path, reach a host or make a system call, and what decides that")
            .more(
                "Takes the options of run, and runs nothing. The answer is about the start of a run on this host. Exits with 0 if it is \
                 allowed, with 1 if it is refused, with 2 if that is not known before the run, and with 125 if such a run would \
                 be refused.",
            )
            .options(WHY)
            .foreign(foreign::RUN)
            .operands(why::QUESTION),
        verb("learn", "Run a command once, and write a narrow policy under which it ran")
            .more(
                "Takes the options of run: what they allow is the most that the policy allows. The paths that the command used are \
                 listed one by one; below /usr, /lib and the like, a directory stands for many. A program that is hostile while it \
                 is watched chooses what is learned: review the policy. Exits with 0 if the policy holds, with 1 if it does not or \
                 the command failed, and with 125 if no policy was written.",
            )
            .options(LEARN)
            .foreign(foreign::RUN)
            .operands(COMMAND),
        verb("doctor", "Test what this host can enforce")
            .more("Exits with 1 if this host cannot fully enforce a run with the default policy.")
            .options(&[("Options", &[switch("json", "Print the findings as JSON")])]),
        verb("top", "Show running sandboxes and their resource usage")
            .more(
                "Reads the cgroups of every user's sandboxes, once per interval, until it is stopped. CPU% is relative to one \
                 CPU, since the last sample; in the first sample, since the sandbox was started. A sandbox without a cgroup is \
                 not shown: it has no limits, or the host could not enforce them.",
            )
            .options(&[(
                "Options",
                &[
                    value("interval", "TIME", "Time between samples, 1s by default"),
                    switch("once", "Print one sample and exit"),
                    switch("json", "Print one line of JSON per sample"),
                ],
            )]),
        verb("gc", "Remove what killed supervisors left behind").more(
            "When a supervisor is killed with SIGKILL, its sandbox dies with it, but its cgroup remains, and the scratch directory \
             of a run without namespaces. gc removes those that stockade made for this user and whose supervisor is dead, in \
             the places where a run started from here would make them, and the directories of this user's sessions whose supervisor is dead. Prints what it removed. Exits with 1 if it could not remove one.",
        ),
        verb("audit", "Verify an audit log").verbs(&[verb("verify", "Verify the hash chain of an audit log")
            .more(
                "The log is the one that `run --audit FILE` appends to. If it is intact, prints a summary and exits with 0. If \
                 not, prints the number of the first line that breaks it and exits with 1.",
            )
            .options(&[(
                "Options",
                &[value("head", "SHA256", "A head that was printed earlier; it must still be in the chain")],
            )])
            .operands(&[Operand::Word("FILE", "The log")])]),
        verb("completions", "Print the completions for a shell")
            .operands(&[Operand::Choice("SHELL", "The shell", &["bash", "zsh", "fish"])]),
        verb("man", "Show a page of the manual, or write all pages to a directory").operands(&[
            Operand::Optional("VERB|DIR", "The verb whose page is shown, or the directory to write the pages to"),
            Operand::Optional("VERB", "The verb below it, as in net allow"),
        ]),
        verb("seccomp", "Check, compile and explain seccomp profiles").verbs(SECCOMP),
    ]);

const SESSION: Operand = Operand::Word("SESSION", "Its name");
const SESSIONS: Operand = Operand::Words("SESSION", "Names of one or more sessions");
const RULE: Operand = Operand::Word("RULE", "Hosts with ports, such as api.example.com or *.example.com:443");

const COMMAND: &[Operand] = &[Operand::Command("COMMAND")];

const SECCOMP: &[Verb] = &[
    verb("check", "Print the errors and dangerous rules of a profile")
        .options(&[(
            "Options",
            &[switch("strict", "Exit with 1 if there is any warning"), ALLOW, CAP, FILTER, NO_NETWORK],
        )])
        .operands(&[PROFILE]),
    verb("compile", "Compile a profile to BPF, for --seccomp-bpf")
        .options(&[(
            "Options",
            &[
                value("output", "FILE", "Write the program to FILE; required").short('o'),
                ALLOW,
                CAP,
                FILTER,
                NO_NETWORK,
            ],
        )])
        .operands(&[PROFILE]),
    verb("dump", "Print the BPF program of a profile, or a compiled program, as text")
        .options(&[("Options", &[ALLOW, CAP, FILTER, NO_NETWORK])])
        .operands(&[PROFILE]),
    verb("explain", "Print the rule that decides a system call")
        .options(&[("Options", &[ALLOW, CAP, FILTER, NO_NETWORK])])
        .operands(&[
            PROFILE,
            Operand::Word("SYSCALL", "Its name or number"),
            Operand::Numbers("ARG", "Its arguments as numbers; without arguments, all rules for the call are shown", 6),
        ]),
];

const PROFILE: Operand =
    Operand::Word("NAME|FILE", "A profile: default, strict, docker, or a file of JSON (with a slash in it or .json)");
const ALLOW: Flag = list("allow", "GROUP", "Allow this group of calls too, as --seccomp-allow of run does");
const CAP: Flag = list("cap", "CAP", "Assume that the workload keeps this capability: rules can depend on it");
const FILTER: Flag = value("filter", "NAME", "The filter of a seccompiler file that has several");
const NO_NETWORK: Flag = switch("no-network", "Assume that the run has --network none");

/// `run` has all groups of `plan` but the last: one table, so that the two cannot differ.
const RUN: &[(&str, &[Flag])] = PLAN.split_at(PLAN.len() - 1).0;

/// The options of `why`.
const WHY: &[(&str, &[Flag])] = &why::options::<{ PLAN.len() }>(PLAN, why::OUTPUT);

/// The options of `learn`.
const LEARN: &[(&str, &[Flag])] = &why::options::<{ PLAN.len() }>(PLAN, learn::OUTPUT);

/// The options of `plan`.
const PLAN: &[(&str, &[Flag])] = &[
    (
        "Policy",
        &[
            list(
                "profile",
                "NAME|FILE",
                "Add a policy: default, strict, build, or a file (with a slash or .toml in its name)",
            )
            .short('p'),
            list("allow-degraded", "NAME", "Run even if this host cannot enforce NAME"),
        ],
    ),
    (
        "Files",
        &[
            list("volume", "SRC[:DST][:OPTIONS]", "Mount SRC at DST: ro or rw (default), noexec, optional").short('v'),
            list(
                "mount",
                "type=TYPE,…",
                "Mount with these keys: type=bind|tmpfs, source, destination, readonly, noexec, optional, size, nr_inodes, mode",
            ),
            list("tmpfs", "DST[:OPTIONS]", "Mount a new tmpfs at DST: size=, nr_inodes=, mode=, exec, ro"),
            list("ro", "PATH", "Mount PATH read-only at the same path"),
            list("rw", "PATH", "Mount PATH read-write at the same path"),
            value("workspace", "DIR", "Mount DIR read-write at /workspace, the working directory"),
            value("rootfs", "DIR", "Use DIR, read-only, as the root, instead of the view of the host"),
            switch("follow", "Follow symlinks in these host paths even if other users could have made them"),
            list("toolchain", "NAME", "Show python, node, rust, java, go, or auto for all, where PATH has them"),
            list("device", "PATH", "Provide this device node of the host"),
            switch("sysfs", "Mount the host's /sys read-only"),
            value("scratch-size", "SIZE", "Size limit of /tmp, the home and /dev/shm together"),
            value("scratch-inodes", "N", "Limit on the number of files there"),
        ],
    ),
    (
        "Environment",
        &[
            list("env", "NAME[=VALUE]", "Set a variable, or pass the caller's value").short('e'),
            list("env-file", "FILE", "Read variables from FILE, one a line"),
            switch("keep-env", "Pass the caller's environment, without variables that make programs load code"),
            value("workdir", "DIR", "Working directory in the sandbox, or a relative path of the host that it shows")
                .short('w'),
            value("umask", "MODE", "File mode creation mask, octal"),
        ],
    ),
    (
        "User and privileges",
        &[
            value("user", "UID[:GID]|root|sandbox|nobody", "User of the command in the sandbox").short('u'),
            value("host-user", "UID[:GID]", "User of the command on the host (needs root)"),
            switch("subuid", "Map the caller's subordinate ids with newuidmap"),
            list("cap-add", "CAP", "Keep a capability inside the user namespace"),
            list("cap-drop", "CAP", "Drop a capability that a policy keeps; ALL drops every one"),
        ],
    ),
    (
        "Isolation",
        &[
            value(
                "network",
                "none|loopback|egress|host",
                "Sockets of TCP and UDP: none, in the sandbox (default), to hosts of --allow-net, or on the host's network",
            ),
            value("hostname", "NAME", "Host name in the sandbox"),
            value("name", "NAME", "Name of the sandbox"),
            list("label", "NAME[=VALUE]", "Label of the sandbox, for its report, its audit line, ps and top"),
            switch("time-namespace", "Start the monotonic and boot clocks at zero"),
            switch("no-init", "Run the command as pid 1, without an init"),
        ],
    ),
    network::OPTIONS,
    (
        "System calls",
        &[
            value(
                "seccomp",
                "FILE|default|strict|docker|unconfined",
                "Filter system calls with this profile; a FILE is OCI or seccompiler JSON",
            ),
            value("seccomp-bpf", "FILE", "Filter system calls with this compiled program"),
            list(
                "seccomp-allow",
                "GROUP",
                "Allow these calls too: debug, sysv, aio, splice, nested, setuid-bits or nettools",
            ),
            switch("seccomp-strict", "Refuse a profile that has warnings"),
            list("security-opt", "seccomp=FILE|no-new-privileges", "The same, in docker's syntax"),
        ],
    ),
    (
        "Paths and ports",
        &[
            list("allow-read", "PATH[:optional]", "Allow reading only below these paths (and /proc and /dev)"),
            list("allow-write", "PATH[:optional]", "Allow writing only below these paths"),
            list(
                "allow-exec",
                "PATH[:optional]",
                "Allow execution only below these paths, and never on writable mounts",
            ),
            list("allow-connect", "PORT", "Allow TCP connections only to these ports"),
            list("allow-bind", "PORT", "Allow binding only these TCP ports"),
            value(
                "landlock",
                "require|auto|off",
                "Landlock enforces these rules: refuse to run without it, use it if possible, or do not use it",
            ),
            value("landlock-abi", "N", "Refuse to run with an older Landlock ABI than N"),
        ],
    ),
    (
        "Limits",
        &[
            value("memory", "SIZE", "Memory limit of the whole process tree, or unlimited").short('m'),
            value("memory-high", "SIZE|PERCENT%", "Memory usage above which the tree is slowed down"),
            value("swap", "SIZE", "Swap limit of the tree; with a memory limit the default is no swap"),
            value("cpus", "N", "CPU limit of the tree, such as 0.5, or unlimited"),
            value("cpu-weight", "N", "Share of the CPUs, 1 to 10000; the default of a cgroup is 100"),
            value("cpuset-cpus", "LIST", "CPUs that the tree may use, such as 0-3,7"),
            value("cpuset-mems", "LIST", "NUMA nodes that the tree may use"),
            value("pids-limit", "N", "Limit on processes and threads of the tree, or unlimited"),
            switch("require-budget", "Refuse the run if a limit of the policy cannot be enforced for the whole tree"),
            list("io-max", "DEV:KEY=N,…", "Limit on disk traffic: rbps, wbps (bytes/s), riops, wiops (per second)"),
            value("io-weight", "N", "Share of the disks, 1 to 10000; the default of a cgroup is 100"),
            list("hugetlb", "SIZE=LIMIT", "Limit on huge pages of this size, such as 2M=64M"),
            list("cgroup-set", "FILE=VALUE", "Any other file of a cgroup v2 controller, such as memory.low=64M"),
            list("ulimit", "NAME=SOFT[:HARD]", "Resource limit of each process"),
            value("timeout", "TIME", "End the run after this wall-clock time, such as 30s"),
            value("cpu-time", "TIME", "End the run after this CPU time of the tree"),
            value("idle-timeout", "TIME", "End the run after this time without output"),
            value("kill-after", "TIME", "Time between the first signal and SIGKILL"),
            value(
                "oom-score-adj",
                "N",
                "Preference of the OOM killer for the tree, -1000 to 1000: high values are killed first",
            ),
        ],
    ),
    (
        "Input, output and report",
        &[
            switch("interactive", "Pass standard input to the command").short('i'),
            switch("tty", "Give the command a terminal of its own").short('t'),
            value(
                "output-limit",
                "SIZE[,head|tail|kill]",
                "Limit on the output of each stream: keep the start or the end, or end the run",
            ),
            value(
                "report",
                "FILE|fd:N",
                "Write the report of the run to FILE or descriptor N, which the command cannot reach",
            ),
            value(
                "audit",
                "FILE",
                "Append a line about the run to this log, also if the run is refused; no bind mount may contain FILE",
            ),
            switch("audit-sync", "Sync that line to the disk before exiting"),
            switch("debug", "Print each step of the start to standard error as it happens"),
            switch("explain-denials", "List what the command was denied, by which rule, and what would allow it"),
            switch("summary", "Print status, time, CPU, memory and denials to standard error at the end"),
            switch("quiet", "Print neither warnings nor which limit was reached").short('q'),
            value(
                "stats",
                "TIME",
                "Write the resource usage as a line of JSON to the report's descriptor, at this interval",
            ),
        ],
    ),
    (
        "Session",
        &[
            switch("detach", "Make a session: a sandbox that stays, for exec. Prints its name when it is ready")
                .short('d'),
            value("lifetime", "TIME", "End the session after this time"),
            value("idle-stop", "TIME", "End the session when no command ran for this time"),
            value(
                "lease",
                "fd:N",
                "End the session or run at once when the other end of this pipe or socket is closed",
            ),
            switch("rm", "Keep nothing of the session when it has ended"),
        ],
    ),
    ("Output", &[switch("json", "Print the plan as JSON")]),
];
