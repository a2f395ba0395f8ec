//! The life of a container, as engines drive it: every command in every state, with the messages and exit codes that they parse.

use std::path::Path;

use crate::common;
use crate::common::bundle::{Bundle, Runtime, for_each_runtime, ours};
use crate::common::leaks;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::{Value, json};

const LOOP: &str = "trap 'exit 3' TERM; echo started; while :; do sleep 0.05; done";

#[test]
fn a_container_runs_and_its_exit_code_comes_back() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "id -u; echo to stderr >&2; exit 42") else { return };
        let called = bundle.run().expect(42);
        assert_eq!((called.out().as_str(), called.err().as_str()), ("0\n", "to stderr\n"));
        assert!(bundle.state().is_null(), "it is gone");
    });
}

#[test]
fn a_life_goes_from_created_to_running_to_stopped_to_nothing() {
    for_each_runtime(|runtime| {
        leaks::adopt_orphans();
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.create().expect(0);
        let pid: i32 = std::fs::read_to_string(bundle.dir.join("pid")).unwrap().parse().expect("a bare number");
        let state = bundle.state();
        assert_eq!(
            (&state["status"], &state["pid"], &state["id"]),
            (&json!("created"), &json!(pid), &json!(bundle.id))
        );
        assert_eq!(state["bundle"], json!(bundle.dir.path()));
        assert_eq!(leaks::stat(pid).unwrap().1, std::process::id() as i32, "the reaper of our orphans is its parent");
        assert_eq!(bundle.printed(), "", "the program does not run yet");
        if runtime == Runtime::Ours {
            let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
            assert_eq!(words.trim_end_matches('\0'), format!("stockade-oci: init {}", bundle.id));
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            assert!(environment.iter().all(|byte| *byte == 0), "the container does not see the runtime's environment");
        }
        bundle.create_again().expect_error("already exists");
        bundle.about("start").expect(0);
        bundle.wait_for_output("started");
        assert_eq!(bundle.state()["status"], "running");
        bundle.about("start").expect_error(runtime.says("cannot start", "exec.fifo"));
        bundle.about("delete").expect_error(runtime.says("not stopped", "is not in `created` or `stopped` state"));
        bundle.about("kill").expect(0);
        bundle.wait_for("stopped");
        assert_eq!(bundle.state()["pid"], 0);
        let status = waitpid(Pid::from_raw(pid), None).unwrap();
        assert_eq!(
            status,
            nix::sys::wait::WaitStatus::Exited(Pid::from_raw(pid), 3),
            "the parent gets the program's status"
        );
        bundle.call(["kill", &bundle.id, "9"]).expect_error(runtime.says("not running", "No such process"));
        bundle.about("start").expect_error(runtime.says("cannot start", "is not running"));
        bundle.about("delete").expect(0);
        let missing = runtime.says("does not exist", "No such file or directory");
        bundle.about("delete").expect_error(missing);
        bundle.about("state").expect_error(missing);
        bundle.call(["kill", &bundle.id, "9"]).expect_error(missing);
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
    });
}

trait Again {
    fn create_again(&self) -> common::bundle::Called;
}

impl Again for Bundle {
    fn create_again(&self) -> common::bundle::Called {
        self.call(["create", "--bundle", common::text(self.dir.path()), &self.id])
    }
}

#[test]
fn nothing_of_ours_stays_and_nothing_of_a_container_is_left() {
    ours(|runtime| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(runtime, LOOP) else { return };
        let env = json!(format!("{}={}", leaks::VARIABLE, bundle.id));
        bundle.config["process"]["env"].as_array_mut().unwrap().push(env);
        let before = leaks::Marked::new(&bundle.id, [bundle.rootfs()]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("started");
        let programs = leaks::descendants(std::process::id() as i32);
        let words = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let ours: Vec<_> = programs.iter().map(words).filter(|words| words.contains(&bundle.id)).collect();
        assert!(ours.is_empty(), "these stayed: {ours:?}");
        let pid = bundle.state()["pid"].as_i64().unwrap() as i32;
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        let _ = waitpid(Pid::from_raw(pid), None);
        for name in ["dev", "proc", "sys"] {
            let _ = std::fs::remove_dir_all(bundle.rootfs().join(name)); // mount points that the root did not have
        }
        before.expect_nothing_left(leaks::Adopted::Expected);
    });
}

