//! A crash inside starts no program outside: `core_pattern` is the host's.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::clock::eventually;
use crate::common::{Caller, Run, TempDir, callers, for_each_caller, host, is_root, python_outside, skip, text};

const EVERYTHING: &str = r#"{ "defaultAction": "SCMP_ACT_ALLOW" }"#;
const PATTERN: &str = "/proc/sys/kernel/core_pattern";

/// Every way to a core limit of 0: a process's own, by both calls, and a parent's by its child.
const TO_ZERO: &str = "import os, resource\n\
    def attempt(call):\n\
    \x20   try: call()\n\
    \x20   except (OSError, ValueError): pass\n\
    core = resource.RLIMIT_CORE\n\
    attempt(lambda: resource.setrlimit(core, (0, 1)))\n\
    attempt(lambda: resource.setrlimit(core, (0, 0)))\n\
    attempt(lambda: resource.prlimit(0, core, (0, 0)))\n\
    attempt(lambda: resource.prlimit(os.getpid(), core, (0, 0)))\n\
    if os.fork() == 0: attempt(lambda: resource.prlimit(os.getppid(), core, (0, 0))); os._exit(0)\n\
    os.wait()\n\
    print('core', *resource.getrlimit(core), flush=True)\n";

#[test]
fn the_core_limit_is_one_and_stays_so() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let everything = text(&dir.file("everything.json", EVERYTHING)).to_owned();
        for profile in ["default", "strict", "docker", "unconfined", &everything] {
            for limit in [&[][..], &["--ulimit", "core=0"]] {
                let run = Run::new(caller).opts(["--seccomp", profile]).opts(limit.iter().copied());
                let outcome = run.python(TO_ZERO).go().expect(0);
                assert_eq!(outcome.text(), "core 1 1\n", "{profile} {limit:?}: {outcome}");
            }
        }
        let shell = Run::new(caller).sh("ulimit -c 0 && ulimit -c").go().expect(0);
        assert_eq!(shell.text(), "0\n", "a program that sets it as a precaution still works");
        let asked = Run::new(caller).opts(["--ulimit", "core=4096"]).opts(["--seccomp", "docker"]);
        assert_eq!(asked.python(TO_ZERO).go().expect(0).text(), "core 0 0\n", "requested dumps stay under its control");
    });
}

#[test]
fn a_crash_inside_starts_no_helper_of_the_host() {
    let is_guest = fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains("stockade.")) || host::is_uml();
    if !is_guest || !is_root() {
        return skip("setting core_pattern takes a virtual machine");
    }
    let dir = TempDir::below(Path::new("/run"), Caller::Root);
    let (helper, log) = (dir.join("helper"), dir.join("log"));
    fs::write(&helper, format!("#!/bin/sh\necho \"$1\" >>{}\ncat >/dev/null\n", log.display())).unwrap();
    fs::set_permissions(&helper, fs::Permissions::from_mode(0o755)).unwrap();
    let before = fs::read_to_string(PATTERN).unwrap();
    fs::write(PATTERN, format!("|{} %e", helper.display())).unwrap();
    for caller in callers().iter().copied() {
        let profiles = TempDir::new(caller);
        let everything = text(&profiles.file("everything.json", EVERYTHING)).to_owned();
        for profile in ["default", "docker", "unconfined", &everything] {
            for zero in [TO_ZERO, "import os\n"] {
                let crash = format!("{zero}open('/proc/self/comm', 'w').write('inside')\nos.abort()");
                let outcome = Run::new(caller).opts(["--seccomp", profile]).python(&crash).go();
                outcome.expect(134);
            }
        }
    }
    // If the caller cannot have the limit of 1, the report says so.
    let lowered = Run::new(Caller::Unprivileged).via(["prlimit", "--core=0:0"]).cmd(["true"]).go().expect(0);
    let degraded = lowered.report()["enforced"]["degraded"].to_string();
    assert!(degraded.contains("core-limit") && degraded.contains("helper"), "{lowered}");
    // Outside, a limit of 0 does not prevent the start of the helper.
    python_outside(Caller::Root, &format!("{TO_ZERO}open('/proc/self/comm', 'w').write('outside')\nos.abort()"));
    let _ = eventually(|| fs::read_to_string(&log).is_ok_and(|log| log.contains("outside")));
    fs::write(PATTERN, before).unwrap();
    assert_eq!(fs::read_to_string(&log).unwrap(), "outside\n");
}
