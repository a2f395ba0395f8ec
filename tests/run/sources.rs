//! A source on the host is resolved once, and no link that another user or a workload could have made is followed.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common;
use crate::common::host::idmappable_dir;
use crate::common::{
    Caller, PYTHON, Run, TempDir, for_each_caller, is_root, output, outside, set_mode, skip, skip_part, text,
};

const SECRET: &str = "what-the-canary-holds";

/// A directory that the run must not reach, and that only its owner, the caller, can enter.
fn canary(dir: &TempDir) -> std::path::PathBuf {
    let private = dir.dir("private");
    let canary = dir.dir("private/canary");
    dir.dir("private/canary/sub");
    for name in ["private/canary/secret", "private/canary/sub/secret"] {
        dir.file(name, SECRET);
    }
    set_mode(&private, 0o700);
    canary
}

/// Creates a link that belongs to the directory's owner.
fn link(dir: &TempDir, target: &Path, name: &str) -> std::path::PathBuf {
    let link = dir.join(name);
    symlink(target, &link).unwrap();
    link
}

#[track_caller]
fn is_refused(outcome: &common::Outcome, words: &[&str]) {
    assert_eq!(outcome.code(), 125, "{outcome}");
    assert!(!outcome.text().contains(SECRET), "{outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "{word}: {outcome}");
    }
    assert_eq!(outcome.report()["error"]["step"], "source", "{outcome}");
}

#[test]
fn a_link_that_the_last_run_left_in_the_workspace_leads_nowhere() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let canary = canary(&dir);
        let work = dir.dir("work");
        dir.dir("work/cache");
        let volume = format!("{}/cache:/cache", text(&work));
        let run = || Run::new(caller).opts(["--workspace", text(&work), "-v", &volume]);
        let script = format!("rmdir /workspace/cache && ln -s {} /workspace/cache", text(&canary));
        run().sh(&script).go().expect(0);
        let outside = outside(caller, ["cat", &format!("{}/cache/secret", text(&work))]);
        assert!(outside.1.contains(SECRET), "outside, the link leads to the secret: {}", outside.1);
        let attack = "cat /cache/secret; echo overwritten >>/cache/secret";
        let hints = ["/work/cache is a symlink", "the workload of this run", "--follow", "(for /cache)"];
        is_refused(&run().sh(attack).go(), &hints);
        // Deeper, in any order, read-only, and through another name of the workspace.
        let link_to_work = link(&dir, &work, "other");
        let (deep, other) =
            (format!("{}/cache/sub:/x:ro", text(&work)), format!("{}/cache:/x:ro", text(&link_to_work)));
        for volume in [&deep, &other] {
            let run = Run::new(caller).opts(["-v", volume, "-v", &format!("{}:/work", text(&work))]);
            is_refused(&run.sh("cat /x/secret").go(), &["is a symlink", "the workload of this run"]);
        }
        assert_eq!(fs::read_to_string(canary.join("secret")).unwrap(), SECRET, "untouched");
        let followed = run().opts(["--follow"]).sh("cat /cache/secret").go();
        assert!(followed.expect(0).text().contains(SECRET), "--follow allows it");
    });
}

#[test]
fn no_way_up_is_taken_below_what_the_workload_writes() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let work = dir.dir("work");
        dir.dir("work/a/b");
        dir.file("work/file", "content");
        let volume = format!("{}/a/../file:/x:ro", text(&work));
        let run = |options: &[&str]| Run::new(caller).opts(["-v", &volume]).opts(options.iter().copied()).sh("cat /x");
        assert_eq!(run(&[]).go().expect(0).text(), "content");
        is_refused(&run(&["--workspace", text(&work)]).go(), &["\"..\"", "the workload of this run"]);
        assert_eq!(run(&["--workspace", text(&work), "--follow"]).go().expect(0).text(), "content");
    });
}

