//! AppArmor profiles. These tests run in a virtual machine whose kernel has it enabled.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common;
use crate::common::bundle::{Bundle, for_each_runtime};
use serde_json::json;

const APPARMOR: &str = "/sys/kernel/security/apparmor";

/// Whether the kernel has AppArmor, with its file system mounted.
fn has_apparmor() -> bool {
    if !Path::new(APPARMOR).exists() {
        let _ = Command::new("mount").args(["-t", "securityfs", "securityfs", "/sys/kernel/security"]).output();
    }
    Path::new(APPARMOR).exists()
}

/// Loads a profile that denies one file.
fn load(name: &str) {
    let text = format!(
        "abi <kernel>,\nprofile {name} flags=(attach_disconnected,mediate_deleted) {{\n  file,\n  capability,\n  mount,\n  signal,\n  network,\n  unix,\n  ptrace,\n  deny /secret r,\n}}\n"
    );
    let text = text.replace("abi <kernel>,\n", "");
    let mut parser =
        Command::new("apparmor_parser").args(["--replace", "--skip-cache"]).stdin(Stdio::piped()).spawn().unwrap();
    parser.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(parser.wait().unwrap().success());
}

#[test]
fn an_apparmor_profile_is_that_of_the_program() {
    if !has_apparmor() {
        return common::skip("this kernel has no AppArmor");
    }
    if !common::has_program("apparmor_parser") {
        return common::skip("apparmor_parser is not installed");
    }
    for_each_runtime(|runtime| {
        let script = "cat /proc/self/attr/current; cat /secret; echo up; while :; do sleep 0.1; done";
        for forbidden in [true, false] {
            let Some(mut bundle) = Bundle::new(runtime, script) else { return };
            std::fs::write(bundle.rootfs().join("secret"), "secret\n").unwrap();
            load("stockade-one");
            load("stockade-two");
            bundle.config["process"]["noNewPrivileges"] = json!(forbidden);
            bundle.config["process"]["apparmorProfile"] = json!("stockade-one");
            bundle.create().expect(0);
            bundle.about("start").expect(0);
            bundle.wait_for_output("up");
            let said = bundle.printed();
            assert!(said.contains("stockade-one (enforce)") && !said.contains("secret\n"), "{said}");
            // A process of exec has the container's profile, or its own.
            let said = bundle.exec("cat /proc/self/attr/current; cat /secret 2>&1").out();
            assert!(said.contains("stockade-one (enforce)") && said.contains("Permission denied"), "{said}");
            let other =
                bundle.call(["exec", "--apparmor", "stockade-two", &bundle.id, "cat", "/proc/self/attr/current"]);
            assert!(other.out().contains("stockade-two (enforce)"), "{other:?}");
        }
        let Some(mut bundle) = Bundle::new(runtime, "echo ran") else { return };
        bundle.config["process"]["apparmorProfile"] = json!("stockade-that-nobody-loaded");
        let called = bundle.run();
        assert!(!called.0.status.success() && called.out().is_empty(), "{called:?}");
        bundle.config["process"]["apparmorProfile"] = json!("unconfined");
        assert_eq!(bundle.run().expect(0).out(), "ran\n");
    });
}
