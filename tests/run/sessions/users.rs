//! Commands of several users in one session.

use super::*;
use crate::common::{has_program, is_root, set_mode, skip, text};

/// A session that maps a range of ids around its own user, 1000. `/etc/subuid` is covered for its start alone.
fn with_range(caller: Caller, words: &[&str]) -> Session {
    let session = Session::planned(caller);
    let ids = session.home.file("ids", format!("{}:200000:65536\n", caller.ids().0));
    set_mode(&ids, 0o644);
    let run = session.command(&[&["run", "-d", "--name", &session.name, "--subuid"], words].concat());
    let cover = "mount --bind \"$0\" /etc/subuid && mount --bind \"$0\" /etc/subgid && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private", "sh", "-c", cover, text(&ids)]);
    command.arg(run.get_program()).args(run.get_args()).env_clear().current_dir(session.home.path());
    command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let made = outcome(command.output().unwrap());
    assert_eq!((made.code, made.out.trim_end()), (Some(0), session.name.as_str()), "{made:?}");
    session
}

/// As root and through newuidmap.
fn for_each_range(words: &[&str], body: impl Fn(&Session)) {
    if !is_root() {
        skip("covering /etc/subuid takes root");
    } else if !has_program("newuidmap") || !std::path::Path::new("/etc/subuid").exists() {
        skip("no newuidmap, or no /etc/subuid to cover");
    } else {
        for_each_caller(|caller| body(&with_range(caller, words)));
    }
}

impl Session {
    /// Runs a script as a user.
    fn sh_as(&self, user: &str, script: &str) -> Outcome {
        self.exec(&["--user", user, &self.name, "sh", "-c", script])
    }

    /// Starts a script as a user, in the background. Returns its id in the session.
    fn start_as(&self, user: &str, options: &[&str], script: &str) -> String {
        let started =
            self.exec(&[&["-d", "--user", user][..], options, &[self.name.as_str(), "sh", "-c", script]].concat());
        assert_eq!(started.code, Some(0), "{started:?}");
        started.out.trim_end().to_owned()
    }
}

const NO_PRIVILEGE: &str = "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
    CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\n";

#[test]
fn a_command_runs_as_the_user_that_was_asked_for_and_has_no_privilege() {
    for_each_range(&[], |session| {
        let script = "grep -E '^(Uid|Gid|Groups):' /proc/self/status | tr -s '\\t ' ' '; pwd; \
                      echo $HOME ${USER-none} ${LOGNAME-none}; touch /tmp/$$; stat -c %u:%g /tmp/$$";
        let is = |user: &str, ids: &str, rest: &str| {
            let (uid, gid) = ids.split_once(':').unwrap();
            let expected =
                format!("Uid: {uid} {uid} {uid} {uid}\nGid: {gid} {gid} {gid} {gid}\nGroups: \n{rest}\n{ids}\n");
            session.sh_as(user, script).is(0, &expected);
            session.sh_as(user, "grep -E '^(Cap|NoNew)' /proc/self/status").is(0, NO_PRIVILEGE);
        };
        is("1001", "1001:1001", "/\n/ none none");
        is("1001:7", "1001:7", "/\n/ none none");
        is("1000:7", "1000:7", "/home/sandbox\n/home/sandbox sandbox sandbox");
        is("sandbox", "1000:1000", "/home/sandbox\n/home/sandbox sandbox sandbox");
        is("root", "0:0", "/\n/ root root");
        is("nobody", "65534:65534", "/\n/ nobody nobody");
        let words = ["--user", "5", "-w", "/tmp", "-e", "HOME=/tmp", "-e", "USER=five", &session.name];
        session.exec(&[&words[..], &["sh", "-c", "pwd; echo $HOME $USER"]].concat()).is(0, "/tmp\n/tmp five\n");
        // Root of the sandbox is a user like the others: it cannot take what is not its own, or become another.
        session.sh("echo own >/tmp/own; chmod 600 /tmp/own; mkdir -m 700 /tmp/closed");
        let tries = "cat /tmp/own; rm -f /tmp/own; ls /tmp/closed; touch /tmp/r; chown 5 /tmp/r; mount -t tmpfs none /tmp; \
                     hostname x; chroot / true; setpriv --reuid 1000 true; setpriv --clear-groups true; kill -9 1; echo $?";
        let tried = session.sh_as("root", &format!("({tries}) 2>&1 | grep -ci 'not permitted\\|denied\\|must be'"));
        tried.is(0, "10\n");
        session.sh("cat /tmp/own; id -u").is(0, "own\n1000\n");
    });
}