#[test]
fn no_mount_is_crossed_below_what_others_write() {
    if !is_root() {
        return skip("not root: only root can create directories of others");
    }
    let dir = idmappable_dir(Caller::Root);
    let place = dir.dir("place");
    dir.dir("place/mnt");
    let mounted = format!(
        "mount -t tmpfs -o mode=755 x {0}/mnt; echo mounted >{0}/mnt/file; ln -s file {0}/mnt/link",
        text(&place)
    );
    let run = |name: &str, options: &[&str]| {
        let run = after_mounting(Caller::Root, &mounted).opts(["-v", &format!("{}/mnt/{name}:/x:ro", text(&place))]);
        run.opts(options.iter().copied()).sh("cat /x").go()
    };
    assert_eq!(run("link", &[]).expect(0).text(), "mounted\n");
    // In a sticky directory only root mounts, and users with FUSE, whose mounts are not trusted.
    set_mode(&place, 0o1777);
    assert_eq!(run("file", &[]).expect(0).text(), "mounted\n");
    is_refused(&run("link", &[]), &["mnt/link is a symlink", "mounted in a directory that others can write"]);
    chown(&place, Some(65_534), None).unwrap();
    set_mode(&place, 0o755);
    is_refused(&run("file", &[]), &["place/mnt is another mount", "belongs to user 65534"]);
    assert_eq!(run("link", &["--follow"]).expect(0).text(), "mounted\n");
}

/// Serves a file system whose root claims to belong to root and contains a link; then executes the command of its arguments.
const SERVED: &str = r#"
import ctypes, os, struct, sys
target, place, command = sys.argv[1].encode(), sys.argv[2].encode(), sys.argv[3:]
fuse = os.open('/dev/fuse', os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f'fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other'.encode()
if libc.mount(b'test', place, b'fuse', 0, options) != 0:
    sys.exit(f'mount: {ctypes.get_errno()}')
if os.fork() > 0:
    os.close(fuse)
    os.execv(command[0], command)
libc.prctl(1, 9)  # PR_SET_PDEATHSIG: ends with the command
def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o120777, len(target))
    return struct.pack('<6Q10I', node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
while True:
    request = os.read(fuse, 1 << 20)
    _, code, unique, node = struct.unpack_from('<IIQQ', request)
    error, answer = -38, b''
    if code in (2, 36, 42):
        continue  # FORGET, INTERRUPT, BATCH_FORGET
    elif code == 26:  # INIT
        error, answer = 0, struct.pack('<IIIIHHIIHH8I', 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8)
    elif code == 1:  # LOOKUP
        known = request[40:].rstrip(b'\0') == b'link'
        error, answer = (0, struct.pack('<4Q2I', 2, 0, 0, 0, 0, 0) + attributes(2)) if known else (-2, b'')
    elif code == 3:  # GETATTR
        error, answer = 0, struct.pack('<QII', 0, 0, 0) + attributes(node)
    elif code == 5:  # READLINK
        error, answer = 0, target
    elif code == 17:  # STATFS
        error, answer = 0, bytes(80)
    os.write(fuse, struct.pack('<IiQ', 16 + len(answer), error, unique) + answer)
"#;

#[test]
fn owners_reported_by_a_fuse_file_system_are_not_trusted() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        return skip("only root serves a file system to others, through /dev/fuse");
    }
    let dir = idmappable_dir(Caller::Root);
    let (canary, place) = (canary(&dir), dir.dir("place"));
    let run = |options: &[&str]| {
        let served =
            ["unshare", "-m", "--propagation", "private", PYTHON, "-I", "-c", SERVED, text(&canary), text(&place)];
        let run =
            Run::new(Caller::Root).with_orphans().via(served).opts(["-v", &format!("{}/link:/x:ro", text(&place))]);
        run.opts(options.iter().copied()).sh("cat /x/secret").go()
    };
    let followed = run(&["--follow"]);
    if followed.stderr.contains("mount: ") {
        return skip("/dev/fuse cannot be mounted here");
    }
    assert_eq!(followed.expect(0).text(), SECRET);
    is_refused(&run(&[]), &["place/link is a symlink", "FUSE"]);
}

