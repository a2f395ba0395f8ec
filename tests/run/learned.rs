//! `stockade learn` writes a policy under which the command runs again, and that allows nothing else.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::run::binary_for;
use crate::common::{Caller, PATH, PYTHON, TempDir, attack, for_each_caller, has_program, set_mode, text};

/// A caller with a workspace, and a place for policies beside it.
struct Learner {
    caller: Caller,
    binary: PathBuf,
    home: TempDir,
    workspace: PathBuf,
}

impl Learner {
    fn new(caller: Caller) -> Self {
        let home = TempDir::new(caller);
        let workspace = home.dir("w");
        Self { caller, binary: binary_for(caller, &home), home, workspace }
    }

    fn stockade(&self, words: &[&str]) -> Output {
        let mut command = self.caller.command(&self.binary);
        command.args(words).env_clear().env("PATH", PATH).current_dir(&self.workspace).output().unwrap()
    }

    /// Learns from a command, which holds under its policy. Returns the policy and its text.
    #[track_caller]
    fn learn(&self, options: &[&str], command: &[&str]) -> (String, String) {
        let policy = text(&self.home.join("policy.toml")).to_owned();
        let words = [&["learn", "-o", &policy, "--workspace", ".", "--check"], options, &["--"], command].concat();
        let done = self.stockade(&words);
        assert_eq!(done.status.code(), Some(0), "{}", shown(&done));
        assert!(shown(&done).contains("checked: under it the command ended as before"), "{}", shown(&done));
        let text = std::fs::read_to_string(&policy).unwrap();
        (policy, text)
    }

    /// A run under a policy.
    fn run(&self, policy: &str, command: &[&str]) -> Output {
        self.stockade(&[&["run", "-q", "-p", policy, "--"], command].concat())
    }

    fn file(&self, name: &str, content: &str, mode: u32) {
        let name = format!("w/{name}");
        set_mode(&self.home.file(&name, content), mode);
    }

    /// What is in the workspace's parent.
    fn beside(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.home.path()).unwrap().flatten();
        let mut names: Vec<String> = names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn shown(done: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr))
}

/// The items of a list in a policy.
fn list(policy: &str, name: &str) -> Vec<String> {
    let start = policy.find(&format!("\n{name} = [")).unwrap_or_else(|| panic!("{name}: {policy}"));
    let part = &policy[start..];
    let part = &part[..part.find(']').unwrap()];
    let lines: String = part.lines().map(|line| line.split(" # ").next().unwrap().to_owned() + "\n").collect();
    lines.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn a_program_runs_again_and_what_it_did_not_use_is_refused() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        learner.file("in.txt", "input\n", 0o644);
        learner.file("other.txt", "other\n", 0o644);
        learner.file("log.txt", "", 0o644);
        let program = "import sys\nopen('log.txt', 'a').write(open(sys.argv[1]).read())";
        let python = [PYTHON, "-I", "-S", "-c", program];
        let (policy, text) = learner.learn(&[], &[&python[..], &["in.txt"]].concat());
        let (read, write) = (list(&text, "read"), list(&text, "write"));
        assert!(read.contains(&"/workspace/in.txt:optional".to_owned()), "{text}");
        assert!(read.iter().all(|path| !path.contains("other") && path != "/workspace" && path != "/usr"), "{text}");
        assert_eq!(write, ["/workspace/log.txt:optional"], "{text}");
        assert!(list(&text, "execute").iter().all(|path| path.contains("python3") || path.contains("ld-")), "{text}");
        assert!(text.contains("mode = \"none\""), "no socket was made: {text}");
        let again = |name| learner.run(&policy, &[&python[..], &[name]].concat());
        assert!(again("in.txt").status.success());
        let refused = again("other.txt");
        assert!(shown(&refused).contains("PermissionError") && !refused.status.success(), "{}", shown(&refused));
        for (act, error) in [
            ("open('new.txt', 'w')", "PermissionError"),
            ("open('/etc/passwd')", "PermissionError"),
            ("os.listdir('/usr')", "PermissionError"),
            ("open('/tmp/new', 'w')", "PermissionError"),
            ("os.execv('/bin/sh', ['sh'])", "PermissionError"),
            ("__import__('_socket').socket(2, 1)", "OSError"),
        ] {
            let tried = learner.run(&policy, &[PYTHON, "-I", "-S", "-c", &format!("import os\n{act}")]);
            assert!(shown(&tried).contains(error), "{act}: {}", shown(&tried));
        }
    });
}

