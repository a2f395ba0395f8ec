//! Common programs work: interpreters, compilers, version control, each as root and as an unprivileged user.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common;
use crate::common::host::{busybox_rootfs, idmappable_dir};
use crate::common::{Caller, Outcome, Run, TempDir, for_each_caller, has_program, outside, set_mode, skip, text};

fn python(caller: Caller, program: &str) -> Outcome {
    Run::new(caller).cmd([common::PYTHON, "-c", program]).go().expect(0)
}

#[test]
fn python_multiprocessing() {
    for_each_caller(|caller| {
        let program = "
import multiprocessing as mp
def square(x): return x * x
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        with mp.get_context(method).Pool(3) as pool:
            print(method, sum(pool.map(square, range(100))))
    queue = mp.Queue(); lock = mp.Lock(); value = mp.Value('i', 0)
    def work():
        with lock: value.value += 1
        queue.put('x')
    workers = [mp.Process(target=work) for _ in range(4)]
    [w.start() for w in workers]; [queue.get(timeout=10) for w in workers]; [w.join() for w in workers]
    from multiprocessing import shared_memory
    memory = shared_memory.SharedMemory(create=True, size=4096); memory.buf[0] = 7; memory.close(); memory.unlink()
    print(value.value)
";
        let dir = TempDir::new(caller);
        let file = dir.file("program.py", program); // spawn imports it by path
        let outcome =
            Run::new(caller).opts(["--ro", text(dir.path())]).cmd([common::PYTHON, text(&file)]).go().expect(0);
        assert_eq!(outcome.text(), "fork 328350\nspawn 328350\nforkserver 328350\n4\n");
    });
}

#[test]
fn python_threads_sqlite_ssl_and_subprocess() {
    for_each_caller(|caller| {
        let outcome = python(
            caller,
            "
import concurrent.futures, hashlib, sqlite3, ssl, subprocess, tempfile, threading, asyncio, random, socket, os
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    print(sum(pool.map(lambda n: n, range(100))))
path = os.path.join(tempfile.mkdtemp(), 'base')
with sqlite3.connect(path) as base:
    base.execute('pragma journal_mode=wal')
    base.execute('create table t(x)'); base.executemany('insert into t values (?)', [(n,) for n in range(1000)])
print(sqlite3.connect(path).execute('select sum(x) from t').fetchone()[0])
print(len(ssl.create_default_context().get_ca_certs()) >= 0, ssl.OPENSSL_VERSION.split()[0], hashlib.sha256(b'').hexdigest()[:4])
print(subprocess.run(['sh', '-c', 'echo $((6*7))'], capture_output=True, text=True).stdout.strip())
print(subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True).communicate(b'piped')[0])
async def main():
    server = await asyncio.start_server(lambda r, w: (w.write(b'hi'), w.close()), '127.0.0.1', 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    return await reader.read()
print(asyncio.run(main()))
a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1), os.cpu_count() > 0, len(os.urandom(8)))
",
        );
        assert_eq!(outcome.text(), "4950\n499500\nTrue OpenSSL e3b0\n42\nb'piped'\nb'hi'\nb'x' True 8\n");
    });
}

#[test]
fn node_worker_threads_and_files() {
    if !has_program("node") {
        return;
    }
    for_each_caller(|caller| {
        let program = "
const { Worker } = require('worker_threads'), fs = require('fs'), os = require('os'), path = require('path');
const { execFileSync } = require('child_process'), crypto = require('crypto'), zlib = require('zlib');
const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'x'));
fs.writeFileSync(dir + '/a', 'content');
const square = n => new Promise((resolve, reject) => {
  const w = new Worker('const {parentPort, workerData} = require(\"worker_threads\"); parentPort.postMessage(workerData ** 2)', { eval: true, workerData: n });
  w.on('message', resolve); w.on('error', reject);
});
Promise.all([1, 2, 3].map(square)).then(async squares => {
  console.log(squares.join(), fs.readFileSync(dir + '/a', 'utf8'), (await fs.promises.readdir(dir)).join());
  console.log(execFileSync('echo', ['child']).toString().trim(), crypto.randomBytes(4).length, zlib.gunzipSync(zlib.gzipSync('z')).toString());
  const server = require('http').createServer((q, s) => s.end('served')).listen(0, '127.0.0.1', () =>
    fetch('http://127.0.0.1:' + server.address().port).then(r => r.text()).then(t => { console.log(t); server.close(); }));
});
";
        let outcome = Run::new(caller).cmd(["node", "-e", program]).go().expect(0);
        assert_eq!(outcome.text(), "1,4,9 content a\nchild 4 z\nserved\n");
    });
}

