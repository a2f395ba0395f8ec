//! Policies: valid ones mean what they say, and invalid ones are refused with file, place, key and reason.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::common;
use crate::common::clock::used_by_children;
use crate::common::schema;
use serde_json::Value;
use stockade::plan::{MountKind, RlimitResource, RunPlan};

const BINARY: &str = env!("CARGO_BIN_EXE_stockade");

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("stockade-policy-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self(path.canonicalize().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        path
    }

    fn stockade<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Output {
        let mut command = Command::new(BINARY);
        command.args(words).current_dir(&self.0).stdin(Stdio::null()).env_remove("STOCKADE_SET").output().unwrap()
    }

    fn plan(&self, words: &[&str]) -> RunPlan {
        let output = self.stockade([&["plan", "--json"], words, &["true"]].concat());
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn refuses(&self, words: &[&str], parts: &[&str]) {
        let output = self.stockade([&["plan"], words, &["true"]].concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{words:?}: {part:?} is not in: {message}");
        }
        assert_eq!(message.matches("stockade: ").count(), 1, "{message}");
        assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{message:?}");
        assert_eq!(text(&output.stdout), "");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what is printed is UTF-8")
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn limit(plan: &RunPlan, resource: RlimitResource) -> (Option<u64>, Option<u64>, bool) {
    let limit = plan.command.rlimits.iter().find(|limit| limit.resource == resource).unwrap();
    (limit.soft, limit.hard, limit.clamp)
}

#[test]
fn bad_policies_are_refused_by_place_key_and_reason() {
    let scratch = Scratch::new("bad");
    let head = "version = 1\n";
    // The text after the version, and parts of the message.
    let table: &[(&str, &[&str])] = &[
        ("bogus = 1", &["p.toml:2:1: bogus", "unknown key"]),
        ("memory = '1G'", &["p.toml:2:1: memory", "it stands below [budget], or as budget.memory"]),
        ("hostnam = 'x'", &["p.toml:2:1: hostnam", "did you mean `hostname`?"]),
        ("Hostname = 'x'", &["p.toml:2:1: Hostname", "did you mean `hostname`?"]),
        ("[budget]\nmemroy = '1G'", &["p.toml:3:1: budget.memroy", "did you mean `memory`?"]),
        ("budget.memroy = '1G'", &["p.toml:2:8: budget.memroy", "did you mean `memory`?"]),
        ("[[mounts]]\nsrc = '/a'", &["p.toml:3:1: mounts.src", "unknown key"]),
        ("[ulimits]\nnofiles = 1", &["p.toml:3:1: ulimits.nofiles", "did you mean `nofile`?"]),
        ("\"a\\nb\" = 1", &["a\\nb", "unknown key"]),
        ("\"\\u001b[2J\" = 1", &["\\u{1b}[2J", "unknown key"]),
        ("hostname = 'a'\nhostname = 'b'", &["p.toml:3:1", "duplicate key"]),
        ("[budget]\n[budget]", &["p.toml:3", "duplicate key"]),
        // The wrong type.
        ("init = 1", &["p.toml:2:8: init", "boolean"]),
        ("init = 'true'", &["p.toml:2:8: init", "boolean"]),
        ("hostname = 1", &["hostname", "1 is a number"]),
        ("hostname = 1979-05-27", &["p.toml:2:12: hostname"]),
        ("hostname = ''", &["hostname", "host name"]),
        ("hostname = []", &["hostname"]),
        ("hostname = {}", &["hostname"]),
        ("umask = 22", &["p.toml:2:9: umask", "octal"]),
        ("umask = '999'", &["umask", "\"999\""]),
        ("budget = 1", &["budget"]),
        ("mounts = 'x'", &["mounts"]),
        ("mounts = {}", &["mounts"]),
        ("env.set = ['A=b']", &["env.set"]),
        ("network = 'bridge'", &["network", "unknown value `bridge`", "known: none, loopback, egress, host"]),
        ("proc = 'half'", &["proc", "`half`"]),
        ("stdio.output_keep = 'middle'", &["stdio.output_keep", "`middle`"]),
        ("allow_degraded = ['all']", &["allow_degraded", "`all`"]),
        // Numbers.
        ("user.uid = -1", &["user.uid", "\"-1\""]),
        ("user.uid = 1.0", &["user.uid", "\"1.0\""]),
        ("user.uid = 4294967295", &["user.uid", "at most 4294967294"]),
        ("user.uid = 4294967296", &["user.uid"]),
        ("user.uid = 99999999999999999999", &["p.toml:2:12"]),
        ("user.uid = nan", &["user.uid"]),
        ("user.uid = 010", &["p.toml:2:1"]),
        ("budget.cpus = nan", &["budget.cpus", "NaN"]),
        ("budget.cpus = inf", &["budget.cpus", "inf"]),
        ("budget.cpus = -0.0", &["budget.cpus"]),
        ("budget.cpus = 1e400", &["p.toml:2:15"]),
        ("budget.cpus = 0.001", &["budget.cpus", "too little"]),
        ("budget.memory = 0", &["budget.memory", "use at least 1"]),
        ("budget.memory = -1", &["budget.memory", "\"-1\""]),
        ("budget.memory = 1.5", &["budget.memory", "\"1.5\""]),
        ("budget.memory = '1e9'", &["budget.memory", "\"1e9\""]),
        ("budget.memory = ''", &["budget.memory", "empty"]),
        ("budget.pids = 0", &["budget.pids"]),
        ("scratch.size = 0", &["scratch.size", "use at least 1"]),
        ("scratch.size = 'unlimited'", &["scratch.size"]),
        ("scratch.inodes = 0", &["scratch.inodes"]),
        ("deadlines.timeout = 0", &["deadlines.timeout", "unlimited"]),
        ("deadlines.timeout = '1m1h'", &["deadlines.timeout", "\"1m1h\""]),
        ("deadlines.timeout = '1y'", &["deadlines.timeout"]),
        ("deadlines.kill_after = 'unlimited'", &["deadlines.kill_after"]),
        ("oom_score_adj = 1001", &["oom_score_adj", "between -1000 and 1000"]),
        ("ulimits.nofile = '2:1'", &["ulimits.nofile", "above the hard limit"]),
        ("ulimits.nofile = { soft = 2, hard = 1 }", &["ulimits.nofile", "above the hard limit"]),
        ("ulimits.nofile = { hard = 1 }", &["ulimits.nofile", "missing key `soft`"]),
        ("ulimits.nofile = { soft = 1, hrad = 1 }", &["ulimits.nofile.hrad", "did you mean `hard`?"]),
        ("ulimits.nofile = true", &["ulimits.nofile"]),
        // Paths.
        ("cwd = 'x'", &["cwd", "not an absolute path"]),
        ("cwd = '/a/../b'", &["cwd", "\"..\""]),
        ("cwd = \"/a\\u0000b\"", &["cwd", "NUL"]),
        ("rootfs = ''", &["rootfs", "empty"]),
        ("rootfs = '~/root'", &["rootfs", "not expanded"]),
        ("rootfs = '$ROOT'", &["rootfs", "not expanded"]),
        ("rootfs = { hex = 'f' }", &["rootfs", "hexadecimal"]),
        ("rootfs = { hex = '+f' }", &["rootfs", "hexadecimal"]),
        ("rootfs = { hex = '2f', also = 1 }", &["rootfs"]),
        ("rootfs = { path = '/' }", &["rootfs"]),
        ("masked_paths = ['/a', 'b']", &["masked_paths", "\"b\""]),
        ("masked_paths = ['//']", &["masked_paths", "the whole sandbox"]),
        ("readonly_paths = ['/.']", &["readonly_paths", "the whole sandbox"]),
        ("user.home = '/'", &["user.home", "mount's destination"]),
        ("user.home = '/usr'", &["user.home", "cover /usr"]),
        ("user.home = '/etc'", &["user.home", "cover /etc/"]),
        ("user.home = '/proc/1'", &["user.home", "/proc"]),
        ("user.home = 'x'", &["user.home", "not an absolute path"]),
        ("devices = ['/etc/passwd']", &["devices", "below /dev"]),
        ("[[mounts]]", &["p.toml:2:1: mounts", "needs a source"]),
        ("[[mounts]]\ntype = 'overlay'", &["mounts.type", "`overlay`"]),
        ("[[mounts]]\ntype = 'tmpfs'", &["mounts", "needs a destination"]),
        ("[[mounts]]\ntype = 'tmpfs'\ndestination = '/a'\nsource = '/b'", &["mounts", "need a bind"]),
        ("[[mounts]]\nsource = '/a'\nsize = '1M'", &["mounts", "need a tmpfs"]),
        ("[[mounts]]\nsource = '/a'\ndestination = '/proc/x'", &["mounts", "/proc"]),
        ("[[mounts]]\nsource = '/'", &["mounts[0]", "mount's destination"]),
        ("[[mounts]]\nsource = '/'\ndestination = '/h'\nread_only = false", &["bind of /", "cannot be bound writable"]),
        ("[[mounts]]\nsource = '/a'\n[[mounts]]\nsource = '/b'\ndestination = '/a/'", &["mounts[1]", "mounted twice"]),
        // Environment and capabilities.
        ("env.set = { '' = 'x' }", &["env.set", "empty"]),
        ("env.set = { 'A=B' = 'x' }", &["env.set", "A=B"]),
        ("env.set = { A = 1 }", &["env.set.A", "1 is a number"]),
        ("env.set = { A = \"\\u0000\" }", &["env.set.A", "NUL"]),
        ("env.pass = ['*']", &["env.pass", "keep"]),
        ("env.pass = ['A*B']", &["env.pass", "end"]),
        ("env.pass = ['A=B']", &["env.pass", "A=B"]),
        ("env.pass = ['A']\nenv.set.A = 'x'", &["env", "both set and passed"]),
        ("capabilities.add = ['ROOT']", &["capabilities.add", "not a capability"]),
        ("user.name = 'a:b'", &["user.name", "login name"]),
        ("user.map = 'host:0'", &["user.map", "root"]),
        ("user.map = 'all'", &["user.map", "single, subordinate"]),
        // extends.
        ("extends = 'nope'", &["nope", "not a built-in policy"]),
        ("extends = './missing.toml'", &["./missing.toml", "ENOENT"]),
        ("extends = 'p.toml'", &["extends itself"]),
        ("extends = 1", &["extends"]),
        ("extends = ''", &["not a built-in policy"]),
        // Not TOML.
        ("hostname", &["p.toml:2:9"]),
        ("hostname = ", &["p.toml:2"]),
        ("[budget", &["p.toml:2"]),
        ("hostname = 'a' // b", &["p.toml:2"]),
        ("{\"hostname\": 1}", &["p.toml:2:1"]),
        ("hostname = \"\\ud800\"", &["p.toml:2"]),
        ("\u{0}", &["p.toml:2"]),
    ];
    for (policy, parts) in table {
        scratch.file("p.toml", format!("{head}{policy}\n"));
        scratch.refuses(&["-p", "./p.toml"], parts);
    }
    for (content, parts) in [
        (&b""[..], &["p.toml:1:1", "missing key `version`"][..]),
        (b"hostname = 'x'\n", &["missing key `version`"]),
        (b"version = 2\n", &["p.toml:1:11: version", "version 2"]),
        (b"version = 1.0\n", &["version"]),
        (b"version = '1.0'\n", &["version"]),
        (b"version = '1'\n", &["version", "is a string"]),
        (b"version = true\n", &["version"]),
        (b"\xff\xfev\0e\0r\0", &["p.toml:1", "not UTF-8"]),
        (b"version = 1\nhostname = '\xc0\xaf'\n", &["p.toml:2", "not UTF-8"]),
        (b"\0\0\0\0", &["p.toml:1"]),
    ] {
        scratch.file("p.toml", content);
        scratch.refuses(&["-p", "./p.toml"], parts);
    }
}

#[test]
fn every_truncation_of_a_policy_is_an_error_or_a_policy() {
    for (name, policy) in stockade::policy::builtin::ALL {
        for end in (0..policy.len()).filter(|end| policy.is_char_boundary(*end)) {
            let _ = stockade::policy::parse(name, &policy[..end]);
        }
    }
}

#[test]
fn huge_and_deep_policies_are_refused_quickly_and_within_little_memory() {
    let scratch = Scratch::new("huge");
    let most = 128 << 10;
    let fill = |unit: &str| format!("version = 1\n{}", unit.repeat((most - 100) / unit.len()));
    let deep = |open: &str, close: &str, depth: usize| {
        format!("version = 1\nx = {}1{}\n", open.repeat(depth), close.repeat(depth))
    };
    for (what, content) in [
        ("more than 128 KiB", "#".repeat(most + 1)),
        ("a long list", format!("version = 1\ndevices = [{}]\n", "'/dev/a',".repeat(10_000))),
        ("a long list of what is right", format!("version = 1\nmasked_paths = [{}]\n", "'/a',".repeat(20_000))),
        ("many keys", (0..9_000).fold("version = 1\n".into(), |text, key| text + &format!("k{key} = 1\n"))),
        ("many mounts", fill("[[mounts]]\n")),
        ("many tables", (0..9_000).fold("version = 1\n".into(), |text, key| text + &format!("[t{key}.x]\n"))),
        ("a long string", format!("version = 1\nhostname = '{}'\n", "x".repeat(most - 100))),
        ("a long key", format!("version = 1\n{} = 1\n", "x".repeat(most - 100))),
        ("deep arrays", deep("[", "]", 50_000)),
        ("deep tables", deep("{a=", "}", 30_000)),
        ("a deep dotted key", format!("version = 1\n{}x = 1\n", "a.".repeat(60_000))),
    ] {
        scratch.file("p.toml", content);
        let before = used_by_children();
        // 64 MiB of address space, including the binary.
        let script = "ulimit -v 65536; exec \"$0\" plan -p ./p.toml true";
        let output = Command::new("/bin/sh").args(["-c", script, BINARY]).current_dir(&scratch.0).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{what}: {message}");
        assert!(
            message.contains("p.toml") && (what.starts_with("more than") || !message.contains("KiB")),
            "{what}: {message}"
        );
        assert!(message.len() < 4_096, "{what}: {} bytes: {message:.300}", message.len());
        // The promise is fifty milliseconds; an unoptimised build gets more.
        let used = used_by_children() - before;
        assert!(used < Duration::from_millis(1_000), "{what}: {used:?}");
    }
    scratch.file("p.toml", deep("[", "]", 79));
    scratch.refuses(&["-p", "./p.toml"], &["unknown key"]);
}

#[test]
fn a_policy_is_a_regular_file_that_nobody_else_can_write() {
    let scratch = Scratch::new("file");
    let policy = "version = 1\nhostname = 'mine'\n";
    let path = scratch.file("p.toml", policy);
    assert_eq!(scratch.plan(&["-p", "./p.toml"]).confinement.hostname, Some("mine".into()));
    std::os::unix::fs::symlink("p.toml", scratch.0.join("link.toml")).unwrap();
    assert_eq!(
        scratch.plan(&["-p", "link.toml"]).confinement.hostname,
        Some("mine".into()),
        "a symlink is a valid way to name a file"
    );

    let mode = |mode: u32| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    mode(0o666);
    scratch.refuses(&["-p", "./p.toml"], &["./p.toml", "anyone can write it"]);
    scratch.refuses(&["-p", "link.toml"], &["link.toml", "anyone can write it"]);
    mode(0o644);

    std::fs::create_dir(scratch.0.join("open")).unwrap();
    std::fs::set_permissions(scratch.0.join("open"), PermissionsExt::from_mode(0o777)).unwrap();
    scratch.file("open/p.toml", policy);
    scratch.refuses(&["-p", "open/p.toml"], &["anyone can replace it"]);
    std::fs::set_permissions(scratch.0.join("open"), PermissionsExt::from_mode(0o1777)).unwrap();
    scratch.plan(&["-p", "open/p.toml"]);

    assert!(Command::new("mkfifo").arg(scratch.0.join("fifo.toml")).status().unwrap().success());
    scratch.refuses(&["-p", "./fifo.toml"], &["fifo.toml", "not a regular file"]);
    scratch.refuses(&["-p", "./open"], &["./open", "directory"]);
    scratch.refuses(&["-p", "/"], &["/", "directory"]);
    scratch.refuses(&["-p", "/dev/zero"], &["/dev/zero", "not a regular file"]);
    scratch.refuses(&["-p", "/dev/null"], &["/dev/null", "not a regular file"]);
    std::os::unix::fs::symlink("loop.toml", scratch.0.join("loop.toml")).unwrap();
    scratch.refuses(&["-p", "./loop.toml"], &["ELOOP"]);
    scratch.refuses(&["-p", "p.toml/x.toml"], &["ENOTDIR"]);

    if is_root() {
        std::os::unix::fs::chown(&path, Some(1), None).unwrap();
        scratch.refuses(&["-p", "./p.toml"], &["belongs to user 1"]);
    } else {
        common::skip_part("as root", "only root can give a file to another user");
    }
}

#[test]
fn a_policy_cannot_be_writable_in_the_sandbox() {
    let scratch = Scratch::new("trust");
    scratch.file("work/p.toml", "version = 1\n");
    scratch.file("work/env", "A=b\n");
    scratch.file("work/sub/x", "");
    scratch.file("own.toml", "version = 1\n[[mounts]]\nsource = '.'\ndestination = '/x'\nread_only = false\n");
    std::os::unix::fs::symlink("work", scratch.0.join("alias")).unwrap();
    std::os::unix::fs::symlink("../own.toml", scratch.0.join("work/link.toml")).unwrap();
    let writable = "is writable in the sandbox";
    scratch.refuses(&["-p", "alias/p.toml", "--workspace", "work"], &["work", writable]);
    scratch.refuses(&["-p", "work/link.toml", "--workspace", "work"], &[writable]);
    // In the workspace itself, where only a mount protects it.
    for also in
        [&["-v", "work:/x"][..], &["-v", "work/p.toml:/x"], &["--rw", "work"], &["--tmpfs", "/workspace/p.toml"]]
    {
        scratch.refuses(&[&["-p", "work/p.toml", "--workspace", "work"], also].concat(), &[writable]);
    }
    for also in [&["--seccomp-allow", "nested"][..], &["--cap-add", "CHOWN"], &["--allow-degraded", "namespaces"]] {
        scratch.refuses(&[&["-p", "work/p.toml", "--workspace", "work"], also].concat(), &[writable]);
    }
    scratch.refuses(&["-p", "work/p.toml", "-v", ".:/x"], &[writable]);
    scratch.refuses(&["-p", "work/p.toml", "-v", "work/p.toml:/x"], &[writable]);
    scratch.refuses(&["-p", "work/link.toml", "-v", "work:/y"], &[writable]);
    scratch.refuses(&["-p", "own.toml"], &[writable]);
    scratch.plan(&["-p", "work/p.toml", "-v", "work:/x:ro"]);
    scratch.plan(&["-p", "work/p.toml", "--workspace", "work/sub"]);
    let read_only = |words: &[&str]| -> Vec<String> {
        let mounts = scratch.plan(&[words, &["--workspace", "work"]].concat()).mounts;
        let below = mounts.into_iter().filter(|mount| mount.destination.to_string().starts_with("/workspace/"));
        below.map(|mount| format!("{} {}", mount.destination, if mount.read_only { "ro" } else { "rw" })).collect()
    };
    assert_eq!(read_only(&[]), [""; 0]);
    assert_eq!(read_only(&["-p", "work/p.toml"]), ["/workspace/p.toml ro"]);
    assert_eq!(read_only(&["--env-file", "work/env"]), ["/workspace/env ro"]);
    scratch.file("work/sub/deep/p.toml", "version = 1\n");
    assert_eq!(
        read_only(&["-p", "work/sub/deep/p.toml"]),
        ["/workspace/sub ro"],
        "all of it, so that no part is replaced"
    );
    scratch.file("work/stockade.toml", "version = 1\n");
    assert_eq!(read_only(&[]), ["/workspace/stockade.toml ro"], "also for a run that does not use it");
    // A symlink there could have another target in the next run, and a hard link can be written by another name.
    std::fs::hard_link(scratch.0.join("work/p.toml"), scratch.0.join("hard.toml")).unwrap();
    scratch.refuses(&["-p", "./hard.toml", "--workspace", "work"], &[writable]);
    scratch.refuses(&["-p", "work/p.toml", "--workspace", "work"], &[writable]);
    scratch.refuses(&["--report", "work/r.json", "--workspace", "work"], &[writable, "the report"]);
    scratch.refuses(&["--audit", "work/log", "--workspace", "work"], &[writable, "the audit log"]);
    assert!(!scratch.0.join("work/log").exists(), "a plan creates nothing");
}

#[test]
fn a_bind_mount_elsewhere_does_not_hide_that_a_policy_is_writable() {
    if !is_root() {
        return common::skip("not root");
    }
    let scratch = Scratch::new("elsewhere");
    scratch.file("work/sub/p.toml", "version = 1\n");
    scratch.file("work/sub/env", "A=b\n");
    scratch.file("work/sub/seccomp.json", "{\"defaultAction\": \"SCMP_ACT_ALLOW\"}\n");
    std::fs::create_dir(scratch.0.join("other")).unwrap();
    let plan = |words: &[&str]| {
        let script = "mount --bind work/sub other && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "--propagation", "private", "sh", "-c", script, "sh", BINARY, "plan"]);
        let output = command.args(words).arg("true").current_dir(&scratch.0).output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    for file in ["-pother/p.toml", "--env-file=other/env", "--seccomp=other/seccomp.json"] {
        let (code, said) = plan(&[file, "--rw", "work"]);
        assert!(code == Some(125) && said.contains("is writable in the sandbox"), "{file}: {said}");
        let (code, said) = plan(&[file, "--ro", "work"]);
        assert_eq!(code, Some(0), "{file}: {said}");
    }
    let (code, said) = plan(&["-pwork/sub/p.toml", "--rw", "other"]);
    assert!(code == Some(125) && said.contains("is writable in the sandbox"), "{said}");
    assert_eq!(plan(&["-pwork/sub/p.toml", "--rw", "other", "--ro", "work"]).0, Some(125));
}

#[test]
fn later_layers_win_and_lists_add() {
    let scratch = Scratch::new("layers");
    scratch.file(
        "base.toml",
        "version = 1\nhostname = 'base'\numask = '077'\nmasked_paths = ['/a']\n[env.set]\nX = '1'\nY = '1'\n\
         [[mounts]]\nsource = '/usr'\ndestination = '/one'\n[[mounts]]\nsource = '/usr'\ndestination = '/two'\n\
         [capabilities]\nadd = ['CHOWN', 'KILL']\n[budget]\nmemory = '1G'\npids = 5\n[ulimits]\ncore = 7\n",
    );
    scratch.file(
        "over.toml",
        "version = 1\nextends = 'base.toml'\nhostname = 'over'\nmasked_paths = ['/b']\n[env]\nset.Y = '2'\n\
         [[mounts]]\ntype = 'tmpfs'\ndestination = '/two'\n[capabilities]\ndrop = ['KILL']\nadd = ['FOWNER']\n\
         [budget]\nmemory = 'unlimited'\n",
    );
    let plan = scratch.plan(&["-p", "./over.toml", "--umask", "027", "-e", "X=3", "--cap-add", "kill"]);
    assert_eq!(plan.confinement.hostname, Some("over".into()));
    assert_eq!(plan.command.umask, 0o027);
    let env: Vec<String> = plan.command.env.iter().map(ToString::to_string).collect();
    assert!(env.contains(&"X=3".into()) && env.contains(&"Y=2".into()), "{env:?}");
    for path in ["/a", "/b", "/proc/kcore"] {
        assert!(plan.confinement.masked_paths.contains(&path.into()), "{path}");
    }
    let kinds: Vec<_> =
        plan.mounts.iter().filter(|mount| mount.destination == "/two".into()).map(|mount| &mount.kind).collect();
    assert!(matches!(kinds.as_slice(), [MountKind::Tmpfs { .. }]), "{kinds:?}");
    let names: Vec<_> = plan.capabilities.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["CAP_CHOWN", "CAP_FOWNER", "CAP_KILL"]);
    assert_eq!((plan.budget.memory_bytes, plan.budget.pids), (None, Some(5)));
    assert_eq!(limit(&plan, RlimitResource::Core), (Some(7), Some(7), false), "explicit, so not clamped");
    assert_eq!(limit(&plan, RlimitResource::Msgqueue), (Some(0), Some(0), true), "default: clamped");

    assert_eq!(scratch.plan(&["-p", "./over.toml", "-p", "./base.toml"]).confinement.hostname, Some("base".into()));
    let plan = scratch.plan(&["-p", "strict", "-p", "./base.toml"]);
    assert_eq!(limit(&plan, RlimitResource::Nproc).0, Some(128), "a file without extends does not undo lower layers");
    assert!(scratch.plan(&["-p", "./base.toml", "--cap-drop", "ALL", "--cap-add", "CAP_KILL"]).capabilities.len() == 1);
}

#[test]
fn extending_ends() {
    let scratch = Scratch::new("extends");
    scratch.file("a.toml", "version = 1\nextends = 'sub/b.toml'\n");
    scratch.file("sub/b.toml", "version = 1\nextends = '../a.toml'\n");
    scratch.refuses(&["-p", "./a.toml"], &["../a.toml", "extends itself"]);
    for depth in 0..20 {
        scratch.file(&format!("d{depth}.toml"), format!("version = 1\nextends = 'd{}.toml'\n", depth + 1));
    }
    scratch.file("d20.toml", "version = 1\n");
    scratch.refuses(&["-p", "d0.toml"], &["more than 8 files"]);
    scratch.plan(&["-p", "d13.toml"]);
    // Using the same file twice is not a cycle.
    scratch.plan(&["-p", "d20.toml", "-p", "d20.toml"]);
}

#[test]
fn relative_paths_start_where_they_were_written() {
    let scratch = Scratch::new("relative");
    scratch.file(
        "policies/p.toml",
        "version = 1\nworkspace = '../work'\n[[mounts]]\nsource = 'data'\ndestination = '/data'\n",
    );
    std::fs::create_dir(scratch.0.join("work")).unwrap();
    std::fs::create_dir(scratch.0.join("policies/data")).unwrap();
    let source = |plan: &RunPlan, destination: &str| {
        plan.mounts
            .iter()
            .find_map(|mount| match &mount.kind {
                MountKind::Bind { source } if mount.destination == destination.into() => {
                    Some(source.as_path().to_owned())
                }
                _ => None,
            })
            .unwrap()
    };
    let plan = scratch.plan(&["-p", "policies/p.toml", "-v", "work:/w:ro"]);
    assert_eq!(source(&plan, "/workspace"), scratch.0.join("work"));
    assert_eq!(source(&plan, "/data"), scratch.0.join("policies/data"));
    assert_eq!(source(&plan, "/w"), scratch.0.join("work"));
    assert_eq!(plan.command.cwd, "/workspace".into());
    let plan = scratch.plan(&["--ro", "./work"]);
    assert_eq!(source(&plan, scratch.0.join("work").to_str().unwrap()), scratch.0.join("work"));
}

#[test]
fn the_view_is_ordered_and_gives_way() {
    let scratch = Scratch::new("view");
    let plan = scratch.plan(&[
        "--tmpfs",
        "/usr/x/y",
        "--tmpfs",
        "/opt",
        "--tmpfs",
        "/opt/a/b",
        "--tmpfs",
        "/opt/a",
        "-v",
        "/srv:/etc:ro",
    ]);
    let at = |path: &str| plan.mounts.iter().position(|mount| mount.destination == path.into());
    assert!(at("/usr") < at("/usr/x/y") && at("/opt") < at("/opt/a") && at("/opt/a") < at("/opt/a/b"));
    assert!(at("/dev") < at("/dev/shm"));
    assert_eq!(at("/etc/passwd"), None, "a mount of /etc replaces the generated files");
    let destinations: std::collections::HashSet<_> = plan.mounts.iter().map(|mount| &mount.destination).collect();
    assert_eq!(destinations.len(), plan.mounts.len(), "nothing is mounted twice");

    let plan = scratch.plan(&["--rootfs", "/srv"]);
    let mounted: Vec<String> = plan.mounts.iter().map(|mount| mount.destination.to_string()).collect();
    assert_eq!(mounted, ["/proc", "/dev", "/dev/shm", "/tmp", "/sys/fs/cgroup", "/home/sandbox"]);
    assert_eq!(plan.command.cwd, "/".into());

    scratch.file("home.toml", "version = 1\nuser.home = '/tmp'\n");
    let plan = scratch.plan(&["-p", "home.toml"]);
    assert_eq!(plan.mounts.iter().filter(|mount| mount.destination == "/tmp".into()).count(), 1);

    let plan = scratch.plan(&["-u", "root"]);
    assert_eq!((plan.identity.uid, plan.identity.home.clone()), (0, "/root".into()));
    assert!(!plan.confinement.masked_paths.iter().any(|path| path.to_string().starts_with("/sys")));
    assert!(scratch.plan(&["--sysfs"]).confinement.masked_paths.contains(&"/sys/firmware".into()));
}

#[test]
fn binds_that_expose_too_much_give_a_warning() {
    let scratch = Scratch::new("wide");
    for (words, part) in [
        (["--ro", "/run"], "sockets"),
        (["-v", "/run/:/x"], "sockets"),
        (["-v", "/proc:/x"], "processes"),
        (["-v", "/dev:/x"], "--device"),
        (["-v", "/:/host:ro"], "the whole host"),
        (["--rootfs", "/"], "the root is the host's root"),
    ] {
        let output = scratch.stockade(["plan", words[0], words[1], "true"]);
        let message = text(&output.stderr);
        assert!(
            output.status.success() && message.contains("warning") && message.contains(part),
            "{words:?}: {message}"
        );
    }
    let output = scratch.stockade(["plan", "--ro", "/usr/share", "-v", "/run/lock:/x:optional", "true"]);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_end_of_an_output_is_kept_in_bounded_memory() {
    let scratch = Scratch::new("tail");
    scratch.refuses(&["--output-limit", "257M,tail"], &["output-limit", "256M", "head"]);
    let policy = "version = 1\nstdio = { output_limit = \"100T\", output_keep = \"tail\" }\n";
    scratch.refuses(&["-p", scratch.file("p.toml", policy).to_str().unwrap()], &["output-limit"]);
    scratch.plan(&["--output-limit", "256M,tail"]);
    scratch.plan(&["--output-limit", "100T,kill"]);
}

#[test]
fn a_message_cannot_lie_about_what_it_shows() {
    let scratch = Scratch::new("bidi");
    for c in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{feff}', '\u{2028}', '\u{9b}'] {
        let output = scratch.stockade(["plan", "-p", &format!("/none/{c}lmot.toml"), "true"]);
        let message = text(&output.stderr);
        let escaped: String = c.escape_default().collect();
        assert!(!message.contains(c) && message.contains(&escaped), "{message:?}");
    }
}

#[test]
fn defaults_leave_nothing_open() {
    let plan = Scratch::new("defaults").plan(&[]);
    assert_eq!(plan.namespaces.network, stockade::plan::Network::Loopback);
    assert!(plan.namespaces.ipc && plan.namespaces.uts && plan.namespaces.cgroup && plan.init);
    assert!(plan.capabilities.is_empty() && plan.confinement.allow_degraded.is_empty());
    assert_eq!((plan.budget.memory_bytes, plan.budget.pids), (Some(2 << 30), Some(512)));
    assert!(!plan.stdio.stdin && !plan.stdio.tty);
    for mount in &plan.mounts {
        let own = !matches!(mount.kind, MountKind::Bind { .. } | MountKind::AsHost | MountKind::Sysfs);
        assert!(own || mount.read_only, "{} is a writable path of the host", mount.destination);
    }
}

#[test]
fn environment_files_are_lines() {
    let scratch = Scratch::new("env");
    let file = scratch.file("env", b"# comment\n\nA=1\nB=x=y\nSTOCKADE_SET\nC=\xff\n");
    let words = ["plan", "--json", "--env-file", "env", "-e", "A=2", "true"];
    let output =
        Command::new(BINARY).args(words).current_dir(&scratch.0).env("STOCKADE_SET", "passed").output().unwrap();
    let plan: RunPlan = serde_json::from_slice(&output.stdout).unwrap();
    let has = |entry: &[u8]| plan.command.env.iter().any(|other| other.as_bytes() == entry);
    assert!(has(b"A=2") && has(b"B=x=y") && has(b"STOCKADE_SET=passed") && has(b"C=\xff"));
    for (content, parts) in [
        (&b"A=1\n=x\n"[..], &["env:2", "empty"][..]),
        (b"A B=x\n", &["env:1", "blank"]),
        (b"A=x\0y\n", &["env:1", "NUL"]),
        (b"A=x\r\n", &["env:1", "carriage return"]),
        (b"LD_*\n", &["env:1", "name each variable"]),
    ] {
        std::fs::write(&file, content).unwrap();
        scratch.refuses(&["--env-file", "env"], parts);
    }
    std::fs::write(&file, format!("BIG={}\n", "x".repeat(131_072))).unwrap();
    scratch.refuses(&["--env-file", "env"], &["env BIG", "execve"]);
    std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    scratch.refuses(&["--env-file", "env"], &["1024 KiB"]);
    let many: String = (0..100_000).map(|number| format!("V{number}\n")).collect();
    std::fs::write(&file, many).unwrap();
    scratch.refuses(&["--env-file", "env"], &["env:1001", "more than 1000 variables"]);
}

#[test]
fn the_schema_accepts_what_the_parser_accepts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let policy_schema: Value =
        serde_json::from_slice(&std::fs::read(root.join("profiles/policy.schema.json")).unwrap()).unwrap();
    let agrees = |name: &str, text: &str, expected: bool| {
        let value: Value = toml::from_str(text).unwrap();
        let violations = schema::violations(&policy_schema, &value);
        assert_eq!(violations.is_empty(), expected, "the schema on {name}: {violations:?}");
        assert_eq!(stockade::policy::parse(name, text).is_ok(), expected, "the parser on {name}");
    };
    for (name, text) in stockade::policy::builtin::ALL {
        agrees(name, text, true);
    }
    for entry in std::fs::read_dir(root.join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        agrees(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap(), true);
    }
    // A policy with every key.
    let everything = "version = 1\nextends = 'strict'\nrootfs = '/a'\nworkspace = 'b'\nrequire_workspace = true\nsysfs = true\nfollow = true\n\
        proc = 'pids'\ntoolchains = ['java', 'auto']\ndevices = ['/dev/a']\nmasked_paths = ['/a']\nreadonly_paths = ['/a']\ncwd = { hex = '2fff' }\n\
        umask = '022'\nlabels = { a = 'b' }\nhostname = 'a'\nnetwork = 'host'\ntime_namespace = true\ninit = false\noom_score_adj = -5\nexplain_denials = true\n\
        audit = '/a'\naudit_sync = true\n\
        allow_degraded = ['cpu']\nenv = { set = { A = 'b', C = { hex = 'ff' } }, pass = ['D', 'E_*'], keep = true }\n\
        user = { name = 'a', uid = 1, gid = '2', home = '/a', map = 'host:1:2' }\ncapabilities = { add = ['KILL'], drop = ['ALL'] }\n\
        ulimits = { nofile = 1, core = '1:unlimited', cpu = { soft = 1, hard = 'unlimited', clamp = true } }\n\
        budget = { memory = '1G', cpus = 0.5, pids = 'unlimited' }\nscratch = { size = 1024, inodes = 5 }\n\
        deadlines = { timeout = 'unlimited', cpu_time = 5, idle_timeout = '5s', kill_after = 0 }\n\
        stdio = { stdin = true, tty = true, output_limit = '1M', output_keep = 'tail' }\n\
        seccomp = { profile = 'docker', allow = ['debug'], strict = true }\n\
        landlock = { mode = 'auto', minimum_abi = 3, read = ['/a'], write = ['/b:optional'], execute = ['/c'], connect = [80], bind = [8080] }\n\
        [[mounts]]\ntype = 'bind'\nsource = '/a'\ndestination = '/b'\nread_only = false\nnoexec = true\noptional = true\n\
        [[mounts]]\ntype = 'tmpfs'\ndestination = '/c'\nsize = '1M'\nnr_inodes = 5\nmode = '700'\n";
    agrees("everything", everything, true);
    let said: Value = toml::from_str(everything).unwrap();
    for key in policy_schema["properties"].as_object().unwrap().keys() {
        assert!(said.get(key).is_some(), "this test lacks the key {key}");
    }
    for wrong in
        ["bogus = 1", "umask = 22", "init = 1", "budget.memroy = 1", "mounts = [{ src = '/a' }]", "network = 'x'"]
    {
        agrees(wrong, &format!("version = 1\n{wrong}\n"), false);
    }
    agrees("no version", "", false);
}

#[test]
fn the_built_in_policies_plan() {
    let scratch = Scratch::new("builtin");
    for (name, _) in stockade::policy::builtin::ALL {
        let plan = scratch.plan(&["-p", name, "--workspace", "."]);
        assert_eq!(plan.command.cwd, "/workspace".into(), "{name}");
    }
    let strict = scratch.plan(&["-p", "strict"]);
    assert!(strict.mounts.iter().any(|mount| mount.kind == MountKind::Proc { pid_only: true }));
    assert_eq!(strict.deadlines.wall_us, Some(300_000_000));
}

#[test]
fn the_examples_plan() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    let scratch = Scratch::new("examples");
    let mut count = 0;
    for entry in std::fs::read_dir(examples).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        scratch.file("policies/example.toml", text);
        scratch.plan(&["-p", "policies/example.toml", "--workspace", "work"]);
        count += 1;
    }
    assert!(count > 0);
}
