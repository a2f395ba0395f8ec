//! Custom profiles: both formats, compiled programs, warnings about them, and invalid ones.

use crate::common;
use crate::common::host::idmappable_dir;
use crate::common::{Caller, Outcome, Run, TempDir, attack, callers, for_each_caller, is_root, set_mode, text};

/// Calls mkdir, in a program that uses few other system calls.
fn mkdir(caller: Caller, options: &[&str]) -> Outcome {
    let program = attack("attempt('mkdir', lambda: os.mkdir('/tmp/x'))");
    Run::new(caller).opts(options.iter().copied()).python(&program).go()
}

const OCI: &str = r#"{
  "defaultAction": "SCMP_ACT_ALLOW",
  "syscalls": [{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 71 }]
}"#;

const SECCOMPILER: &str = r#"{
  "main": {
    "mismatch_action": "allow",
    "match_action": { "errno": 71 },
    "filter": [{ "syscall": "mkdir" }, { "syscall": "mkdirat" }]
  }
}"#;

#[test]
fn a_file_in_either_format_is_applied() {
    for_each_caller(|caller| {
        assert_eq!(mkdir(caller, &[]).expect(0).value("mkdir"), "OK");
        let dir = TempDir::new(caller);
        for content in [OCI, SECCOMPILER] {
            let file = dir.file("profile.json", content);
            let outcome = mkdir(caller, &["--seccomp", text(&file)]).expect(0);
            assert_eq!(outcome.value("mkdir"), "EPROTO", "{outcome}");
            assert_eq!(outcome.report()["enforced"]["seccomp"]["profile"], text(&file), "{outcome}");
        }
        let kill = OCI.replace("SCMP_ACT_ERRNO\", \"errnoRet\": 71", "SCMP_ACT_KILL_PROCESS\"").replace("\"\"", "\"");
        let file = dir.file("profile.json", kill);
        mkdir(caller, &["--seccomp", text(&file)]).expect(128 + libc::SIGSYS).expect_status("seccomp_killed");
    });
}

/// It dies so early that the supervisor has not verified it yet.
#[test]
fn a_workload_that_is_killed_at_once_was_killed_by_its_filter() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        for call in ["mkdir", "brk", "execve"] {
            let profile = format!(
                r#"{{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{{ "names": ["{call}"], "action": "SCMP_ACT_KILL" }}] }}"#
            );
            let file = dir.file("profile.json", profile);
            for _ in 0..10 {
                let run = Run::new(caller).opts(["--seccomp", text(&file)]).cmd(["/bin/mkdir", "/tmp/x"]).go();
                run.expect(128 + libc::SIGSYS).expect_status("seccomp_killed");
            }
        }
        // The same if the supervisor learns of its death and its start at the same time.
        if common::has_program("strace") {
            let strace = ["strace", "-o", "/dev/null", "-e", "inject=recvmsg:delay_enter=20000"];
            let file = dir.join("profile.json");
            for _ in 0..6 {
                let run = Run::new(caller).via(strace).opts(["--seccomp", text(&file)]).cmd(["true"]).go();
                run.expect(128 + libc::SIGSYS).expect_status("seccomp_killed");
            }
        }
        let refusing = OCI.replace("\"mkdir\"", "\"execve\"");
        let file = dir.file("profile.json", refusing);
        let run = Run::new(caller).opts(["--seccomp", text(&file)]).cmd(["true"]).go().expect(125);
        assert!(run.stderr.contains("does not allow execve"), "{run}");
    });
}

#[test]
fn a_file_is_found_from_where_it_is_named() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        dir.file("profile.json", OCI);
        dir.dir("sub");
        let policy = "version = 1\n[seccomp]\nprofile = '../profile.json'\n";
        let policy = dir.file("sub/p.toml", policy);
        for options in [
            &["--seccomp", "profile.json"][..],
            &["--seccomp", "./profile.json"],
            &["--seccomp", "sub/../profile.json"],
            &["--security-opt", "seccomp=profile.json"],
            &["-p", text(&policy)],
        ] {
            let program = attack("attempt('mkdir', lambda: os.mkdir('/tmp/x'))");
            let outcome = Run::new(caller).cwd(dir.path()).opts(options.iter().copied()).python(&program).go();
            assert_eq!(outcome.expect(0).value("mkdir"), "EPROTO", "{options:?}");
        }
        // The flag overrides the policy.
        let outcome = mkdir(caller, &["-p", text(&policy), "--seccomp", "default"]).expect(0);
        assert_eq!(outcome.value("mkdir"), "OK");
    });
}

