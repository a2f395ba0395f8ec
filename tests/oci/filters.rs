//! The system call filter of a container: what it needs is gone when the program runs, hooks have it too, and crun's
//! annotations.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};

use crate::common::bundle::{Bundle, Called, Runtime, for_each_runtime, ours};
use crate::common::clock::{Clock, eventually};
use crate::common::{self, text};

/// Refuses `mkdir` with EROFS and other calls with EPERM.
fn refusing(others: &[&str]) -> Value {
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        { "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 30 },
        { "names": others, "action": "SCMP_ACT_ERRNO", "errnoRet": 1 },
    ] })
}

/// A process of a configuration.
#[derive(Clone, Copy, Debug)]
struct Case {
    uid: u32,
    bounding: &'static [&'static str],
    permitted: &'static [&'static str],
    inheritable: &'static [&'static str],
    ambient: &'static [&'static str],
    set_user_id: bool,
    own_users: bool,
}

/// Root and another user, with and without a set-user-id program, with every combination of empty and full sets.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for number in 0..192u32 {
        let is_set = |bit: u32| number >> bit & 1 == 1;
        let some = |bit: u32, set: &'static [&'static str]| if is_set(bit) { set } else { &[] };
        let bounding: &[&str] =
            [&["CAP_KILL", "CAP_CHOWN"][..], &["CAP_KILL", "CAP_SYS_ADMIN"], &[]][number as usize / 64];
        let permitted = some(0, bounding);
        let inheritable = some(1, permitted);
        let ambient = some(2, inheritable);
        let uid = if is_set(3) { 1000 } else { 0 };
        cases.push(Case {
            uid,
            bounding,
            permitted,
            inheritable,
            ambient,
            set_user_id: is_set(4),
            own_users: is_set(5),
        });
    }
    let all = std::env::var_os("STOCKADE_SWEEP").is_some_and(|wanted| wanted == "all");
    cases.into_iter().step_by(if all { 1 } else { 5 }).collect()
}

impl Case {
    /// The program's status under a filter that refuses these calls.
    fn status(self, bundle: &mut Bundle, refused: &[&str]) -> String {
        let Self { uid, bounding, permitted, inheritable, ambient, set_user_id, own_users } = self;
        let program = if set_user_id { "/bin/busybox-set-id" } else { "/bin/busybox" };
        let pattern = "^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp:)";
        let process = &mut bundle.config["process"];
        process["args"] = json!([program, "grep", "-E", pattern, "/proc/self/status"]);
        process["user"] = json!({ "uid": uid, "gid": uid });
        process["noNewPrivileges"] = json!(false);
        process["capabilities"] = json!({ "bounding": bounding, "permitted": permitted, "effective": permitted,
            "inheritable": inheritable, "ambient": ambient });
        let linux = &mut bundle.config["linux"];
        let namespaces = linux["namespaces"].as_array_mut().unwrap();
        namespaces.retain(|namespace| namespace["type"] != "user");
        if own_users {
            namespaces.push(json!({ "type": "user" }));
        }
        let map = own_users.then(|| json!([{ "containerID": 0, "hostID": 0, "size": 65536 }]));
        for ids in ["uidMappings", "gidMappings"] {
            linux[ids] = map.clone().unwrap_or(json!([]));
        }
        linux["seccomp"] = refusing(refused);
        bundle.run().expect(0).out()
    }
}

/// Without `no_new_privs` installing a filter requires CAP_SYS_ADMIN. A filter that refuses `capset` is installed last, so the
/// process has it until execve. The kernel computes the program's sets from the others.
#[test]
fn a_program_has_the_capabilities_that_it_has_with_any_filter() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // changes the sets of a configuration itself
        }
        let (Some(mut bundle), Some(mut reference)) = (Bundle::new(Runtime::Ours, ""), Bundle::new(runtime, "")) else {
            return;
        };
        for bundle in [&bundle, &reference] {
            let program = bundle.rootfs().join("bin/busybox-set-id");
            std::fs::copy(bundle.rootfs().join("bin/busybox"), &program).unwrap();
            common::set_mode(&program, 0o4755);
        }
        for case in cases() {
            let early = case.status(&mut reference, &["kexec_load"]);
            assert!(early.contains("Seccomp:\t2"), "{early}");
            assert_eq!(case.status(&mut bundle, &["capset"]), early, "{case:?}, compared with {runtime:?}");
        }
    });
}

