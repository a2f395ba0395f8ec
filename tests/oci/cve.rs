//! Vulnerabilities of other container runtimes, by CVE number. Each class is tried on ours, and on runc and crun where the
//! installed versions are fixed. The attacker is the image, a process of the container, or another user of its directories.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common;
use crate::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use crate::common::confined::{Before, by, confined, prepare};
use crate::common::{TempDir, host, inject};
use serde_json::json;

/// A directory outside of all containers, and its state before the attack.
struct Outside {
    path: PathBuf,
    before: Vec<String>,
}

impl Outside {
    fn of(bundle: &Bundle) -> Self {
        let path = bundle.dir.dir("outside");
        bundle.dir.file("outside/file", "untouched\n");
        bundle.dir.dir("outside/dir");
        Self { before: host::fingerprint(&path), path }
    }

    fn text(&self) -> &str {
        common::text(&self.path)
    }

    fn check(&self, what: &str) {
        assert_eq!(host::fingerprint(&self.path), self.before, "{what}");
    }
}

/// Exchanges two names atomically, `RENAME_EXCHANGE` of `renameat2(2)`. nix has it for glibc only.
#[allow(unsafe_code)]
fn exchange(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| CString::new(path.as_os_str().as_bytes()).unwrap());
    let (at, flags) = (libc::AT_FDCWD, libc::RENAME_EXCHANGE);
    // SAFETY: two C strings that live as long as the call.
    unsafe { libc::syscall(libc::SYS_renameat2, at, one.as_ptr(), at, other.as_ptr(), flags) == 0 }
}

/// A static C program in this directory; `None` without a compiler.
fn compiled(dir: &TempDir, name: &str, source: &str) -> Option<PathBuf> {
    if !common::has_program("gcc") {
        return None;
    }
    let program = dir.join(name);
    std::fs::copy(common::compiled("gcc", &["-static", "-O1"], source).unwrap(), &program).unwrap();
    Some(program)
}

/// CVE-2019-5736, CVE-2019-8308: a container makes the runtime execute itself inside, keeps its file open, and overwrites it.
#[test]
fn cve_2019_5736_the_runtimes_file_cannot_be_written() {
    ours(|runtime| {
        let script = "while :; do for p in /proc/[0-9]*; do case $(readlink $p/exe) in */busybox|'') ;; *) \
            exec 9<$p/exe; echo x 2>/dev/null >$p/exe && echo WROTE; echo seen; n=0; \
            while [ $n -lt 50 ]; do echo x 2>/dev/null >/proc/self/fd/9 && echo WROTE; n=$((n+1)); done; exec 9<&-;; esac; done; done";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let program = bundle.dir.join("runtime");
        std::fs::copy(runtime.program(), &program).unwrap();
        let before = std::fs::read(&program).unwrap();
        symlink("/proc/self/exe", bundle.rootfs().join("bin/self")).unwrap();
        std::fs::write(bundle.rootfs().join("bin/script"), "#!/proc/self/exe\n").unwrap();
        common::set_mode(&bundle.rootfs().join("bin/script"), 0o755);
        bundle.config["process"]["user"] = json!({ "uid": 0, "gid": 0 });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let call = |words: &[&str]| {
            let mut command = Command::new(&program);
            command.arg("--root").arg(bundle.dir.join("state")).args(words);
            command.stdin(std::process::Stdio::null()).output().unwrap()
        };
        for _ in 0..25 {
            for program in ["/bin/self", "/bin/script", "/proc/self/exe", "/bin/true"] {
                call(&["exec", &bundle.id, program]);
            }
        }
        assert!(!bundle.printed().contains("WROTE"), "{}", bundle.printed());
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        assert!(std::fs::read(&program).unwrap() == before);
    });
}

/// CVE-2024-21626, CVE-2016-9962, CVE-2015-3627: a working directory through a leaked descriptor.
#[test]
fn cve_2024_21626_no_working_directory_is_outside() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "while :; do sleep 0.1; done") else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let outside = |said: &str| said.contains("/outside") || said.contains("unreachable");
        for number in 0..30 {
            for path in [format!("/proc/self/fd/{number}"), format!("/proc/self/fd/{number}/../..")] {
                let called = bundle.call(["exec", "--cwd", &path, &bundle.id, "sh", "-c", "pwd -P; ls -a"]);
                let said = called.out();
                assert!(
                    !outside(&said) && !said.contains("config.json") && !said.contains("vmlinuz"),
                    "{path}: {said}"
                );
            }
        }
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        bundle.config["process"]["args"] = json!(["sh", "-c", "pwd -P; ls -a"]);
        for number in 3..15 {
            bundle.config["process"]["cwd"] = json!(format!("/proc/self/fd/{number}"));
            let said = bundle.run().out();
            assert!(!outside(&said) && !said.contains("config.json") && !said.contains("vmlinuz"), "{number}: {said}");
        }
    });
}