#[test]
fn exec_enters_a_container_as_its_own_processes_are() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("started");
        bundle.exec("exit 5").expect(5);
        bundle.exec("kill -9 $$").expect(137);
        let look = "grep -E '^(Cap|NoNew)' /proc/self/status; for n in mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done";
        let inside = bundle.exec(look).expect(0).out();
        let first = look.replace("self", "1");
        let mut first = bundle.exec(&first).expect(0).out();
        if runtime == Runtime::Crun {
            first = first.replace("NoNewPrivs:\t1", "NoNewPrivs:\t0"); // crun does not set it for commands
        }
        assert_eq!(inside, first, "as pid 1");
        assert_eq!(bundle.exec("readlink /proc/self/ns/pid").out(), bundle.exec("readlink /proc/1/ns/pid").out());
        // With crun the given variables replace all others.
        let words = ["exec", "--env", "A=b", "--env", "PATH=/bin", "--cwd", "/bin", "--user", "7:8", &bundle.id, "sh"];
        let called = bundle.call(words.into_iter().chain(["-c", "busybox pwd; id -u; id -g; echo $A"])).expect(0);
        assert_eq!(called.out(), "/bin\n7\n8\nb\n");
        let missing =
            runtime.says("executable file not found in $PATH", "executable file `nonsense` not found in $PATH");
        bundle.call(["exec", &bundle.id, "nonsense"]).expect(255).expect_error(missing);
        let missing = runtime.says("no such file or directory", "No such file or directory");
        bundle.call(["exec", &bundle.id, "/nonsense"]).expect(255).expect_error(missing);
        // crun fails earlier, with another code than a failed command.
        bundle.call(["exec", "no-such-container", "sh"]).expect(if runtime == Runtime::Crun { 1 } else { 255 });
    });
}

#[test]
fn exec_takes_a_whole_process_from_a_file() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let mut process = bundle.config["process"].clone();
        process["args"] = json!(["sh", "-c", "id -u; grep CapEff /proc/self/status; echo $HOME; exit 6"]);
        process["user"] = json!({ "uid": 1234, "gid": 1234 });
        process["capabilities"] = json!({});
        let file = bundle.dir.file("process.json", process.to_string());
        let called = bundle.call(["exec", "--process", common::text(&file), &bundle.id]).expect(6);
        // crun leaves HOME unset for users that the image does not know.
        let home = if runtime == Runtime::Crun { "" } else { "/" };
        assert_eq!(called.out(), format!("1234\nCapEff:\t0000000000000000\n{home}\n"));
        let pid_file = bundle.dir.join("exec.pid");
        process["args"] = json!(["sleep", "7"]);
        let file = bundle.dir.file("process.json", process.to_string());
        let words = ["exec", "--detach", "--pid-file", common::text(&pid_file), "--process", common::text(&file)];
        let mut command = bundle.command(words.into_iter().chain([bundle.id.as_str()]));
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        assert!(command.status().unwrap().success());
        let pid: i32 = std::fs::read_to_string(pid_file).unwrap().parse().expect("a bare number");
        let pids: Vec<i32> = serde_json::from_slice(&bundle.call(["ps", "-f", "json", &bundle.id]).0.stdout).unwrap();
        assert!(pids.contains(&pid), "{pid} in {pids:?}");
    });
}

