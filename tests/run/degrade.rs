//! Runs on kernels that lack a facility. The run is refused with an error that names the facility and the remedy; if the caller
//! allows its absence, the run starts and the report lists it; and the doctor predicts both. Each test reads the facilities of
//! the running kernel, and skips if none is missing. `tests/all qemu` runs them on kernels that really lack one.

use std::fs;
use std::path::Path;

use crate::common;
use crate::common::host::{idmappable_dir, landlock_abi};
use crate::common::{Caller, Outcome, Run, attack, for_each_caller, is_root, set_mode, skip, text};
use serde_json::Value;

/// The controllers of cgroup v2 that the kernel offers; `None` if v2 is not mounted or not the only version.
fn controllers() -> Option<Vec<String>> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let pure = own.lines().all(|line| line.starts_with("0::"));
    let text = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").ok().filter(|_| pure)?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

/// Controllers that a run uses by default or on request, and that are disabled in this kernel.
fn missing_controllers() -> Option<Vec<(&'static str, [&'static str; 2], &'static str)>> {
    let all = [
        ("memory", ["--memory", "64M"], "budget_memory"),
        ("pids", ["--pids-limit", "30"], "budget_pids"),
        ("cpu", ["--cpus", "0.5"], "budget_cpu"),
    ];
    let Some(there) = controllers() else {
        skip("the controllers are not all in cgroup v2");
        return None;
    };
    let missing: Vec<_> = all.into_iter().filter(|(name, ..)| !there.iter().any(|one| one == name)).collect();
    if missing.is_empty() {
        skip("this kernel has every controller");
        return None;
    }
    Some(missing)
}

fn run(caller: Caller, options: &[&str]) -> Outcome {
    Run::new(caller).opts(options.iter().copied()).sh("echo ran").go()
}

/// Fails unless the run was refused, with the reason and the remedy in report and message.
#[track_caller]
fn expect_refusal(outcome: Outcome, step: &str, texts: &[&str]) {
    let outcome = outcome.expect(125).expect_status("setup_error");
    assert_eq!(outcome.text(), "", "the workload ran");
    let error = &outcome.report()["error"];
    assert_eq!(error["step"], step, "{outcome}");
    for text in texts {
        assert!(outcome.stderr.contains(text), "{text:?} is missing: {outcome}");
    }
    assert!(outcome.stderr.contains("hint: ") && error["hint"].is_string(), "{outcome}");
}

fn degraded(outcome: &Outcome) -> Vec<Value> {
    outcome.report()["enforced"]["degraded"].as_array().expect("a list").clone()
}

#[track_caller]
fn degraded_as(outcome: &Outcome, what: &str) -> Value {
    let found = degraded(outcome).into_iter().find(|one| one["what"] == what);
    found.unwrap_or_else(|| panic!("{what} is not listed as degraded: {outcome}"))
}

/// The findings of `stockade doctor`, and its exit code.
fn doctor(caller: Caller) -> (Value, i32) {
    let outcome = Run::new(caller).plain().opts(["doctor", "--json"]).go();
    let json = serde_json::from_slice(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome}"));
    (json, outcome.code())
}

#[track_caller]
fn finding(doctor: &Value, name: &str) -> Value {
    let findings = doctor["findings"].as_array().expect("a list");
    findings.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no finding {name}")).clone()
}

// --- Landlock --------------------------------------------------------------------------------------------------------

#[test]
fn without_landlock_a_run_is_refused_unless_it_may_lack() {
    let (abi, why) = landlock_abi();
    if abi > 0 {
        return skip("this kernel has Landlock");
    }
    for_each_caller(|caller| {
        expect_refusal(run(caller, &[]), "landlock", &["Landlock", why, "--allow-degraded landlock"]);
        for way_out in [&["--allow-degraded", "landlock"][..], &["--landlock", "auto"]] {
            let outcome = run(caller, way_out).expect(0).expect_status("ok");
            let entry = degraded_as(&outcome, "landlock");
            assert_eq!((&entry["wanted"], &entry["got"]), (&"ABI 2 or newer".into(), &"none".into()), "{entry}");
            assert!(entry["why"].as_str().unwrap().contains(why), "{entry}");
            let enforced = &outcome.report()["enforced"];
            assert_eq!(enforced["landlock_abi"], Value::Null);
            assert_eq!(enforced["landlock_rights"], Value::Array(Vec::new()));
        }
        // Without Landlock requested, nothing is degraded.
        let outcome = run(caller, &["--landlock", "off"]).expect(0);
        assert!(degraded(&outcome).iter().all(|one| one["what"] != "landlock"), "{outcome}");

        let (report, code) = doctor(caller);
        assert_eq!((code, &report["default_run_enforceable"]), (1, &Value::Bool(false)));
        let finding = finding(&report, "landlock");
        assert_eq!((&finding["state"], &finding["required"]), (&"missing".into(), &true.into()), "{finding}");
        assert!(finding["consequence"].as_str().unwrap().contains("--allow-degraded landlock"), "{finding}");
        if why == "not enabled at boot" {
            // The remedy keeps the enabled modules.
            let remedy = finding["remedy"].as_str().unwrap();
            let enabled = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
            assert!(remedy.contains("lsm=landlock,") && remedy.contains(enabled.trim()), "{enabled}: {finding}");
        }
    });
}