/// CVE-2024-21626 again: a program, or its interpreter, through a descriptor that the runtime has open.
#[test]
fn cve_2024_21626_no_program_of_the_host_is_executed() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // Debian's 1.8 executes it with `exec`
        }
        let Some(mut bundle) = Bundle::new(runtime, "while :; do sleep 0.1; done") else { return };
        let host = bundle.dir.dir("outside").join("busybox");
        std::fs::copy(bundle.rootfs().join("bin/busybox"), &host).unwrap();
        let printed = "executed on the host";
        let alone = Command::new(&host).args(["echo", printed]).output().unwrap();
        assert!(String::from_utf8_lossy(&alone.stdout).contains(printed), "the program works outside");
        let path = |number: u32| format!("/proc/self/fd/{number}/../../../../../../../../..{}", common::text(&host));
        // A descriptor that this process leaks must not reach the container either.
        let leak = std::fs::File::open("/").unwrap();
        nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        for number in 3..24 {
            let script = bundle.rootfs().join(format!("bin/script{number}"));
            std::fs::write(&script, format!("#!{} echo {printed}\n", path(number))).unwrap();
            common::set_mode(&script, 0o755);
        }
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let script = |number| format!("/bin/script{number}");
        for number in 3..24 {
            for args in [vec![path(number), "echo".into(), printed.into()], vec![script(number)]] {
                let called = bundle.call(["exec", &bundle.id].into_iter().chain(args.iter().map(String::as_str)));
                assert!(!called.out().contains(printed), "exec {args:?}");
            }
        }
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        for number in 3..24 {
            for args in [vec![path(number), "echo".into(), printed.into()], vec![script(number)]] {
                bundle.config["process"]["args"] = json!(args);
                let called = bundle.run();
                assert!(!called.out().contains(printed), "run {args:?}");
                assert_ne!(called.0.status.code(), Some(0), "run {args:?}");
            }
        }
        // The administrator chose the hook, but its interpreter's path is looked up in the container's root.
        for number in 3..24 {
            bundle.config["process"]["args"] = json!(["true"]);
            bundle.config["hooks"] = json!({ "startContainer": [{ "path": script(number) }] });
            let called = bundle.run();
            assert_ne!(called.0.status.code(), Some(0), "hook {number}: {}", called.out());
        }
    });
}

/// A process whose root is the container's has no directory or file of the host open, at any of its calls.
#[test]
fn nothing_of_the_host_is_open_in_the_root_of_a_container() {
    if !inject::may_inject() {
        return;
    }
    ours(|_| {
        let leak = std::fs::File::open("/").unwrap();
        nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        let look = |bundle: &Bundle, words: &[&str], what: &str, verifying: &[i64]| {
            let seen = bundle.dir.join("seen");
            let _ = std::fs::remove_file(&seen);
            let called = by(bundle, &inject::words(&[format!("LOOK={}", common::text(&seen))]), words);
            assert!(called.0.status.success(), "{what}: {}{}", called.out(), called.err());
            let seen = std::fs::read_to_string(&seen).unwrap();
            let (looks, found) = seen.split_once('\n').unwrap();
            let looks: u32 = looks.strip_prefix("looks ").unwrap().parse().unwrap();
            assert!(looks > 20, "{what}: too few calls of the container were inspected: {looks}");
            // The inherited streams, here files of the bundle.
            let own = ["fd/1 ", "fd/2 "];
            let is_odd = |line: &&str| {
                let call = line.split(' ').nth(1).and_then(|number| number.parse().ok());
                !own.iter().any(|own| line.contains(own)) && !call.is_some_and(|call| verifying.contains(&call))
            };
            let found: Vec<_> = found.lines().filter(is_odd).collect();
            assert!(found.is_empty(), "{what}: {found:#?}");
        };
        let Some(mut plain) = Bundle::new(Runtime::Ours, "true") else { return };
        plain.config["hooks"] = json!({ "startContainer": [{ "path": "/bin/true" }] });
        let path = common::text(plain.dir.path()).to_owned();
        look(&plain, &["run", "--bundle", &path, &plain.id], "run", &[]);
        look(&plain, &["run", "--no-pivot", "--bundle", &path, &plain.id], "run --no-pivot", &[]);
        let namespaces = plain.config["linux"]["namespaces"].clone();
        plain.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "time" }));
        look(&plain, &["run", "--bundle", &path, &plain.id], "run with a time namespace", &[]);
        plain.config["linux"]["namespaces"] = namespaces;
        plain.config["process"]["noNewPrivileges"] = json!(false);
        plain.config["linux"]["seccomp"] = json!({
            "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{ "names": ["mkdir"], "action": "SCMP_ACT_ERRNO" }],
        });
        look(&plain, &["run", "--bundle", &path, &plain.id], "run with a filter that is installed early", &[]);
        plain.config["process"]["args"] = json!(["sh", "-c", "while :; do sleep 0.1; done"]);
        plain.create().expect(0);
        plain.about("start").expect(0);
        look(&plain, &["exec", &plain.id, "/bin/true"], "exec", &[]);
        let Some(mut other) = Bundle::new(Runtime::Ours, "true") else { return };
        for namespace in other.config["linux"]["namespaces"].as_array_mut().unwrap() {
            if namespace["type"] == "pid" {
                namespace["path"] = json!(format!("/proc/{}/ns/pid", plain.state()["pid"]));
            }
        }
        let path = common::text(other.dir.path()).to_owned();
        // The intermediate process, which is invisible inside, verifies its mounts by the procfs of the host. After the change of
        // the root it opens `/`, `/..` and files in that procfs, and nothing else, until it is done.
        let opening = [libc::SYS_chdir, libc::SYS_openat, libc::SYS_openat2, libc::SYS_fcntl];
        let verifying = [&opening[..], &[libc::SYS_fstat, libc::SYS_read, libc::SYS_close]].concat();
        look(&other, &["run", "--bundle", &path, &other.id], "run in another's pid namespace", &verifying);
        let Some(users) = confined() else { return };
        prepare(&users, Before::Running);
        look(&users, &["exec", &users.id, "/bin/true"], "exec in a user namespace", &[]);
        prepare(&users, Before::Nothing);
    });
}