#[test]
fn the_report_and_inspect_have_the_user_that_was_found() {
    for_each_range(&[], |session| {
        let path = session.home.dir("reports").join("report.json");
        let report = |words: &[&str]| -> Value {
            session.exec(&[&["--report", text(&path)][..], words].concat()).is(0, "");
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap()
        };
        let name = session.name.as_str();
        let enforced = report(&["--user", "1001:5", name, "true"])["enforced"].clone();
        // The range begins at 200000, and leaves the place of 1000 out.
        let ids = ["uid", "gid", "host_uid", "host_gid"].map(|id| enforced[id].as_u64().unwrap());
        assert_eq!(ids, [1001, 5, 201_000, 200_005]);
        assert_eq!(enforced["supplementary_groups"], serde_json::json!([]));
        assert_eq!(enforced["caps"], serde_json::json!([]));
        assert_eq!(report(&[name, "true"])["enforced"]["uid"], 1000);
        let denied =
            report(&["--user", "1001", "--explain-denials", name, "sh", "-c", "unshare -U true 2>/dev/null; true"]);
        assert!(denied["denials"].as_array().is_some_and(|all| !all.is_empty()), "{denied}");
        session.start_as("7:8", &[], "sleep 6414");
        let status = || session.inspect()["running"][0].clone();
        assert!(eventually(|| status()["uid"] == 7 && status()["gid"] == 8), "{}", status());
    });
}

#[test]
fn users_of_one_session_are_kept_apart() {
    for_each_range(&[], |session| {
        let script = "mkdir /tmp/a; cd /tmp/a; umask 077; echo secret >secret; mkfifo fifo; echo $$ >pid; chmod 644 pid; exec sleep 6415";
        let id = session.start_as("1001", &[], script);
        assert!(eventually(|| session.sh("cat /tmp/a/pid").code == Some(0)));
        let attack = r#"
import ctypes, os
pid, failed = int(open("/tmp/a/pid").read()), []
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *words):
    ctypes.set_errno(0)
    return ctypes.get_errno() if getattr(libc, name)(*words) < 0 else 0
def attempt(what):
    try:
        what()
    except OSError as error:
        failed.append(error.errno)
    else:
        failed.append(0)
attempt(lambda: open("/tmp/a/secret").read())
attempt(lambda: os.unlink("/tmp/a/secret"))
attempt(lambda: os.open("/tmp/a/fifo", os.O_WRONLY | os.O_NONBLOCK))
attempt(lambda: os.kill(pid, 9))
attempt(lambda: os.kill(pid, 0))
attempt(lambda: open(f"/proc/{pid}/mem", "rb"))
attempt(lambda: os.readlink(f"/proc/{pid}/exe"))
attempt(lambda: os.listdir(f"/proc/{pid}/fd"))
attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
failed.append(call("ptrace", 0x4206, pid, 0, 0))
print(sorted(set(failed)))
"#;
        // EPERM and EACCES alone.
        for user in ["1002", "1000", "0"] {
            session.exec(&["--user", user, &session.name, PYTHON, "-I", "-c", attack]).is(0, "[1, 13]\n");
        }
        session.sh_as("1001", "cat /tmp/a/secret; kill $(cat /tmp/a/pid)").is(0, "secret\n");
        assert!(eventually(|| session.inspect()["running"] == serde_json::json!([])), "{id} lives");
    });
}

#[test]
fn commands_of_every_user_end_with_their_trees() {
    for_each_range(&[], |session| {
        let count = session.sh(PROCESSES).out;
        let tree = "trap '' TERM; setsid sleep 6416 & (sleep 6416 &) ; while :; do sleep 6416; done";
        for user in ["1001", "root"] {
            let words = ["--user", user, "--timeout", "250ms", "--kill-after", "50ms", &session.name];
            assert_eq!(session.exec(&[&words[..], &["sh", "-c", tree]].concat()).code, Some(124), "{user}");
        }
        session.has_processes(&count);
        // A signal reaches the command of another user, and what it leaves dies with it.
        let polite = "trap 'exit 9' TERM; setsid sleep 6417 & while :; do sleep 0.02; done";
        let id = session.start_as("1002", &[], polite);
        assert!(eventually(|| session.processes("sleep 641[7]") > 0));
        session.ask(&["kill", "-s", "TERM", "--command", &id, &session.name]).is(0, "");
        let code = || session.inspect()["ended"].as_array().unwrap().last().unwrap()["exit_code"].clone();
        assert!(eventually(|| code() == 9), "{}", code());
        session.has_processes(&count);
        for user in ["1001", "0", "1000"] {
            session.start_as(user, &[], tree);
        }
        assert!(eventually(|| session.processes("sleep 641[6]") >= 9));
        session.verb(&["stop", "-t", "100ms"]).is(0, "");
        assert!(eventually(|| session.processes("sleep 641[6]") == 0));
    });
}

