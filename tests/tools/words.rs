//! The words that people bring from other programs, and errors that name the option they come from.

use std::os::unix::fs::chown;
use std::process::Command;

use super::cli::{Scratch, refused, text};

/// What `plan --json` says of these words.
#[track_caller]
fn plan(scratch: &Scratch, words: &[&str]) -> stockade::plan::RunPlan {
    let output = scratch.stockade([&["plan", "--json"], words, &["true"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn sizes_times_and_users_are_understood_as_elsewhere() {
    let scratch = Scratch::new("understood");
    std::fs::create_dir(scratch.0.join("sub")).unwrap();
    let here = scratch.0.to_str().unwrap();
    assert_eq!(plan(&scratch, &["-m", "1.5G"]).budget.memory_bytes, Some(3 << 29));
    assert_eq!(plan(&scratch, &["-m", "512MB"]).budget.memory_bytes, Some(512 << 20));
    assert_eq!(plan(&scratch, &["--timeout", "1h30m"]).deadlines.wall_us, Some(5_400_000_000));
    let nobody = plan(&scratch, &["--user", "nobody"]).identity;
    assert_eq!((nobody.uid, nobody.gid, nobody.user.as_str()), (65_534, 65_534, "nobody"));
    // The plan's working directory, wherever the sandbox shows that of the caller.
    let cwd = |words: &[&str]| plan(&scratch, words).command.cwd.to_string();
    assert_eq!(cwd(&["--workspace", ".", "-w", "."]), "/workspace");
    assert_eq!(cwd(&["--workspace", ".", "-w", "sub"]), "/workspace/sub");
    assert_eq!(cwd(&["--ro", ".", "--workdir", "./sub"]), format!("{here}/sub"));
    assert_eq!(cwd(&["-v", ".:/x", "--chdir", "sub"]), "/x/sub", "bubblewrap's word");
    assert_eq!(plan(&scratch, &["--net=host"]).namespaces.network, stockade::plan::Network::Host);
    plan(&scratch, &["--init", "--read-only", "--unshare-pid", "--new-session", "--rm"]);
    let warned = scratch.stockade(["plan", "--cpus", "60000", "true"]);
    assert!(text(&warned.stderr).contains("--cpus 60000 has no effect"), "{}", text(&warned.stderr));
    refused(&scratch.stockade(["run", "-p", "80:80", "true"]), &["80:80", "--publish 80:80"]);
    refused(&scratch.stockade(["run", "-p", "MemoryMax=1G", "true"]), &["MemoryMax=1G", "-m SIZE"]);
    refused(&scratch.stockade(["run", "--ro-bind", "/a", "/b", "true"]), &["--ro-bind", "-v SRC:DST:ro"]);
}

#[test]
fn errors_name_the_option_that_they_come_from() {
    let scratch = Scratch::new("origin");
    scratch.file(
        "noexec.json",
        r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"}]}"#,
    );
    scratch.file("env", "=x\n");
    for (words, parts) in [
        (&["-v", "/nope:/x"][..], &["/nope", "ENOENT", "(from -v /nope:/x)"][..]),
        (&["--workspace", "nope"], &["ENOENT", "(from --workspace nope)"]),
        (&["--ro", "/nope"], &["(from --ro /nope)"]),
        (&["--mount", "type=bind,src=/nope,dst=/x"], &["(from --mount type=bind,src=/nope,dst=/x)"]),
        (&["--rootfs", "./nope"], &["(from --rootfs ./nope)"]),
        (&["--device", "/dev/nope"], &["(from --device /dev/nope)"]),
        (&["--env-file", "nope"], &["(from --env-file nope)"]),
        (&["--env-file", "env"], &["env:1", "(from --env-file env)"]),
        (&["--report", "/nope/x"], &["/nope/x", "(from --report /nope/x)"]),
        (&["--audit", "/nope/x"], &["(from --audit /nope/x)"]),
        (&["--net-log", "/nope/x"], &["(from --net-log /nope/x)"]),
        (&["-p", "./nope.toml"], &["(from -p ./nope.toml)"]),
        (&["--seccomp", "./nope.json"], &["(from --seccomp ./nope.json)"]),
        (&["--seccomp", "./noexec.json"], &["does not allow execve", "(from --seccomp ./noexec.json)"]),
        (&["-m", "1M", "--memory-high", "2M"], &["(from --memory-high 2M)"]),
        (&["--allow-net", "@nope"], &["nope", "(from --allow-net @nope)"]),
    ] {
        refused(&scratch.stockade([&["run"], words, &["true"]].concat()), parts);
    }
    let output = scratch.stockade(["run", "-v", "/nope:/x", "--report", "r.json", "true"]);
    refused(&output, &["/nope"]);
    let report: stockade::report::Report =
        serde_json::from_slice(&std::fs::read(scratch.0.join("r.json")).unwrap()).unwrap();
    assert_eq!(report.error.unwrap().option.as_deref(), Some("-v /nope:/x"));
}

#[test]
fn a_plan_says_what_a_run_would_be_refused_for() {
    let scratch = Scratch::new("planned");
    scratch.file(
        "noexec.json",
        r#"{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[{"names":["read"],"action":"SCMP_ACT_ALLOW"}]}"#,
    );
    for words in
        [&["-v", "/nope:/x"][..], &["--device", "/dev/nope"], &["--seccomp", "./noexec.json"], &["--rootfs", "nope"]]
    {
        let [planned, run] = ["plan", "run"].map(|verb| scratch.stockade([&[verb], words, &["true"]].concat()));
        let [said, reason] = [planned.stderr, run.stderr].map(|bytes| text(&bytes));
        let said =
            said.strip_prefix("stockade: a run would be refused here: ").unwrap_or_else(|| panic!("{words:?}: {said}"));
        assert_eq!(format!("stockade: {said}"), reason, "{words:?}");
        assert!(planned.status.success() && text(&planned.stdout).contains("argv"), "{words:?}: the plan is shown too");
    }
    let json = scratch.stockade(["plan", "--json", "-v", "/nope:/x", "true"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["refused"]["option"], "-v /nope:/x");
    refused(&scratch.stockade(["plan", "--report", "/nope/x", "true"]), &["/nope/x", "(from --report /nope/x)"]);
    assert_eq!(scratch.names(), ["noexec.json"], "nothing was created");
}

#[test]
fn a_policy_is_named_with_its_line_and_a_way_out() {
    let scratch = Scratch::new("written");
    for (content, parts) in [
        ("version = 1\n\nextends = 'nope'\n", &["p.toml:3: extends: nope", "not a built-in policy"][..]),
        ("version = 1\nextends = './nope.toml'\n", &["p.toml:2: extends: ./nope.toml", "ENOENT"]),
        ("version: 1\nbudget:\n  memory: 1G\n", &["this looks like YAML", "key = value"]),
        ("---\nversion: 1\n", &["this looks like YAML"]),
        ("{\"version\": 1}\n", &["this looks like JSON"]),
        ("version = \"1\"\n", &["p.toml:1:11: version", "\"1\" is a string; expected", "the number 1"]),
        (
            "version = 1\nlandlock.connect = [\"80\"]\n",
            &["p.toml:2:21: landlock.connect", "\"80\" is a string", "a port"],
        ),
        ("version = 1\nlandlock.bind = [\"80\"]\n", &["landlock.bind", "\"80\" is a string"]),
    ] {
        scratch.file("p.toml", content);
        refused(&scratch.stockade(["run", "-p", "./p.toml", "true"]), parts);
    }
    let path = scratch.file("p.toml", "version = 1\n");
    if chown(&path, Some(4_242), None).is_ok() {
        refused(&scratch.stockade(["run", "-p", "./p.toml", "true"]), &["belongs to user 4242", "`chown` it"]);
    }
}

#[test]
fn the_limit_that_leaves_no_process_is_named() {
    let scratch = Scratch::new("processes");
    let output = scratch.stockade(["run", "--pids-limit", "1", "--allow-degraded", "pids", "true"]);
    if output.status.code() == Some(125) {
        refused(&output, &["--pids-limit 1 leaves no process"]);
    }
    // A limit of the caller's user, which root is not bound by.
    let script = "ulimit -u 1; exec \"$0\" run --pids-limit 64 --allow-degraded pids true";
    let copy = scratch.0.join("stockade");
    std::fs::copy(env!("CARGO_BIN_EXE_stockade"), &copy).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "4243", "--regid", "4243", "--clear-groups", "bash", "-c", script]).arg(&copy);
    let Ok(output) = command.current_dir("/").output() else { return eprintln!("skipped: setpriv is missing") };
    let message = text(&output.stderr);
    assert!(!message.contains("EAGAIN") || message.contains("ulimit -u is 1, and user 4243"), "{message}");
}

#[test]
fn bash_completes_the_values_of_options() {
    if Command::new("bash").arg("--version").output().is_err() {
        return eprintln!("skipped: bash is missing");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/completions/stockade.bash");
    let complete = |words: &[&str]| {
        let (last, before) = (words[words.len() - 1], words[words.len() - 2]);
        let line = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let program = format!(
            "source '{script}'; compopt() {{ :; }}; COMP_WORDS=({line}); COMP_CWORD={}; \
             _stockade_or_session stockade '{last}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
            words.len() - 1
        );
        text(&Command::new("bash").args(["-c", &program]).current_dir("/usr").output().unwrap().stdout)
    };
    for (words, offers) in [
        (&["stockade", "run", "--network", ""][..], &["none", "loopback", "egress", "host"][..]),
        (&["stockade", "run", "--network", "e"], &["egress"]),
        (&["stockade", "plan", "--allow-degraded", "hu"], &["hugetlb"]),
        (&["stockade", "run", "--landlock", ""], &["require", "auto", "off"]),
        (&["stockade", "run", "--cap-add", "SYS_AD"], &["SYS_ADMIN"]),
        (&["stockade", "run", "-p", "st"], &["strict"]),
        (&["stockade", "run", "--profile", "bu"], &["build"]),
        (&["stockade", "run", "--seccomp", "unc"], &["unconfined"]),
        (&["stockade", "run", "--user", "no"], &["nobody"]),
        (&["stockade", "run", "--ulimit", "nof"], &["nofile="]),
    ] {
        let offered = complete(words);
        for word in offers {
            assert!(offered.split_whitespace().any(|one| one == *word), "{words:?}: {word} is not in {offered:?}");
        }
    }
    assert_eq!(complete(&["stockade", "run", "--network", "e"]).trim(), "egress");
}

#[test]
fn labels_are_names_and_values_in_one_line() {
    let scratch = Scratch::new("labels");
    let labels = plan(&scratch, &["--label", "job=42", "--label", "x/y", "--label", "job=43"]).labels;
    assert_eq!(labels, [("job".to_owned(), "43".to_owned()), ("x/y".to_owned(), String::new())].into());
    scratch.file("p.toml", "version = 1\nlabels = { job = '1', team = 'a b' }\n");
    let labelled = plan(&scratch, &["-p", "./p.toml", "--label", "job=2"]);
    assert_eq!(
        labelled.labels,
        [("job", "2"), ("team", "a b")].map(|(name, value)| (name.into(), value.into())).into()
    );
    assert_eq!(labelled.policy_sha256, plan(&scratch, &[]).policy_sha256, "a label is not policy");
    for (label, part) in [("", "name of a label"), ("a b=1", "name of a label"), ("a=\u{1b}", "in one line")] {
        refused(&scratch.stockade(["run", "--label", label, "true"]), &["--label", part]);
    }
}
