//! `--debug` and `--log-level`: the messages that reach the log.

use std::process::Stdio;

use serde_json::{Value, json};

use super::common;
use super::common::bundle::{Bundle, Runtime, for_each_runtime, ours};

/// The steps of `run` in the foreground after the runtime has protected its own file, in order.
const STEPS: [&str; 14] = [
    "config",
    "state",
    "cgroup",
    "mounts",
    "landlock",
    "seccomp",
    "clone",
    "namespaces",
    "released",
    "verified",
    "created",
    "gate",
    "executed",
    "ended",
];

/// The messages of a level in a log of JSON.
fn messages(log: &str, level: &str) -> Vec<String> {
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|one| one["level"] == level).map(|one| one["msg"].as_str().unwrap().to_owned()).collect()
}

/// The names of the steps in these messages.
fn names(messages: &[String]) -> Vec<&str> {
    messages.iter().filter_map(|message| message.split("  ").nth(1)).collect()
}

/// `run` with these options before it, and a log: the command, and the log.
fn run(bundle: &Bundle, options: &[&str], code: i32) -> (String, String) {
    let log = bundle.dir.join("log.json");
    let _ = std::fs::remove_file(&log);
    let words = options.iter().copied().chain(["--log", common::text(&log), "--log-format", "json", "run", "--bundle"]);
    let called = bundle.call(words.chain([common::text(bundle.dir.path()), bundle.id.as_str()])).expect(code);
    (called.err(), std::fs::read_to_string(&log).unwrap_or_default())
}

#[test]
fn steps_go_to_the_log_and_not_to_the_streams() {
    for_each_runtime(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let (stderr, log) = run(&bundle, &["--debug"], 0);
        if runtime == Runtime::Crun {
            return; // it logs nothing about a start
        }
        assert!(!messages(&log, "debug").is_empty(), "{log}");
        assert!(!stderr.contains("debug") && !stderr.contains(" ms  "), "{stderr}");
    });
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        for options in [&["--debug"][..], &["--log-level", "debug"], &["--debug", "--log-level", "error"]] {
            let (stderr, log) = run(&bundle, options, 0);
            assert_eq!((stderr.as_str(), messages(&log, "debug").len()), ("", log.lines().count()), "{log}");
            assert_eq!(names(&messages(&log, "debug")), [&["protect"], &STEPS[..]].concat(), "{log}");
        }
        let (stderr, log) = run(&bundle, &[], 0);
        assert_eq!((stderr.as_str(), log.as_str()), ("", ""));
    });
}

#[test]
fn steps_go_to_standard_error_without_a_log() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let path = common::text(bundle.dir.path());
        let called = bundle.call(["--debug", "run", "--bundle", path, &bundle.id]).expect(0);
        let lines: Vec<_> = called.err().lines().map(str::to_owned).collect();
        assert_eq!(names(&lines), [&["protect"], &STEPS[..]].concat(), "{lines:?}");
    });
}

#[test]
fn records_go_to_standard_error_without_a_log() {
    for_each_runtime(|runtime| {
        if runtime == Runtime::Crun {
            return; // it writes the message alone
        }
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let failed = |options: &[&str]| {
            let words = options.iter().copied().chain(["state", "no\u{7}thing"]);
            bundle.call(words).expect(1).err().trim_end().lines().last().unwrap().to_owned()
        };
        let line = failed(&[]);
        let (time, rest) = line.strip_prefix("time=\"").unwrap().split_once("\" ").unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok(), "{line}");
        assert!(rest.starts_with("level=error msg=\"") && rest.ends_with('"') && !rest.contains('\u{7}'), "{line}");
        let record: Value = serde_json::from_str(&failed(&["--log-format", "json"])).unwrap();
        assert_eq!(record["level"], "error", "{record}");
        assert!(humantime::parse_rfc3339(record["time"].as_str().unwrap()).is_ok(), "{record}");
        // With a log, standard error has the message alone.
        let log = bundle.dir.join("the.log");
        let line = failed(&["--log", common::text(&log)]);
        let record = std::fs::read_to_string(&log).unwrap();
        assert!(!line.contains("level=") && record.contains("level=error"), "{line} {record}");
        let debug =
            bundle.call(["--debug", "--log-format=json", "list"]).expect(if runtime == Runtime::Ours { 1 } else { 0 });
        assert!(debug.err().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", debug.err());
    });
}

