//! Values as a policy writes them, in TOML.

use super::rules::{RulePath, Toolchain};
use super::ulimit::Ulimit;
use super::value::Limit;
use crate::error::printable;
use crate::plan::{Bytes, hex};

/// A basic string.
pub fn quoted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + 2);
    shown.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => shown.extend(['\\', c]),
            c if crate::error::is_deceptive(c) => shown.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown.push('"');
    shown
}

/// Bytes, as a string if they are text.
pub fn bytes(value: &Bytes) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => quoted(text),
        Err(_) => format!("{{ hex = \"{}\" }}", hex(value.as_bytes())),
    }
}

/// A key. One that is not UTF-8 cannot be written, and is shown.
pub fn key(name: &Bytes) -> String {
    quoted(&String::from_utf8_lossy(name.as_bytes()))
}

/// A path of a list of Landlock's.
pub fn rule(RulePath { path, optional }: &RulePath) -> String {
    let plain = path.0.as_bytes();
    match std::str::from_utf8(plain) {
        Ok(text) if !text.contains(':') => quoted(&format!("{text}{}", if *optional { ":optional" } else { "" })),
        _ => format!("{{ path = {}, optional = {optional} }}", bytes(&path.0)),
    }
}

/// A limit of each process.
pub fn ulimit(Ulimit { soft, hard, clamp }: &Ulimit) -> String {
    let bound = |bound: &Option<u64>| bound.map_or_else(|| quoted("unlimited"), |bound| bound.to_string());
    format!("{{ soft = {}, hard = {}, clamp = {clamp} }}", bound(soft), bound(hard))
}

/// Microseconds, of which every time in a policy has whole milliseconds.
pub fn duration(us: u64) -> String {
    quoted(&format!("{}ms", us / 1_000))
}

/// A number, or `unlimited`.
pub fn limit<T: Copy>(limit: Limit<T>, number: impl Fn(T) -> u64) -> String {
    limit.bound().map_or_else(|| quoted("unlimited"), |bound| number(bound).to_string())
}

/// The name of a toolchain.
pub fn toolchain(toolchain: Toolchain) -> &'static str {
    match toolchain {
        Toolchain::Python => "python",
        Toolchain::Node => "node",
        Toolchain::Rust => "rust",
        Toolchain::Java => "java",
        Toolchain::Go => "go",
        Toolchain::Auto => "auto",
    }
}

/// A comment cannot end its line.
pub fn one_line(text: &str) -> String {
    printable(&text.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::write::{Comments, text};
    use crate::policy::{load, parse};

    /// Every key, with values that need care.
    const ALL: &str = r#"
version = 1
rootfs = "/srv/root"
require_workspace = false
follow = true
sysfs = true
proc = "pids"
toolchains = ["python", "auto"]
devices = ["/dev/kvm"]
masked_paths = ["/proc/x\"y"]
readonly_paths = ["/proc/z"]
cwd = "/a b"
umask = "027"
hostname = "h"
time_namespace = true
init = false
oom_score_adj = -3
explain_denials = true
audit = "/var/log/x"
audit_sync = true
allow_degraded = ["proc"]
labels = { "a/b" = "c # d" }
ulimits = { nofile = { soft = 7, hard = "unlimited", clamp = true }, core = "1:2" }
[[mounts]]
source = { hex = "2f746d702fff" }
destination = "/x\\y"
optional = true
[[mounts]]
type = "tmpfs"
destination = "/t"
size = "3M"
mode = "0700"
[env]
set = { "A.B" = "\u0001\n", C = { hex = "ff" } }
pass = ["X_*"]
keep = true
[user]
name = "u"
uid = 5
gid = 6
home = "/h"
map = "host:7:8"
[capabilities]
add = ["CHOWN"]
[seccomp]
profile = "/etc/p.json"
allow = ["debug", "sysv"]
strict = true
[landlock]
mode = "auto"
minimum_abi = 3
read = ["/a", "/b:optional", { path = "/c:d", optional = false }]
write = []
execute = ["/usr/bin"]
connect = [80]
bind = [0]
[network]
allow = ["*.example.com:443", "[2001:db8::/32]:22"]
deny = ["bad.example.com"]
publish = ["[::1]:8080:80"]
hosts = ["a.example.com=192.0.2.1"]
dns = "192.0.2.2:53"
connections = 3
rate = "1M"
budget = "unlimited"
connect_timeout = "1500ms"
idle_timeout = "1h"
[budget]
memory = "1G"
memory_high = "90%"
swap = 0
cpus = 1.25
cpu_weight = 9
cpuset_cpus = "0-1"
cpuset_mems = "0"
pids = "unlimited"
io_max = ["/dev/sda:rbps=1048576,wiops=5"]
io_weight = 8
hugetlb = { "2M" = "64M" }
set = { "memory.low" = "64M" }
if_possible = ["memory"]
required = true
[scratch]
size = "9M"
inodes = 99
[deadlines]
timeout = "1m"
cpu_time = "2s"
idle_timeout = "unlimited"
kill_after = "250ms"
[stdio]
stdin = true
tty = true
output_limit = "1M"
output_keep = "tail"
"#;

    #[test]
    fn every_key_is_written_as_it_is_read() {
        let settings = load(&[], parse("all", ALL).unwrap(), None).unwrap().settings;
        let comments = Comments::from(
            ["landlock.read", "landlock.read:\"/a\"", "mounts:\"/t\"", "budget.memory"]
                .map(|key| (key.to_owned(), "two\nlines".to_owned())),
        );
        for comments in [BTreeMap::new(), comments] {
            let written = text(&settings, &comments);
            let again =
                load(&[], parse("written", &written).unwrap_or_else(|error| panic!("{error}\n{written}")), None);
            assert_eq!(again.unwrap().settings, settings, "{written}");
            assert_eq!(written.matches("# two lines").count(), comments.len(), "{written}");
        }
        let default = load(&[], parse("none", "version = 1").unwrap(), None).unwrap().settings;
        assert_eq!(text(&default, &BTreeMap::new()), "version = 1\n");
    }
}