#[test]
fn hooks_inside_have_the_filter_as_under_runc() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "busybox cat /log/hook") else { return };
        let log = text(&bundle.dir.dir("log")).to_owned();
        std::fs::create_dir(bundle.rootfs().join("log")).unwrap();
        bundle.mount("/log", "bind", &log, &["bind"]);
        let script =
            "(busybox mkdir /log/x; busybox grep -E 'CapPrm|CapEff|Seccomp:' /proc/self/status) >/log/hook 2>&1";
        bundle.config["hooks"] = json!({ "startContainer": [{
            "path": "/bin/busybox", "args": ["sh", "-c", script], "env": ["PATH=/bin"],
        }] });
        for no_new_privs in [true, false] {
            // A profile that refuses a call which a start of ours makes later installs its filter last.
            for others in [&["kexec_load"][..], &["wait4", "pipe2", "capset"]] {
                if runtime != Runtime::Ours && others.len() > 1 {
                    continue;
                }
                bundle.config["process"]["noNewPrivileges"] = json!(no_new_privs);
                bundle.config["linux"]["seccomp"] = refusing(others);
                // Under the second profile a shell cannot start programs.
                let alone = "exec busybox mkdir /log/x 2>/log/hook";
                bundle.config["hooks"]["startContainer"][0]["args"][2] =
                    json!(if others.len() > 1 { alone } else { script });
                let called = bundle.run();
                let said = std::fs::read_to_string(format!("{log}/hook")).unwrap_or_default();
                assert!(said.contains("Read-only file system"), "{no_new_privs} {others:?}: {said:?} {called:?}");
                assert!(!std::path::Path::new(&log).join("x").exists());
                let _ = std::fs::remove_file(format!("{log}/hook"));
                if others.len() > 1 {
                    called.expect_error("exit status 1");
                } else {
                    called.expect(0);
                }
            }
        }
    });
}

#[test]
fn the_write_call_cannot_be_sent_to_an_agent() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // accepts it
        }
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let rules = json!([{ "names": ["mkdir", "write"], "action": "SCMP_ACT_NOTIFY" }]);
        bundle.config["linux"]["seccomp"] =
            json!({ "defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "/nowhere", "syscalls": rules });
        bundle.run().expect(1).expect_error("SCMP_ACT_NOTIFY cannot be used for the write syscall");
    });
}

/// Between the installation of its capabilities and execve a process may have more than the container. No process inside can
/// take it over.
#[test]
fn a_process_that_waits_for_its_filter_cannot_be_taken_over() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 100") else { return };
        let sets = |extra: &[&str]| {
            let all: Vec<_> = ["CAP_KILL"].iter().chain(extra).collect();
            json!({ "bounding": all, "permitted": all, "effective": all })
        };
        bundle.config["process"]["noNewPrivileges"] = json!(false);
        bundle.config["process"]["capabilities"] = sets(&[]);
        bundle.config["linux"]["seccomp"] = refusing(&["capset"]);
        bundle.create().expect(0);
        let exec = |bundle: &Bundle, extra: &[&str]| {
            let mut process = bundle.config["process"].clone();
            process["capabilities"] = sets(extra);
            process["args"] = json!(["busybox", "grep", "Cap", "/proc/1/status"]);
            let file = bundle.dir.file("process.json", process.to_string());
            bundle.call(["exec", "--process", text(&file), &bundle.id])
        };
        let said = exec(&bundle, &[]).expect(0).out();
        assert!(said.contains("CapPrm:\t0000000000200020"), "the first process waits with CAP_SYS_ADMIN: {said}");
        exec(&bundle, &["CAP_SYS_PTRACE"]).expect(255).expect_error("waits for its start with CAP_SYS_ADMIN");
        bundle.about("start").expect(0);
        let said = exec(&bundle, &[]).expect(0).out();
        assert!(said.contains("CapPrm:\t0000000000000020"), "{said}");
        // The process of an exec would be visible before its filter is installed.
        exec(&bundle, &["CAP_SYS_PTRACE"]).expect(255).expect_error("CAP_SYS_PTRACE");
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.config["linux"]["seccomp"] = refusing(&["kexec_load"]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        exec(&bundle, &["CAP_SYS_PTRACE"]).expect(0);
    });
}

/// The capabilities that the first process of the pid namespace has, if this program may trace it.
const TAKER: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <unistd.h>
int main(void) {
    if (ptrace(PTRACE_SEIZE, 1, 0, 0)) { perror("seize"); return 1; }
    char line[256];
    FILE *status = fopen("/proc/1/status", "r");
    while (fgets(line, sizeof line, status)) if (!strncmp(line, "CapEff", 6)) printf("took %s", line);
    return 0;
}
"#;