#[test]
fn steps_of_exec_and_of_hooks_contain_no_secret() {
    const SECRET: &str = "hunter2-of-the-test";
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "sleep 100") else { return };
        bundle.config["process"]["env"] = json!(["PATH=/bin", format!("SECRET={SECRET}")]);
        bundle.config["hooks"]["prestart"] = json!([{ "path": "/bin/true", "args": ["true", SECRET] }]);
        let (path, log) = (common::text(bundle.dir.path()), bundle.dir.join("log"));
        let words = ["--debug", "--log", common::text(&log), "run", "--detach", "--bundle", path, &bundle.id];
        // A container keeps its streams, so no pipe may be among them.
        let status = bundle.command(words).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(status.success());
        let created = std::fs::read_to_string(&log).unwrap();
        let words = ["--debug", "exec", "--env", &format!("ALSO={SECRET}"), &bundle.id, "true", SECRET];
        let added = bundle.call(words).expect(0).err();
        assert!(created.contains("hooks  prestart") && created.contains("executed"), "{created}");
        let lines: Vec<_> = added.lines().map(str::to_owned).collect();
        assert_eq!(names(&lines).last(), Some(&"ended"), "{added}");
        assert!(added.contains("intermediate") && !format!("{created}{added}").contains(SECRET), "{created}{added}");
    });
}

#[test]
fn a_failed_start_logs_its_last_step_before_the_error() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        bundle.config["process"]["args"] = json!(["/nope"]);
        let (_, log) = run(&bundle, &["--debug"], 1);
        let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let levels: Vec<_> = records.iter().rev().map(|one| one["level"].as_str().unwrap()).collect();
        assert_eq!(levels[..2], ["error", "debug"], "{log}");
        assert!(records[records.len() - 2]["msg"].as_str().unwrap().contains("  released  "), "{log}");
    });
}

#[test]
fn messages_below_the_level_are_not_logged() {
    ours(|runtime| {
        let Some(mut bundle) = Bundle::new(runtime, "true") else { return };
        bundle.config["process"]["capabilities"]["bounding"] = json!(["CAP_NONSENSE"]);
        for (options, warnings) in [
            (&[][..], 1),
            (&["--log-level", "info"], 1),
            (&["--log-level", "WARNING"], 1),
            (&["--log-level=error"], 0),
            (&["--log-level", "fatal"], 0),
        ] {
            let (stderr, log) = run(&bundle, options, 0);
            let found = messages(&log, "warning");
            assert_eq!((stderr.as_str(), found.len(), log.lines().count()), ("", warnings, warnings), "{log}");
            assert!(found.iter().all(|text| text.contains("CAP_NONSENSE")), "{log}");
        }
        bundle.config["process"]["args"] = json!(["/nope"]);
        let (_, log) = run(&bundle, &["--log-level", "error"], 1);
        assert_eq!((messages(&log, "error").len(), log.lines().count()), (1, 1), "{log}");
    });
}

#[test]
fn a_wrong_level_is_an_error() {
    ours(|runtime| {
        let Some(bundle) = Bundle::new(runtime, "true") else { return };
        let (stderr, log) = run(&bundle, &["--log-level", "loud"], 1);
        assert!(stderr.contains("--log-level loud: must be debug, info, warn or error"), "{stderr}");
        assert_eq!(messages(&log, "error").len(), 1, "{log}");
    });
}
