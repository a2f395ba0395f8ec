//! Language runtimes, package tools, test runners and C libraries work under the default seccomp profile, as root and as an
//! unprivileged user. Those of [`workloads`](super::workloads) are not repeated here.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common;
use crate::common::host::{busybox_rootfs, idmappable_dir};
use crate::common::{
    Caller, Outcome, PATH, Run, TempDir, compiled, for_each_caller, has_program, set_mode, skip, skip_part, text,
};

/// In a workspace, with a network of its own, and with exactly the default profile.
#[track_caller]
fn run(caller: Caller, workspace: &TempDir, options: &[&str], script: &str) -> Outcome {
    let outcome = Run::new(caller)
        .opts(["--workspace", text(workspace.path())])
        .opts(options.iter().copied())
        .cmd(["/bin/bash", "-c", script])
        .go()
        .expect(0);
    assert_eq!(outcome.report()["enforced"]["seccomp"]["profile"], "default", "{outcome}");
    outcome
}

#[test]
fn pytest() {
    if !Command::new(common::PYTHON).args(["-m", "pytest", "--version"]).output().is_ok_and(|out| out.status.success())
    {
        return skip("the system's Python has no pytest");
    }
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        workspace.file("conftest.py", "import pytest\n@pytest.fixture(scope='session')\ndef answer(): return 42\n");
        workspace.file(
            "test_things.py",
            "
import os, socket, sqlite3, subprocess, sys, threading, multiprocessing, pytest
def test_fixture(answer): assert answer == 42
@pytest.mark.parametrize('n', range(20))
def test_parametrized(n): assert n * 2 == n + n
def test_tmp_path(tmp_path):
    (tmp_path / 'f').write_text('x'); os.symlink('f', tmp_path / 'l'); assert (tmp_path / 'l').read_text() == 'x'
def test_capture(capfd): os.write(1, b'raw'); assert capfd.readouterr().out == 'raw'
def test_monkeypatch(monkeypatch): monkeypatch.setenv('A', 'b'); assert os.environ['A'] == 'b'
def test_subprocess(): assert subprocess.check_output([sys.executable, '-c', 'print(7)']) == b'7\\n'
def test_socket():
    server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())
    connection, _ = server.accept(); client.sendall(b'hi'); assert connection.recv(2) == b'hi'
def test_fork():
    with multiprocessing.get_context('fork').Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
@pytest.mark.xfail(strict=True)
def test_fails(): assert False
",
        );
        let outcome =
            run(caller, &workspace, &[], "/usr/bin/python3 -m pytest -q --color=no --junitxml=out.xml | tail -n 1");
        assert!(outcome.text().starts_with("27 passed, 1 xfailed in "), "{outcome}");
        assert!(workspace.join("out.xml").exists() && workspace.join(".pytest_cache").exists());
    });
}

#[test]
fn npm_without_a_network() {
    if !has_program("npm") || !has_program("node") {
        return;
    }
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        workspace.dir("dep");
        workspace.file(
            "dep/package.json",
            r#"{ "name": "dep", "version": "1.2.3", "main": "i.js", "bin": { "dep-tool": "tool.js" } }"#,
        );
        workspace.file("dep/i.js", "module.exports = 42\n");
        set_mode(
            &workspace.file("dep/tool.js", "#!/usr/bin/env node\nconsole.log('tool', require('./i.js'))\n"),
            0o755,
        );
        workspace.file(
            "package.json",
            r#"{ "name": "x", "version": "1.0.0", "dependencies": { "dep": "file:dep" },
                 "scripts": { "prebuild": "echo before", "build": "dep-tool && node -p \"require('dep') + 1\"",
                              "test": "node --test" } }"#,
        );
        workspace
            .file("x.test.js", "require('node:test')('holds', () => require('assert').equal(require('dep'), 42))\n");
        let script = "set -e
            npm install --offline --no-audit --no-fund >log 2>&1 || { cat log; exit 1; }
            npm run --silent build; npm test >log 2>&1 || { cat log; exit 1; }; grep -cE '^(#|ℹ) pass 1' log
            npm pack --silent; npm ls --offline | grep -c dep@1.2.3; npm ci --offline --no-audit --no-fund >/dev/null && echo clean";
        for policy in ["default", "build"] {
            let outcome = run(caller, &workspace, &["-p", policy], script);
            assert_eq!(outcome.text(), "before\ntool 42\n43\n1\nx-1.0.0.tgz\n1\nclean\n", "{policy}: {outcome}");
        }
    });
}