/// A container in the pid namespace of one that waits for its start and its filter, with `CAP_SYS_ADMIN` until execve.
#[test]
fn a_joined_pid_namespace_holds_no_tracer_beside_a_process_that_waits_for_its_filter() {
    if !common::has_program("gcc") {
        return common::skip("gcc is not installed");
    }
    let taker = common::compiled("gcc", &["-static", "-O1"], TAKER).unwrap();
    ours(|runtime| {
        let sets = |extra: &[&str]| {
            let all: Vec<_> = ["CAP_KILL"].iter().chain(extra).collect();
            json!({ "bounding": all, "permitted": all, "effective": all })
        };
        let Some(mut first) = Bundle::new(runtime, "sleep 100") else { return };
        first.config["process"]["noNewPrivileges"] = json!(false);
        first.config["process"]["capabilities"] = sets(&[]);
        first.config["linux"]["seccomp"] = refusing(&["capset"]);
        first.create().expect(0);
        let namespace = format!("/proc/{}/ns/pid", first.state()["pid"]);
        let joining = |runtime: Runtime, extra: &[&str], script: &str| {
            let mut bundle = Bundle::new(runtime, script).unwrap();
            std::fs::copy(&taker, bundle.rootfs().join("bin/taker")).unwrap();
            bundle.config["process"]["capabilities"] = sets(extra);
            for kind in bundle.config["linux"]["namespaces"].as_array_mut().unwrap() {
                if kind["type"] == "pid" {
                    kind["path"] = json!(namespace);
                }
            }
            bundle
        };
        let tracer = ["CAP_SYS_PTRACE"];
        if std::path::Path::new(Runtime::Runc.program()).exists() {
            // What it would take: runc starts it.
            let said = joining(Runtime::Runc, &tracer, "taker").run().out();
            assert!(said.contains("took CapEff:\t0000000000200020"), "the attack itself: {said}");
        }
        joining(runtime, &tracer, "taker").run().expect_error("waits for its start with CAP_SYS_ADMIN");
        assert!(joining(runtime, &[], "taker").run().err().contains("Operation not permitted"));

        // The same for exec in another container of the namespace.
        let other = joining(runtime, &[], "sleep 100");
        other.create().expect(0);
        other.about("start").expect(0);
        other.call(["exec", "--cap", "CAP_SYS_PTRACE", &other.id, "true"]).expect(255).expect_error("CAP_SYS_ADMIN");
        first.about("start").expect(0);
        other.call(["exec", "--cap", "CAP_SYS_PTRACE", &other.id, "true"]).expect(0);
        let said = joining(runtime, &tracer, "taker").run().expect(0).out();
        assert!(said.contains("took CapEff:\t0000000000000020"), "{said}");

        // The other order: a process that would wait, beside one that may trace.
        let waiting = || {
            let mut bundle = joining(runtime, &[], "true");
            bundle.config["process"]["noNewPrivileges"] = json!(false);
            bundle.config["linux"]["seccomp"] = refusing(&["capset"]);
            bundle
        };
        waiting().run().expect(0);
        let tracing = joining(runtime, &tracer, "sleep 100");
        tracing.create().expect(0);
        waiting().run().expect(1).expect_error("could take over");
        first.exec("true").expect(255).expect_error("could take over");
        for bundle in [tracing, other, first] {
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
        }
    });
}

