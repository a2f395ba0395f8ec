//! A proxy upstream: programs that we did not write, and answers that no proxy should give.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::world::World;
use super::{fetch, lines, refusal};
use crate::common::clock::eventually;
use crate::common::{
    Caller, Live, Outcome, PATH, PYTHON, TempDir, for_each_caller, has_program, leaks, skip_part, text,
};

/// A program in the world, which ends with this.
struct Program(Child);

impl Program {
    /// Starts it, and waits until it listens. Its output goes to `log`.
    fn start(world: &World, words: &[&str], port: u16, log: &Path) -> Self {
        let [enter, entering @ ..] = world.entering();
        let log = std::fs::File::create(log).unwrap();
        let mut command = Command::new(enter);
        command.args(entering).args(words).env("PATH", PATH).stdin(Stdio::piped());
        let program = Self(leaks::spawn(command.stdout(log.try_clone().unwrap()).stderr(log)));
        let listens = format!("import socket; socket.create_connection(('203.0.113.11', {port}), 1)");
        assert!(eventually(|| world.try_python(&listens).is_ok()), "{words:?} listens");
        program
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        leaks::forget(&self.0);
    }
}

const URLS: &[&str] = &[
    "http://api.example.com/a",
    "http://private.example.com/",
    "http://loopback.example.com/",
    "http://other.example.com/",
    "http://10.0.0.5/",
];

/// What holds for every proxy: hosts of rules are reached through it, and it is not asked for others.
fn holds(world: &World, caller: Caller, proxy: &str, log: &Path) {
    let rules = ["api.example.com:80,443,22", "private.example.com", "loopback.example.com", "127.0.0.1:80"];
    let run = || world.run(caller, &rules).opts(["--upstream-proxy", proxy]);
    let outcome = fetch(run(), URLS);
    assert!(outcome.text().contains("/a=0 203.0.113.10 api.example.com /a\n"), "{outcome}");
    assert_eq!(outcome.text().matches("=0 ").count(), 1, "{outcome}");
    let reason = |host: &str| refusal(&outcome, host).unwrap_or_default();
    assert_eq!(reason("private.example.com"), "address_refused: 10.0.0.5 is private", "{outcome}");
    assert_eq!(reason("loopback.example.com"), "upstream_proxy_loopback: 127.0.0.1", "{outcome}");
    let certificate = format!("{}:/cert.pem:ro", text(&world.directory.join("cert.pem")));
    let script = r#"
curl -sS -m 8 --cacert /cert.pem https://api.example.com/t
curl -sS -m 8 --cacert /cert.pem --connect-to other.example.com:443:api.example.com:443 https://other.example.com/ || echo refused
exec 3<>/dev/tcp/api.example.com/22; head -c 6 <&3; echo -n words >&3
"#;
    let outcome = run().opts(["-v", &certificate]).cmd(["/bin/bash", "-c", script]).go().expect(0);
    assert!(outcome.text().contains(" /t\nrefused\nREADY\n"), "{outcome}");
    assert_eq!(refusal(&outcome, "api.example.com").as_deref(), Some("sni_mismatch"));
    let said = std::fs::read_to_string(log).unwrap();
    assert!(said.contains("203.0.113.10:22"), "it was asked for the address: {said}");
    for never in ["10.0.0.5", "127.0.0.1", "example.com"] {
        assert!(!said.contains(never), "{never}: {said}");
    }
}

/// The reason for which the proxy made no connection.
fn reason(world: &World, caller: Caller, proxy: &str, port: u16) -> String {
    reason_within(world, caller, proxy, port, "60s")
}

/// The same with a time to connect.
fn reason_within(world: &World, caller: Caller, proxy: &str, port: u16, time: &str) -> String {
    let rule = format!("api.example.com:{port}");
    let run = world.run(caller, &[&rule]).opts(["--upstream-proxy", proxy, "--net-connect-timeout", time]);
    let outcome = fetch(run, &[&format!("http://api.example.com:{port}/")]);
    assert!(!outcome.text().contains("=0 "), "{outcome}");
    refusal(&outcome, "api.example.com").unwrap_or_default()
}