#[test]
fn scripts_compilers_and_repositories_run_again() {
    let has_tools = ["gcc", "git"].map(has_program);
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        learner.file("a.c", "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n", 0o644);
        learner.file(
            "script",
            "#!/bin/sh -e\ncd ..\nsort <workspace/a.c >\"$OLDPWD/sorted\"\n./workspace/inner\n",
            0o755,
        );
        learner.file(
            "inner",
            "#!/usr/bin/env sh\nln -sf sorted /workspace/link; cat /workspace/link >/tmp/copy; cat /tmp/copy\n",
            0o755,
        );
        let (_, text) = learner.learn(&[], &["./script"]);
        assert!(text.contains("The policy has no list of programs: /workspace/"), "{text}");
        assert!(list(&text, "write").contains(&"/tmp".to_owned()), "{text}");
        if has_tools[0] {
            let (_, text) = learner.learn(&[], &["gcc", "a.c", "-o", "a.out"]);
            assert_eq!(list(&text, "write"), ["/tmp", "/workspace"], "{text}");
            let (_, text) = learner.learn(&[], &["sh", "-c", "gcc a.c -o b.out && ./b.out"]);
            assert!(text.contains("/workspace/b.out was executed, on a writable mount"), "{text}");
        }
        if has_tools[1] {
            learner.learn(&[], &["git", "init", "-q", "repository"]);
            let commit =
                "cd repository; git add . && git -c user.name=a -c user.email=b@example.com commit -qm c --allow-empty";
            learner.learn(&["-p", "build"], &["sh", "-c", commit]);
        }
    });
}

/// A mount that was not used is left out, and one that was only read becomes read-only, where that does not change its owner.
#[test]
fn a_policy_has_no_mount_that_was_not_used_and_no_secret() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        let (used, unused) = (learner.home.dir("used"), learner.home.dir("unused"));
        learner.home.file("used/file", "content\n");
        let (used, unused) = (text(&used).to_owned(), text(&unused).to_owned());
        let options = ["--rw", &used, "--ro", &unused, "-e", "TOKEN=secret-word"];
        let (_, text) = learner.learn(&options, &["cat", &format!("{used}/file")]);
        assert!(text.contains(&format!("destination = \"{used}\"")), "{text}");
        assert!(
            text.contains(&format!("are not in the policy: {unused}")) && !text.contains(&format!("\"{unused}\"")),
            "{text}"
        );
        assert!(text.contains("TOKEN") && !text.contains("secret-word"), "{text}");
        assert_eq!(
            text.contains("read_only = true"),
            caller == Caller::Unprivileged || !crate::common::is_root(),
            "{text}"
        );
    });
}

/// Lists of the learning run stay the most that a policy allows.
#[test]
fn a_policy_allows_nothing_that_the_run_was_not_allowed() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        learner.home.dir("w/in");
        learner.home.dir("w/out");
        learner.file("in/file", "content\n", 0o644);
        let options = [
            "--allow-read",
            "/usr",
            "--allow-read",
            "/etc/ld.so.cache",
            "--allow-read",
            "/workspace/in",
            "--allow-write",
            "/workspace/out",
        ];
        let script = "cat in/file >out/copy; cat out/copy; ls; echo x >made; true";
        let policy = text(&learner.home.join("policy.toml")).to_owned();
        let words = [&["learn", "-o", &policy, "--workspace", "."], &options[..], &["--", "sh", "-c", script]].concat();
        let done = learner.stockade(&words);
        let text = std::fs::read_to_string(&policy).unwrap_or_else(|error| panic!("{error}: {}", shown(&done)));
        assert_eq!(list(&text, "write"), ["/workspace/out:optional"], "{text}");
        let outside =
            |path: &String| !["/usr/", "/etc/ld.so.cache", "/workspace/in/"].iter().any(|one| path.starts_with(one));
        assert!(!list(&text, "read").iter().any(outside), "{text}");
    });
}