#[test]
fn shell_pipelines_over_coreutils() {
    for_each_caller(|caller| {
        let script = r#"
set -euo pipefail
seq 1 1000 | awk '{ s += $1 } END { print s }'
printf '%s\n' b a c b | sort | uniq -c | sort -rn | head -n 1 | tr -s ' '
find /usr/share -maxdepth 1 -type d | wc -l | grep -qv '^0$' && echo found
cd /tmp && mkdir -p a/b && echo x > a/b/f && tar cf - a | tar tf - | tail -n 1
cat <(echo sub) <(echo stitution) | paste -sd-
mapfile -t lines < <(seq 3); echo "${#lines[@]}"
dd if=/dev/zero bs=1k count=10 2>/dev/null | gzip | zcat | wc -c
coproc cat; echo hi >&"${COPROC[1]}"; read -r answer <&"${COPROC[0]}"; echo "$answer"
timeout 0.1 sleep 10 || echo "status $?"
date +%Y | grep -c 20; env | grep -c '^HOME='; xargs -P4 -n1 echo < <(seq 4) | wc -l
"#;
        let outcome = Run::new(caller).cmd(["/bin/bash", "-c", script]).go().expect(0);
        assert_eq!(outcome.text(), "500500\n 2 b\nfound\na/b/f\nsub-stitution\n3\n10240\nhi\nstatus 124\n1\n1\n4\n");
    });
}

#[test]
fn git_in_a_workspace() {
    if !has_program("git") {
        return;
    }
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        let script = "
set -e
git init -q -b main project && cd project
git config user.email a@example.org && git config user.name A
echo one > file && git add file && git commit -qm one
git checkout -qb side && echo two >> file && git commit -qam two && git checkout -q main && git merge -q side
cd .. && git clone -q project copy && cd copy && git log --oneline | wc -l && git fsck 2>&1 && git gc -q && git status --short && cat file
";
        let outcome = Run::new(caller).opts(["--workspace", text(workspace.path())]).sh(script).go().expect(0);
        assert_eq!(outcome.text(), "2\none\ntwo\n");
        let head = fs::read_to_string(workspace.join("copy/.git/HEAD")).unwrap();
        assert_eq!(head, "ref: refs/heads/main\n");
    });
}

/// As root, only the owner of the directory itself can be mapped.
#[test]
fn git_in_a_workspace_of_several_owners() {
    if !has_program("git") || !common::is_root() {
        return skip("files of other owners take root, and git");
    }
    let workspace = idmappable_dir(Caller::Root);
    let (status, said) = outside(Caller::Root, ["git", "init", "-q", text(workspace.path())]);
    assert_eq!(status, 0, "{said}");
    outside(Caller::Root, ["chown", "-R", "1234:1234", text(&workspace.join(".git"))]);
    let run = |options: &[&str]| {
        let run = Run::new(Caller::Root).opts(["--workspace", text(workspace.path())]).opts(options.iter().copied());
        run.sh("touch new && git status --short").go()
    };
    let plain = run(&[]).expect(128);
    assert!(plain.stderr.contains("dubious ownership"), "the case shows nothing: {plain}");
    assert_eq!(run(&["-p", "build"]).expect(0).text(), "?? new\n");
}

