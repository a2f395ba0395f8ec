//! Network access by name of a session: its rules change while it runs, and its log knows the commands.

use super::*;
use crate::common::{leaks, text};
use crate::egress::world::{SERVER, World};

/// A session that dials into a world, with rules.
fn session_in(world: &World, caller: Caller, rules: &[&str], options: &[&str]) -> Session {
    let session = Session::planned(caller);
    let rules = rules.iter().flat_map(|rule| ["--allow-net", rule]);
    let words =
        ["run", "-d", "--name", &session.name, "--dns", SERVER].into_iter().chain(rules).chain(options.iter().copied());
    let inner = session.command(&words.collect::<Vec<_>>());
    let [enter, words @ ..] = world.entering();
    let mut command = Command::new(enter);
    command.args(words).arg(inner.get_program()).args(inner.get_args()).env_clear().current_dir(session.home.path());
    inner.get_envs().for_each(|(name, value)| {
        command.env(name, value.unwrap_or_default());
    });
    outcome(command.output().unwrap()).is(0, &format!("{}\n", session.name));
    session
}

/// The exit code of curl in the session, and what it printed.
fn fetch(session: &Session, url: &str) -> (Option<i32>, String) {
    let done = session.exec(&[&session.name, "--", "curl", "-sS", "-m", "8", url]);
    (done.code, done.out)
}

fn lines(log: &str) -> Vec<Value> {
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn rules_change_while_a_session_runs() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let records = TempDir::new(caller);
        let (audit, log) = (records.join("audit"), records.join("log"));
        let options = ["--audit", text(&audit), "--net-log", text(&log)];
        let session = session_in(&world, caller, &["api.example.com:22,80"], &options);
        let net = |words: &[&str]| session.ask(&[&["net", words[0], &session.name], &words[1..]].concat());
        let api = || fetch(&session, "http://api.example.com/a");
        assert_eq!((api().0, fetch(&session, "http://other.example.com/").0), (Some(0), Some(6)));
        net(&["allow", "other.example.com"]).is(0, "");
        assert!(fetch(&session, "http://other.example.com/b").1.starts_with("203.0.113.11 "), "at once");
        for (rule, url) in
            [("*.cdn.example.com", "http://deep.a.cdn.example.com/"), ("10.0.0.5:80", "http://10.0.0.5/")]
        {
            assert_ne!(fetch(&session, url).0, Some(0), "the control");
            net(&["allow", rule]).is(0, "");
            assert_eq!(fetch(&session, url).0, Some(0), "{rule}");
        }
        // A connection that was allowed does not outlive its rule.
        let held = session.background(&[
            &session.name,
            "--",
            "bash",
            "-c",
            "exec 3<>/dev/tcp/api.example.com/22; read -u 3 word; touch /tmp/up; timeout 60 cat <&3; [ $? = 124 ] || echo over",
        ]);
        assert!(eventually(|| session.sh("test -e /tmp/up").code == Some(0)));
        net(&["deny", "api.example.com"]).is(0, "");
        assert!(outcome(held.wait_with_output().unwrap()).out.ends_with("over\n"));
        assert_eq!(api().0, Some(6));
        net(&["allow", "api.example.com:80"]).refuses("would stay denied by the rule api.example.com");
        net(&["allow", "api.example.com"]).is(0, "");
        assert_eq!(api().0, Some(0));
        for (wrong, why) in
            [("*", "every name"), ("@file", "a file of rules"), ("10.0.0.0/8:80", "more than 16 addresses")]
        {
            net(&["allow", wrong]).refuses(why);
        }
        // A port that the workload listens on is not taken away.
        let listen = "import socket, time; s = socket.socket(); s.bind(('0.0.0.0', 8080)); s.listen(); open('/tmp/bound', 'w'); time.sleep(60)";
        let listener = session.background(&[&session.name, "--", PYTHON, "-c", listen]);
        assert!(eventually(|| session.sh("test -e /tmp/bound").code == Some(0)));
        net(&["allow", "api.example.com:8080"]).refuses("a process of the sandbox listens");
        drop(listener);
        let allowed = &session.inspect()["plan"]["egress"]["allow"];
        assert!(allowed.as_array().unwrap().contains(&"other.example.com".into()), "{allowed}");
        session.verb(&["stop"]).is(0, "");
        let report = &session.inspect()["end"]["report"];
        let egress = &report["network"]["egress"];
        assert_eq!(
            (&egress["rules"][1]["rule"], &egress["rules"][1]["connections"]),
            (&"other.example.com".into(), &1.into())
        );
        let changes: Vec<Value> = lines(&std::fs::read_to_string(&audit).unwrap());
        let words: Vec<&str> = changes.iter().filter_map(|line| line["net_change"].as_str()).collect();
        assert_eq!(
            words[..4],
            ["allow other.example.com", "allow *.cdn.example.com", "allow 10.0.0.5:80", "deny api.example.com"]
        );
        assert_eq!(changes.last().unwrap()["net_refusals"], egress["refused"]);
        let written = lines(&std::fs::read_to_string(&log).unwrap());
        assert!(written.iter().any(|line| line["reason"] == "denied" && line["port"] == 22), "{written:?}");
    });
    world.came();
}