#[test]
fn a_compiled_program_is_applied() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let profile = dir.file("profile.json", OCI);
        let program = dir.join("profile.bpf");
        let compile = ["seccomp", "compile", text(&profile), "-o", text(&program)];
        Run::new(caller).plain().opts(compile).go().expect(0);
        for options in [&["--seccomp-bpf", text(&program)][..], &["--seccomp", text(&program)]] {
            let outcome = mkdir(caller, options).expect(0);
            assert_eq!(outcome.value("mkdir"), "EPROTO", "{outcome}");
            let json = mkdir(caller, &["--seccomp", text(&profile)]).expect(0);
            let hash = |outcome: &Outcome| outcome.report()["enforced"]["seccomp"]["sha256"].clone();
            assert_eq!(hash(&outcome), hash(&json), "the same program");
        }
        let whole = std::fs::read(&program).unwrap();
        for (bytes, why) in [
            (&whole[..whole.len() - 1], "multiple of 8"),
            (&whole[..whole.len() - 8], "instruction"),
            (&[0xff; 16][..], "not an operation"),
            (&[], "1 to 4096"),
        ] {
            dir.file("profile.bpf", bytes);
            let outcome = mkdir(caller, &["--seccomp-bpf", text(&program)]).expect(125);
            assert!(outcome.stderr.contains(why), "{why}: {outcome}");
        }
    });
}