/// Words that run the caller's command after a script of root's, in a private mount namespace.
fn after_mounting(caller: Caller, script: &str) -> Run {
    let root = caller == Caller::Root && is_root();
    let (outer, inner): (&[&str], _) = match root {
        true => (&["unshare", "-m", "--propagation", "private"], "exec \"$@\""),
        false => (&["unshare", "-Urm"], "exec unshare -U --map-user=1000 --map-group=1000 \"$@\""),
    };
    Run::new(caller).via(outer.iter().copied()).via(["/bin/sh", "-ec", &format!("{script}\n{inner}"), "sh"])
}

#[test]
fn no_mount_is_crossed_below_what_the_workload_writes() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let work = dir.dir("work");
        dir.dir("work/mnt");
        let mounted = format!("mount -t tmpfs x {0}/mnt && echo mounted >{0}/mnt/file", text(&work));
        let volume = format!("{}/mnt:/x:ro", text(&work));
        let run = |options: &[&str]| {
            after_mounting(caller, &mounted).opts(["-v", &volume]).opts(options.iter().copied()).sh("cat /x/file").go()
        };
        assert_eq!(run(&[]).expect(0).text(), "mounted\n");
        let work_too = ["-v", &format!("{}:/work", text(&work))];
        is_refused(&run(&work_too), &["/work/mnt is another mount", "the workload of this run"]);
        assert_eq!(run(&[&work_too[..], &["--follow"]].concat()).expect(0).text(), "mounted\n");
    });
}

#[test]
fn a_bind_mount_of_a_part_of_the_workspace_is_no_way_around() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let canary = canary(&dir);
        let (work, elsewhere) = (dir.dir("work"), dir.dir("elsewhere"));
        dir.dir("work/sub");
        link(&dir, &canary, "work/sub/cache");
        let mounted = format!("mount --bind {}/sub {}", text(&work), text(&elsewhere));
        let volume = format!("{}/cache:/x:ro", text(&elsewhere));
        let run = |options: &[&str]| {
            after_mounting(caller, &mounted)
                .opts(["-v", &volume])
                .opts(options.iter().copied())
                .sh("cat /x/secret")
                .go()
        };
        assert_eq!(run(&[]).expect(0).text(), SECRET, "the caller's own link");
        is_refused(&run(&["-v", &format!("{}:/work", text(&work))]), &["is a symlink", "the workload of this run"]);
    });
}

#[test]
fn links_in_directories_that_others_write_are_followed_only_when_told() {
    if !is_root() {
        return skip("not root: only root can create directories of others");
    }
    for_each_caller(|caller| {
        let (uid, gid) = caller.ids();
        for (name, owner, mode, reason) in [
            ("of another user", (65_534, 65_534), 0o755, "belongs to user 65534"),
            ("of anyone", (uid, gid), 0o777, "can be written by anyone"),
            ("of a group", (uid, 100), 0o775, "can be written by group 100"),
            ("shared", (0, 0), 0o1777, "can be written by anyone"),
        ] {
            let dir = idmappable_dir(caller);
            let canary = canary(&dir);
            let place = dir.dir("place");
            dir.dir("place/below");
            dir.file("place/file", "content");
            link(&dir, &canary, "place/link");
            link(&dir, &canary, "place/below/link");
            chown(&place, Some(owner.0), Some(owner.1)).unwrap();
            set_mode(&place, mode);
            let run = |path: &str, options: &[&str]| {
                let volume = format!("{}/{path}:/x:ro", text(&place));
                Run::new(caller).opts(["-v", &volume]).opts(options.iter().copied()).sh("cat /x /x/secret").go()
            };
            eprintln!("--- {name}");
            assert_eq!(run("file", &[]).text(), "content", "a source without links");
            is_refused(&run("link", &[]), &["place/link is a symlink", reason, "--follow"]);
            is_refused(&run("link/sub", &[]), &["place/link is a symlink", reason]);
            if name == "shared" {
                assert_eq!(run("below/../file", &[]).text(), "content", "its entries cannot be replaced");
                assert_eq!(run("below/link", &[]).text(), SECRET, "nor can an own directory");
            } else {
                is_refused(&run("below/link", &[]), &["below/link is a symlink", reason]);
                is_refused(&run("below/../file", &[]), &["\"..\"", reason]);
            }
            // In a sticky directory the kernel itself follows a link only for its owner.
            if name != "shared" {
                assert_eq!(run("link", &["--follow"]).text(), SECRET);
            }
        }
    });
}