const TERMINAL: &str = r#"
session = Session(sys.argv[1])
session.send("run", argv=["sh", "-c", "stat -Lc %u:%g /dev/stdin; echo again >$(tty)"], user="1001", tty={"rows": 3, "columns": 70})
reply, (master,) = session.receive()
assert reply["event"] == "started", reply
shown = b""
while b"again" not in shown:
    shown += os.read(master, 1000)
print(shown.decode().split()[0])
"#;

#[test]
fn streams_and_terminals_belong_to_the_commands_user() {
    for_each_range(&[], |session| {
        let script = "cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr";
        let words = ["exec", "-i", "--user", "1001", &session.name, "sh", "-c", script];
        let mut piped = session.caller.command("sh"); // a pipe belongs to who makes it, and this one to the caller
        piped.args(["-c", "echo in | \"$@\"", "sh", text(&session.binary)]).args(words);
        piped.env("XDG_RUNTIME_DIR", session.home.join("run"));
        let streamed = outcome(piped.output().unwrap());
        assert_eq!((streamed.out.as_str(), streamed.err.as_str()), ("in\nout\n", "err\n"), "{streamed:?}");
        let seen = super::files::client(session, TERMINAL);
        assert!(seen.code == Some(0) && seen.out.starts_with("1001:"), "{seen:?}");
    });
}

#[test]
fn init_holds_what_starting_other_users_takes_and_nothing_more() {
    let sets = |pid: i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        ["CapPrm:", "CapEff:", "CapInh:", "CapBnd:", "CapAmb:", "NoNewPrivs:"].map(line)
    };
    let zero = "0".repeat(16);
    // CAP_KILL, CAP_SETGID and CAP_SETUID.
    let few = "00000000000000e0".to_owned();
    for_each_range(&[], |session| {
        let none = || zero.clone();
        assert_eq!(sets(session.init()), [few.clone(), few.clone(), none(), none(), none(), "1".into()]);
    });
    for_each_session(&[], |session| assert_eq!(sets(session.init())[..5], [0; 5].map(|_| zero.clone())));
}

#[test]
fn a_user_that_the_session_does_not_map_is_refused() {
    for_each_session(&[], |session| {
        session.sh_as("1000", "id -u").is(0, "1000\n");
        session.sh_as("1000:1000", "id -g").is(0, "1000\n");
        session.sh_as("sandbox", "id -un").is(0, "sandbox\n");
        for user in ["1001", "0", "root", "1000:7"] {
            let refused = session.sh_as(user, "touch /tmp/ran");
            refused.refuses("maps 1000 alone");
            assert!(refused.err.contains("--subuid") && refused.err.contains("user.map"), "{refused:?}");
        }
        session.sh_as("alice", "touch /tmp/ran").refuses("no user with this name");
        for wrong in ["", "1:", "-1", "4294967295", "a/b"] {
            session.exec(&[&format!("--user={wrong}"), &session.name, "touch", "/tmp/ran"]).refuses("--user");
        }
        session.sh("ls /tmp").is(0, "");
    });
    for_each_range(&[], |session| {
        let refused = session.sh_as("70000", "touch /tmp/ran");
        refused.refuses("the session maps 0-65536");
        assert!(refused.err.contains("user 70000") && refused.err.contains("/etc/subuid"), "{refused:?}");
        session.sh("ls /tmp").is(0, "");
    });
}

/// Here strace makes the calls fail, or have no effect.
#[test]
fn a_command_whose_user_was_not_taken_does_not_run() {
    if !crate::common::host::may_trace() || !is_root() {
        return;
    }
    for_each_range(&[], |session| {
        let init = session.init();
        for fault in [
            "setresuid:error=EPERM",
            "setresgid:error=EINVAL",
            "setresuid:retval=0",
            "setresgid:retval=0",
            "capset:retval=0",
        ] {
            let mut strace = Command::new("strace");
            strace.args(["-qq", "-f", "-o", "/dev/null", "-e", &format!("inject={fault}"), "-p", &init.to_string()]);
            let mut strace = strace.spawn().unwrap();
            let status = || std::fs::read_to_string(format!("/proc/{init}/status")).unwrap();
            assert!(eventually(|| !status().contains("TracerPid:\t0\n")));
            let refused = session.sh_as("1001", "touch /tmp/ran");
            strace.kill().unwrap();
            strace.wait().unwrap();
            assert!(refused.code == Some(125) && refused.out.is_empty(), "{fault}: {refused:?}");
        }
        session.sh_as("1001", "ls /tmp; id -u").is(0, "1001\n");
    });
}
