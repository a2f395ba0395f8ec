//! One system call of one process that fails, by `tests/inject`; and what a workload says of its confinement, which must then
//! be what it was.

use std::path::Path;

use super::host::is_uml;
use super::{PYTHON, skip};

/// What calls fail with, in turn.
pub const ERRORS: [&str; 7] = ["ENOMEM", "EMFILE", "EPERM", "EINTR", "ENOSPC", "EAGAIN", "EIO"];

/// The number of `write(2)`.
pub const WRITE: &str = "1";

/// The number of `execve(2)`.
pub const EXECVE: &str = "59";

/// The number of `clone3(2)`.
pub const CLONE3: &str = "435";

/// The number of `unshare(2)`.
pub const UNSHARE: &str = "272";

/// The number of `setns(2)`.
pub const SETNS: &str = "308";

/// The number of `clock_nanosleep(2)`.
pub const CLOCK_NANOSLEEP: &str = "230";

/// The number of `ioctl(2)`.
pub const IOCTL: &str = "16";

/// The number of `capget(2)`.
pub const CAPGET: &str = "125";

/// A system call: of which process, its number, and which of that number it is.
pub type Call = [String; 3];

/// Whether calls can be made to fail here.
pub fn may_inject() -> bool {
    let slow = "a User-Mode kernel traces its processes itself, and takes minutes for this";
    match (is_uml(), cfg!(target_arch = "x86_64")) {
        (true, _) => skip(slow),
        (_, false) => skip("tests/inject knows the registers of x86_64 alone"),
        _ => return true,
    }
    false
}

/// The words in front of a command by which a call of it fails, or by which its calls are listed in a file.
pub fn words<S: AsRef<str>>(what: &[S]) -> Vec<String> {
    // Whoever runs it may not reach a checkout in somebody's home. It must not outlive its time, as nothing it traces must.
    let tool = ["timeout", "-s", "KILL", "120", PYTHON, "-IS", "-c", include_str!("../inject")];
    let all = tool.into_iter().chain(what.iter().map(AsRef::as_ref)).chain(["--"]);
    all.map(str::to_owned).collect()
}

/// The calls that were listed.
pub fn listed(path: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(path).unwrap();
    let call = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    text.lines().map(call).collect()
}

/// As many as there is time for, always the same ones, with what they fail with; all of them with `STOCKADE_SWEEP=all`.
pub fn some(calls: Vec<Call>, most: usize) -> Vec<(Call, &'static str)> {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    few(calls, if all { usize::MAX } else { most })
}

/// As [`some`], however many could be tried.
pub fn few(calls: Vec<Call>, most: usize) -> Vec<(Call, &'static str)> {
    let every = calls.len().div_ceil(most).max(1);
    eprintln!("{} calls, of which every {every}. is tried", calls.len());
    let errors = ERRORS.iter().cycle();
    calls.into_iter().step_by(every).zip(errors).map(|(call, error)| (call, *error)).collect()
}

/// A script that tells everything the kernel lets a workload see of what confines it. `tools` comes in front of each program;
/// `writable` is a directory that Landlock lets be written to, and `mounted` one that it does not.
pub fn confined(tools: &str, writable: &str, mounted: &str) -> String {
    // Said all at once: half of it would look like less confinement.
    format!(
        "said=$({{
        {tools} grep -E '^(Umask|Uid|Gid|Groups|Sig...|ShdPnd|Cap...|NoNewPrivs|Seccomp|Seccomp_filters):' /proc/self/status
        {tools} cut -d' ' -f4- /proc/self/mountinfo
        for name in cgroup ipc mnt net pid time user uts; do echo \"namespace $name $({tools} readlink /proc/self/ns/$name)\"; done
        {tools} cat /proc/self/limits /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups /proc/self/oom_score_adj
        {tools} cut -d: -f2- /proc/self/cgroup | {tools} sort
        [ \"$({tools} cut -d' ' -f6 /proc/self/stat)\" = $$ ] && echo a session of its own
        {tools} cut -d' ' -f7 /proc/self/stat; {tools} hostname; pwd; echo /* /dev/* /proc/self/fd/*
        {tools} grep -c 127.0.0.1 /proc/net/fib_trie; {tools} ls /proc/1/fd >/dev/null 2>&1 && echo reads pid 1
        for place in {mounted} {writable} /usr; do {tools} touch $place/touched && echo touched $place; done
        }} 2>&1); echo \"$said\"; echo whole"
    )
}

/// What [`confined`] said, without what differs from run to run: numbers of users, and of namespaces that are not the host's.
pub fn normal(said: &str) -> Vec<String> {
    let line = |line: &str| {
        if let Some(rest) = line.strip_prefix("namespace ") {
            let (name, found) = rest.split_once(' ').unwrap_or((rest, ""));
            let own = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap_or_default();
            let whose = if own.to_str() == Some(found) { "the host's" } else { "its own" };
            return format!("namespace {name} {whose}");
        }
        let mut plain = String::new();
        for (at, word) in line.split_inclusive([' ', ',', '/']).enumerate() {
            let of_user = ["uid=", "gid="].iter().find(|name| word.starts_with(**name));
            let number = word.trim_end().len() >= 8 && word.trim_end().bytes().all(|byte| byte.is_ascii_digit());
            match of_user {
                Some(name) => plain.push_str(name),
                None if number && at > 0 => plain.push('N'),
                None if word.starts_with("stkt-") => plain.push('N'),
                None => plain.push_str(word),
            }
        }
        plain
    };
    said.lines().map(line).collect()
}

/// Fails unless a workload that said anything was confined as it is when nothing fails.
#[track_caller]
pub fn assert_whole(said: &str, plain: &[String], fault: &str) {
    let said = normal(said);
    if plain.starts_with(&said) {
        return; // all of it, or as much as it could say
    }
    let lost: Vec<_> = plain.iter().filter(|line| !said.contains(line)).collect();
    let new: Vec<_> = said.iter().filter(|line| !plain.contains(line)).collect();
    panic!("{fault}: without {lost:#?}\nbut with {new:#?}");
}
