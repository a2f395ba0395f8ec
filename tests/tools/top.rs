//! `stockade top` shows the running sandboxes with the figures of their cgroups, and lists those that it cannot read.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::clock::eventually;
use crate::common::{Caller, Live, Run, has_program, is_root, leaks, output, schema, skip};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_stockade");

fn top(words: &[&str]) -> Output {
    output(Command::new(BINARY).arg("top").args(words))
}

fn frame() -> Value {
    let output = top(&["--once", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "one line");
    let frame = serde_json::from_str(&text).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles/top.schema.json");
    let violations = schema::violations(&serde_json::from_slice(&fs::read(path).unwrap()).unwrap(), &frame);
    assert!(violations.is_empty(), "{violations:?}\n{frame}");
    frame
}

fn row(frame: &Value, id: &str) -> Option<Value> {
    frame["sandboxes"].as_array().unwrap().iter().find(|row| row["id"] == id).cloned()
}

/// A sandbox with a budget whose workload runs.
fn budgeted(script: &str) -> Option<Live> {
    if !is_root() {
        skip("not root, and only root has a budget everywhere");
        return None;
    }
    let run = Run::new(Caller::Root).opts(["--memory", "64M", "--pids-limit", "40"]).sh(script).spawn();
    run.wait_for("ready");
    Some(run)
}

#[test]
fn a_running_sandbox_is_shown_with_the_figures_of_its_cgroup() {
    let script = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); x=$x$(head -c 100000 /usr/bin/python3 | tr -dc a-z); done; \
                  sleep 60 & sleep 60 & echo ready; wait";
    let Some(run) = budgeted(script) else { return };
    let row = row(&frame(), run.marker()).expect("it is shown");
    assert_eq!(row["pid"], run.pid());
    assert_eq!(row["memory_limit_bytes"], 64 << 20);
    assert_eq!(row["pids_limit"], 40);
    assert_eq!(row["pids"], 4, "init, the shell and two children");
    assert_eq!(row["command"], serde_json::json!(["/bin/sh", "-c", script]));
    assert!((100_000..64 << 20).contains(&row["memory_bytes"].as_u64().unwrap()), "{row}");
    let age = row["age_us"].as_u64().unwrap();
    assert!((10_000..20_000_000).contains(&age), "{row}");
    // An independent reading of the same counters.
    let cgroup = Path::new(row["cgroup"].as_str().unwrap());
    let of_init = fs::read_to_string(format!("/proc/{}/cgroup", run.processes()[1])).unwrap();
    assert!(of_init.contains(cgroup.file_name().unwrap().to_str().unwrap()), "{of_init}");
    let table = String::from_utf8(top(&["--once"]).stdout).unwrap();
    let line = table.lines().find(|line| line.starts_with(run.marker())).unwrap_or_else(|| panic!("{table}"));
    let cells: Vec<&str> = line.split_ascii_whitespace().collect();
    assert_eq!((cells[1], cells[5], cells[6]), (run.pid().to_string().as_str(), "64.0M", "4"));
    assert!(line.contains("/bin/sh -c i=0"));
    assert!(table.starts_with("ID"), "{table}");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    let marker = run.marker().to_owned();
    run.finish();
    assert!(self::row(&frame(), &marker).is_none(), "it is not shown after its end");
}

#[test]
fn the_network_of_a_sandbox_is_shown_with_its_traffic() {
    if !is_root() {
        return skip("not root, and only root has a budget everywhere");
    }
    // A server of this host, to which only the rule leads.
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let rules = [format!("a.example:{port}"), format!("127.0.0.1:{port}")];
    let options = ["--memory", "64M", "--label", "who=me", "--allow-net", &rules[0], "--allow-net", &rules[1]];
    let script = format!(
        "import socket, time\ns = socket.create_connection(('a.example', {port}))\ns.sendall(b'x' * 1000)\ns.recv(9)\nprint('ready', flush=True)\ntime.sleep(60)"
    );
    let run = Run::new(Caller::Root).opts(options).opts(["--add-host", "a.example=127.0.0.1"]).python(&script).spawn();
    let (mut client, _) = server.accept().unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    client.write_all(b"0123456").unwrap();
    run.wait_for("ready");
    let row = row(&frame(), run.marker()).expect("it is shown");
    let figures = ["network", "connections", "bytes_sent", "bytes_received"].map(|key| row[key].clone());
    assert_eq!(figures, ["egress".into(), 1.into(), 1000.into(), Value::from(7)], "{row}");
    let table = String::from_utf8(top(&["--once"]).stdout).unwrap();
    let line = table.lines().find(|line| line.starts_with(run.marker())).unwrap_or_else(|| panic!("{table}"));
    assert!(line.contains("egress") && line.contains("who=me"), "{table}");
    assert!(["NETWORK", "OPEN", "SENT", "RECEIVED", "LABELS"].iter().all(|title| table.contains(title)), "{table}");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
}