/// The memory of the command says something else whenever it is looked at.
const LIAR: &str = r#"
import threading
path = ctypes.create_string_buffer(b"/workspace/allowed\0\0\0\0", 64)
end = False
def flip():
    while not end:
        path.value = b"/home/hidden"; path.value = b"/etc/shadow"; path.value = b"/workspace/allowed"
thread = threading.Thread(target=flip); thread.start()
for i in range(500):
    fd = libc.open(path, 0)
    if fd >= 0: os.close(fd)
end = True; thread.join()
"#;

#[test]
fn a_program_that_changes_its_memory_learns_no_more_than_it_was_allowed() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        learner.file("allowed", "x\n", 0o644);
        let policy = text(&learner.home.join("policy.toml")).to_owned();
        let options = ["--allow-read", "/usr", "--allow-read", "/etc/ld.so.cache", "--allow-read", "/workspace"];
        let program = attack(LIAR);
        let command = [PYTHON, "-I", "-S", "-c", &program];
        let done = learner
            .stockade(&[&["learn", "-o", &policy, "--workspace", "."], &options[..], &["--"], &command].concat());
        let learned = std::fs::read_to_string(&policy).unwrap_or_else(|error| panic!("{error}: {}", shown(&done)));
        for path in list(&learned, "read") {
            assert!(["/usr/", "/etc/ld.so.cache", "/workspace/"].iter().any(|one| path.starts_with(one)), "{learned}");
        }
    });
}

#[test]
fn there_is_a_whole_policy_or_none() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        let beside = learner.beside();
        let refused = |words: &[&str], said: &str| {
            let done = learner.stockade(&[&["learn"], words].concat());
            assert_eq!(done.status.code(), Some(125), "{words:?}: {}", shown(&done));
            assert!(shown(&done).contains(said), "{words:?}: {}", shown(&done));
            assert!(!shown(&done).contains("was run"), "{}", shown(&done));
        };
        let echo = ["--", "echo", "was run"];
        let with = |words: &[&'static str]| [words, &echo[..]].concat();
        refused(&with(&[]), "--output <FILE>: is missing");
        refused(&with(&["-o", "/nope/x"]), "(from -o /nope/x)");
        refused(&with(&["-o", ".."]), "writing the learned policy");
        refused(&with(&["-o", "p.toml", "--workspace", "."]), "contains the policy that is learned");
        refused(&with(&["-o", "../p.toml", "-d"]), "--detach");
        refused(&with(&["-o", "../p.toml", "--landlock", "off"]), "Landlock");
        refused(&with(&["-o", "../p.toml", "--seccomp", "unconfined"]), "cannot be observed");
        let missing = learner.stockade(&["learn", "-o", "../p.toml", "--", "/no/such/program"]);
        assert_eq!(missing.status.code(), Some(127), "{}", shown(&missing));
        assert_eq!(learner.beside(), beside, "nothing is left of a refused run");
        let old = learner.home.file("p.toml", "# old\n");
        set_mode(&old, 0o644);
        let failed = learner.stockade(&["learn", "-o", "../p.toml", "--", "sh", "-c", "exit 3"]);
        assert_eq!(failed.status.code(), Some(1), "{}", shown(&failed));
        let text = std::fs::read_to_string(&old).unwrap();
        assert!(text.contains("The run ended with exit code 3"), "{text}");
        assert_eq!(std::fs::metadata(&old).unwrap().permissions().mode() & 0o022, 0);
        assert!(Path::new(&old).exists());
    });
}

/// A mount over another one may be there so that nobody uses what lies below it.
#[test]
fn an_unused_mount_that_hides_or_protects_something_stays() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        let kept = text(&learner.home.dir("w/kept")).to_owned();
        learner.home.dir("w/hidden");
        learner.file("hidden/secret", "secret\n", 0o644);
        let options = ["--tmpfs", "/workspace/hidden", "-v", &format!("{kept}:/workspace/kept:ro")];
        let (policy, text) = learner.learn(&options, &["sh", "-c", "echo > new"]);
        for command in ["cat hidden/secret", "echo > kept/new"] {
            let done = learner.run(&policy, &["sh", "-c", command]);
            assert!(!done.status.success(), "{command}: {} {text}", shown(&done));
        }
    });
}

