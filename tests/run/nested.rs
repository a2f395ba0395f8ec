//! Namespaces inside the sandbox: none without the seccomp group `nested`, whatever else is allowed, and with it those that
//! nested sandboxes need.

use crate::common::{Caller, Outcome, Run, for_each_caller, has_program};

const NESTED: [&str; 2] = ["--seccomp-allow", "nested"];
const MOUNTING: [&str; 4] = ["--seccomp-allow", "nested", "--landlock", "off"];

fn run(caller: Caller, options: &[&str], script: &str) -> Outcome {
    Run::new(caller).opts(options.iter().copied()).sh(script).go()
}

#[test]
fn user_namespaces_can_be_made_with_the_group_and_only_with_it() {
    for_each_caller(|caller| {
        let script = "unshare -Ur id -u && unshare -Urnipu true && echo made";
        assert_eq!(run(caller, &NESTED, script).expect(0).text(), "0\nmade\n");
        run(caller, &[], script).expect(1);
        // Not the filter alone: the namespace limits hold without it.
        let limited = run(caller, &["--seccomp", "unconfined"], script).expect(1);
        assert!(limited.stderr.contains("No space left on device"), "{limited}");
    });
}

#[test]
fn there_is_a_bound_on_them() {
    for_each_caller(|caller| {
        let limits =
            "cat /proc/sys/user/max_*_namespaces | sort -u; echo 1000 >/proc/sys/user/max_user_namespaces || echo no";
        assert_eq!(run(caller, &NESTED, limits).expect(0).text(), "64\nno\n");
        assert_eq!(run(caller, &[], limits).expect(0).text(), "0\nno\n");
        let program = "
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
made = 0
for _ in range(100):
    end, other = os.pipe()
    if os.fork() == 0:
        os.write(other, b'1' if libc.unshare(0x10000000) == 0 else b'%d' % -ctypes.get_errno())
        time.sleep(1000)
    answer = os.read(end, 8)
    if answer != b'1': break
    made += 1
print(made, answer.decode())
";
        let outcome = Run::new(caller).opts(NESTED).python(program).go().expect(0);
        assert_eq!(outcome.text(), "64 -28\n");
    });
}

#[test]
fn a_sandbox_runs_inside_without_landlock() {
    if !has_program("bwrap") {
        return;
    }
    for_each_caller(|caller| {
        let script = "bwrap --unshare-all --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 \
                      --symlink usr/bin /bin --dev /dev --tmpfs /tmp --cap-drop ALL \
                      sh -c 'echo written >/tmp/file; cat /tmp/file; ls /'";
        let outcome = run(caller, &MOUNTING, script).expect(0);
        assert_eq!(outcome.text(), "written\nbin\ndev\nlib\nlib64\ntmp\nusr\n");
        // Landlock forbids every mount, and the run warns of that first.
        let confined = run(caller, &NESTED, script).expect(1);
        assert!(confined.stderr.contains("need --landlock off too"), "{confined}");
        assert!(confined.stderr.contains("Operation not permitted"), "{confined}");
        run(caller, &["--landlock", "off"], script).expect(1);
    });
}

/// Masks of /proc can be neither unmounted inside nor bypassed by a second procfs; read-only mounts stay read-only.
#[test]
fn masked_paths_stay_masked_inside_nested_namespaces() {
    for_each_caller(|caller| {
        let script = "unshare -Urm sh -c '
            umount /proc/kcore 2>/dev/null && echo uncovered
            mkdir /tmp/p && mount --bind /proc /tmp/p 2>/dev/null && echo bound
            mount -o remount,rw /usr 2>/dev/null && echo writable
            mount -o remount,bind,rw /proc/sys 2>/dev/null && echo writable
            touch /usr/made 2>/dev/null && echo made
            mount -t tmpfs none /tmp/p && echo mounts' ; unshare -Urmpf mount -t proc proc /tmp/p 2>/dev/null && echo second; true";
        assert_eq!(run(caller, &MOUNTING, script).expect(0).text(), "mounts\n");
    });
}

/// The verification from outside must not mistake the rights in a nested namespace for missing confinement.
#[test]
fn a_workload_that_enters_a_namespace_at_once_counts_as_confined() {
    for_each_caller(|caller| {
        for _ in 0..20 {
            let outcome = Run::new(caller).opts(NESTED).cmd(["unshare", "-Ur", "true"]).go().expect(0);
            assert_eq!(outcome.report().pointer("/enforced/caps"), Some(&serde_json::json!([])), "{outcome}");
        }
    });
}
