//! Landlock restricts the workload to the listed paths. The tests fail without the layer: each attack is made once under the
//! rules and once with `--landlock off`, where it succeeds.

use std::path::Path;

use crate::common;
use crate::common::host::{busybox_rootfs, idmappable_dir, landlock_abi};
use crate::common::{Caller, Outcome, PYTHON, Run, TempDir, attack, for_each_caller, has_program, set_mode, text};

/// The paths that an interpreter must read before it can attack anything.
const SYSTEM: [&str; 6] = ["--allow-read", "/usr", "--allow-read", "/etc", "--allow-read", "/lib64"];

/// Two runs of the same command, with the same mounts and caller: without Landlock, and under these rules.
fn without_and_with(caller: Caller, mounts: &[&str], rules: &[&str], program: &str) -> (Outcome, Outcome) {
    let run = |options: &[&str]| Run::new(caller).opts(mounts.iter().chain(options).copied()).python(program).go();
    (run(&["--landlock", "off"]).expect(0), run(rules).expect(0))
}

/// Whether the kernel can enforce a list of writable paths; otherwise a skip, and the run is refused.
fn holds_to_write_lists() -> bool {
    let holds = landlock_abi().0 >= 3;
    if !holds {
        common::skip("this kernel's Landlock cannot deny truncating files");
    }
    holds
}

/// The names of the attempts that succeeded.
fn succeeded(outcome: &Outcome) -> Vec<String> {
    outcome.lines().iter().filter_map(|line| line.strip_suffix("=OK").map(str::to_owned)).collect()
}

/// The path of the tests' directories inside: their host path may be in a place where nothing can be mounted.
const D: &str = "/data";

fn at_data(dir: &Path, access: &str) -> String {
    format!("--volume={}:{D}:{access}", text(dir))
}

/// A directory with `in/` and `out/`, each with files; the modes allow everything to all users.
fn two_halves(caller: Caller) -> TempDir {
    let dir = idmappable_dir(caller);
    set_mode(dir.path(), 0o777);
    for half in ["in", "out"] {
        set_mode(&dir.dir(half), 0o777);
        for name in ["file", "second", "third"] {
            set_mode(&dir.file(&format!("{half}/{name}"), "content\n"), 0o777);
        }
    }
    dir
}

#[test]
fn nothing_is_read_but_what_was_named() {
    for_each_caller(|caller| {
        let dir = two_halves(caller);
        let program = attack(
            r#"
D = "/data"
for half in ("in", "out"):
    file = D + "/" + half + "/file"
    attempt(half + " read", lambda: open(file).read())
    attempt(half + " list", lambda: os.listdir(D + "/" + half))
    path = os.open(file, os.O_PATH)
    attempt(half + " reopen", lambda: os.close(os.open("/proc/self/fd/%d" % path, os.O_RDONLY)))
    attempt(half + " around", lambda: open("/proc/self/root" + D + "/out/../" + half + "/file").read())
"#,
        );
        let rules = [&SYSTEM[..], &["--allow-read", "/data/out"]].concat();
        let (without, with) = without_and_with(caller, &[&at_data(dir.path(), "ro")], &rules, &program);
        assert_eq!(succeeded(&without).len(), 8, "{without}");
        assert_eq!(succeeded(&with), ["out read", "out list", "out reopen", "out around"], "{with}");
        assert_eq!(with.text().matches("=EACCES").count(), 4, "{with}");
    });
}