/// What would fail even if nothing refused it.
#[test]
fn a_call_that_the_kernel_fails_is_no_use() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        let script = "mkfifo f; chmod +x f; ./f; /usr; /; (: > /usr/lib); true";
        let (_, text) = learner.learn(&[], &["sh", "-c", script]);
        let executed = list(&text, "execute");
        assert!(!executed.iter().any(|path| ["/", "/usr", "/workspace/f"].contains(&path.as_str())), "{text}");
        assert!(!list(&text, "write").contains(&"/usr/lib".to_owned()), "{text}");
    });
}

/// In the run under the new policy, too: they decide about later runs.
#[test]
fn policies_in_the_workspace_are_not_changed_by_a_check() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        learner.file("mine.toml", "version = 1\n", 0o644);
        learner.learn(&["-p", "./mine.toml"], &["sh", "-c", "echo '# changed' >> mine.toml; echo > new; true"]);
        assert_eq!(std::fs::read_to_string(learner.workspace.join("mine.toml")).unwrap(), "version = 1\n");
    });
}

#[test]
fn the_hosts_that_were_reached_are_in_the_policy() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || drop((listener.accept(), listener.accept(), listener.accept())));
        let (name, address) = (format!("web.example.com:{port}"), format!("127.0.0.1:{port}"));
        let other = format!("other.example.com:{port}");
        let options = ["--add-host", "web.example.com=127.0.0.1", "--allow-net", &name, "--allow-net", &address];
        let options = [&options[..], &["--allow-net", &other]].concat();
        let program = format!("import socket; socket.create_connection(('web.example.com', {port}))");
        let (policy, text) = learner.learn(&options, &[PYTHON, "-c", &program]);
        assert_eq!(list(&text, "allow"), [address, name], "{text}");
        let done = learner.run(&policy, &[PYTHON, "-c", &program]);
        assert!(done.status.success(), "{}", shown(&done));
        server.join().unwrap();
    });
}

/// A socket is an entry of its directory, a link needs the directory of its source, and a mount is used by who connects to its socket.
#[test]
fn sockets_and_links_are_learned() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        for name in ["sockets", "from", "to"] {
            learner.home.dir(&format!("w/{name}"));
        }
        learner.file("from/file", "content\n", 0o644);
        let served = learner.home.dir("served");
        let _listener = std::os::unix::net::UnixListener::bind(served.join("socket")).unwrap();
        set_mode(&served.join("socket"), 0o666);
        let program = "import os, socket, sys, time
with socket.socket(socket.AF_UNIX) as one: one.bind('sockets/%d' % time.time_ns())
with socket.socket(socket.AF_UNIX) as one: one.connect(sys.argv[1])
os.link('from/file', 'to/link'); os.unlink('to/link')";
        let socket = text(&served.join("socket")).to_owned();
        let options = ["--ro", text(&served)];
        let (_, text) = learner.learn(&options, &[PYTHON, "-I", "-S", "-c", program, &socket]);
        // The socket is below /tmp, where Landlock lets the run connect.
        let expected = [socket.as_str(), "/workspace/from", "/workspace/sockets", "/workspace/to"]
            .map(|path| format!("{path}:optional"));
        assert_eq!(list(&text, "write"), expected, "{text}");
        assert!(text.contains("/served\""), "the mount stays: {text}");
    });
}

#[test]
fn a_quiet_learner_says_nothing_unless_it_failed() {
    for_each_caller(|caller| {
        let learner = Learner::new(caller);
        let learn = |options: &[&str], script: &str| {
            let words = [&["learn", "-q", "-o", "../quiet.toml"], options, &["--", "sh", "-c", script]].concat();
            learner.stockade(&words)
        };
        for options in [&["-e", "TOKEN=x"][..], &["-e", "TOKEN=x", "--check"]] {
            let done = learn(options, "ls /usr/lib >/dev/null; true");
            assert_eq!((shown(&done).as_str(), done.status.code()), ("", Some(0)));
        }
        let policy = std::fs::read_to_string(learner.home.join("quiet.toml")).unwrap();
        assert!(policy.contains("# The run took "), "{policy}");
        // The first run makes what the second one finds.
        let options = ["--workspace", ".", "--check"];
        let done = learn(&options, "if [ -e made ]; then exit 3; else : >made; fi");
        assert!(
            shown(&done).contains("does not hold: under it the command ended with exit code 3"),
            "{}",
            shown(&done)
        );
        assert_eq!(done.status.code(), Some(1));
    });
}
