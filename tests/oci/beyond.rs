//! Features that other runtimes do not have: Landlock in a container, its report, and the check of a bundle before anything
//! starts.

use crate::common;
use crate::common::bundle::{Bundle, Called, Runtime, ours};
use crate::common::{host, leaks, skip, text};
use serde_json::{Value, json};

const LANDLOCK: &str = "org.stockade.landlock";

fn with_landlock(script: &str, rules: Value) -> Option<Bundle> {
    let mut bundle = Bundle::new(Runtime::Ours, script)?;
    bundle.config["annotations"] = json!({ LANDLOCK: rules.to_string() });
    Some(bundle)
}

#[test]
fn landlock_holds_what_its_annotation_says() {
    ours(|_| {
        let (abi, why) = host::landlock_abi();
        if abi < 3 {
            return skip(&format!("Landlock {why}"));
        }
        let script =
            "cat /etc/allowed; cat /etc/refused; echo x >/tmp/x && echo wrote tmp; echo x >/data/x; ls /dev/null";
        let rules = json!({ "read": ["/bin", "/lib:optional", "/etc/allowed", "/tmp"], "write": ["/tmp"] });
        let Some(mut bundle) = with_landlock(script, rules.clone()) else { return };
        let etc = bundle.rootfs().join("etc");
        std::fs::create_dir_all(&etc).unwrap();
        for name in ["allowed", "refused"] {
            std::fs::write(etc.join(name), format!("{name}\n")).unwrap();
        }
        bundle.mount("/tmp", "tmpfs", "tmpfs", &[]).mount("/data", "tmpfs", "tmpfs", &[]);
        for (no_new_privs, uid) in [(true, 0), (true, 1000), (false, 0)] {
            bundle.config["process"]["noNewPrivileges"] = json!(no_new_privs);
            bundle.config["process"]["user"] = json!({ "uid": uid, "gid": uid });
            bundle.mount("/tmp", "tmpfs", "tmpfs", &["mode=1777"]);
            bundle.config["annotations"] = json!({});
            let open = bundle.run().out();
            assert!(open.contains("refused"), "without it everything can be read: {open}");
            bundle.config["annotations"] = json!({ LANDLOCK: rules.to_string() });
            let called = bundle.run();
            let said = called.out();
            assert!(said.contains("allowed\n") && said.contains("wrote tmp"), "{called:?}");
            assert!(!said.contains("refused"), "{called:?}");
            assert!(called.err().contains("/etc/refused") && called.err().contains("ermission denied"), "{called:?}");
        }
        // A process of exec is restricted by it as well.
        bundle.config["process"]["args"] = json!(["sleep", "60"]);
        bundle.config["process"]["noNewPrivileges"] = json!(true);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        let called = bundle.exec("cat /etc/allowed; cat /etc/refused");
        assert_eq!(called.out(), "allowed\n", "{called:?}");
    });
}

#[test]
fn only_what_is_listed_is_executed() {
    ours(|_| {
        if host::landlock_abi().0 < 3 {
            return skip("Landlock");
        }
        let rules = json!({ "execute": ["/bin/busybox"] });
        let script = "busybox cp /bin/busybox /tmp/copy; /other/busybox true && echo ran other; /tmp/copy true && echo ran copy; \
            busybox true && echo ran";
        let Some(mut bundle) = with_landlock(script, rules) else { return };
        let other = bundle.rootfs().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::copy("/bin/busybox", other.join("busybox")).unwrap();
        bundle.mount("/tmp", "tmpfs", "tmpfs", &["exec"]);
        bundle.config["process"]["args"] = json!(["/bin/busybox", "sh", "-c", script]);
        assert_eq!(bundle.run().out(), "ran\n");
        bundle.config["root"]["readonly"] = json!(false);
        bundle.run().expect_error("is writable through the mount at /");
    });
}

#[test]
fn invalid_rules_start_nothing() {
    ours(|_| {
        for (rules, named) in [
            ("{\"raed\":[]}", "raed"),
            ("nonsense", LANDLOCK),
            ("{\"read\":[\"etc\"]}", "read[0]"),
            ("{\"read\":[\"/nonexistent\"]}", "/nonexistent"),
            ("{\"minimum_abi\":900}", "900"),
        ] {
            let Some(mut bundle) = Bundle::new(Runtime::Ours, "echo ran") else { return };
            bundle.config["annotations"] = json!({ LANDLOCK: rules });
            let called = bundle.run().expect(1).expect_error(named);
            assert_eq!(called.out(), "");
        }
    });
}