#[test]
fn a_bad_profile_is_refused_by_its_place_in_the_file() {
    let with = |rule: &str| format!(r#"{{ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{rule}] }}"#);
    let args = |args: &str| with(&format!(r#"{{ "names": ["read"], "action": "SCMP_ACT_ERRNO", "args": [{args}] }}"#));
    let cut: String = OCI.chars().take(OCI.len() / 2).collect();
    let table: Vec<(String, &[&str])> = vec![
        (String::new(), &["EOF"]),
        (cut, &["EOF"]),
        (format!("{OCI} {OCI}"), &["trailing"]),
        ("[]".into(), &["object"]),
        ("{}".into(), &["defaultAction", "missing"]),
        (r#"{ "defaultAction": "SCMP_ACT_MAYBE" }"#.into(), &["defaultAction", "SCMP_ACT_MAYBE"]),
        (r#"{ "defaultAction": 1 }"#.into(), &["defaultAction", "string"]),
        (r#"{ "defaultAction": "SCMP_ACT_ALLOW", "defaultAction": "SCMP_ACT_KILL" }"#.into(), &["duplicate key"]),
        (r#"{ "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 4096 }"#.into(), &["defaultErrnoRet", "4096"]),
        (r#"{ "defaultAction": "SCMP_ACT_NOTIFY" }"#.into(), &["defaultAction", "listener"]),
        (with("1"), &["syscalls[0]", "object"]),
        (with(r#"{ "action": "SCMP_ACT_ALLOW" }"#), &["syscalls[0]"]),
        (with(r#"{ "names": ["read"] }"#), &["syscalls[0]", "action"]),
        (with(r#"{ "names": ["read", 1], "action": "SCMP_ACT_ALLOW" }"#), &["syscalls[0].names[1]", "string"]),
        (with(r#"{ "names": ["read"], "action": "SCMP_ACT_ERRNO", "errnoRet": -1 }"#), &["syscalls[0].errnoRet", "-1"]),
        (
            with(r#"{ "names": ["read"], "action": "SCMP_ACT_ALLOW", "excludes": { "minKernel": "4.8.1-rc" } }"#),
            &["minKernel", "4.8.1-rc"],
        ),
        (with(r#"{ "names": ["read"], "action": "SCMP_ACT_NOTIFY" }"#), &["listener"]),
        (args(r#"{ "index": 6, "value": 0, "op": "SCMP_CMP_EQ" }"#), &["syscalls[0].args[0].index", "6"]),
        (args(r#"{ "index": -1, "value": 0, "op": "SCMP_CMP_EQ" }"#), &["syscalls[0].args[0].index", "-1"]),
        (args(r#"{ "index": 0, "value": 0, "op": "SCMP_CMP_IS" }"#), &["syscalls[0].args[0].op", "SCMP_CMP_IS"]),
        (args(r#"{ "index": 0, "value": 18446744073709551616, "op": "SCMP_CMP_EQ" }"#), &["syscalls[0].args[0].value"]),
        (args(r#"{ "index": 0, "value": "0x10", "op": "SCMP_CMP_EQ" }"#), &["syscalls[0].args[0].value", "0x10"]),
        (r#"{ "defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_X"] }"#.into(), &["flags[0]", "flag"]),
        ("[".repeat(100_000), &["recursion"]),
        (SECCOMPILER.replace("allow", "permit"), &["main.mismatch_action", "permit"]),
        (SECCOMPILER.replace("\"mkdir\"", "\"mkdri\""), &["main.filter[0].syscall", "mkdri"]),
    ];
    let caller = callers()[0];
    let dir = TempDir::new(caller);
    let before = dir.path().read_dir().unwrap().count() + 1;
    for (content, parts) in table {
        let file = dir.file("profile.json", &content);
        let outcome = mkdir(caller, &["--seccomp", text(&file)]).expect(125).expect_status("setup_error");
        for part in parts.iter().chain(&[text(&file)]) {
            assert!(outcome.stderr.contains(part), "{part:?} for {content:.200}: {outcome}");
        }
        assert_eq!(outcome.report()["error"]["step"], "seccomp_profile");
        assert_eq!(outcome.stderr.matches("stockade: ").count(), 1, "{outcome}");
        assert!(!outcome.stderr.chars().any(|c| c.is_control() && c != '\n'), "{outcome}");
        assert_eq!(dir.path().read_dir().unwrap().count(), before, "nothing was created");
    }
}

#[test]
fn oddities_in_a_profile_are_warned_about_and_refused_when_strict() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let names: Vec<String> = (0..12).map(|number| format!("\"no_such_call_{number}\"")).collect();
        let strange = OCI.replace("\"mkdir\",", &format!("\"mkdir\", {},", names.join(", ")));
        let file = dir.file("profile.json", strange);
        let outcome = mkdir(caller, &["--seccomp", text(&file)]).expect(0);
        assert_eq!(outcome.text(), "mkdir=EPROTO\n", "standard output is the workload's alone");
        let place = format!("warning: seccomp profile {}: syscalls[0].names[1]: \"no_such_call_0\"", text(&file));
        assert!(outcome.stderr.contains(&place), "{outcome}");
        assert_eq!(outcome.stderr.lines().count(), 9, "{outcome}");
        assert!(outcome.stderr.contains("4 more: `stockade seccomp check"), "{outcome}");
        let outcome = mkdir(caller, &["--seccomp", text(&file), "--seccomp-strict"]).expect(125);
        assert!(outcome.stderr.contains("syscalls[0].names[1]"), "{outcome}");
        let policy = format!("version = 1\nseccomp = {{ profile = {:?}, strict = true }}\n", text(&file));
        let policy = dir.file("p.toml", policy);
        mkdir(caller, &["-p", text(&policy)]).expect(125);
    });
}

#[test]
fn a_profile_that_others_could_write_is_refused() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let file = dir.file("profile.json", OCI);
        let refused = |why: &str| {
            let outcome = mkdir(caller, &["--seccomp", text(&file)]).expect(125);
            assert!(outcome.stderr.contains("profile.json") && outcome.stderr.contains(why), "{why}: {outcome}");
        };
        set_mode(&file, 0o666);
        refused("anyone can write it");
        set_mode(&file, 0o644);
        set_mode(dir.path(), 0o777);
        refused("anyone can replace it");
        set_mode(dir.path(), 0o755);
        if !common::is_root() {
            return common::skip("only root can hand files to others");
        }
        let (uid, gid) = caller.ids();
        let give = |path: &std::path::Path, uid, gid, mode| {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).unwrap();
            set_mode(path, mode);
        };
        give(&file, uid, 7, 0o664);
        refused("group 7 can write it");
        give(&file, uid, gid, 0o664);
        mkdir(caller, &["--seccomp", text(&file)]).expect(0); // the caller's own group
        give(dir.path(), uid, 7, 0o775);
        refused("group 7 can replace it");
        give(dir.path(), 7, gid, 0o755);
        refused("user 7 can replace it");
        give(dir.path(), uid, gid, 0o755);
        set_mode(dir.path(), 0o755);
        if is_root() && caller == Caller::Root {
            std::os::unix::fs::chown(&file, Some(1), None).unwrap();
            refused("belongs to user 1");
        }
        std::fs::remove_file(&file).unwrap();
        refused("ENOENT");
        nix::unistd::mkfifo(&file, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
        refused("not a regular file");
        std::fs::remove_file(&file).unwrap();
        dir.dir("profile.json");
        refused("directory");
        let device = mkdir(caller, &["--seccomp", "/dev/zero"]).expect(125);
        assert!(device.stderr.contains("not a regular file"), "{device}");
    });
}

#[test]
fn a_profile_that_the_workload_could_write_is_refused() {
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        let file = workspace.file("profile.json", OCI);
        let writable = format!("{}:/data", text(workspace.path()));
        let outcome = mkdir(caller, &["-v", &writable, "--seccomp", text(&file)]).expect(125);
        assert!(
            outcome.stderr.contains("is writable in the sandbox and contains the seccomp profile of this run"),
            "{outcome}"
        );
        // In a workspace it is mounted read-only.
        let options = ["--workspace", text(workspace.path()), "--seccomp", text(&file)];
        let is_read_only = "grep -q ' /workspace/profile.json ro,' /proc/self/mountinfo";
        Run::new(caller).opts(options).sh(is_read_only).go().expect(0);
        let mount = format!("{}:/data:ro", text(workspace.path()));
        mkdir(caller, &["-v", &mount, "--seccomp", text(&file)]).expect(0);
    });
}