#[test]
fn a_java_virtual_machine() {
    if !has_program("java") {
        return;
    }
    let compiler = has_program("javac");
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        let version = run(caller, &workspace, &[], "java -version 2>&1 | grep -c 'Server VM\\|Zero VM\\|Client VM'");
        assert_eq!(version.text(), "1\n");
        if !compiler {
            return;
        }
        workspace.file(
            "Main.java",
            r#"
import java.net.*; import java.nio.file.*; import java.security.*; import java.util.concurrent.*; import java.util.stream.*;
public class Main {
    public static void main(String[] args) throws Exception {
        System.out.println(IntStream.rangeClosed(1, 100000).parallel().mapToLong(n -> n).sum());
        ExecutorService pool = Executors.newFixedThreadPool(8);
        Callable<Integer> one = () -> 1;
        int sum = 0;
        for (Future<Integer> done : pool.invokeAll(java.util.Collections.nCopies(32, one))) sum += done.get();
        System.out.println(sum);
        pool.shutdown();
        Path file = Files.writeString(Files.createTempFile("x", "y"), "text");
        System.out.println(Files.readString(file) + Files.getAttribute(file, "unix:mode").toString().length());
        System.out.println(new String(new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim());
        byte[][] waste = new byte[64][];
        for (int i = 0; i < 4000; i++) waste[i % 64] = new byte[1 << 18];
        System.gc();
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Socket client = new Socket(server.getInetAddress(), server.getLocalPort()), peer = server.accept();
            client.getOutputStream().write(7);
            System.out.println(peer.getInputStream().read());
        }
        System.out.println(MessageDigest.getInstance("SHA-256").digest().length + SecureRandom.getInstanceStrong().generateSeed(4).length);
    }
}
"#,
        );
        let expected = "5000050000\n32\ntext5\nchild\n7\n36\n";
        let memory = "-Xmx256m";
        let script = format!(
            "set -e; java {memory} Main.java; javac -d out Main.java && jar --create --file m.jar --main-class Main -C out . \
             && java {memory} -XX:+UseParallelGC -jar m.jar"
        );
        let outcome = run(caller, &workspace, &[], &script);
        assert_eq!(outcome.text(), expected.repeat(2), "{outcome}");
    });
}

#[test]
fn sqlite() {
    if !has_program("sqlite3") {
        return;
    }
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        let script = r#"set -e
sqlite3 base "pragma journal_mode=wal; create table t(a integer primary key, b text);"
for writer in 1 2 3 4; do (
    for n in 1 2 3 4 5; do sqlite3 -cmd '.timeout 60000' base "insert into t(b) values ('$writer-$n');"; done
) & done; wait
sqlite3 base "select count(*), count(distinct b) from t; pragma integrity_check;"
sqlite3 base ".backup copy" && sqlite3 copy "vacuum; select count(*) from t;"
sqlite3 base .dump | sqlite3 other && sqlite3 -json other "select count(*) as n from t"
sqlite3 :memory: "with recursive c(x) as (values(1) union all select x+1 from c limit 1000) select sum(x) from c;"
"#;
        let outcome = run(caller, &workspace, &[], script);
        assert_eq!(outcome.text(), "wal\n20|20\nok\n20\n[{\"n\":20}]\n500500\n");
    });
}

/// The system calls that a C library makes for a program.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
extern char **environ;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int count;
static volatile sig_atomic_t alarms;
#define CHECK(what) do { if (!(what)) { printf("%s: %s\n", #what, strerror(errno)); return 1; } } while (0)
static void *work(void *unused)
{
	pthread_mutex_lock(&lock);
	count++;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	return unused;
}
static void *forever(void *unused) { for (;;) pause(); return unused; }
static void on_alarm(int signal) { (void)signal; alarms++; }
int main(int argc, char **argv)
{
	pthread_t threads[16], stuck;
	int pair[2], status, fd;
	pid_t pid;
	char line[64] = "", *child[] = { argv[0], "child", NULL };
	struct stat info;
	if (argc > 1)
		return 7;
	for (int n = 0; n < 16; n++)
		CHECK(!pthread_create(&threads[n], NULL, work, NULL));
	pthread_mutex_lock(&lock);
	while (count < 16)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	for (int n = 0; n < 16; n++)
		CHECK(!pthread_join(threads[n], NULL));
	CHECK(!pthread_create(&stuck, NULL, forever, NULL) && !pthread_cancel(stuck) && !pthread_join(stuck, NULL));
	CHECK(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, child, environ));
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 7);
	CHECK((pid = fork()) >= 0);
	if (!pid)
		_exit(9);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
	CHECK(WEXITSTATUS(system("exit 5")) == 5);
	FILE *pipe = popen("echo piped", "r");
	CHECK(pipe && fgets(line, sizeof line, pipe) && !strcmp(line, "piped\n") && !pclose(pipe));
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) && send(pair[0], "x", 1, 0) == 1);
	struct pollfd ready = { .fd = pair[1], .events = POLLIN };
	CHECK(poll(&ready, 1, 1000) == 1);
	char name[] = "/tmp/libraryXXXXXX";
	CHECK((fd = mkstemp(name)) >= 0 && !ftruncate(fd, 8192) && !fstat(fd, &info) && info.st_size == 8192);
	char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED && !mprotect(map, 4096, PROT_READ) && !msync(map, 8192, MS_SYNC) && !munmap(map, 8192));
	CHECK(!unlink(name) && tmpfile());
	struct sigaction action = { .sa_handler = on_alarm };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct itimerspec soon = { .it_value.tv_nsec = 1000000 };
	timer_t timer;
	CHECK(!sigaction(SIGALRM, &action, NULL) && !timer_create(CLOCK_MONOTONIC, &event, &timer));
	CHECK(!timer_settime(timer, 0, &soon, NULL));
	struct timespec nap = { .tv_nsec = 20000000 };
	while (nanosleep(&nap, &nap) && errno == EINTR)
		;
	CHECK(alarms == 1 && !timer_delete(timer));
	sem_t *semaphore = sem_open("/library", O_CREAT | O_EXCL, 0600, 1);
	CHECK(semaphore != SEM_FAILED && !sem_wait(semaphore) && !sem_post(semaphore) && !sem_unlink("/library"));
	CHECK((fd = shm_open("/library", O_CREAT | O_RDWR, 0600)) >= 0 && !shm_unlink("/library"));
	struct passwd *user = getpwuid(getuid());
	CHECK(user && user->pw_name[0]);
	unsigned char random[16];
	CHECK(!getentropy(random, sizeof random));
	char *big = malloc(64 << 20);
	CHECK(big && memset(big, 1, 64 << 20) && (big = realloc(big, 96 << 20)));
	free(big);
	printf("all of it, as %s\n", user->pw_name);
	return 0;
}
"#;