#[test]
fn the_rules_are_those_of_a_policy() {
    ours(|_| {
        let table = json!({ "mode": "auto", "read": ["/usr", "/x:optional", { "path": "/y", "optional": true }], "write": ["/tmp"],
            "connect": [443], "bind": [0] });
        let Some(bundle) = with_landlock("sleep 60", table.clone()) else { return };
        let called = bundle.create();
        if called.0.status.success() {
            let plan = std::fs::read(bundle.dir.join("state").join(&bundle.id).join("plan.json")).unwrap();
            let ours: Value = serde_json::from_slice(&plan).unwrap();
            let policy = "[landlock]\nmode = \"auto\"\nread = [\"/usr\", \"/x:optional\", { path = \"/y\", optional = true }]\n\
                write = [\"/tmp\"]\nconnect = [443]\nbind = [0]\n";
            let file = bundle.dir.file("policy.toml", format!("network = \"host\"\n{policy}"));
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stockade"));
            let output = command.args(["plan", "--json", "-p", text(&file), "--", "true"]).output().unwrap();
            let run: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
            let run = run.pointer("/landlock").or(run.pointer("/plan/landlock")).cloned().unwrap_or_default();
            assert_eq!(ours["landlock"], run);
        }
    });
}

fn report(bundle: &Bundle) -> Value {
    let path = bundle.dir.join("report.json");
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let report: Value = serde_json::from_slice(&text).unwrap();
    let schema =
        common::text(std::path::Path::new(env!("CARGO_MANIFEST_DIR"))).to_owned() + "/profiles/report.schema.json";
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let violations = common::schema::violations(&schema, &report);
    assert!(violations.is_empty(), "{violations:?}\n{report}");
    report
}

#[test]
fn a_report_is_written_when_a_container_goes() {
    ours(|_| {
        leaks::adopt_orphans();
        let Some(mut bundle) = Bundle::new(Runtime::Ours, "exit 42") else { return };
        let annotate = |bundle: &mut Bundle, path: &str| {
            bundle.config["annotations"] = json!({ "org.stockade.report": path });
        };
        let path = text(&bundle.dir.join("report.json")).to_owned();
        annotate(&mut bundle, &path);
        bundle.config["linux"]["resources"]["pids"] = json!({ "limit": 21 });
        bundle.run().expect(42);
        let told = report(&bundle);
        assert_eq!(
            (&told["status"], &told["exit_code"], &told["id"]),
            (&json!("nonzero"), &json!(42), &json!(bundle.id))
        );
        assert_eq!(told.pointer("/usage/pids/limit"), Some(&json!(21)), "{told}");
        assert!(told.pointer("/usage/cpu/total_us").is_some_and(Value::is_u64), "{told}");
        assert_eq!(told.pointer("/enforced/no_new_privs"), Some(&json!(true)));
        let namespaces = told.pointer("/enforced/namespaces").unwrap().to_string();
        assert!(namespaces.contains("pid") && namespaces.contains("mount"), "{namespaces}");
        // Another process waits for it until the test reaps it.
        bundle.config["process"]["args"] = json!(["sh", "-c", "kill -9 $$; busybox kill -9 1; sleep 1; exit 9"]);
        bundle.create().expect(0);
        bundle.about("start").expect(0);
        bundle.wait_for("stopped");
        bundle.about("delete").expect(0);
        // Not every kernel reports it.
        let told = report(&bundle);
        assert!(told["exit_code"] == 9 || told["status"] == "unknown", "{told}");
        // A container whose create failed.
        bundle.config["process"]["args"] = json!(["nonsense"]);
        bundle.run().expect(1);
        assert_eq!(report(&bundle)["status"], "setup_error");
        assert_eq!(report(&bundle).pointer("/error/step"), Some(&json!("exec")));
        for wrong in ["relative", "/nonexistent/report", "/tmp"] {
            annotate(&mut bundle, wrong);
            bundle.run().expect(1).expect_error("org.stockade.report");
        }
        // A report that the container could forge, or could make root write elsewhere.
        bundle.config["root"]["readonly"] = json!(false);
        let open = bundle.dir.dir("open");
        common::set_mode(&open, 0o777);
        std::os::unix::fs::symlink(bundle.dir.path(), open.join("link")).unwrap();
        for (wrong, why) in [
            (bundle.rootfs().join("report.json"), "which the container can write"),
            (open.join("link/report.json"), "another user could have made"),
        ] {
            annotate(&mut bundle, text(&wrong));
            bundle.run().expect(1).expect_error(why);
            assert!(!wrong.exists() || why.contains("another"), "{why}");
        }
        // A report that can no longer be written does not keep a container from being deleted.
        let gone = bundle.dir.dir("gone");
        annotate(&mut bundle, text(&gone.join("report.json")));
        bundle.config["process"]["args"] = json!(["sleep", "60"]);
        bundle.create().expect(0);
        std::fs::remove_dir(&gone).unwrap();
        let deleted = bundle.call(["delete", "--force", &bundle.id]).expect(0);
        assert!(deleted.err().contains("warning"), "{deleted:?}");
        assert!(bundle.state().is_null());
    });
}