#[test]
fn nothing_is_written_but_what_was_named() {
    if !holds_to_write_lists() {
        return;
    }
    for_each_caller(|caller| {
        let program = attack(
            r#"
D = "/data"
for half in ("in", "out"):
    at = D + "/" + half
    attempt(half + " write", lambda: os.close(os.open(at + "/file", os.O_WRONLY)))
    attempt(half + " truncate", lambda: os.truncate(at + "/file", 0))
    attempt(half + " create", lambda: os.close(os.open(at + "/new", os.O_WRONLY | os.O_CREAT)))
    attempt(half + " mkdir", lambda: os.mkdir(at + "/newdir"))
    attempt(half + " symlink", lambda: os.symlink("x", at + "/newlink"))
    attempt(half + " fifo", lambda: os.mkfifo(at + "/newfifo"))
    attempt(half + " rename", lambda: os.rename(at + "/second", at + "/moved"))
    attempt(half + " unlink", lambda: os.unlink(at + "/third"))
attempt("tmp", lambda: os.mkdir("/tmp/x"))
attempt("shm", lambda: os.mkdir("/dev/shm/x"))
attempt("home", lambda: os.mkdir(os.environ["HOME"] + "/x"))
attempt("null", lambda: os.write(os.open("/dev/null", os.O_WRONLY), b"x"))
attempt("proc", lambda: os.write(os.open("/proc/self/comm", os.O_WRONLY), b"x"))
"#,
        );
        let control = two_halves(caller);
        let mounts = [at_data(control.path(), "rw"), "--landlock=off".into()];
        let without = Run::new(caller).opts(mounts).python(&program).go().expect(0);
        assert_eq!(succeeded(&without).len(), 21, "{without}");

        let dir = two_halves(caller);
        let narrowed = [at_data(dir.path(), "rw"), "--allow-write=/data/out".into()];
        let before = common::host::fingerprint(&dir.join("in"));
        let with = Run::new(caller).opts(narrowed).python(&program).go().expect(0);
        let allowed = succeeded(&with);
        assert!(allowed.iter().all(|name| name.starts_with("out ") || name == "null" || name == "proc"), "{with}");
        assert_eq!(allowed.len(), 10, "{with}");
        assert_eq!(common::host::fingerprint(&dir.join("in")), before);
        // Without a list, every writable mount is writable.
        let default =
            Run::new(caller).opts([at_data(control.path(), "rw")]).sh("mkdir /tmp/x /dev/shm/x ~/x /data/x").go();
        default.expect(0);
    });
}

const EXECUTIONS: &str = r#"
BUSYBOX = "/data/bin/busybox"
import mmap, shutil, subprocess
def run(*words):
    if subprocess.run(words, stdout=subprocess.DEVNULL).returncode != 0:
        raise OSError(errno.EIO, "failed")
attempt("static", lambda: run(BUSYBOX, "true"))
attempt("itself", lambda: run(sys.executable, "-I", "-S", "-c", "pass"))
attempt("other", lambda: run("/usr/bin/id"))
attempt("shell", lambda: run("/bin/sh", "-c", ":"))
shutil.copy(BUSYBOX, "/tmp/true")
os.chmod("/tmp/true", 0o755)
attempt("copy", lambda: run("/tmp/true"))
with open("/tmp/script", "w") as script:
    script.write('#!%s true\n' % BUSYBOX)
os.chmod("/tmp/script", 0o755)
attempt("script", lambda: run("/tmp/script"))
def mapped():
    with open("/tmp/true", "rb") as file:
        mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
attempt("mapped", mapped)
def in_memory():
    fd = os.memfd_create("x", 0)
    with open(BUSYBOX, "rb") as file:
        os.write(fd, file.read())
    pid = os.fork()
    if pid == 0:
        try:
            os.execve("/proc/self/fd/%d" % fd, ["true"], {})
        except OSError:
            os._exit(126)
    if os.waitpid(pid, 0)[1] != 0:
        raise OSError(errno.EIO, "failed")
attempt("in memory", in_memory)
attempt("sealed memory", lambda: os.memfd_create("x", 8))
"#;

#[test]
fn nothing_is_executed_but_what_was_named() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let Some(root) = busybox_rootfs(&dir) else { return };
        let program = attack(EXECUTIONS);
        let rules = ["--allow-exec", PYTHON, "--allow-exec", "/data/bin/busybox"];
        let (without, with) = without_and_with(caller, &[&at_data(&root, "ro")], &rules, &program);
        let mut all = succeeded(&without);
        all.retain(|name| name != "sealed memory"); // kernels before 6.3 lack the flag
        assert_eq!(all.len(), 8, "{without}");
        let mut allowed = succeeded(&with);
        allowed.retain(|name| name != "sealed memory");
        assert_eq!(allowed, ["static", "itself"], "{with}");
        assert_eq!(with.text().contains("sealed memory=OK"), without.text().contains("sealed memory=OK"), "{with}");
    });
}

#[test]
fn an_executable_below_a_named_directory_may_be_executed() {
    for_each_caller(|caller| {
        let rules = ["--allow-exec", "/usr/bin", "--allow-exec", "/opt:optional"];
        Run::new(caller).opts(rules).sh("/usr/bin/id >/dev/null && ls / | grep -q usr").go().expect(0);
    });
}