/// Inspects every process that appears in its pid namespace, as fast as it can: whether a file of the host is in its root, and
/// whether a word of the caller's is in its environment, its arguments or its stack.
const WATCHER: &str = r##"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char buffer[1 << 20];
static void look(const char *pid, const char *name, const char *word) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, name);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    ssize_t length = read(fd, buffer, sizeof buffer);
    if (length > 0 && memmem(buffer, length, word, strlen(word))) { printf("%s contains the word\n", name); fflush(stdout); }
    close(fd);
}
static void look_at_stack(const char *pid, const char *word) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    FILE *maps = fopen(path, "r");
    if (!maps) return;
    unsigned long start = 0, end = 0;
    while (fgets(line, sizeof line, maps)) if (strstr(line, "[stack]")) sscanf(line, "%lx-%lx", &start, &end);
    fclose(maps);
    snprintf(path, sizeof path, "/proc/%s/mem", pid);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return;
    if (end - start > sizeof buffer) start = end - sizeof buffer;
    ssize_t length = pread(fd, buffer, end - start, start);
    if (length > 0 && memmem(buffer, length, word, strlen(word))) { printf("memory contains the word\n"); fflush(stdout); }
    close(fd);
}
int main(int argc, char **argv) {
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    printf("watching\n");
    fflush(stdout);
    for (;;) {
        DIR *proc = opendir("/proc");
        for (struct dirent *one; (one = readdir(proc));) {
            if (!atoi(one->d_name) || !strcmp(one->d_name, own)) continue;
            char path[4096];
            snprintf(path, sizeof path, "/proc/%s/root%s", one->d_name, argv[1]);
            if (!access(path, F_OK)) { printf("reached\n"); fflush(stdout); }
            look(one->d_name, "environ", argv[2]);
            look(one->d_name, "cmdline", argv[2]);
            look_at_stack(one->d_name, argv[2]);
        }
        closedir(proc);
    }
}
"##;

/// A process that joins the pid namespace of another container is not visible there before it is confined. Otherwise a process
/// with the right to trace it would find the host, and the caller's environment.
#[test]
fn a_tracer_in_a_pid_namespace_finds_nothing_of_the_host_in_those_that_join() {
    ours(|runtime| {
        let Some(mut watcher) = Bundle::new(runtime, "true") else { return };
        let Some(program) = compiled(&watcher.dir, "watcher", WATCHER) else { return };
        std::fs::copy(&program, watcher.rootfs().join("bin/watcher")).unwrap();
        let of_the_host = common::text(&program).to_owned();
        watcher.config["process"]["args"] = json!(["/bin/watcher", of_the_host, "caller=secret"]);
        for set in watcher.config["process"]["capabilities"].as_object_mut().unwrap().values_mut() {
            *set = json!(["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]);
        }
        watcher.create().expect(0);
        watcher.about("start").expect(0);
        watcher.wait_for_output("watching");
        let Some(mut joiner) = Bundle::new(runtime, "true") else { return };
        let pid = watcher.state()["pid"].clone();
        for namespace in joiner.config["linux"]["namespaces"].as_array_mut().unwrap() {
            if namespace["type"] == "pid" {
                namespace["path"] = json!(format!("/proc/{pid}/ns/pid"));
            }
        }
        let path = common::text(joiner.dir.path()).to_owned();
        for _ in 0..40 {
            let mut run = joiner.command(["run", "--bundle", &path, &joiner.id]);
            assert!(run.env("caller", "secret").status().unwrap().success());
            let mut exec = watcher.command(["exec", &watcher.id, "true"]);
            assert!(exec.env("caller", "secret").status().unwrap().success());
        }
        let found: std::collections::BTreeSet<_> = watcher.printed().lines().map(str::to_owned).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["watching"]);
    });
}

/// Reads the memory of every other process of its pid namespace in a loop, and prints which of its words it found.
const READER: &str = r##"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char buffer[8 << 20];
static void search(const char *pid, int count, char **words) {
    char path[64], line[512], mode[8];
    snprintf(path, sizeof path, "/proc/%s/maps", pid);
    FILE *maps = fopen(path, "r");
    if (!maps) return;
    snprintf(path, sizeof path, "/proc/%s/mem", pid);
    int fd = open(path, O_RDONLY);
    unsigned long start, end;
    while (fd >= 0 && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, mode) != 3 || mode[1] != 'w' || end - start > sizeof buffer) continue;
        ssize_t length = pread(fd, buffer, end - start, start);
        for (int word = 1; word < count && length > 0; word++)
            if (memmem(buffer, length, words[word], strlen(words[word]))) printf("found %d\n", word);
    }
    if (fd >= 0) close(fd);
    fclose(maps);
}
int main(int argc, char **argv) {
    char own[16];
    snprintf(own, sizeof own, "%d", getpid());
    for (int round = 1;; round++) {
        DIR *proc = opendir("/proc");
        for (struct dirent *one; (one = readdir(proc));) if (atoi(one->d_name) && strcmp(one->d_name, own)) search(one->d_name, argc, argv);
        closedir(proc);
        printf("round %d\n", round);
        fflush(stdout);
        usleep(20000);
    }
}
"##;