fn check(bundle: &Bundle, json: bool) -> Called {
    let format = if json { "json" } else { "text" };
    bundle.call(["check", "--format", format, text(bundle.dir.path())])
}

#[test]
fn a_bundle_is_explained_without_starting_anything() {
    ours(|_| {
        let Some(mut bundle) = Bundle::new(Runtime::Ours, "echo ran") else { return };
        let before = leaks::Marked::new(&bundle.id, [bundle.rootfs()]);
        let said = check(&bundle, false).expect(0).out();
        assert!(
            said.contains("can be created here") && said.contains("process.args") && said.contains("echo ran"),
            "{said}"
        );
        let told: Value = serde_json::from_slice(&check(&bundle, true).expect(0).0.stdout).unwrap();
        assert_eq!((&told["can_be_made"], &told["schema"]), (&json!(true), &json!("stockade/oci-check/v1")));
        bundle.run().expect(0);
        for name in ["dev", "proc", "sys"] {
            let _ = std::fs::remove_dir_all(bundle.rootfs().join(name));
        }
        // All errors are reported, not only the first.
        bundle.mount("/one", "bind", "/nonexistent/one", &["rbind"]).mount(
            "/two",
            "bind",
            "/nonexistent/two",
            &["rbind"],
        );
        bundle.config["hooks"] = json!({ "prestart": [{ "path": "/nonexistent/hook" }] });
        bundle.config["linux"]["namespaces"].as_array_mut().unwrap().retain(|one| one["type"] != "ipc");
        bundle.config["linux"]["namespaces"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "type": "ipc", "path": "/etc/passwd" }));
        bundle.config["process"]["capabilities"]["bounding"] = json!(["CAP_KILL", "CAP_FROM_THE_FUTURE"]);
        let called = check(&bundle, true).expect(1);
        let told: Value = serde_json::from_slice(&called.0.stdout).unwrap();
        let problems = told["problems"].as_array().unwrap();
        let has = |field: &str, text: &str| {
            problems
                .iter()
                .any(|one| one["field"].as_str().unwrap().starts_with(field) && one.to_string().contains(text))
        };
        assert!(has("mounts[", "/nonexistent/one") && has("mounts[", "/nonexistent/two"), "{told}");
        assert!(has("hooks.prestart[0]", "/nonexistent/hook") && has("linux.namespaces", "/etc/passwd"), "{told}");
        assert!(has("", "CAP_FROM_THE_FUTURE"), "{told}");
        assert_eq!(told["can_be_made"], false);
        let said = check(&bundle, false).expect(1).out();
        assert!(said.contains("NOT") && said.contains("/nonexistent/two"), "{said}");
        assert!(!bundle.run().0.status.success(), "and the run fails");
        std::fs::write(bundle.dir.join("config.json"), "{").unwrap();
        let mut command = std::process::Command::new(Runtime::Ours.program());
        let output = command.args(["check", text(bundle.dir.path())]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).contains("config.json"));
        bundle.call(["check", "/nonexistent"]).expect(1).expect_error("/nonexistent");
        for name in ["dev", "proc", "sys"] {
            let _ = std::fs::remove_dir_all(bundle.rootfs().join(name));
        }
        before.expect_nothing_left(leaks::Adopted::Expected);
    });
}