/// The rules are lost with the layer; the other layers still hold.
#[test]
fn without_landlock_the_other_layers_hold() {
    if landlock_abi().0 > 0 {
        return skip("this kernel has Landlock");
    }
    for_each_caller(|caller| {
        let program = attack(
            r#"
attempt("write", lambda: open("/usr/made", "w"))
attempt("host", lambda: os.listdir("/root"))
syscall("mount", 165, b"none", b"/tmp", b"tmpfs", 0, None)
attempt("own", lambda: open("/tmp/own", "w"))
"#,
        );
        let outcome = Run::new(caller).opts(["--allow-degraded", "landlock"]).python(&program).go().expect(0);
        assert_eq!((outcome.value("write"), outcome.value("own")), ("EROFS".into(), "OK".into()), "{outcome}");
        assert_eq!((outcome.value("host"), outcome.value("mount")), ("ENOENT".into(), "EPERM".into()), "{outcome}");
        assert_eq!(outcome.report()["enforced"]["seccomp"]["profile"], "default", "{outcome}");
    });
}

/// A list that an old Landlock cannot enforce is not silently ignored: before ABI 3 files outside of the writable paths could be
/// truncated, and before ABI 4 every port would be open.
#[test]
fn a_list_that_this_landlock_cannot_enforce_is_refused() {
    let (abi, _) = landlock_abi();
    if abi == 0 || abi >= 4 {
        return skip("this kernel has no Landlock, or one that enforces every list");
    }
    let write = (3, ["--allow-write", "/tmp"], ["what may be written", "ABI 3"]);
    let connect = (4, ["--allow-connect", "443"], ["a list of ports", "ABI 4"]);
    let bind = (4, ["--allow-bind", "8080"], ["a list of ports", "ABI 4"]);
    for_each_caller(|caller| {
        for (needs, list, said) in [write, connect, bind] {
            if needs <= abi {
                continue;
            }
            expect_refusal(run(caller, &list), "landlock", &[said[0], said[1], "--allow-degraded landlock"]);
            let outcome = run(caller, &[&list[..], &["--allow-degraded", "landlock"]].concat()).expect(0);
            let entry = degraded_as(&outcome, "landlock");
            assert_eq!(entry["got"], format!("ABI {abi}"), "{entry}");
            assert!(entry["wanted"].as_str().unwrap().contains(said[1]), "{entry}");
            assert_eq!(outcome.report()["enforced"]["landlock_abi"], abi, "the available ABI is used");
        }
        // Without a network there is nothing that the list could restrict.
        run(caller, &["--network", "none", "--allow-connect", "443"]).expect(0);
    });
}

/// The gap is real: with the allowance, a file outside of the list can be truncated on such a kernel, and not on newer ones.
#[test]
fn the_report_says_how_far_a_list_of_writable_paths_is_enforced() {
    let (abi, _) = landlock_abi();
    if abi == 0 {
        return skip("this kernel has no Landlock");
    }
    let program = attack(
        r#"
for place in ("/tmp", "/data"):
    attempt(place, lambda: open(place + "/new", "w").close())
attempt("truncate", lambda: os.truncate("/data/file", 0))
"#,
    );
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        set_mode(&dir.file("file", "content\n"), 0o666);
        let data = format!("--volume={}:/data:rw", text(dir.path()));
        let options = [data.as_str(), "--allow-write", "/tmp", "--allow-degraded", "landlock"];
        let outcome = Run::new(caller).opts(options).python(&program).go().expect(0);
        assert_eq!((outcome.value("/tmp"), outcome.value("/data")), ("OK".into(), "EACCES".into()));
        let rights = outcome.report()["enforced"]["landlock_rights"].to_string();
        let denied = outcome.value("truncate") == "EACCES";
        assert_eq!(rights.contains("fs:Truncate"), denied, "{outcome}");
        assert_eq!(denied, abi >= 3, "{outcome}");
        assert_eq!(degraded(&outcome).iter().any(|one| one["what"] == "landlock"), abi < 3, "{outcome}");
    });
}