/// In a container with a user namespace no process may read the memory of one that joins: the joining process is not dumpable,
/// and its memory belongs to the user namespace of the runtime. In the control, without a user namespace, a tracer may.
#[test]
fn a_tracer_in_a_user_namespace_reads_nothing_of_those_that_join() {
    ours(|runtime| {
        for own_users in [true, false] {
            let Some(mut reader) = Bundle::new(runtime, "true") else { return };
            let Some(mut joiner) = Bundle::new(runtime, "sleep 60; : word-of-the-program") else { return };
            let Some(program) = compiled(&reader.dir, "reader", READER) else { return };
            std::fs::copy(&program, reader.rootfs().join("bin/reader")).unwrap();
            let of_the_caller = common::text(joiner.dir.path()).to_owned();
            reader.config["process"]["args"] = json!(["/bin/reader", of_the_caller, "word-of-the-program"]);
            for set in reader.config["process"]["capabilities"].as_object_mut().unwrap().values_mut() {
                *set = json!(["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"]);
            }
            if own_users {
                let linux = &mut reader.config["linux"];
                linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
                let map = json!([{ "containerID": 0, "hostID": 200_000, "size": 65_536 }]);
                (linux["uidMappings"], linux["gidMappings"]) = (map.clone(), map);
                for bundle in [&reader, &joiner] {
                    std::os::unix::fs::chown(bundle.rootfs(), Some(200_000), Some(200_000)).unwrap();
                }
            }
            reader.create().expect(0);
            reader.about("start").expect(0);
            reader.wait_for_output("round 1\n");
            let pid = reader.state()["pid"].clone();
            let namespaces = joiner.config["linux"]["namespaces"].as_array_mut().unwrap();
            namespaces.retain(|namespace| namespace["type"] != "pid");
            for kind in ["pid", "user"].into_iter().take(1 + usize::from(own_users)) {
                namespaces.push(json!({ "type": kind, "path": format!("/proc/{pid}/ns/{kind}") }));
            }
            joiner.create().expect(0); // it waits for its start
            let rounds = reader.printed().lines().filter(|line| line.starts_with("round")).count();
            reader.wait_for_output(&format!("round {}\n", rounds + 4));
            let found = reader.printed();
            assert_eq!(found.contains("found 1"), !own_users, "{found}");
            assert_eq!(found.contains("found 2"), !own_users, "{found}");
            joiner.about("start").expect(0);
            reader.wait_for_output("found 2\n");
            assert_eq!(reader.printed().contains("found 1"), !own_users);
        }
    });
}

/// CVE-2016-8649, CVE-2015-3629 and similar: only the three standard streams are open in the program.
#[test]
fn cve_2016_8649_nothing_is_left_open() {
    for_each_runtime(|runtime| {
        let list =
            "for n in /proc/self/fd/*; do readlink $n; done | grep -v -e pipe: -e /dev/null -e /proc/ -e '^/out$'";
        let Some(bundle) = Bundle::new(runtime, &format!("{list}; while :; do sleep 0.1; done")) else { return };
        // A descriptor that this process leaks must not reach the container either.
        let leak = std::fs::File::open("/").unwrap();
        nix::fcntl::fcntl(&leak, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let own = common::text(bundle.dir.path()).to_owned();
        let odd = |said: &str| said.lines().any(|line| !line.starts_with(&own) || !line.ends_with("/out"));
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!odd(&bundle.printed()), "{}", bundle.printed());
        assert_eq!(bundle.exec(list).out(), "");
    });
}

/// CVE-2019-19921, CVE-2023-27561, CVE-2023-28642, CVE-2025-54867, CVE-2026-41579, CVE-2026-47766, CVE-2019-18837: the image has
/// a symlink where the runtime mounts or writes.
#[test]
fn cve_2019_19921_links_in_an_image_do_not_lead_out() {
    ours(|runtime| {
        for place in [
            "proc",
            "sys",
            "dev",
            "dev/pts",
            "dev/shm",
            "dev/mqueue",
            "dev/null",
            "dev/console",
            "dev/ptmx",
            "dev/fd",
            "etc",
            "tmp",
            "run",
        ] {
            for (own_dev, target) in [(true, "dir"), (false, "dir"), (false, "file"), (false, "missing")] {
                for far in ["", "../../../../../../../.."] {
                    let Some(mut bundle) =
                        Bundle::new(runtime, "echo x > /dev/null; echo x > /dev/console; ls /dev /dev/pts; true")
                    else {
                        return;
                    };
                    let outside = Outside::of(&bundle);
                    let link = bundle.rootfs().join(place);
                    let _ = std::fs::remove_dir_all(&link);
                    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
                    symlink(format!("{far}{}/{target}", outside.text()), &link).unwrap();
                    if !own_dev {
                        let mounts = bundle.config["mounts"].as_array_mut().unwrap();
                        mounts.retain(|mount| !mount["destination"].as_str().unwrap().starts_with("/dev"));
                    }
                    bundle.config["root"]["readonly"] = json!(false);
                    bundle.config["process"]["cwd"] = json!("/run/made");
                    bundle.config["linux"]["devices"] = json!([{ "path": "/dev/made", "type": "p" }]);
                    bundle.mount("/tmp/made", "tmpfs", "tmpfs", &[]).mount(
                        "/etc/resolv.conf",
                        "bind",
                        "/etc/hostname",
                        &["bind", "ro"],
                    );
                    let _ = bundle.run(); // it may fail
                    outside.check(&format!("/{place} -> {far}…/{target}, own /dev {own_dev}"));
                }
            }
        }
    });
}