#[test]
fn hosts_are_reached_through_an_http_proxy() {
    let Some(mut world) = World::new() else { return };
    if !has_program("tinyproxy") {
        return skip_part("tinyproxy", "it is not installed");
    }
    for_each_caller(|caller| {
        let files = TempDir::new(Caller::Root);
        let config = files.file(
            "conf",
            "Port 3128\nListen 203.0.113.11\nTimeout 60\nLogLevel Connect\nBasicAuth user secret1\nConnectPort 80\nConnectPort 443\n\
             ConnectPort 22\nDisableViaHeader Yes\n",
        );
        let log = files.join("log");
        let _proxy = Program::start(&world, &["tinyproxy", "-d", "-c", text(&config)], 3128, &log);
        let to = |login: &str| format!("http://{login}203.0.113.11:3128");
        holds(&world, caller, &to("user:secret1@"), &log);
        assert_eq!(reason(&world, caller, &to("user:wrong@"), 80), "upstream_proxy_refused: 401");
        assert_eq!(reason(&world, caller, &to(""), 80), "upstream_proxy_login");
        assert_eq!(reason(&world, caller, &to("user:secret1@"), 8080), "upstream_proxy_refused: 403");
    });
    world.came();
}

#[test]
fn hosts_are_reached_through_a_socks_proxy() {
    let Some(mut world) = World::new() else { return };
    if !has_program("microsocks") {
        return skip_part("microsocks", "it is not installed");
    }
    for_each_caller(|caller| {
        let files = TempDir::new(Caller::Root);
        let log = files.join("log");
        let words = ["microsocks", "-i", "203.0.113.11", "-p", "1080", "-u", "user", "-P", "secret1"];
        let _proxy = Program::start(&world, &words, 1080, &log);
        let to = |login: &str| format!("socks5://{login}203.0.113.11");
        holds(&world, caller, &to("user:secret1@"), &log);
        assert_eq!(reason(&world, caller, &to("user:wrong@"), 80), "upstream_proxy_login");
        assert_eq!(reason(&world, caller, &to(""), 80), "upstream_proxy_login");
        let refused = reason(&world, caller, &to("user:secret1@"), 81);
        assert_eq!(refused, "upstream_proxy_refused: connection refused");
    });
    world.came();
}

/// Each port of the script gives one answer to every connection. The gateway hangs up in the middle of some.
#[test]
fn a_bad_answer_makes_no_connection() {
    let Some(mut world) = World::new() else { return };
    let server = r#"
import socket, threading, time
ANSWERS = [b"", None, b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20000, b"HTTP/1.1 503 x\r\n\r\n", b"\x05\x00\x05\x00\x00\x01" + bytes(6), b"\x05\xff"]
def talk(one, answer):
    try:
        if answer is not None:
            one.recv(4096)
            one.sendall(answer)
            one.shutdown(socket.SHUT_WR)
        time.sleep(120)
    except OSError:
        pass
def serve(listener, answer):
    while True:
        threading.Thread(target=talk, args=(listener.accept()[0], answer), daemon=True).start()
for number, answer in reversed(list(enumerate(ANSWERS))):
    listener = socket.create_server(("203.0.113.11", 9000 + number))
    threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
time.sleep(600)
"#;
    let files = TempDir::new(Caller::Root);
    let _server = Program::start(&world, &[PYTHON, "-I", "-c", server], 9000, &files.join("log"));
    for_each_caller(|caller| {
        for (proxy, expected) in [
            ("http://203.0.113.11:9000", "upstream_proxy_closed"),
            ("http://203.0.113.11:9002", "upstream_proxy_malformed"),
            ("http://203.0.113.11:9003", "upstream_proxy_malformed"),
            ("http://203.0.113.11:9004", "upstream_proxy_refused: 503"),
            ("socks5://203.0.113.11:9005", "upstream_proxy_malformed"),
            ("socks5://203.0.113.11:9006", "upstream_proxy_login"),
            ("socks5://203.0.113.11:9002", "upstream_proxy_malformed"),
            ("socks5://203.0.113.11:9099", "upstream_proxy_unreachable: ECONNREFUSED"),
            ("socks5://absent.example.com:1080", "upstream_proxy_not_found"),
        ] {
            assert_eq!(reason(&world, caller, proxy, 80), expected, "{proxy}");
        }
        let silent = reason_within(&world, caller, "http://203.0.113.11:9001", 80, "500ms");
        assert_eq!(silent, "upstream_proxy_timed_out");
    });
    assert_eq!(world.came().to("203.0.113.10:80"), 0, "nothing is dialled without the proxy");
}

