//! Makes one system call of one process fail, with `tests/inject`. The workload prints its confinement, which must be the same as
//! without the fault.

use std::path::Path;

use super::host::is_uml;
use super::{PYTHON, skip};

/// The errors that calls fail with, in turn.
pub const ERRORS: [&str; 7] = ["ENOMEM", "EMFILE", "EPERM", "EINTR", "ENOSPC", "EAGAIN", "EIO"];

/// The number of `read(2)`.
pub const READ: &str = "0";

/// The number of `recvfrom(2)`.
pub const RECVFROM: &str = "45";

/// The number of `recvmsg(2)`.
pub const RECVMSG: &str = "47";

/// The number of `write(2)`.
pub const WRITE: &str = "1";

/// The number of `execve(2)`.
pub const EXECVE: &str = "59";

/// The number of `clone(2)`.
pub const CLONE: &str = "56";

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

/// What `tests/inject` says if the process did not make the call.
pub const NOT_MADE: &str = "tests/inject: the call was not made";

/// A system call: the index of its process, its number, and its count among calls of that number.
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

/// The words in front of a command that make one of its calls fail, or list its calls in a file.
pub fn words<S: AsRef<str>>(what: &[S]) -> Vec<String> {
    // The tool is passed as text: the caller may be unable to read the checkout. Neither it nor anything that it traces may
    // outlive the limit.
    let tool = ["timeout", "-s", "KILL", "120", PYTHON, "-IS", "-c", include_str!("../inject")];
    let all = tool.into_iter().chain(what.iter().map(AsRef::as_ref)).chain(["--"]);
    all.map(str::to_owned).collect()
}

/// Reads a list of calls.
pub fn listed(path: &Path) -> Vec<Call> {
    let text = std::fs::read_to_string(path).unwrap();
    let call = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    text.lines().map(call).collect()
}

/// As many calls as time allows, always the same ones, with the errors; all of them with `STOCKADE_SWEEP=all`.
pub fn some(calls: Vec<Call>, most: usize) -> Vec<(Call, &'static str)> {
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    few(calls, if all { usize::MAX } else { most })
}

/// As [`some`], but never more than `most`.
pub fn few(calls: Vec<Call>, most: usize) -> Vec<(Call, &'static str)> {
    let every = calls.len().div_ceil(most).max(1);
    eprintln!("{} calls, of which every {every}. is tried", calls.len());
    let errors = ERRORS.iter().cycle();
    calls.into_iter().step_by(every).zip(errors).map(|(call, error)| (call, *error)).collect()
}

/// A script that prints everything that the kernel shows a workload about its confinement. `tools` comes in front of each
/// program; Landlock allows writing to `writable`, and not to `mounted`.
pub fn confined(tools: &str, writable: &str, mounted: &str) -> String {
    // Printed at once: half of it would look like less confinement.
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

/// The output of [`confined`] without values that differ between runs: user counts, and namespaces that are not the host's.
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

/// Fails if a workload printed a confinement that differs from that without a fault.
#[track_caller]
pub fn assert_whole(said: &str, plain: &[String], fault: &str) {
    // Output that was cut off may end within a line.
    let said = normal(&said[..said.rfind('\n').map_or(0, |end| end + 1)]);
    if plain.starts_with(&said) {
        return; // complete, or cut off
    }
    let lost: Vec<_> = plain.iter().filter(|line| !said.contains(line)).collect();
    let new: Vec<_> = said.iter().filter(|line| !plain.contains(line)).collect();
    panic!("{fault}: without {lost:#?}\nbut with {new:#?}");
}