/// CVE-2021-30465, CVE-2017-1002101, CVE-2018-15664, CVE-2024-45310, CVE-2024-0132 and twenty more: a directory becomes a symlink
/// between check and use. Exchanged atomically in a loop while two hundred containers are created.
#[test]
fn cve_2021_30465_racing_mount_points_stay_inside_the_root() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let outside = Outside::of(&bundle);
        let root = bundle.rootfs();
        let names = ["a", "a2", "etc", "dev", "proc", "sys", "run"];
        for name in names {
            std::fs::create_dir_all(root.join(name)).unwrap();
            symlink(format!("../../../../../../../..{}", outside.text()), root.join(format!("{name}-link"))).unwrap();
        }
        let file = common::text(&bundle.dir.file("source", "")).to_owned();
        let tree = common::text(&bundle.dir.dir("tree")).to_owned();
        bundle
            .mount("/a/b/c", "bind", &tree, &["rbind", "ro"])
            .mount("/a/b/file", "bind", &file, &["bind"])
            .mount("/a2/made/by", "tmpfs", "tmpfs", &["tmpcopyup"])
            .mount("/etc/resolv.conf", "bind", &file, &["bind"]);
        bundle.config["process"]["cwd"] = json!("/run/made/by/us");
        bundle.config["root"]["readonly"] = json!(false);
        let linux = &mut bundle.config["linux"];
        linux["devices"] =
            json!([{ "path": "/a/fifo", "type": "p" }, { "path": "/a2/null", "type": "c", "major": 1, "minor": 3 }]);
        linux["maskedPaths"].as_array_mut().unwrap().extend([json!("/a/b"), json!("/etc/passwd")]);
        linux["readonlyPaths"].as_array_mut().unwrap().push(json!("/a2"));
        let times = if host::is_uml() { 30 } else { 200 };
        let done = AtomicBool::new(false);
        let (ran, exchanged) = std::thread::scope(|scope| {
            let storm = scope.spawn(|| {
                let mut exchanged = 0u64;
                while !done.load(Ordering::Relaxed) {
                    for name in names {
                        let (one, other) = (root.join(name), root.join(format!("{name}-link")));
                        exchanged += u64::from(exchange(&one, &other));
                    }
                    if exchanged % 64 < 7 {
                        std::thread::yield_now();
                    }
                }
                exchanged
            });
            let ran = (0..times).filter(|_| bundle.run().0.status.success()).count();
            done.store(true, Ordering::Relaxed);
            (ran, storm.join().unwrap())
        });
        eprintln!("{ran} of {times} ran, {exchanged} exchanges");
        assert!(exchanged > 1000, "there was no race");
        outside.check("raced");
        assert_eq!(std::fs::read(&file).unwrap(), b"", "the bound file is unchanged");
    });
}

/// CVE-2025-31133, CVE-2025-62161: the image's /dev/null leads to a path that is to be masked. CVE-2025-52565: the same with
/// /dev/console.
#[test]
fn cve_2025_31133_masks_do_not_come_from_the_image() {
    ours(|runtime| {
        let script = "cat /secret; cat /proc/kcore; echo pwned > /proc/sys/kernel/core_pattern; ls /hidden; true";
        let Some(mut bundle) = Bundle::new(runtime, script) else { return };
        let before = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        let root = bundle.rootfs();
        std::fs::create_dir_all(root.join("dev")).unwrap();
        std::fs::create_dir_all(root.join("hidden/inner")).unwrap();
        std::fs::write(root.join("secret"), "secret\n").unwrap();
        for name in ["null", "console"] {
            symlink("/proc/sys/kernel/core_pattern", root.join("dev").join(name)).unwrap();
        }
        let config = &mut bundle.config;
        config["mounts"]
            .as_array_mut()
            .unwrap()
            .retain(|mount| !mount["destination"].as_str().unwrap().starts_with("/dev"));
        config["linux"]["maskedPaths"].as_array_mut().unwrap().extend([json!("/secret"), json!("/hidden")]);
        config["root"]["readonly"] = json!(false);
        let called = bundle.run();
        assert_eq!(called.out(), "", "{called:?}");
        assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
    });
}

/// CVE-2025-52881, CVE-2019-16884, CVE-2025-62596: a write to procfs goes to another file, or is lost.
#[test]
fn cve_2025_52881_kernel_parameters_are_written_where_they_are() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "cat /proc/sys/net/ipv4/ip_forward") else { return };
        let fake = bundle.dir.dir("fake");
        for name in ["sys", "self", "1"] {
            bundle.dir.dir(&format!("fake/{name}"));
        }
        let whole = bundle.config.clone();
        bundle.config["linux"]["sysctl"] = json!({ "net.ipv4.ip_forward": "1" });
        assert_eq!(bundle.run().expect(0).out(), "1\n");
        // An image's volume covers /proc, or the files in it that show what the kernel enforces.
        for (destination, kind) in [
            ("/proc", "bind"),
            ("/proc", "tmpfs"),
            ("/proc/sys", "bind"),
            ("/proc/self", "tmpfs"),
            ("/proc/1", "bind"),
            ("/proc/sys/net", "tmpfs"),
        ] {
            bundle.config = whole.clone();
            bundle.mount(destination, kind, common::text(&fake), if kind == "bind" { &["bind"] } else { &[] });
            let called = bundle.run();
            let reason = if destination == "/proc" { "only a procfs" } else { destination };
            assert!(called.out().is_empty() && called.err().contains(reason), "{destination}: {called:?}");
        }
        // Also through a symlink in the image.
        symlink("/proc/sys", bundle.rootfs().join("innocent")).unwrap();
        bundle.config = whole.clone();
        bundle.mount("/innocent", "bind", common::text(&fake), &["bind"]);
        let called = bundle.run();
        assert!(!called.0.status.success() && called.out().is_empty(), "{called:?}");
        // The files that lxcfs and similar tools cover do not show what the kernel enforces.
        bundle.config = whole;
        let file = bundle.dir.file("uptime", "1 1\n");
        bundle.config["process"]["args"] = json!(["cat", "/proc/uptime"]);
        bundle.mount("/proc/uptime", "bind", common::text(&file), &["bind", "ro"]);
        assert_eq!(bundle.run().expect(0).out(), "1 1\n");
    });
}