/// Neither in a list of processes nor in anything that is written.
#[test]
fn a_password_is_shown_nowhere() {
    let Some(mut world) = World::new() else { return };
    const PROXY: &str = "http://user:geheim7@203.0.113.11:9099";
    let clean = |what: &str, shown: &str| assert!(!shown.contains("geheim7"), "{what}: {shown}");
    for_each_caller(|caller| {
        let files = TempDir::new(caller);
        let (log, audit) = (files.join("log"), files.join("audit"));
        let records = ["--net-log", text(&log), "--audit", text(&audit), "--upstream-proxy", PROXY, "--debug"];
        let run = world.run(caller, &["api.example.com"]).opts(records);
        let run = run.sh("curl -s http://api.example.com/; cat /proc/*/cmdline; echo; echo runs; sleep 60").spawn();
        run.wait_for("runs");
        let live: &Live = &run;
        for pid in live.processes().into_iter().chain([live.pid()]) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            clean("cmdline", &String::from_utf8_lossy(&line));
        }
        run.signal(Signal::SIGTERM);
        let outcome: Outcome = run.finish();
        clean("output", &format!("{outcome}"));
        clean("report", &outcome.report().to_string());
        assert_eq!(refusal(&outcome, "api.example.com").as_deref(), Some("upstream_proxy_unreachable: ECONNREFUSED"));
        let written = std::fs::read_to_string(&log).unwrap();
        clean("log", &written);
        assert!(lines(&written)[0]["reason"].as_str().unwrap().starts_with("upstream_proxy_unreachable"), "{written}");
        clean("audit", &std::fs::read_to_string(&audit).unwrap());
    });
    world.came();
}

#[test]
fn a_wrong_proxy_is_refused_without_its_password() {
    for_each_caller(|caller| {
        let files = TempDir::new(caller);
        let policy = files.file(
            "p.toml",
            "version = 1\n[network]\nallow = [\"a.example\"]\nupstream_proxy = \"ftp://u:geheim7@p.example\"\n",
        );
        for (options, says) in [
            (
                vec!["--allow-net", "a.example", "--upstream-proxy", "https://u:geheim7@p.example"],
                "http and socks5 are",
            ),
            (
                vec!["--allow-net", "a.example", "--upstream-proxy", "http://u:geheim7@p.example/x"],
                "ends with its port",
            ),
            (vec!["--upstream-proxy", "http://u:geheim7@p.example"], "no host is allowed"),
            (vec!["-p", text(&policy)], "upstream_proxy: ftp is not a protocol"),
        ] {
            let outcome = crate::common::Run::new(caller).opts(options.clone()).sh("true").go().expect(125);
            assert!(outcome.stderr.contains(says), "{options:?}: {outcome}");
            assert!(!outcome.stderr.contains("geheim7"), "{outcome}");
            assert!(!outcome.report().to_string().contains("geheim7"), "{outcome}");
        }
    });
}