#[test]
fn a_session_without_rules_gets_none() {
    for_each_session(&[], |session| {
        session.ask(&["net", "allow", &session.name, "a.example"]).refuses("made without rules");
        session.ask(&["net", "log", &session.name]).refuses("made without rules");
    });
}

/// Whether there was a connection to this port.
fn log_has(session: &Session, port: &str) -> bool {
    let port: u64 = port.parse().unwrap();
    let log = lines(&session.ask(&["net", "log", &session.name]).out);
    log.iter().any(|line| line["port"] == port)
}

/// A program that connects from some ports in turn, which the others use, too, and resets at once.
const QUICK: &str = r#"
import socket, struct, sys, time
until = time.monotonic() + 3
while time.monotonic() < until:
    try:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.bind(("0.0.0.0", 40000 + int(time.monotonic() * 1000) % int(sys.argv[2])))
        s.connect(("api.example.com", int(sys.argv[1])))
    except OSError: pass
    s.close()
"#;

#[test]
fn a_line_of_the_log_names_its_command_or_none() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let records = TempDir::new(caller);
        let file = records.join("log"); // the session itself keeps only the last lines
        let rules = ["api.example.com:9,19,22,80,8080"];
        let session = session_in(&world, caller, &rules, &["--net-log", text(&file)]);
        // Commands at once, whose connections are often gone before they are looked at: then nothing is guessed.
        let quick = |(port, ports): (&'static str, &'static str)| {
            let started = session.background(&[&session.name, "--", PYTHON, "-c", QUICK, port, ports]);
            assert!(eventually(|| log_has(&session, port)));
            started
        };
        const EACH: [(&str, &str); 4] = [("9", "4"), ("19", "4"), ("22", "64"), ("8080", "1024")];
        let all = EACH.map(quick);
        all.into_iter().for_each(|one| assert!(one.wait_with_output().unwrap().status.success()));
        fetch(&session, "http://api.example.com/c");
        assert!(eventually(|| log_has(&session, "80"))); // at the connection's end
        let log = lines(&std::fs::read_to_string(&file).unwrap());
        let commands = |port: u16| {
            let lines = log.iter().filter(|line| line["port"] == port && line["event"] == "connection");
            let mut found: Vec<Option<&str>> = lines.map(|line| line["command"].as_str()).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        for (number, (port, _)) in (1..).zip(EACH) {
            let (found, own) = (commands(port.parse().unwrap()), format!("c{number}"));
            assert!(!found.is_empty(), "{log:?}");
            assert!(found.iter().all(|one| one.is_none_or(|one| one == own)), "{port}: {found:?}");
        }
        match commands(80)[..] {
            [Some(known)] => assert_eq!(known, "c5"),
            [None] => assert_eq!(caller, Caller::Unprivileged, "only commands without a cgroup have no name"),
            ref other => panic!("{other:?}"),
        }
    });
    world.came();
}

#[test]
fn the_log_can_be_followed() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let session = session_in(&world, caller, &["api.example.com"], &[]);
        let mut command = session.command(&["net", "log", "-f", &session.name]);
        let follow = leaks::spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()));
        fetch(&session, "http://api.example.com/d");
        fetch(&session, "http://no.example.com/d");
        assert!(eventually(|| lines(&session.ask(&["net", "log", &session.name]).out).len() == 2));
        session.verb(&["stop"]).is(0, "");
        let seen = lines(&outcome(follow.wait_with_output().unwrap()).out);
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!((&seen[0]["name"], &seen[1]["reason"]), (&"api.example.com".into(), &"no_rule".into()));
    });
    world.came();
}

#[test]
fn the_end_of_the_budget_or_of_the_gateway_is_the_sessions() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let session = session_in(&world, caller, &["api.example.com"], &["--net-budget", "1M"]);
        fetch(&session, "http://api.example.com/big/2000000");
        session.verb(&["wait"]).is(0, "124\n");
        let end = &session.inspect()["end"];
        assert_eq!((&end["cause"], &end["report"]["status"]), (&"net_budget".into(), &"net_budget".into()));
        let session = session_in(&world, caller, &["api.example.com"], &[]);
        let title = format!("stockade: gateway {}", session.name);
        let killed = Command::new("pkill").args(["-KILL", "-f", &title]).status().unwrap();
        assert!(killed.success());
        session.verb(&["wait"]).is(0, "125\n");
        let end = &session.inspect()["end"];
        assert_eq!((&end["cause"], &end["report"]["error"]["object"]), (&"failed".into(), &"gateway".into()));
    });
    world.came();
}