#[test]
fn a_paused_container_stands_still() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "while :; do echo x; sleep 0.01; done") else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("x");
        bundle.about("pause").expect(0);
        assert_eq!(bundle.state()["status"], "paused");
        let before = bundle.printed();
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(bundle.printed(), before);
        let code = if runtime == Runtime::Crun { 1 } else { 255 };
        bundle.exec("true").expect(code).expect_error("paused");
        bundle.about("resume").expect(0);
        assert_eq!(bundle.state()["status"], "running");
        bundle.about("pause").expect(0);
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        if runtime == Runtime::Crun {
            let _ = bundle.about("resume"); // cgroup v1 does not kill frozen processes, and crun leaves them
        }
        bundle.wait_for("stopped");
    });
}

#[test]
fn errors_go_where_engines_read_them() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        bundle.config["process"]["args"] = json!(["nonsense"]);
        let log = bundle.dir.join("log.json");
        let words = ["--log", common::text(&log), "--log-format", "json", "create", "--bundle"];
        let called = bundle.call(words.into_iter().chain([common::text(bundle.dir.path()), bundle.id.as_str()]));
        let missing =
            runtime.says("executable file not found in $PATH", "executable file `nonsense` not found in $PATH");
        called.expect(1).expect_error(missing);
        let text = std::fs::read_to_string(&log).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "error");
        assert!(last["msg"].as_str().unwrap().contains(missing), "{last}");
        assert!(last["time"].is_string());
        assert!(bundle.state().is_null(), "it was removed");
    });
}

#[test]
fn a_terminal_goes_to_the_console_socket() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) =
            Bundle::new(runtime, "test -t 0 && test -t 1 && tty; ls -l /dev/console; read x; echo got $x")
        else {
            return;
        };
        bundle.config["process"]["terminal"] = json!(true);
        bundle.config["process"]["consoleSize"] = json!({ "height": 33, "width": 77 });
        bundle.create().expect_error("console");
        let path = bundle.dir.join("console.sock");
        bundle.dir.file("engine.py", ENGINE);
        let mut engine = std::process::Command::new(common::PYTHON);
        let mut engine =
            engine.arg(bundle.dir.join("engine.py")).arg(&path).stdout(std::process::Stdio::piped()).spawn().unwrap();
        while !path.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let words = ["create", "--console-socket", common::text(&path), "--bundle", common::text(bundle.dir.path())];
        let status = bundle.command(words.into_iter().chain([bundle.id.as_str()])).status().unwrap();
        assert!(status.success());
        bundle.about("start").expect(0);
        let mut seen = String::new();
        std::io::Read::read_to_string(&mut engine.stdout.take().unwrap(), &mut seen).unwrap();
        engine.wait().unwrap();
        assert!(seen.contains("/dev/pts/0") && seen.contains("136,") && seen.contains("got hello"), "{seen}");
    });
}

/// An engine at its console socket: receives the one descriptor, types, and prints what it reads.
const ENGINE: &str = r#"
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
master = socket.recv_fds(listener.accept()[0], 64, 1)[1][0]
os.write(master, b"hello\n")
try:
    while chunk := os.read(master, 512):
        os.write(1, chunk)
except OSError:
    pass
"#;

#[test]
fn descriptors_are_handed_over_only_when_counted() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "ls /proc/self/fd; cat <&3") else { return };
        let given = bundle.dir.file("given", "from outside\n");
        let call = |count: &str| {
            bundle.command(["x"]); // writes the configuration
            let mut words: Vec<std::ffi::OsString> = runtime.words().into_iter().map(Into::into).collect();
            words.push("--root".into());
            words.push(bundle.dir.join("state").into());
            words.extend(["run", "--preserve-fds", count, "--bundle"].map(Into::into));
            words.push(bundle.dir.path().into());
            words.push(bundle.id.clone().into());
            let mut shell = std::process::Command::new("/bin/sh");
            let script = format!("exec 3<{}; exec 4</dev/null; exec \"$@\"", given.display());
            common::bundle::Called(shell.args(["-c", &script, "sh"]).args(words).output().unwrap())
        };
        let handed = call("1").expect(0).out();
        assert!(handed.contains("from outside") && !handed.lines().any(|line| line == "5"), "{handed}");
        let kept = call("0");
        assert!(!kept.out().contains("from outside"), "{kept:?}");
        // crun does not check whether the descriptors are open.
        if runtime != Runtime::Crun {
            call("7").expect_error("");
        }
    });
}