/// A mount point must be a directory in the image, or the error names the kind of the object there.
#[test]
fn the_kind_of_a_bad_mount_point_is_in_the_error() {
    for_each_runtime(|runtime| {
        for place in ["proc", "sys", "dev", "dev/shm"] {
            for (what, called) in
                [("file", "is a file"), ("fifo", "is a special file"), ("link", "is a symlink; filesystem")]
            {
                let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
                let path = bundle.rootfs().join(place);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                match what {
                    "file" => std::fs::write(&path, "x").unwrap(),
                    "fifo" => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRUSR).unwrap(),
                    _ => symlink("bin", &path).unwrap(),
                }
                if place == "dev/shm" {
                    let mounts = bundle.config["mounts"].as_array_mut().unwrap();
                    mounts.retain(|mount| !mount["destination"].as_str().unwrap().starts_with("/dev"));
                    bundle.mount("/dev/shm", "tmpfs", "shm", &[]);
                    bundle.config["root"]["readonly"] = json!(false);
                }
                if what == "link" && (place.starts_with("dev") || runtime == Runtime::Crun) {
                    continue; // resolved within the root
                }
                let called_so = format!("creating a mount point: /{place}: {} {called}", path.display());
                let ran = bundle.run();
                assert!(!ran.0.status.success() && ran.out().is_empty(), "{place} {what}: {ran:?}");
                assert!(runtime != Runtime::Ours || ran.err().contains(&called_so), "{called_so}: {ran:?}");
            }
        }
        let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
        std::fs::create_dir(bundle.rootfs().join("place")).unwrap();
        let file = bundle.dir.file("given", "");
        bundle.mount("/place", "bind", common::text(&file), &["bind"]);
        let ran = bundle.run();
        assert!(!ran.0.status.success() && ran.out().is_empty(), "{ran:?}");
        assert!(runtime != Runtime::Ours || ran.err().contains("/place is a directory"), "{ran:?}");
    });
}

/// CVE-2022-29162, CVE-2022-24769, CVE-2022-27650, CVE-2025-27612: inheritable capabilities that were not requested, or only with
/// exec.
#[test]
fn cve_2022_29162_exec_has_no_more_capabilities_than_were_given() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) =
            Bundle::new(runtime, "grep ^Cap /proc/self/status; echo up; while :; do sleep 0.1; done")
        else {
            return;
        };
        bundle.config["process"]["capabilities"] = json!({
            "bounding": ["CAP_KILL", "CAP_CHOWN"], "permitted": ["CAP_KILL"], "effective": ["CAP_KILL"],
        });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("up");
        let own = bundle.printed().replace("up\n", "");
        assert!(own.contains("CapInh:\t0000000000000000") && own.contains("CapAmb:\t0000000000000000"), "{own}");
        let more = bundle.exec("grep ^Cap /proc/self/status").expect(0).out();
        if runtime == Runtime::Crun {
            // crun gives commands the whole bounding set, but not more.
            let bounding = own.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
            assert_eq!(more.lines().nth(2), Some(format!("CapEff:{bounding}").as_str()), "{more}");
            return;
        }
        assert_eq!(more, own);
        let said = bundle
            .call(["exec", "--cap", "CAP_NET_RAW", &bundle.id, "grep", "CapInh", "/proc/self/status"])
            .expect(0)
            .out();
        assert!(said.contains("CapInh:\t0000000000000000") || runtime == Runtime::Runc, "{said}");
    });
}

/// CVE-2024-40635, CVE-2026-30892, CVE-2016-3697, CVE-2018-10856: a user that is written in a way that becomes root.
#[test]
fn cve_2024_40635_users_are_numbers_or_nothing() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "while :; do sleep 0.1; done") else { return };
        // The image maps the number to root.
        std::fs::write(bundle.rootfs().join("etc/passwd"), "1000:x:0:0::/:/bin/sh\nname:x:0:0::/:/bin/sh\n").unwrap();
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        for user in [
            "4294967295",
            "4294967296",
            "18446744073709551616",
            "-1",
            "0x3e8",
            " 5",
            "5 ",
            "name",
            "1000:",
            ":",
            "1:2:3",
            "1:-1",
            "+5",
            "5\n",
        ] {
            let called = bundle.call(["exec", "--user", user, &bundle.id, "id", "-u"]);
            assert!(!called.0.status.success() && called.out().is_empty(), "{user:?}: {called:?}");
        }
        assert_eq!(bundle.call(["exec", "--user", "1000", &bundle.id, "id", "-u"]).expect(0).out(), "1000\n");
        assert_eq!(
            bundle.call(["exec", "--user", "4294967294:7", &bundle.id, "id", "-u"]).expect(0).out(),
            "4294967294\n"
        );
    });
}