#[test]
fn a_command_that_may_not_be_executed_is_named_with_the_flag() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--allow-exec", PYTHON]).cmd(["/usr/bin/id"]).go().expect(126);
        assert!(outcome.stderr.contains("/usr/bin/id") && outcome.stderr.contains("--allow-exec"), "{outcome}");
    });
}

#[test]
fn a_rule_for_a_writable_and_executable_path_is_refused() {
    let dir = TempDir::new(Caller::Root);
    let inside = dir.join("program");
    for (mounts, path) in [(vec!["--rw", text(dir.path())], text(&inside)), (vec![], "/tmp/program")] {
        let run = Run::new(common::callers()[0]).opts(mounts).opts(["--allow-exec", path]).cmd(["true"]).go();
        let run = run.expect(125).expect_status("setup_error");
        assert!(run.stderr.contains(path) && run.stderr.contains("writable"), "{run}");
    }
}

#[test]
fn a_rule_can_name_one_file() {
    if !holds_to_write_lists() {
        return;
    }
    for_each_caller(|caller| {
        let dir = two_halves(caller);
        let program = attack(
            r#"
D = "/data/in/"
attempt("read it", lambda: open(D + "file").read())
attempt("read another", lambda: open(D + "second").read())
attempt("list", lambda: os.listdir(D))
attempt("write it", lambda: open(D + "file", "w").write("x"))
attempt("write another", lambda: open(D + "second", "w").write("x"))
attempt("remove it", lambda: os.unlink(D + "file"))
"#,
        );
        let rules = [&SYSTEM[..], &["--allow-read", "/data/in/file", "--allow-write", "/data/in/file"]].concat();
        let mount = at_data(dir.path(), "rw");
        let with = Run::new(caller).opts([&mount]).opts(rules).python(&program).go().expect(0);
        assert_eq!(succeeded(&with), ["read it", "write it"], "{with}");
        let without = Run::new(caller).opts([&mount, "--landlock=off"]).python(&program).go();
        assert_eq!(succeeded(&without.expect(0)).len(), 6);
    });
}

/// A rule applies to a file or directory, not to a name: it follows a rename, and does not apply to a new file of the old name.
#[test]
fn a_rule_follows_what_it_named_when_that_is_renamed() {
    for_each_caller(|caller| {
        let dir = two_halves(caller);
        let program = attack(
            r#"
import time
D = "/data"
print("ready", flush=True)
while not os.path.exists(D + "/out/go"):
    time.sleep(0.01)
attempt("old name", lambda: open(D + "/in/file").read())
attempt("new name", lambda: open(D + "/in/moved").read())
"#,
        );
        let file = dir.join("in/file");
        let rules = [&SYSTEM[..], &["--allow-read", "/data/in/file"]].concat();
        let live = Run::new(caller).opts([at_data(dir.path(), "ro")]).opts(rules).python(&program).spawn();
        live.wait_for("ready");
        std::fs::rename(&file, dir.join("in/moved")).unwrap();
        set_mode(&dir.file("in/file", "another\n"), 0o644);
        dir.file("out/go", "");
        assert_eq!(succeeded(&live.finish().expect(0)), ["new name"]);
    });
}

/// A hard link can be used by either name, each with the rights of its directory. No link can be made, and no file moved, to a
/// directory where it would have more rights.
#[test]
fn a_link_of_the_workload_does_not_redirect_a_rule() {
    for_each_caller(|caller| {
        let dir = two_halves(caller);
        let at = at_data(dir.path(), "rw");
        let run = |command: &str, rule: &str, rights: &str| {
            Run::new(caller).opts([&at, "--allow-read", "/", rights, rule]).sh(command).go()
        };
        Run::new(caller)
            .opts([&at])
            .sh("cd /data && mv in was && ln -s out in && ln -s ../out/file out/link")
            .go()
            .expect(0);
        let writes = landlock_abi().0 >= 3; // otherwise a list of writable paths is refused
        for rule in ["/data/in", "/data/in/file", "/data/out/link"] {
            for rights in
                ["--allow-write", "--allow-read"].into_iter().filter(|rights| writes || *rights != "--allow-write")
            {
                let refused = run("true", rule, rights).expect(125);
                assert!(refused.stderr.contains(rule) && refused.stderr.contains("through a symlink"), "{refused}");
            }
        }
        if writes {
            run("echo > /data/out/file", "/data/out", "--allow-write").expect(0);
        }
    });
}