#[test]
fn a_half_made_container_is_stopped_and_can_be_deleted() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.create().expect(0);
        let state = bundle.dir.join("state").join(&bundle.id).join("state.json");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
        bundle.call(["kill", &bundle.id, "KILL"]).expect(0);
        // The record as a creator leaves it that was killed right after writing it.
        record["pid"] = json!(0);
        std::fs::write(&state, record.to_string()).unwrap();
        assert_eq!(bundle.state()["status"], "stopped");
        let places = record["places"]["directories"].as_array().unwrap().clone();
        assert!(places.iter().any(|place| Path::new(place["path"].as_str().unwrap()).exists()));
        bundle.about("delete").expect(0);
        assert!(!places.iter().any(|place| Path::new(place["path"].as_str().unwrap()).exists()));
        // The directory as a creator leaves it that was killed before that.
        std::fs::create_dir(bundle.dir.join("state").join("empty")).unwrap();
        bundle.call(["state", "empty"]).expect(0);
        bundle.call(["delete", "empty"]).expect(0);
    });
}

#[test]
fn a_number_that_became_another_process_is_not_touched() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.create().expect(0);
        let state = bundle.dir.join("state").join(&bundle.id).join("state.json");
        let original = std::fs::read(&state).unwrap();
        let mut record: Value = serde_json::from_slice(&original).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30)); // start times are counted in hundredths of a second
        let mut innocent = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        record["pid"] = json!(innocent.id());
        std::fs::write(&state, record.to_string()).unwrap();
        assert_eq!(bundle.state()["status"], "stopped");
        bundle.call(["kill", &bundle.id, "KILL"]).expect_error("not running");
        assert!(innocent.try_wait().unwrap().is_none());
        std::fs::write(&state, original).unwrap();
        bundle.call(["delete", "--force", &bundle.id]).expect(0);
        innocent.kill().unwrap();
        innocent.wait().unwrap();
    });
}

#[test]
fn the_runtime_cannot_be_overwritten_from_a_container() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        // A private copy, which no other process executes.
        let program = bundle.dir.join("runtime");
        std::fs::copy(runtime.program(), &program).unwrap();
        let writable = |path: &Path| std::fs::OpenOptions::new().write(true).open(path);
        bundle.command(["features"]); // writes the configuration
        let words = ["--root", "state", "create", "--bundle", ".", "x"];
        let mut command = std::process::Command::new(&program);
        command.args(words).current_dir(bundle.dir.path()).stdin(std::process::Stdio::null());
        assert!(command.stdout(std::process::Stdio::null()).status().unwrap().success());
        let pid = bundle.call(["state", "x"]).out();
        let pid = serde_json::from_str::<Value>(&pid).unwrap()["pid"].as_i64().unwrap();
        // A process inside could keep this open until no process executes the program any more.
        let held = std::fs::File::open(format!("/proc/{pid}/exe")).unwrap();
        bundle.call(["delete", "--force", "x"]).expect(0);
        use std::os::fd::AsRawFd as _;
        let error = writable(Path::new(&format!("/proc/self/fd/{}", held.as_raw_fd()))).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EROFS), "{error}");
        writable(&program).expect("root of the host can write it by its own path, so the mount forbids it");
    });
}