/// CVE-2021-43784: more than a length field of sixteen bits can hold.
#[test]
fn cve_2021_43784_long_configurations_change_no_other_field() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "readlink /proc/self/ns/net; cat /proc/self/uid_map | grep -c .")
        else {
            return;
        };
        let own = std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string();
        let whole = bundle.config.clone();
        for length in [65_519, 65_530, 65_536, 65_552, 70_000, 131_072] {
            bundle.config = whole.clone();
            let path = format!("/{}", "x/".repeat(length / 2));
            bundle.config["linux"]["namespaces"].as_array_mut().unwrap().push(json!({ "type": "time", "path": path }));
            let called = bundle.run();
            assert!(!called.0.status.success() && called.out().is_empty(), "{length}");
        }
        bundle.config = whole;
        let map: Vec<_> = (0..340u32).map(|n| json!({ "containerID": n, "hostID": n, "size": 1 })).collect();
        let linux = &mut bundle.config["linux"];
        linux["namespaces"].as_array_mut().unwrap().push(json!({ "type": "user" }));
        (linux["uidMappings"], linux["gidMappings"]) = (json!(map), json!(map));
        let said = bundle.run().expect(0).out();
        assert!(!said.contains(&own) && said.ends_with("340\n"), "{said}");
    });
}

/// CVE-2022-0492, CVE-2023-25809: the container changes the cgroups that it sees, and the host runs a program when one is empty.
#[test]
fn cve_2022_0492_the_cgroups_that_a_container_sees_cannot_be_changed() {
    for_each_runtime(|runtime| {
        // With crun, the tmpfs above the hierarchies of cgroup v1 is writable.
        let crun_v1 = runtime == Runtime::Crun && !std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let top = if crun_v1 { "" } else { "/sys/fs/cgroup" };
        let script = "for d in TOP /sys/fs/cgroup/*; do (echo x > $d/release_agent) 2>/dev/null && echo AGENT; \
            mkdir $d/made 2>/dev/null && echo MADE; (echo max > $d/pids.max) 2>/dev/null && echo LIMIT; done; \
            mount -t cgroup -o rdma cgroup /mnt 2>/dev/null && echo MOUNTED; true";
        let Some(mut bundle) = Bundle::new(runtime, &script.replace("mkdir", "busybox mkdir").replace("TOP", top))
        else {
            return;
        };
        std::fs::create_dir(bundle.rootfs().join("mnt")).unwrap();
        bundle.mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", "ro"]);
        bundle.config["linux"]["resources"] =
            json!({ "pids": { "limit": 50 }, "devices": [{ "allow": false, "access": "rwm" }] });
        assert_eq!(bundle.run().expect(0).out(), "");
    });
}

/// CVE-2025-23266, CVE-2019-14271, CVE-2026-41567: the image or the container's process chooses the environment of a program that
/// runs on the host.
#[test]
fn cve_2025_23266_hooks_have_the_environment_that_they_were_given() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let said = bundle.dir.join("said");
        bundle.config["process"]["env"] = json!(["PATH=/bin", "LD_PRELOAD=/evil.so", "BASH_ENV=/evil"]);
        // The hooks read the state, because crun sometimes dies of a closed pipe.
        let shell = |script: &str| {
            let script = format!("/bin/cat >/dev/null; {script}");
            json!([{ "path": "/bin/sh", "args": ["sh", "-c", script], "env": ["ONE=1"] }])
        };
        let (hook, script) =
            (shell("/usr/bin/env"), shell(&format!("/usr/bin/env > {}; pwd >> {0}", common::text(&said))));
        for stage in ["createRuntime", "createContainer", "poststop"] {
            bundle.config["hooks"] = json!({ "prestart": hook, stage: script });
            let _ = std::fs::remove_file(&said);
            bundle.run().expect(0);
            let text = std::fs::read_to_string(&said).unwrap();
            assert!(
                text.contains("ONE=1") && !text.contains("LD_PRELOAD") && !text.contains("BASH_ENV"),
                "{stage}: {text}"
            );
        }
    });
}

/// CVE-2026-62867, CVE-2026-33945: ids and paths that become options or leave their directory.
#[test]
fn cve_2026_33945_ids_are_names() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let outside = Outside::of(&bundle);
        for id in ["../outside/x", "..", ".", "a/b", "a\nb", "", "--root", "-x", "a b", "é"] {
            let called = bundle.call(["run", "--bundle", common::text(bundle.dir.path()), "--", id]);
            assert!(!called.0.status.success(), "{id:?}");
            outside.check(id);
        }
    });
}

/// CVE-2021-41103, CVE-2024-25621: other users can read a container's state.
#[test]
fn cve_2021_41103_other_users_cannot_read_the_state() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "sleep 60") else { return };
        bundle.create().expect(0);
        let mut seen = 0;
        let mut left = vec![bundle.dir.join("state")];
        while let Some(path) = left.pop() {
            let mode = std::fs::symlink_metadata(&path).unwrap().mode();
            assert_eq!(mode & 0o077, 0, "{} {mode:o}", path.display());
            seen += 1;
            if path.is_dir() {
                left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        assert!(seen >= 3);
    });
}

/// Inspects every process that does not run the container's program, in a loop: its descriptors, its executable, its working
/// directory, its capabilities, and whether it can be traced.
const SPY: &str = r#"
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[4096], link_[4096];
static const char *read_link(const char *p) {
    ssize_t n = readlink(p, link_, sizeof link_ - 1);
    link_[n < 0 ? 0 : n] = 0;
    return link_;
}