/// The program above, compiled on the host; `None` without the compiler.
fn library_program(dir: &TempDir, compiler: &str, how: &[&str]) -> Option<PathBuf> {
    if !PATH.split(':').any(|place| Path::new(place).join(compiler).exists()) {
        skip_part(compiler, "it is not installed");
        return None;
    }
    let program = dir.join(&format!("{compiler}{}", how.concat()));
    // Warnings of C library headers and of a static glibc are ignored.
    let built = compiled(compiler, &[how, &["-O1", "-w", "-pthread"]].concat(), LIBRARY);
    std::fs::copy(built.unwrap_or_else(|error| panic!("{error}")), &program).unwrap();
    set_mode(&program, 0o755);
    Some(program)
}

#[test]
fn glibc_and_musl_dynamic_and_static() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        for compiler in ["gcc", "musl-gcc"] {
            for how in [&[][..], &["-static"]] {
                let Some(program) = library_program(&dir, compiler, how) else { continue };
                let mut outputs = Vec::new();
                for policy in ["default", "build"] {
                    let bind = format!("{}:/opt/program:ro", text(&program));
                    let outcome = Run::new(caller).opts(["-p", policy, "--workspace", text(dir.path()), "-v", &bind]);
                    let outcome = outcome.cmd(["/opt/program"]).go().expect(0);
                    assert_eq!(outcome.report()["enforced"]["seccomp"]["profile"], "default");
                    outputs.push(outcome.text());
                }
                assert_eq!(outputs, ["all of it, as sandbox\n"; 2], "{compiler} {how:?}");
            }
        }
    });
}

/// An Alpine-like system: busybox, musl's loader and a program that needs it, without files of the host.
#[test]
fn a_musl_system() {
    const LOADER: &str = "/lib/ld-musl-x86_64.so.1";
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let Some(root) = busybox_rootfs(&dir) else { return };
        let Some(program) = library_program(&dir, "musl-gcc", &[]) else { return };
        let Ok(loader) = std::fs::canonicalize(LOADER) else {
            return skip_part("", "musl's loader has another name here");
        };
        dir.dir("rootfs/lib");
        std::fs::copy(loader, root.join("lib/ld-musl-x86_64.so.1")).unwrap();
        std::fs::copy(program, root.join("bin/library")).unwrap();
        for applet in ["seq", "sort", "head", "wc", "tar", "gzip", "zcat", "awk", "sed", "xargs", "find", "mkfifo"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        let script = "library && seq 100 | sort -rn | head -n 1 && cd /tmp && seq 1000 >a && tar cf - a | gzip | zcat | tar tf - \
                      && seq 10 | awk '{ s += $1 } END { print s }' | sed s/5/x/g && seq 4 | xargs -n1 -P4 echo | wc -l \
                      && mkfifo f && (echo through >f & cat f) && find /bin -name sh";
        let outcome = Run::new(caller).opts(["--rootfs", text(&root)]).cmd(["sh", "-c", script]).go().expect(0);
        assert_eq!(outcome.text(), "all of it, as user\n100\na\nxx\n4\nthrough\n/bin/sh\n", "{outcome}");
    });
}