#[test]
fn an_access_control_list_may_name_anyone() {
    let dir = TempDir::new(Caller::Unprivileged);
    let (uid, gid) = Caller::Unprivileged.ids();
    if uid != gid {
        return skip("the caller has no group of its own number");
    }
    let place = dir.dir("place");
    dir.file("real", "content");
    link(&dir, &dir.join("real"), "place/link");
    set_mode(&place, 0o775);
    let run = || {
        let volume = format!("{}/link:/x:ro", text(&place));
        Run::new(Caller::Unprivileged).opts(["-v", &volume]).cmd(["/bin/cat", "/x"]).go()
    };
    assert_eq!(run().expect(0).text(), "content", "a group of the caller's own");
    // user::rwx user:65534:rwx group::r-x mask::rwx other::r-x
    let list = format!(
        "import os, struct\nentries = [(1, 7, -1), (2, 7, 65534), (4, 5, -1), (16, 7, -1), (32, 5, -1)]\n\
         os.setxattr({:?}, 'system.posix_acl_access', struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *e) for e in entries))",
        text(&place)
    );
    if outside(Caller::Unprivileged, [PYTHON, "-I", "-c", &list]).0 != 0 {
        return skip_part("with a list", "this file system has no access control lists");
    }
    is_refused(&run(), &["can be written by group"]);
}

#[test]
fn links_of_the_system_and_of_the_callers_own_are_followed() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let data = dir.dir("data");
        dir.file("data/file", "content");
        link(&dir, &data, "absolute");
        link(&dir, Path::new("../absolute/."), "data/back");
        link(&dir, Path::new("data/back/"), "chain");
        let run = |source: &str| Run::new(caller).cwd(dir.path()).opts(["-v", &format!("{source}:/x:ro")]);
        for source in ["absolute", "./chain", "chain/../data", "../../tmp/../", text(&dir.join("chain"))] {
            run(source).sh("test -d /x").go().expect(0);
        }
        for source in ["absolute/file", "chain/file", "data//back/./file", "chain/back/file"] {
            assert_eq!(run(source).cmd(["/bin/cat", "/x"]).go().expect(0).text(), "content", "{source}");
        }
        for source in ["absolute/file/", "absolute/none", "data/file/."] {
            run(&format!("{}/{source}", text(dir.path()))).cmd(["true"]).go().expect(125);
        }
        let system: Vec<_> = ["/bin", "/lib", "/var/run", "/etc/localtime", "/etc/mtab"]
            .into_iter()
            .filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) && Path::new(path).is_dir())
            .collect();
        for path in system {
            Run::new(caller).opts(["-v", &format!("{path}:/x:ro")]).sh("test -d /x").go().expect(0);
        }
        let resolver = Run::new(caller).opts(["--network", "host"]).sh("cat /etc/resolv.conf").go().expect(0);
        assert_eq!(resolver.text(), fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
        // A directory of another user without a link in the path.
        if is_root() {
            chown(dir.path(), Some(65_534), None).unwrap();
            let outcome = Run::new(caller).cwd(&data).opts(["--workspace", "."]).sh("cat file; touch made").go();
            assert_eq!(outcome.expect(0).text(), "content");
            chown(dir.path(), Some(caller.ids().0), None).unwrap();
        }
    });
}

#[test]
fn links_of_the_kernels_own_are_never_followed() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        link(&dir, Path::new("/proc/self/cwd"), "link");
        let by_link = format!("{}/link", text(dir.path()));
        for source in ["/proc/self/cwd", "/proc/self/root/etc", "/proc/self/fd/0", "/proc/thread-self/cwd", &by_link] {
            for options in [&[][..], &["--follow"]] {
                let volume = format!("{source}:/x:ro");
                let run = Run::new(caller).cwd(dir.path()).opts(["-v", &volume]).opts(options.iter().copied());
                is_refused(&run.cmd(["true"]).go(), &["a magic link of the kernel"]);
            }
        }
    });
}

