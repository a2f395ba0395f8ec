//! Where people run stockade: in containers of podman, docker and Kubernetes, in a user namespace with one id, inside itself. A
//! run is refused there by the name of what is missing, and runs with that name; the report lists it.

use std::process::Command;

use serde_json::Value;

use crate::common::{Caller, for_each_caller, is_root, skip, skip_part};

pub const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/place");
const STOCKADE: &str = env!("CARGO_BIN_EXE_stockade");

/// Output of a command in a place.
pub struct Seen {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Seen {
    /// The report that the script printed last.
    #[track_caller]
    pub fn report(&self) -> Value {
        let begin = self.stdout.find("{\n").unwrap_or_else(|| panic!("no report: {}{}", self.stdout, self.stderr));
        serde_json::from_str(&self.stdout[begin..]).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// The name that the hint of a refusal gives to `--allow-degraded`.
    #[track_caller]
    pub fn hinted_flag(&self) -> String {
        // A warning may name such a flag too, also that of the place itself.
        let hint = self.stderr.rsplit("  hint: ").next().unwrap_or_default();
        let name = hint.split("--allow-degraded ").nth(1).and_then(|rest| rest.split_whitespace().next());
        name.unwrap_or_else(|| panic!("no flag is hinted at: {}", self.stderr)).to_owned()
    }

    /// What the report lists as missing, except budgets, which depend on the host.
    pub fn missing(&self) -> Vec<String> {
        let report = self.report();
        let listed = report["enforced"]["degraded"].as_array().unwrap_or_else(|| panic!("{report}")).clone();
        let mut names: Vec<_> = listed.iter().map(|one| one["what"].as_str().expect("a name").to_owned()).collect();
        names.retain(|name| name != "memory" && name != "pids");
        names.sort();
        names.dedup(); // `namespaces` has an entry for each
        names
    }
}

/// Runs a shell script in a place, with the program as `$S`. `None` if this machine cannot make the place, which is a skip.
pub fn in_place(place: &str, caller: Caller, script: &str) -> Option<Seen> {
    let mut words = caller.become_words();
    let script = format!("S={STOCKADE}; {script}"); // containers have an environment of their own
    words.extend([SCRIPT, place, "--", "sh", "-c", &script].map(str::to_owned));
    let output =
        Command::new(&words[0]).args(&words[1..]).env("STOCKADE", STOCKADE).output().expect("tests/place starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let seen =
        Seen { code: output.status.code().unwrap_or(-1), stdout: text(&output.stdout), stderr: text(&output.stderr) };
    let why = seen.stderr.lines().find_map(|line| line.strip_prefix("tests/place: "));
    if let Some(why) = why.filter(|_| seen.code == 125) {
        skip_part(place, why);
        return None;
    }
    Some(seen)
}

/// A script that runs stockade with these options and prints the report after the workload's output.
pub fn with_report(options: &str, command: &str) -> String {
    format!(
        "r=$(mktemp -u) && $S run --report $r {options} -- sh -c '{command}'; code=$?; cat $r 2>/dev/null; rm -f $r; exit $code"
    )
}

/// Every place, who calls there, and what is missing with `-p nested`, without and with a workspace of the caller's.
const PLACES: [(&str, Caller, &[&str], &[&str]); 7] = [
    ("unshare", Caller::Root, &["host-id"], &[]),
    ("unshare", Caller::Unprivileged, &["host-id"], &[]),
    ("itself", Caller::Root, &["keyring", "namespace-limits", "outer-proc"], &[]),
    ("podman", Caller::Root, &["hostname", "namespace-limits", "outer-proc"], &["idmap"]),
    ("docker-outer", Caller::Root, &["namespace-limits", "outer-proc"], &["idmap"]),
    ("docker-privileged", Caller::Root, &[], &["idmap"]),
    ("kubernetes", Caller::Root, &["namespace-limits", "outer-proc"], &[]),
];

fn for_each_place(body: impl Fn(&str, Caller, &[&str], &[&str])) {
    for (place, caller, missing, with_workspace) in PLACES {
        if caller == Caller::Root && !is_root() {
            skip_part(place, "takes root");
            continue;
        }
        eprintln!("--- {place} as {caller:?}");
        body(place, caller, missing, with_workspace);
    }
}

#[test]
fn every_place_runs_a_command_and_the_report_names_what_it_lacks() {
    for_each_place(|place, caller, missing, _| {
        let Some(seen) = in_place(place, caller, &with_report("-p nested", "echo ran; id -u")) else { return };
        assert!(seen.code == 0 && seen.stdout.starts_with("ran\n1000\n"), "{}{}", seen.stdout, seen.stderr);
        assert_eq!(seen.missing(), missing, "{}", seen.stderr);
        let enforced = &seen.report()["enforced"];
        assert_eq!(enforced["caps"], Value::Array(Vec::new()));
        assert!(enforced["landlock_abi"].is_u64() && enforced["seccomp"].is_object(), "{enforced}");
        for namespace in ["user", "mnt", "pid", "ipc", "uts", "cgroup", "net"] {
            let own = enforced["namespaces"].as_array().is_some_and(|all| all.iter().any(|one| one == namespace));
            assert!(own, "{namespace}: {enforced}");
        }
    });
}

#[test]
fn a_refusal_names_what_is_missing_and_the_flag_it_hints_at_works() {
    for_each_place(|place, caller, missing, _| {
        let mut flags: Vec<String> = Vec::new();
        for _ in 0..=missing.len() {
            let options: String = flags.iter().map(|name| format!(" --allow-degraded {name}")).collect();
            let Some(seen) = in_place(place, caller, &with_report(&options, "echo ran")) else { return };
            if seen.code == 0 {
                flags.sort();
                assert_eq!(flags, missing, "the flags of the hints are what is missing");
                assert_eq!(seen.missing(), missing);
                return;
            }
            assert!(seen.code == 125 && !seen.stdout.contains("ran\n"), "{}{}", seen.stdout, seen.stderr);
            flags.push(seen.hinted_flag());
        }
        panic!("still refused with {flags:?}");
    });
}

/// Root in a user namespace of one id may write cgroups of v1, and the workload then has that id: only the mounts keep it from
/// raising its own limits.
#[test]
fn the_cgroups_of_a_run_are_shown_read_only() {
    let script = "$S run -p nested -m 64M --allow-degraded memory -- grep /sys/fs/cgroup /proc/self/mountinfo";
    let Some(seen) = in_place_of_root("unshare", script) else { return };
    if seen.stdout.is_empty() {
        return skip("the caller can use no cgroup there");
    }
    let writable: Vec<_> = seen.stdout.lines().filter(|line| !line.contains(" ro,nosuid,nodev,noexec,")).collect();
    assert!(writable.is_empty(), "{writable:#?}");
}

/// An ordinary user who is root of a user namespace can use no cgroup: a default budget is left out by name, a requested one refused.
#[test]
fn root_of_a_user_namespace_is_told_of_budgets_that_it_cannot_have() {
    let run = |options: &str| {
        let script = format!("$S run -p nested {options} -- sh -c 'echo ran'");
        in_place("unshare", Caller::Unprivileged, &script).expect("a place that needs nothing")
    };
    let seen = run("");
    if seen.stderr.is_empty() {
        return skip("an unprivileged caller has a cgroup here");
    }
    assert!(seen.code == 0 && seen.stdout == "ran\n", "{}{}", seen.stdout, seen.stderr);
    assert!(seen.stderr.starts_with("stockade: warning: memory is not limited: "), "{}", seen.stderr);
    let seen = run("-m 64M --pids-limit 9");
    assert!(seen.code == 125 && seen.stdout.is_empty(), "{}{}", seen.stdout, seen.stderr);
    assert!(seen.stderr.contains("memory, pids budgets: cannot be enforced: "), "{}", seen.stderr);
    let seen = run("-m 64M --pids-limit 9 --allow-degraded memory --allow-degraded pids");
    assert!(seen.code == 0 && seen.stdout == "ran\n", "{}{}", seen.stdout, seen.stderr);
    assert!(seen.stderr.contains("RLIMIT_DATA 67108864 for each process"), "{}", seen.stderr);
}

#[test]
fn a_workspace_of_the_caller_is_written_to() {
    for_each_place(|place, caller, missing, with_workspace| {
        let write = with_report("-p nested --workspace $w", "echo hello >made && cat made");
        let script = format!("w=$(mktemp -d) && ({write}); code=$?; stat -c %u:%a $w $w/made; rm -r $w; exit $code");
        let Some(seen) = in_place(place, caller, &script) else { return };
        assert!(seen.code == 0 && seen.stdout.starts_with("hello\n"), "{}{}", seen.stdout, seen.stderr);
        let end = seen.stdout.rfind("}\n").expect("a report") + 2;
        let owners: Vec<_> =
            seen.stdout[end..].lines().map(|line| line.split(':').next().unwrap_or_default()).collect();
        assert!(owners.len() == 2 && owners[0] == owners[1], "the file is the caller's, as its directory: {owners:?}");
        let seen = Seen { stdout: seen.stdout[..end].to_owned(), ..seen };
        let mut expected: Vec<_> = [missing, with_workspace].concat();
        expected.sort_unstable();
        assert_eq!(seen.missing(), expected);
    });
}

#[test]
fn a_workspace_on_overlayfs_is_refused_by_name_without_the_flag() {
    let script = "w=$(mktemp -d); $S run --workspace $w -- touch made; echo $?; ls -A $w; \
                  $S run --allow-degraded idmap --workspace $w -- touch made; echo $?; ls -A $w";
    let Some(seen) = in_place_of_root("docker-privileged", script) else { return };
    assert_eq!(seen.stdout, "125\n0\nmade\n", "{}", seen.stderr);
    assert!(seen.stderr.contains("--allow-degraded idmap") && seen.stderr.contains("overlayfs"), "{}", seen.stderr);
}

fn in_place_of_root(place: &str, script: &str) -> Option<Seen> {
    if !is_root() {
        skip("containers take root");
        return None;
    }
    in_place(place, Caller::Root, script)
}

/// Landlock keeps the workload from the caller's processes, which it sees: nothing leads out of the sandbox.
#[test]
fn the_outer_proc_leads_into_no_process_outside() {
    let look = "for p in /proc/[0-9]*; do tr \"\\\\0\" \" \" <$p/cmdline | grep -q outsider && echo seen; \
                for way in environ root/etc/passwd cwd/. fd/0 mem maps auxv io ns/mnt exe stack syscall map_files/.; do \
                (cat $p/$way || ls $p/$way/) >/tmp/out 2>/dev/null && test -s /tmp/out && \
                ! grep -q SANDBOX_MARKER $p/environ 2>/dev/null && echo $p/$way; done; done; true";
    let outsider = "SECRET=1 sh -c 'sleep 30; echo outsider' </dev/null & sleep 0.2; ";
    let control = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q outsider && tr '\\0' '\\n' <$p/environ | grep SECRET; \
                   done | head -1; ";
    for place in ["podman", "docker-outer", "kubernetes"] {
        let options = "-p nested -e SANDBOX_MARKER=1 --allow-degraded memory";
        let script = format!("{outsider}{control}$S run {options} -- sh -c '{look}' | sort | uniq -c; kill %1");
        let Some(seen) = in_place_of_root(place, &script) else { continue };
        assert!(seen.stdout.contains("SECRET=1"), "outside it can be read: {}{}", seen.stdout, seen.stderr);
        let lines: Vec<_> = seen.stdout.lines().skip(1).collect();
        assert!(lines.len() == 1 && lines[0].ends_with("seen"), "{place}: {}{}", seen.stdout, seen.stderr);
    }
}

/// Without Landlock nothing would keep it from them. Then, and on a host, `/proc` shows no process.
#[test]
fn the_outer_proc_is_not_shown_without_landlock_nor_on_a_host() {
    let look = "ls /proc | grep -c \"^[0-9]\"; cat /proc/meminfo | head -1 | cut -d: -f1; echo >/proc/x";
    let script = with_report("-p nested --landlock off", look);
    if let Some(seen) = in_place_of_root("podman", &script) {
        assert!(seen.stdout.starts_with("0\nMemTotal\n"), "{}{}", seen.stdout, seen.stderr);
        assert!(seen.missing().contains(&"proc".to_owned()) && !seen.missing().contains(&"outer-proc".to_owned()));
        assert!(seen.stderr.contains("Read-only file system"), "{}", seen.stderr);
    }
    let refused = "$S run --allow-degraded outer-proc --allow-degraded hostname --allow-degraded namespace-limits --landlock off -- true";
    if let Some(seen) = in_place_of_root("podman", refused) {
        assert!(seen.code == 125 && seen.stderr.contains("mounting: /proc"), "{}", seen.stderr);
    }
    if std::fs::metadata("/proc/self/ns/pid").map(|pid| std::os::unix::fs::MetadataExt::ino(&pid)).ok()
        != Some(0xefff_fffc)
    {
        return skip_part("a host", "this is a container");
    }
    let covered =
        format!("mount --bind /dev/null /proc/version && {}", become_user(&script.replace(" --landlock off", "")));
    if !is_root() {
        return skip_part("a host", "takes root");
    }
    let words = ["-m", "--propagation", "private", "sh", "-c", &covered];
    let output = Command::new("unshare").args(words).env("S", STOCKADE).output().expect("unshare starts");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let seen = Seen { code: 0, stdout, stderr: String::from_utf8_lossy(&output.stderr).into_owned() };
    assert!(seen.stdout.starts_with("0\nMemTotal\n"), "{}{}", seen.stdout, seen.stderr);
    assert_eq!(seen.missing(), ["proc"]);
}

fn become_user(script: &str) -> String {
    let words = Caller::Unprivileged.become_words().join(" ");
    format!("{words} sh -c '{}'", script.replace('\'', "'\\''"))
}

/// `-p strict` asks for processes only: the caller's `/proc` shows the machine, and so is never shown.
#[test]
fn a_proc_of_processes_only_is_never_the_outer_one() {
    let script = with_report("-p strict -p nested", "ls -A /proc");
    let Some(seen) = in_place_of_root("podman", &script) else { return };
    let shown: Vec<_> = seen.stdout.lines().take_while(|line| *line != "{").collect();
    // Newer kernels make one that shows processes alone also where an engine covers parts of its own.
    let is_of_processes = |name: &&str| name.ends_with("self") || name.bytes().all(|byte| byte.is_ascii_digit());
    assert!(shown.iter().all(is_of_processes), "{}{}", seen.stdout, seen.stderr);
    assert_eq!(seen.missing().contains(&"proc".to_owned()), shown.is_empty(), "{}", seen.stdout);
}

#[test]
fn nothing_that_may_be_missing_is_missing_where_it_can_be_had() {
    for_each_caller(|caller| {
        let Some(seen) = in_place("here", caller, &with_report("-p nested", "echo ran")) else { return };
        assert!(seen.code == 0 && seen.missing().is_empty(), "{}{}", seen.stdout, seen.stderr);
    });
}

#[test]
fn the_doctors_first_line_says_which_runs_work() {
    let first = |place: &str, caller| {
        let seen = in_place(place, caller, "$S doctor | head -1; $S doctor --json | grep -A1 '\"mode\"'")?;
        Some(seen.stdout.lines().map(str::trim).collect::<Vec<_>>().join(" "))
    };
    for_each_place(|place, caller, missing, _| {
        let Some(line) = first(place, caller) else { return };
        let expected = match missing {
            [] => "Runs here: full, with every layer.".to_owned(),
            missing => format!("Runs here: nested, without {} (-p nested).", missing.join(", ")),
        };
        assert!(line.starts_with(&expected) && line.contains("\"mode\": {"), "{place}: {line}");
    });
    let line = first("no-namespaces", crate::common::callers()[0]).expect("a place that needs nothing");
    let can = crate::common::host::landlock_abi().0 >= 6;
    let expected = if can { "Runs here: no namespaces, with Landlock" } else { "Runs here: none (" };
    assert!(line.starts_with(expected), "{line}");
}