#[test]
fn engines_read_the_other_commands_too() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        let version = bundle.call(["--version"]).expect(0).out();
        assert!(version.lines().any(|line| line.contains(" version ")) && version.contains("commit: "), "{version}");
        std::fs::create_dir_all(bundle.dir.join("state")).unwrap();
        let none = bundle.call(["list", "--format", "json"]).expect(0).out().replace('\n', "");
        assert_eq!(none, runtime.says("null", "[]"));
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for_output("started");
        let list: Value = serde_json::from_slice(&bundle.call(["list", "-f", "json"]).0.stdout).unwrap();
        assert_eq!((&list[0]["id"], &list[0]["status"]), (&json!(bundle.id), &json!("running")));
        assert_eq!(bundle.call(["list", "-q"]).out().trim(), bundle.id);
        if runtime.has_events() {
            let stats = bundle.call(["events", "--stats", &bundle.id]).0.stdout;
            let stats: Value = serde_json::from_slice(&stats).unwrap();
            assert_eq!((&stats["type"], &stats["id"]), (&json!("stats"), &json!(bundle.id)));
            assert!(stats["data"]["cpu"]["usage"]["total"].as_u64().unwrap() > 0, "{stats}");
            assert!(stats["data"]["memory"]["usage"]["usage"].as_u64().unwrap() > 0, "{stats}");
        }
        bundle.call(["kill", "--all", &bundle.id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
    });
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "sleep 9") else { return };
        bundle.create().expect(0);
        let works =
            std::process::Command::new("ps").args(["-f", "-p", "1"]).output().is_ok_and(|ps| ps.status.success());
        match works {
            true => assert!(bundle.about("ps").expect(0).out().contains("PID")),
            false => common::skip_part("ps", "ps(1) does not work on this kernel"),
        }
        bundle.call(["ps", &bundle.id, "--no-such-option"]).expect(1);
        let features: Value = serde_json::from_slice(&bundle.call(["features"]).expect(0).0.stdout).unwrap();
        assert!(features["ociVersionMin"].is_string() && features["ociVersionMax"].is_string());
        assert!(features["mountOptions"].as_array().unwrap().contains(&json!("rro")));
        assert_eq!(features["linux"]["mountExtensions"]["idmap"]["enabled"], true);
        bundle.call(["restore", "--lsm-mount-context"]).expect_error("flag needs an argument");
        bundle.call(["checkpoint", "--help"]).expect(0);
        bundle.call(["checkpoint", "--lazy-pages", "--image-path", "/x", &bundle.id]).expect_error("not supported");
        bundle.call(["create", "--bundle", "/nonexistent", &bundle.id]).expect(1).expect_error("/nonexistent");
        for id in ["", ".", "..", "a/b", "-x", "ü"] {
            assert!(!bundle.call(["state", "--", id]).0.status.success(), "{id:?}");
        }
    });
}

#[test]
fn a_process_and_resources_come_from_pipes_too() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // it is called through another shell
        }
        let Some(bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let process = json!({ "args": ["sh", "-c", "id; ls /proc/self/fd | wc -l"], "cwd": "/", "env": ["PATH=/bin"],
            "user": { "uid": 1234, "gid": 1235, "additionalGids": [7, 8] } });
        let file = bundle.dir.file("process.json", process.to_string());
        let resources = bundle.dir.file("resources.json", json!({ "pids": { "limit": 77 } }).to_string());
        let shell = |verb: &str, option: &str, source: &std::path::Path| {
            let command = bundle.command([verb, option, "SOURCE", &bundle.id]);
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            let words: Vec<_> = words.map(|word| word.to_str().unwrap()).collect();
            let fifo = format!("{}/fifo", common::text(bundle.dir.path()));
            for line in [
                words.join(" ").replace("SOURCE", &format!("<(cat {})", common::text(source))),
                format!(
                    "rm -f {fifo}; mkfifo {fifo}; cat {} > {fifo} & {}",
                    common::text(source),
                    words.join(" ").replace("SOURCE", &fifo)
                ),
            ] {
                let output = std::process::Command::new("bash").args(["-c", &line]).output().unwrap();
                assert!(output.status.success(), "{line}: {output:?}");
                let out = String::from_utf8_lossy(&output.stdout).into_owned();
                if verb == "exec" {
                    assert_eq!(out, "uid=1234 gid=1235 groups=7,8\n4\n", "{line}");
                }
            }
        };
        shell("exec", "--process", &file);
        if !bundle.cgroups().is_empty() {
            shell("update", "--resources", &resources);
        }
    });
}