#[test]
fn gcc_and_make() {
    if !has_program("gcc") || !has_program("make") {
        return;
    }
    for_each_caller(|caller| {
        let workspace = idmappable_dir(caller);
        workspace.file("main.c", "#include <stdio.h>\n#include <math.h>\nint part(void);\nint main(void) { printf(\"%d %.0f\\n\", part(), sqrt(part() * 1.0)); return 0; }\n");
        workspace.file("part.c", "int part(void) { return 49; }\n");
        workspace.file("Makefile", "program: main.o part.o\n\tgcc -o $@ $^ -lm\n%.o: %.c\n\tgcc -O2 -pthread -c $<\n");
        let outcome = Run::new(caller)
            .opts(["-p", "build", "--workspace", text(workspace.path())])
            .sh("make -s -j2 && ./program")
            .go()
            .expect(0);
        assert_eq!(outcome.text(), "49 7\n");
        assert!(workspace.join("program").exists());
    });
}

/// The toolchain's own directory, with the real cargo and rustc, not the proxies of a version manager.
fn toolchain() -> Option<PathBuf> {
    let rustc = option_env!("RUSTC").unwrap_or("rustc");
    let output = std::process::Command::new(rustc).args(["--print", "sysroot"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.join("bin/cargo").exists().then_some(path)
}

/// The toolchain, or hard links to its programs and libraries where the caller can reach them.
fn within_reach(toolchain: &Path, caller: Caller, shared: &TempDir) -> Option<PathBuf> {
    let reachable = |directory: &Path| outside(caller, ["test", "-x", text(&directory.join("bin/cargo"))]).0 == 0;
    if reachable(toolchain) {
        return Some(toolchain.to_owned());
    }
    let links = shared.dir("toolchain");
    for part in ["bin", "lib"] {
        let copied = std::process::Command::new("cp").args(["-al", text(&toolchain.join(part)), text(&links)]).status();
        if !copied.is_ok_and(|status| status.success()) {
            return None;
        }
    }
    reachable(&links).then_some(links)
}

#[test]
fn cargo_build_offline() {
    if !has_program("gcc") {
        return;
    }
    let Some(toolchain) = toolchain() else { return skip("no Rust toolchain with cargo in it") };
    for_each_caller(|caller| {
        let shared = TempDir::new(caller);
        let Some(toolchain) = within_reach(&toolchain, caller, &shared) else {
            return common::skip_part("unprivileged", "this user cannot reach the toolchain");
        };
        let workspace = idmappable_dir(caller);
        workspace.dir("src");
        workspace.dir("dep");
        workspace.dir("dep/src");
        workspace.file("Cargo.toml", "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ndep = { path = \"dep\" }\n");
        workspace.file(
            "src/main.rs",
            "fn main() { println!(\"{}\", dep::answer()); }\n#[test] fn holds() { assert_eq!(dep::answer(), 42); }\n",
        );
        workspace.file("dep/Cargo.toml", "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n");
        workspace.file("dep/src/lib.rs", "pub fn answer() -> u32 { 42 }\n");
        workspace.file("dep/build.rs", "fn main() { println!(\"cargo::rerun-if-changed=build.rs\"); }\n");
        let outcome = Run::new(caller)
            .opts(["-p", "build", "--workspace", text(workspace.path()), "-v", &format!("{}:/opt/rust:ro", text(&toolchain))])
            .opts(["-e", "PATH=/opt/rust/bin:/usr/bin:/bin", "-e", "LD_LIBRARY_PATH=/opt/rust/lib", "-e", "CARGO_HOME=/tmp/cargo"])
            .sh("cargo build --offline -q && ./target/debug/small && cargo test --offline -q 2>&1 | grep -c 'test result: ok'")
            .go()
            .expect(0);
        assert_eq!(outcome.text(), "42\n1\n");
    });
}

#[test]
fn two_hundred_processes_at_once() {
    for_each_caller(|caller| {
        // They end on request, so that all run at once on a slow machine too.
        let script = "i=0; all=; while [ $i -lt 200 ]; do sleep 100 & all=\"$all $!\"; i=$((i+1)); done; \
                      ls -d /proc/[0-9]* | wc -l; kill $all; wait; echo done";
        let outcome = Run::new(caller).sh(script).go().expect(0);
        let lines = outcome.lines();
        assert!(lines[0].parse::<u32>().unwrap() >= 200, "{outcome}");
        assert_eq!(lines[1], "done");
    });
}

#[test]
fn a_program_outside_the_view_gets_a_hint() {
    for_each_caller(|caller| {
        let dir = TempDir::new(caller);
        let program = dir.file("my-own-tool", "#!/bin/sh\necho ran\n");
        set_mode(&program, 0o755);
        let path = format!("{}:{}", text(dir.path()), common::PATH);
        let outcome = Run::new(caller).env("PATH", &path).cmd(["my-own-tool"]).go().expect(127);
        assert!(outcome.stderr.contains(text(dir.path())), "the message gives its path on the host: {outcome}");
        let hint = outcome.report()["error"]["hint"].as_str().unwrap_or_default().to_owned();
        assert!(hint.contains("--ro"), "the hint gives the flag: {outcome}");
        let by_path = Run::new(caller).cmd([text(&program)]).go().expect(127);
        assert!(by_path.stderr.contains("--ro"), "{by_path}");
        let added = Run::new(caller).opts(["--ro", text(dir.path())]).cmd([text(&program)]).go().expect(0);
        assert_eq!(added.text(), "ran\n", "the hint works");
        assert!(hint.contains(&format!("call it as {}", text(&program))), "{outcome}");
        let bare =
            Run::new(caller).env("PATH", &path).opts(["--ro", text(dir.path())]).cmd(["my-own-tool"]).go().expect(127);
        assert!(bare.stderr.contains("not on its PATH: use that path, or add -e PATH="), "{bare}");
        let nowhere = Run::new(caller).cmd(["no-such-command-anywhere"]).go().expect(127);
        assert!(!nowhere.stderr.contains("--ro /"), "{nowhere}");
    });
}

#[test]
fn a_busybox_system() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let Some(root) = busybox_rootfs(&dir) else { return };
        let workspace = dir.dir("workspace");
        let outcome = Run::new(caller)
            .opts(["--rootfs", text(&root), "--workspace", text(&workspace)])
            .cmd(["sh", "-c", "pwd; cat /etc/passwd | grep -c root; echo x > made; ls; ls /proc/self/status"])
            .go()
            .expect(0);
        assert_eq!(outcome.text(), "/workspace\n1\nmade\n/proc/self/status\n");
        assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "x\n");
        let missing = Run::new(caller).opts(["--rootfs", text(&root)]).cmd(["python3"]).go().expect(127);
        assert!(missing.stderr.contains(text(&root)) && !missing.stderr.contains("--ro"), "{missing}");
    });
}

#[test]
fn a_static_and_a_dynamic_program_and_a_script() {
    for_each_caller(|caller| {
        assert!(Path::new("/usr/bin/perl").exists() || Path::new("/bin/sh").exists());
        let dir = TempDir::new(caller);
        let script = dir.file("script", "#!/usr/bin/env -S sh -e\necho $0 $1\n");
        set_mode(&script, 0o755);
        let outcome = Run::new(caller).opts(["--ro", text(dir.path())]).cmd([text(&script), "word"]).go().expect(0);
        assert_eq!(outcome.text(), format!("{} word\n", text(&script)));
        let stockade = Run::new(caller)
            .opts(["-v", &format!("{}:/opt/stockade:ro", env!("CARGO_BIN_EXE_stockade"))])
            .cmd(["/opt/stockade", "--version"])
            .go();
        if stockade.code() != 125 {
            assert!(stockade.expect(0).text().starts_with("stockade "));
        }
    });
}