#[test]
fn the_doctor_says_what_an_older_landlock_lacks() {
    let (abi, _) = landlock_abi();
    if abi == 0 || abi >= 10 {
        return skip("this kernel has no Landlock, or all of it");
    }
    let since = [(3, "truncating files"), (4, "TCP ports"), (6, "abstract sockets"), (10, "UDP ports")];
    for_each_caller(|caller| {
        let (report, _) = doctor(caller);
        let finding = finding(&report, "landlock");
        let detail = finding["detail"].as_str().unwrap();
        assert_eq!(finding["state"], if abi < 2 { "missing" } else { "degraded" }, "{finding}");
        assert!(detail.contains(&format!("ABI {abi}")), "{finding}");
        for (first, what) in since {
            assert_eq!(detail.contains(what), abi >= 2 && first > abi, "{what}: {finding}");
        }
        // The run starts: it uses the available rights, and the report lists the missing ones.
        let outcome = run(caller, &[]).expect(0);
        let missing = outcome.report()["enforced"]["landlock_missing"].to_string();
        for (first, right) in [(3, "fs:Truncate"), (4, "net:ConnectTcp"), (6, "scope:Signal")] {
            assert_eq!(missing.contains(right), first > abi, "{right}: {outcome}");
        }
    });
}

// --- Controllers -----------------------------------------------------------------------------------------------------

#[test]
fn without_a_controller_its_budget_is_refused_unless_it_may_lack() {
    if !is_root() {
        return skip("not root");
    }
    let Some(missing) = missing_controllers() else { return };
    let (report, code) = doctor(Caller::Root);
    for (name, budget, found_as) in &missing {
        let allowed = format!("--allow-degraded {name}");
        let said = [&format!("{name} budget"), "cannot be enforced", "controller", &allowed];
        expect_refusal(run(Caller::Root, budget), "cgroup", &said);
        let outcome = run(Caller::Root, &[&budget[..], &["--allow-degraded", name]].concat()).expect(0);
        let entry = degraded_as(&outcome, name);
        let got = match *name {
            "memory" => "RLIMIT_DATA",
            "pids" => "RLIMIT_NPROC",
            _ => "unlimited",
        };
        assert!(entry["got"].as_str().unwrap().starts_with(got), "{entry}");
        assert!(entry["wanted"].as_str().unwrap().starts_with(&format!("{name}.max ")), "{entry}");
        // An allowance for another facility does not help.
        expect_refusal(run(Caller::Root, &[&budget[..], &["--allow-degraded", "io"]].concat()), "cgroup", &said);
        let finding = finding(&report, found_as);
        assert_eq!((&finding["state"], &finding["required"]), (&"missing".into(), &false.into()), "{finding}");
        assert!(finding["remedy"].as_str().unwrap().contains(&format!("cgroup_disable={name}")), "{finding}");
    }
    if missing.len() > 1 {
        let all: Vec<&str> = missing.iter().flat_map(|(_, budget, _)| *budget).collect();
        let names: Vec<_> = missing.iter().map(|(name, ..)| *name).collect();
        let together = format!("{} budgets", names.join(", "));
        let way_out = names.iter().map(|name| format!("--allow-degraded {name}")).collect::<Vec<_>>().join(" ");
        expect_refusal(run(Caller::Root, &all), "cgroup", &[&together, &way_out]);
    }
    // A default run needs no budget, and its report lists the missing one.
    assert_eq!(code, if landlock_abi().0 >= 2 { 0 } else { 1 }, "{report:#}");
    if code == 0 {
        let outcome = run(Caller::Root, &[]).expect(0);
        for (name, ..) in missing.iter().filter(|(name, ..)| *name != "cpu") {
            let got = if *name == "pids" { "RLIMIT_NPROC 512 for the processes of its user" } else { "unlimited" };
            assert_eq!(degraded_as(&outcome, name)["got"], got);
        }
    }
}