#[test]
fn ps_kill_and_exec_take_what_runc_takes() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // its ps takes no options
        }
        let Some(mut bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.config["process"]["capabilities"]["inheritable"] = json!(["CAP_KILL"]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let id = bundle.id.clone();
        bundle.call(["kill", &id, "0"]).expect(0);
        let works = std::process::Command::new("ps").arg("-ef").output().is_ok_and(|ps| ps.status.success());
        if works && !bundle.cgroups().is_empty() {
            for options in [&["-o", "pid,args"][..], &["aux"], &["-eo", "user,pid,args"], &[]] {
                let called = bundle.call(["ps", &id].iter().chain(options)).expect(0);
                let lines: Vec<_> = called.out().lines().map(str::to_owned).collect();
                assert!(lines[0].contains("PID"), "{lines:?}");
                assert!(
                    lines.len() <= 3 && lines[1..].iter().any(|line| line.contains("sh -c")),
                    "{options:?}: {lines:?}"
                );
            }
            bundle.call(["ps", &id, "-o", "args"]).expect(1);
        }
        let called = bundle.call([
            "exec",
            "--cap",
            "CAP_NONSENSE",
            "--cap",
            "CAP_NET_ADMIN",
            &id,
            "grep",
            "Cap",
            "/proc/self/status",
        ]);
        assert!(called.err().contains("CAP_NONSENSE") && called.err().contains("warning"), "{called:?}");
        // NET_ADMIN is number 12. It is ambient only if the container's configuration makes it inheritable.
        let set = |name: &str| {
            let line = called.out().lines().find_map(|line| line.strip_prefix(name).map(str::to_owned)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap() & 1 << 12 != 0
        };
        assert!(set("CapEff:") && set("CapPrm:") && set("CapBnd:"), "{called:?}");
        assert!(!set("CapInh:") && !set("CapAmb:"), "{called:?}");
        bundle.call(["kill", &id, "KILL"]).expect(0);
        bundle.wait_for("stopped");
        if works {
            assert_eq!(bundle.call(["ps", &id]).expect(0).out().lines().count(), 1);
        }
        bundle.call(["kill", &id, "0"]).expect(1);
    });
    ours(|runtime| {
        for words in [&["--root", "/nonexistent/root"][..], &["--log", "/nonexistent/log"], &["--log-format", "xml"]] {
            let called = runtime.command().args(words).arg("list").output().unwrap();
            assert_eq!((called.status.code(), &called.stdout[..]), (Some(1), &b""[..]), "{called:?}");
        }
        let Some(mut bundle) = Bundle::new(runtime, LOOP) else { return };
        bundle.config["process"]["scheduler"] = json!({ "policy": "SCHED_BATCH", "nice": 3 });
        bundle.config["process"]["ioPriority"] = json!({ "class": "IOPRIO_CLASS_BE", "priority": 5 });
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let called = bundle.exec("cut -d' ' -f19,41 /proc/self/stat; ionice").expect(0);
        assert_eq!(called.out(), "3 3\nbest-effort: prio 5\n", "a program that is executed has them too");
    });
}