/// Whichever of the two is first: the other finds it when it looks.
#[test]
fn a_tracer_and_a_process_that_waits_for_its_filter_exclude_each_other_at_the_same_moment() {
    ours(|runtime| {
        let sets = json!({ "bounding": ["CAP_KILL"], "permitted": ["CAP_KILL"], "effective": ["CAP_KILL"] });
        let Some(mut first) = Bundle::new(runtime, "sleep 100") else { return };
        first.config["process"]["noNewPrivileges"] = json!(false);
        first.config["process"]["capabilities"] = sets.clone();
        first.create().expect(0);
        first.about("start").expect(0);
        let namespace = format!("/proc/{}/ns/pid", first.state()["pid"]);
        let tracer = || {
            let mut command = first.command(["exec", "--cap", "CAP_SYS_PTRACE", &first.id, "true"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        let ended = |child: &mut Child| child.try_wait().unwrap().is_some();

        // The other one has found no tracer, and cannot be seen yet.
        let mut other = Bundle::new(runtime, "true").unwrap();
        other.config["process"]["noNewPrivileges"] = json!(false);
        other.config["process"]["capabilities"] = sets;
        other.config["linux"]["seccomp"] = refusing(&["capset"]);
        let kinds = other.config["linux"]["namespaces"].as_array_mut().unwrap();
        kinds.iter_mut().filter(|kind| kind["type"] == "pid").for_each(|kind| kind["path"] = json!(namespace));
        let script = format!("cd {}; touch looked; until [ -e go ]; do sleep 0.01; done", other.dir.path().display());
        other.config["hooks"] = json!({ "createRuntime": [{ "path": "/bin/sh", "args": ["sh", "-c", script] }] });
        std::thread::scope(|scope| {
            let created = scope.spawn(|| other.create());
            assert!(eventually(|| other.dir.join("looked").exists()));
            let mut second = tracer().spawn().unwrap();
            let mut clock = Clock::start();
            while !ended(&mut second) && clock.elapsed() < Duration::from_millis(300) {
                clock.sleep(Duration::from_millis(5));
            }
            std::fs::write(other.dir.join("go"), "").unwrap();
            created.join().unwrap().expect(0);
            Called(second.wait_with_output().unwrap())
                .expect(255)
                .expect_error("waits for its start with CAP_SYS_ADMIN");
        });
        other.call(["delete", "--force", &other.id]).expect(0);

        // A process inside that holds the lock delays the command, and does not stop it for ever.
        let lock = |how| Flock::lock(File::open(&namespace).unwrap(), how).unwrap();
        let held = lock(FlockArg::LockShared);
        Called(tracer().output().unwrap()).expect(0);
        drop(held);
        let held = lock(FlockArg::LockExclusive);
        Called(tracer().output().unwrap()).expect(255).expect_error("keeps it locked");
        first.exec("true").expect(0);
        drop(held);
        Called(tracer().output().unwrap()).expect(0);
        first.call(["delete", "--force", &first.id]).expect(0);
    });
}

/// `mkdir` fails with EROFS: load the number, compare it with 83, return.
const PROGRAM: &str = "IAAAAAAAAAAVAAABUwAAAAYAAAAeAAUABgAAAAAA/38=";

#[test]
fn a_compiled_program_in_an_annotation_replaces_the_profile() {
    if !cfg!(target_arch = "x86_64") {
        return common::skip("the program has numbers of x86_64");
    }
    for_each_runtime(|runtime| {
        if runtime == Runtime::Runc {
            return; // has no such annotation
        }
        let Some(mut bundle) = Bundle::new(runtime, "busybox mkdir /tmp/x; exec 2>&1; busybox true") else { return };
        bundle.mount("/tmp", "tmpfs", "tmpfs", &[]);
        bundle.config["annotations"] = json!({ "run.oci.seccomp_bpf_data": PROGRAM });
        for no_new_privs in [true, false] {
            bundle.config["process"]["noNewPrivileges"] = json!(no_new_privs);
            for profile in [json!(null), json!({ "defaultAction": "SCMP_ACT_ERRNO" })] {
                bundle.config["linux"]["seccomp"] = profile;
                let called = bundle.run().expect(0);
                assert!(called.err().contains("Read-only file system"), "{called:?}");
            }
        }
        for (wrong, why) in [
            ("@@@", "is not base64"),
            ("", "a program has 1 to 4096 instructions"),
            (&PROGRAM[..40], "not a multiple of 8"),
            (&PROGRAM[..43], "is not base64"),
            ("mQAAAAAAAAA=", "instruction 0"),
        ] {
            bundle.config["annotations"] = json!({ "run.oci.seccomp_bpf_data": wrong });
            let called = bundle.run();
            assert!(!called.0.status.success(), "{wrong}");
            assert!(runtime == Runtime::Crun || called.err().contains(why), "{wrong}: {}", called.err());
        }
    });
}

#[test]
fn an_unknown_call_is_an_error_if_an_annotation_says_so() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Runc {
            return; // has no such annotation
        }
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        for (names, value, works) in [
            (["mkdir", "mkdirr"], "1", false),
            (["mkdir", "mkdirr"], "", false),
            (["mkdir", "mkdirr"], "0", true),
            (["mkdir", "s390_pci_mmio_read"], "1", true),
        ] {
            bundle.config["annotations"] = json!({ "run.oci.seccomp_fail_unknown_syscall": value });
            let rules = json!([{ "names": names, "action": "SCMP_ACT_ERRNO" }]);
            bundle.config["linux"]["seccomp"] = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules });
            let called = bundle.run();
            assert_eq!(called.0.status.success(), works, "{names:?} {value:?}: {called:?}");
            assert!(works || called.err().contains("mkdirr"), "{called:?}");
        }
    });
}