/// The available controllers are used, and missing counters are not invented.
#[test]
fn a_missing_controller_does_not_disable_the_others() {
    if !is_root() {
        return skip("not root");
    }
    let Some(missing) = missing_controllers() else { return };
    let lacks = |name: &str| missing.iter().any(|(one, ..)| *one == name);
    if lacks("cpu") {
        return skip("the cpu controller is missing as well");
    }
    let options = ["--cpus", "0.5", "--allow-degraded", "landlock"];
    let outcome = run(Caller::Root, &options).expect(0);
    let controllers = &outcome.report()["enforced"]["cgroup"]["controllers"];
    assert_eq!(*controllers, serde_json::json!(["cpu"]), "{outcome}");
    let usage = &outcome.report()["usage"];
    assert_eq!(usage["cpu"]["source"], "cgroup2");
    for (name, value) in [("memory", "/memory/peak_bytes"), ("memory", "/memory/limit_bytes"), ("pids", "/pids/limit")]
    {
        assert!(!lacks(name) || usage.pointer(value) == Some(&Value::Null), "{value}: {outcome}");
    }
}

// --- All kernels -----------------------------------------------------------------------------------------------------

/// Ordinary work succeeds on every kernel: a program computes, starts others, and leaves a result.
#[test]
fn ordinary_work_succeeds_on_any_kernel() {
    for_each_caller(|caller| {
        let dir = idmappable_dir(caller);
        let program = "import json, multiprocessing, os, sqlite3, subprocess, tempfile\n\
            with multiprocessing.get_context('fork').Pool(2) as pool: squares = pool.starmap(pow, [(n, 2) for n in range(10)])\n\
            with sqlite3.connect('/tmp/data') as data:\n\
            \x20   data.execute('create table squares (n)')\n\
            \x20   data.executemany('insert into squares values (?)', [(n,) for n in squares])\n\
            \x20   total = data.execute('select sum(n) from squares').fetchone()[0]\n\
            name = subprocess.run(['id', '-un'], capture_output=True, text=True).stdout.strip()\n\
            open('result', 'w').write(json.dumps([total, name]))";
        let outcome = Run::new(caller)
            .opts(["-p", "build", "--workspace", text(dir.path()), "--allow-degraded", "landlock", "--timeout", "50s"])
            .cmd([common::PYTHON, "-c", program])
            .go()
            .expect(0)
            .expect_status("ok");
        let result = fs::read_to_string(dir.join("result")).expect("the result is in the workspace");
        assert_eq!(result, "[285, \"sandbox\"]", "{outcome}");
        let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata(dir.join("result")).unwrap());
        assert_eq!(owner, caller.ids().0, "files keep their owner");
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(outcome.report()["runtime"]["kernel"], release.trim());
    });
}

/// A writable bind of root's is an idmapped mount, which tmpfs supports since Linux 6.3.
#[test]
fn a_writable_bind_that_cannot_be_idmapped_is_refused_with_the_remedy() {
    if !is_root() {
        return skip("only root needs an idmapped mount");
    }
    let dir = common::TempDir::below(Path::new("/dev/shm"), Caller::Root);
    let (release, shared) = (fs::read_to_string("/proc/sys/kernel/osrelease").unwrap(), text(dir.path()));
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let old = (numbers.next(), numbers.next()) < (Some(6), Some(3));
    let bind = format!("--volume={shared}:/data:rw");
    let options = ["--allow-degraded", "landlock", &bind];
    let run = |caller: Caller, name: &str| Run::new(caller).opts(options).cmd(["touch", name]).go();
    if old {
        expect_refusal(run(Caller::Root, "/data/made"), "source", &[shared, "idmapped mounts", "bind it read-only"]);
        assert!(!dir.join("made").exists());
    } else {
        run(Caller::Root, "/data/made").expect(0);
        assert!(dir.join("made").exists());
    }
    // Other callers do not need one.
    set_mode(dir.path(), 0o777);
    run(Caller::Unprivileged, "/data/theirs").expect(0);
}

/// Counters that the kernel lacks are `null` in the report, not an error.
#[test]
fn counters_that_the_kernel_lacks_are_null() {
    if !is_root() || controllers().is_none_or(|all| !all.iter().any(|name| name == "memory")) {
        return skip("takes root, and a memory controller in cgroup v2");
    }
    // Creates a cgroup to see which files exist.
    let probe = Path::new("/sys/fs/cgroup").join(common::unique());
    fs::create_dir(&probe).expect("root can make a cgroup");
    let there = |file: &str| probe.join(file).exists();
    let (peak, swap) = (there("memory.peak"), there("memory.swap.peak"));
    fs::remove_dir(&probe).expect("root can remove a cgroup");
    let outcome = run(Caller::Root, &["-m", "64M", "--allow-degraded", "landlock"]).expect(0).expect_status("ok");
    let memory = &outcome.report()["usage"]["memory"];
    assert_eq!((memory["peak_bytes"].is_u64(), memory["swap_peak_bytes"].is_u64()), (peak, swap), "{memory}");
    assert_eq!(memory["limit_bytes"], 64 << 20);
}