#[test]
fn a_storm_of_renames_shows_nothing_that_is_not_in_the_workspace() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let canary = canary(&dir);
        let work = dir.dir("work");
        dir.dir("work/src/sub");
        dir.file("work/src/sub/secret", "harmless");
        link(&dir, &canary, "work/other");
        let volumes = [format!("{}/src/sub:/x:ro", text(&work)), format!("{}:/work", text(&work))];
        let options = ["-v", &volumes[0], "-v", &volumes[1]];
        let stop = AtomicBool::new(false);
        let names = [work.join("src"), work.join("other")].map(|path| std::ffi::CString::new(text(&path)).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    exchange(&names[0], &names[1]);
                }
            });
            let stopped = Stop(&stop);
            let run =
                |more: &[&str]| Run::new(caller).opts(options).opts(more.iter().copied()).sh("cat /x/secret").go();
            let mut shown = 0;
            for _ in 0..40 {
                let outcome = run(&[]);
                assert!(!outcome.text().contains(SECRET), "{outcome}");
                shown += usize::from(outcome.text().contains("harmless"));
            }
            eprintln!("{shown} of 40 showed the directory");
            assert!(
                (0..100).any(|_| run(&["--follow"]).text().contains(SECRET)),
                "the storm hits when links are followed"
            );
            drop(stopped);
        });
    });
}

/// Ends the other thread also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Exchanges two names atomically, `RENAME_EXCHANGE` of `renameat2(2)`. nix has it for glibc only.
#[allow(unsafe_code)]
fn exchange(one: &std::ffi::CStr, other: &std::ffi::CStr) {
    let (at, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: both are NUL-terminated and outlive the call.
    unsafe { libc::syscall(libc::SYS_renameat2, at, one.as_ptr(), at, other.as_ptr(), flags) };
}

#[test]
fn a_root_and_a_device_are_sources_too() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let canary = canary(&dir);
        let work = dir.dir("work");
        link(&dir, &canary, "work/root");
        let options = ["--rootfs", &format!("{}/root", text(&work)), "-v", &format!("{}:/tmp/work", text(&work))];
        is_refused(&Run::new(caller).opts(options).cmd(["true"]).go(), &["work/root is a symlink", "(for /)"]);
    });
}

#[test]
fn a_plan_says_where_its_sources_lead() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let (data, work) = (dir.dir("data"), dir.dir("work"));
        let way = link(&dir, &data, "way");
        link(&dir, &data, "work/cache");
        let plan = |words: &[&str]| {
            let mut command = caller.command(env!("CARGO_BIN_EXE_stockade"));
            output(command.arg("plan").args(words).arg("true").current_dir("/").env("LC_ALL", "C.UTF-8"))
        };
        let copied = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (volume, plain) = (format!("{}:/x:ro", text(&way)), format!("{}:/y:ro", text(&data)));
        let done = plan(&["-v", &volume, "-v", &plain]);
        let shown = copied(&done.stdout);
        assert!(shown.contains(&format!("host {} → {}, ro", text(&way), text(&data))), "{shown}");
        assert!(shown.contains(&format!("host {}, ro", text(&data))), "{shown}");
        let json = plan(&["--json", "-v", &volume, "-v", &plain]);
        let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        let expected = serde_json::json!([{ "source": text(&way), "resolved": text(&data) }]);
        assert_eq!((&json["resolved_sources"], &json["follow"]), (&expected, &false.into()), "{json}");
        // A run refuses the same sources with the same message as the plan.
        let words = ["--workspace", text(&work), "-v", &format!("{}/cache:/cache", text(&work))];
        let (done, run) = (plan(&words), Run::new(caller).opts(words).cmd(["true"]).go());
        assert_eq!((done.status.code(), copied(&done.stdout).as_str()), (Some(125), ""));
        assert_eq!(copied(&done.stderr), run.stderr);
        assert!(run.stderr.contains("is a symlink"), "{run}");
        let followed = copied(&plan(&[&words[..], &["--follow"]].concat()).stdout);
        assert!(followed.contains(&format!("work/cache → {}, rw", text(&data))), "{followed}");
        let missing = plan(&["-v", &format!("{}/none:/x", text(&work))]);
        assert!(missing.status.success(), "a missing source is an error of the run only");
    });
}