#[test]
fn home_is_that_of_the_images_user() {
    for_each_runtime(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "echo $HOME") else { return };
        let accounts = "root:x:0:0::/roots-home:/bin/sh\nuser:x:1000:1000::/users-home:/bin/sh\n";
        let passwd = bundle.rootfs().join("etc/passwd");
        std::fs::write(&passwd, accounts).unwrap();
        for (uid, env, home) in [
            (0, json!(["PATH=/bin"]), "/roots-home"),
            (1000, json!(["PATH=/bin"]), "/users-home"),
            (1000, json!(["PATH=/bin", "HOME="]), "/users-home"),
            (1000, json!(["HOME=/mine", "PATH=/bin"]), "/mine"),
            (2000, json!(["PATH=/bin"]), "/"),
        ] {
            bundle.config["process"]["user"] = json!({ "uid": uid, "gid": uid });
            bundle.config["process"]["env"] = env.clone();
            // crun leaves HOME unset for a user that the image does not know, and an empty one empty.
            if runtime != Runtime::Crun || (uid != 2000 && env != json!(["PATH=/bin", "HOME="])) {
                assert_eq!(bundle.run().expect(0).out(), format!("{home}\n"), "{uid} {env}");
            }
        }
        bundle.config["process"]["env"] = json!(["PATH=/bin"]);
        bundle.config["process"]["user"] = json!({ "uid": 0, "gid": 0 });
        bundle.config["process"]["args"] = json!(["sh", "-c", LOOP]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let exec = |words: &[&str]| {
            let words =
                ["exec"].into_iter().chain(words.iter().copied()).chain([bundle.id.as_str(), "sh", "-c", "echo $HOME"]);
            bundle.call(words).expect(0).out()
        };
        assert_eq!(exec(&[]), "/roots-home\n");
        assert_eq!(exec(&["-u", "1000"]), "/users-home\n");
        if runtime != Runtime::Crun {
            assert_eq!(exec(&["-u", "1000", "-e", "HOME=/given"]), "/given\n"); // this crun then has no other variable
        }
        if runtime == Runtime::Ours {
            // The file is the image's: it may be anything.
            std::fs::remove_file(&passwd).unwrap();
            assert_eq!(exec(&[]), "/root\n");
            nix::unistd::mkfifo(&passwd, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap();
            assert_eq!(exec(&["-u", "1000"]), "/\n");
        }
    });
}

#[test]
fn kill_reaches_what_the_first_process_left() {
    for_each_runtime(|runtime| {
        // Its child outlives it, because it shares the host's pid namespace.
        let Some(mut bundle) = Bundle::new(runtime, "sleep 60 & sleep 0.3") else { return };
        bundle.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "pid");
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for("stopped");
        let left = || {
            bundle
                .cgroups()
                .iter()
                .any(|dir| std::fs::read_to_string(dir.join("cgroup.procs")).is_ok_and(|text| !text.is_empty()))
        };
        if !left() {
            return common::skip_part("kill", "the container has no cgroup");
        }
        let called = bundle.call(["kill", &bundle.id, "KILL"]);
        if runtime == Runtime::Ours {
            called.expect(0);
            let gone = common::clock::eventually(|| !left());
            assert!(gone, "they are dead");
        }
    });
}

#[test]
fn a_foreground_container_gets_signals_and_a_terminal() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "trap 'echo bye; exit 4' TERM; echo up; while :; do sleep 0.05; done")
        else {
            return;
        };
        let out = std::fs::File::create(bundle.dir.join("out")).unwrap();
        let mut command = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
        let mut child = command.stdout(out).spawn().unwrap();
        bundle.wait_for_output("up");
        nix::sys::signal::kill(Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(4));
        assert_eq!(bundle.printed(), "up\nbye\n");
        let Some(mut bundle) = Bundle::new(Runtime::Ours, "tty; exit 3") else { return };
        bundle.config["process"]["terminal"] = json!(true);
        assert_eq!(
            bundle.run().expect(3).out(),
            "/dev/pts/0\n",
            "as with runc: the caller's terminal adds the carriage return"
        );
        // On the caller's terminal a line ends as usual, and a program may be executed with one of its own.
        let run = bundle.command(["run", "--bundle", common::text(bundle.dir.path()), &bundle.id]);
        let words: Vec<_> =
            std::iter::once(run.get_program()).chain(run.get_args()).map(|word| word.to_str().unwrap()).collect();
        let mut script = std::process::Command::new("script");
        let script = script.args(["-q", "-e", "-c", &words.join(" "), "/dev/null"]).output().unwrap();
        assert!(String::from_utf8_lossy(&script.stdout).contains("/dev/pts/0\r\n"), "{script:?}");
        bundle.config["process"]["terminal"] = json!(false);
        bundle.config["process"]["args"] = json!(["sleep", "60"]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        assert_eq!(bundle.call(["exec", "-t", &bundle.id, "echo", "x"]).expect(0).out(), "x\n");
    });
}