static void look(const char *pid) {
    snprintf(path, sizeof path, "/proc/%s/exe", pid);
    const char *exe = read_link(path);
    if (!*exe || strstr(exe, "/busybox") || strstr(exe, "/spy")) return;
    int first = 1;
    snprintf(path, sizeof path, "/proc/%s/exe", pid);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) { puts("WRITABLE exe"); close(fd); }
    snprintf(path, sizeof path, "/proc/%s/status", pid);
    FILE *status = fopen(path, "re");
    char line[256];
    while (status && fgets(line, sizeof line, status))
        if (!strncmp(line, "CapEff:", 7)) printf("SEEN caps %llx\n", strtoull(line + 7, 0, 16));
    if (status) fclose(status);
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *fds = opendir(path);
    struct dirent *entry;
    while (fds && (entry = readdir(fds))) {
        if (!isdigit(entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%s/fd/%s", pid, entry->d_name);
        const char *to = read_link(path);
        struct stat st;
        if (to[0] != '/' || stat(path, &st)) continue;
        if (S_ISDIR(st.st_mode)) printf("DIRECTORY %s %s\n", entry->d_name, to);
        else if (S_ISREG(st.st_mode)) printf("FILE %s %s\n", entry->d_name, to);
    }
    if (fds) closedir(fds);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/%s/%s/host-marker", pid, i ? "cwd" : "root");
        if (!access(path, F_OK)) printf("OUTSIDE %s\n", i ? "cwd" : "root");
    }
    if (getenv("SEIZE")) {
        pid_t p = atoi(pid);
        if (!ptrace(PTRACE_SEIZE, p, 0, 0)) {
            int how;
            puts("TRACED");
            ptrace(PTRACE_INTERRUPT, p, 0, 0);
            while (waitpid(p, &how, __WALL) == p && !WIFEXITED(how) && !WIFSIGNALED(how))
                if (!ptrace(PTRACE_DETACH, p, 0, 0)) break;
        }
    }
    fflush(stdout);
}

int main(void) {
    setvbuf(stdout, 0, _IOLBF, 0);
    puts("watching");
    for (;;) {
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        while ((entry = readdir(proc)))
            if (isdigit(entry->d_name[0]) && atoi(entry->d_name) > 1 && atoi(entry->d_name) != getpid()) look(entry->d_name);
        closedir(proc);
    }
}
"#;

/// CVE-2016-9962, CVE-2016-8659, CVE-2026-41163: a process that joins a container is inspected and taken over before it is
/// confined. The attacker has CAP_SYS_PTRACE, so the kernel allows it to trace everything that it sees.
#[test]
fn cve_2016_9962_a_process_that_joins_has_nothing_to_take() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        let Some(spy) = compiled(&bundle.dir, "spy", SPY) else { return };
        std::fs::copy(spy, bundle.rootfs().join("bin/spy")).unwrap();
        bundle.config["process"]["args"] = json!(["/bin/spy"]);
        bundle.config["process"]["env"] = json!(["PATH=/bin", "SEIZE=1"]);
        let sets = json!(["CAP_SYS_PTRACE", "CAP_KILL", "CAP_DAC_READ_SEARCH"]);
        bundle.config["process"]["capabilities"] = json!({ "bounding": sets, "permitted": sets, "effective": sets });
        // Both orders of confinement: before and after the capabilities are dropped.
        for (forbidden, filtered) in [(true, true), (false, true), (false, false)] {
            bundle.config["process"]["noNewPrivileges"] = json!(forbidden);
            let calls = json!([{ "names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO" }]);
            let profile = json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": calls });
            bundle.config["linux"]["seccomp"] = if filtered { profile } else { json!(null) };
            bundle.create().expect(0);
            bundle.about("start").expect(0);
            bundle.wait_for_output("watching");
            for _ in 0..if host::is_uml() { 30 } else { 150 } {
                let called = bundle.exec("true"); // it may be stopped or fail under this attack
                assert!(called.0.status.code().is_some());
            }
            let said = bundle.printed();
            bundle.call(["delete", "--force", &bundle.id]).expect(0);
            let seen = said.lines().filter(|line| line.starts_with("SEEN")).count();
            let traced = said.lines().filter(|line| *line == "TRACED").count();
            eprintln!("no_new_privs {forbidden}, filter {filtered}: seen {seen} times, traced {traced} times");
            for bad in ["WRITABLE", "DIRECTORY", "OUTSIDE", "FILE"] {
                let found: Vec<_> = said.lines().filter(|line| line.starts_with(bad)).take(5).collect();
                assert!(found.is_empty(), "{found:?}");
            }
            // CAP_KILL, CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE: the container's own capabilities.
            let own = 1u64 << 5 | 1 << 2 | 1 << 19;
            for line in said.lines().filter_map(|line| line.strip_prefix("SEEN caps ")) {
                let caps = u64::from_str_radix(line, 16).unwrap();
                assert_eq!(
                    caps & !own,
                    0,
                    "it had more than the container: {line} (no_new_privs {forbidden}, filter {filtered})"
                );
            }
        }
    });
}

/// Proves that the programs above detect an attack that succeeds.
#[test]
fn the_detectors_of_these_tests_work() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let outside = Outside::of(&bundle);
        std::fs::write(Path::new(outside.text()).join("dir/x"), "").unwrap();
        assert_ne!(host::fingerprint(&outside.path), outside.before);
    });
}