#[test]
fn cpu_is_that_of_the_period() {
    let Some(run) = budgeted("echo ready; sleep 1.5; while :; do :; done") else { return };
    let mut command = Command::new(BINARY);
    let mut child = leaks::spawn(command.args(["top", "--json", "--interval", "500ms"]).stdout(Stdio::piped()));
    let started = Instant::now();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut frames = Vec::new();
    while frames.len() < 9 {
        let frame: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        frames.push(row(&frame, run.marker()).expect("it is shown"));
    }
    assert!(started.elapsed() >= Duration::from_secs(4), "one line a period");
    let percent: Vec<f64> = frames.iter().map(|row| row["cpu_percent"].as_f64().unwrap()).collect();
    assert!(percent[1] < 20.0, "the workload sleeps first: {percent:?}");
    let last = percent[percent.len() - 1];
    // A busy machine gives it less, but never more.
    assert!((1.0..110.0).contains(&last), "the workload then spins: {percent:?}");
    let first = frames[0]["cpu_us"].as_u64().unwrap();
    assert!(frames[8]["cpu_us"].as_u64().unwrap() > first + 200_000);
    // A reader may close the pipe.
    drop(lines);
    let ended = child.wait().unwrap();
    leaks::forget(&child);
    assert!(ended.success(), "{ended}");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
}

#[test]
fn a_command_name_cannot_send_terminal_sequences() {
    let Some(run) = budgeted("echo ready; : \u{1b}]0;owned\u{7} \r\n\u{9b}2J; sleep 60") else { return };
    let table = String::from_utf8(top(&["--once"]).stdout).unwrap();
    assert!(table.contains(run.marker()) && table.contains("\\u{1b}]0;owned"), "{table}");
    assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
    let of_run = table.lines().filter(|line| line.contains("owned") || line.contains("2J")).count();
    assert_eq!(of_run, 1, "one line a sandbox: {table}");
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
}

#[test]
fn a_terminal_is_drawn_over_and_never_overflown() {
    if !has_program("script") {
        return;
    }
    let Some(run) = budgeted(&format!("echo ready; : {}; sleep 60", "x".repeat(300))) else { return };
    let command = format!("stty cols 60 rows 10; timeout -s INT 2 {BINARY} top --interval 300ms");
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).env("TERM", "xterm");
    let drawn = String::from_utf8(output(&mut script).stdout).unwrap();
    assert_eq!(drawn.matches("\u{1b}[2J").count(), 1, "erased once: {drawn:?}");
    assert!(drawn.matches("\u{1b}[H").count() >= 4, "then drawn over: {drawn:?}");
    for line in drawn.split("\r\n") {
        let visible =
            line.replace("\u{1b}[K", "").replace("\u{1b}[2J", "").replace("\u{1b}[H", "").replace("\u{1b}[J", "");
        assert!(visible.chars().count() <= 60, "{visible:?}");
    }
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
}

#[test]
fn unreadable_cgroups_are_reported() {
    let Some(run) = budgeted("echo ready; sleep 60") else { return };
    // Without any cgroup file system.
    let script = "umount -R /sys/fs/cgroup && exec \"$0\" top --once";
    let mut unshare = Command::new("unshare");
    let output = output(unshare.args(["-m", "--propagation", "private", "sh", "-c", script, BINARY]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("no sandboxes with a cgroup") && said.contains("no cgroup file system is mounted"), "{said}");
    let is_v1 = fs::read_to_string("/proc/self/cgroup").unwrap().lines().any(|line| line.contains(":memory:"));
    assert_eq!(frame()["unseen"].is_string(), is_v1);
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
}

#[test]
fn a_sandbox_with_a_killed_supervisor_is_not_listed() {
    let Some(mut run) = budgeted("echo ready; sleep 60") else { return };
    assert!(row(&frame(), run.marker()).is_some());
    run.kill_supervisor();
    let marker = run.marker().to_owned();
    assert!(eventually(|| row(&frame(), &marker).is_none()), "the cgroup of a dead supervisor is not shown");
    run.finish();
}

#[test]
fn anybody_may_look() {
    let Some(run) = budgeted("echo ready; sleep 60") else { return };
    let output = Run::new(Caller::Unprivileged).plain().opts(["top", "--once", "--json"]).go().expect(0);
    let frame: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(row(&frame, run.marker()).expect("it is shown")["memory_limit_bytes"], 64 << 20);
    run.signal(nix::sys::signal::Signal::SIGTERM);
    run.finish();
    for wrong in [&["--interval", "0"][..], &["--interval", "soon"], &["x"], &["--bogus"]] {
        assert_eq!(top(wrong).status.code(), Some(125), "{wrong:?}");
    }
}