#[test]
fn links_and_moves_gain_no_rights() {
    if !holds_to_write_lists() {
        return;
    }
    for_each_caller(|caller| {
        let make = || {
            let dir = two_halves(caller);
            std::fs::hard_link(dir.join("in/file"), dir.join("out/link")).unwrap();
            dir
        };
        let program = attack(
            r#"
D = "/data"
attempt("by the name inside", lambda: open(D + "/out/link").read())
attempt("by the name outside", lambda: open(D + "/in/file").read())
attempt("link", lambda: os.link(D + "/in/second", D + "/out/gained"))
attempt("move", lambda: os.rename(D + "/in/third", D + "/out/moved"))
"#,
        );
        let control = make();
        let mounts = [at_data(control.path(), "rw"), "--landlock=off".into()];
        let without = Run::new(caller).opts(mounts).python(&program).go().expect(0);
        let linking = succeeded(&without);
        // Some hosts let only a file's owner link to it; the rest is the same everywhere.
        assert!(linking.len() == 4 || (linking.len() == 3 && without.text().contains("link=EPERM")), "{without}");
        let dir = make();
        let rules = [&SYSTEM[..], &["--allow-read", "/data/out", "--allow-write", "/data/out"]].concat();
        let with = Run::new(caller).opts([at_data(dir.path(), "rw")]).opts(rules).python(&program).go().expect(0);
        assert_eq!(succeeded(&with), ["by the name inside"], "{with}");
    });
}

#[test]
fn a_rule_for_a_missing_path_is_an_error_unless_optional() {
    if !holds_to_write_lists() {
        return;
    }
    for_each_caller(|caller| {
        for flag in ["--allow-read", "--allow-write", "--allow-exec"] {
            for missing in ["/no/such/path", "/usr/bin/env/below"] {
                let outcome = Run::new(caller).opts([flag, missing]).cmd(["true"]).go().expect(125);
                let outcome = outcome.expect_status("setup_error");
                assert!(outcome.stderr.contains(missing) && outcome.stderr.contains(":optional"), "{flag}: {outcome}");
                assert_eq!(outcome.report()["error"]["step"], "landlock", "{outcome}");
                assert_eq!(outcome.text(), "");
            }
            let optional = [flag, "/no/such/path:optional", flag, "/usr", flag, "/lib64:optional"];
            Run::new(caller).opts(optional).cmd(["/usr/bin/true"]).go().expect(0);
        }
    });
}

#[test]
fn a_policys_rules_are_those_of_the_flags() {
    if !holds_to_write_lists() {
        return;
    }
    for_each_caller(|caller| {
        let dir = two_halves(caller);
        let policies = TempDir::new(caller);
        let policy = format!(
            "version = 1\n[[mounts]]\nsource = {:?}\ndestination = '/data'\n[landlock]\n\
             read = ['/usr', '/etc', {{ path = '/lib64', optional = true }}, '/data/out', '/nowhere:optional']\nwrite = []\n",
            text(dir.path())
        );
        let policy = policies.file("p.toml", policy);
        let script = "cat /data/out/file; cat /data/in/file 2>&1; touch /tmp/x 2>&1; true";
        let outcome = Run::new(caller).opts(["-p", text(&policy)]).sh(script).go().expect(0);
        let lines = outcome.lines();
        assert_eq!(lines[0], "content", "{outcome}");
        assert!(lines.len() == 3 && lines[1..].iter().all(|line| line.contains("Permission denied")), "{outcome}");
        // A flag adds to the policy's list.
        let outcome =
            Run::new(caller).opts(["-p", text(&policy), "--allow-read", "/data/in/file"]).sh(script).go().expect(0);
        assert_eq!(outcome.lines()[1], "content", "{outcome}");
    });
}

#[test]
fn compilers_and_version_control_work_under_narrow_rules() {
    if !has_program("gcc") || !has_program("git") || !holds_to_write_lists() {
        return;
    }
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        workspace.file("main.c", "int main(void) { return 42; }\n");
        let rules = ["--allow-read", "/workspace", "--allow-write", "/workspace", "--allow-write", "/tmp"];
        let outcome = Run::new(caller)
            .opts(["-p", "build", "--workspace", text(workspace.path())])
            .opts(SYSTEM.into_iter().chain(rules).chain(["--allow-read", "/tmp"]))
            .sh("gcc -o program main.c && git init -q . && git add main.c; ./program")
            .go();
        outcome.expect(42);
    });
}
