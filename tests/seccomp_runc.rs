//! Under the same profile a program sees what it sees under runc: every system call, made once in each.
//!
//! Both run the same static prober as root of a user namespace of its own, without capabilities and with no_new_privs, once
//! with Docker's unmodified profile and once without one. What differs without a profile is not the filter's doing.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{Caller, Run, TempDir, has_program, host, is_root, set_mode, skip, text};
use serde_json::{Value, json};

/// Where stockade means to differ (docs/seccomp.md), with what comes out there and here. Calls of other tables are never
/// made, whatever a profile says; an argument is compared in as many bits as the kernel reads, so that asking for the
/// personality is that with any upper half.
const MEANT: [(&str, &str, &str); 4] = [
    ("int80_getpid", "OK", "died_of_31"),
    ("x32_getpid", "errno_38", "died_of_31"),
    ("call_135", "errno_1", "OK"),
    ("personality_query_high", "errno_1", "OK"),
];

/// As an engine resolves a profile for a container without capabilities: an implementation apart from the one under test.
fn resolved(profile: &Value) -> Value {
    let kernel = nix::sys::utsname::uname().expect("a kernel has a name");
    let numbers = |text: &str| -> Vec<u32> { text.split('.').filter_map(|part| part.parse().ok()).take(2).collect() };
    let release = kernel.release().to_string_lossy().into_owned();
    let running = numbers(release.split('-').next().unwrap_or_default());
    let has = |list: &Value, what: &str| list.as_array().is_some_and(|list| list.iter().any(|item| item == what));
    let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    let takes_part = |rule: &&Value| {
        let (with, without) = (&rule["includes"], &rule["excludes"]);
        let kernel_fits = with["minKernel"].as_str().is_none_or(|least| running >= numbers(least));
        let arch_fits = !some(&with["arches"]) || has(&with["arches"], "amd64");
        kernel_fits && arch_fits && !has(&without["arches"], "amd64") && !some(&with["caps"])
        // No capability, so that none is excluded.
    };
    let rule = |rule: &Value| {
        let mut rule = rule.clone();
        for key in ["comment", "includes", "excludes"] {
            rule.as_object_mut().expect("a rule is an object").remove(key);
        }
        if !some(&rule["args"]) {
            rule.as_object_mut().expect("a rule is an object").remove("args");
        }
        rule
    };
    let rules: Vec<Value> =
        profile["syscalls"].as_array().expect("it has rules").iter().filter(takes_part).map(rule).collect();
    json!({
        "defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": rules,
    })
}

fn results(output: &str) -> BTreeMap<String, String> {
    output.lines().filter_map(|line| line.split_once(' ')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// Runs the prober in the bundle's root by runc.
fn under_runc(bundle: &TempDir, seccomp: Option<&Value>) -> BTreeMap<String, String> {
    let ids = json!([{"containerID": 0, "hostID": 1_879_100_000, "size": 1}]);
    let namespaces: Vec<Value> =
        ["pid", "network", "ipc", "uts", "mount", "user", "cgroup"].iter().map(|kind| json!({"type": kind})).collect();
    let mount = |at: &str, kind: &str, options: &[&str]| json!({"destination": at, "type": kind, "source": kind, "options": options});
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "args": ["/probe"], "env": ["PATH=/"], "cwd": "/", "noNewPrivileges": true,
            "capabilities": {"bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": []},
        },
        "root": {"path": "root", "readonly": true},
        "hostname": "sandbox",
        "mounts": [mount("/proc", "proc", &[]), mount("/dev", "tmpfs", &["nosuid", "mode=755", "size=65536k"])],
        "linux": {"namespaces": namespaces, "uidMappings": ids, "gidMappings": ids},
    });
    if let Some(seccomp) = seccomp {
        config["linux"]["seccomp"] = seccomp.clone();
    }
    bundle.file("config.json", config.to_string());
    let state = bundle.dir("state");
    let output = Command::new("runc")
        .args(["--root", text(&state), "run", "--bundle", text(bundle.path()), &common::unique()])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("runc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    results(&String::from_utf8_lossy(&output.stdout))
}

fn under_stockade(root: &Path, profile: &str) -> BTreeMap<String, String> {
    let options =
        ["--rootfs", text(root), "-u", "root", "--landlock", "off", "--seccomp", profile, "--ulimit", "core=0"];
    let outcome = Run::new(Caller::Root).opts(options).cmd(["/probe"]).go().expect(0);
    results(&outcome.text())
}

#[test]
fn every_call_comes_out_as_under_runc() {
    if !is_root() {
        return skip("not root: runc makes its containers as root here");
    }
    if !has_program("runc") || !has_program("gcc") {
        return;
    }
    let docker = concat!(env!("CARGO_MANIFEST_DIR"), "/target/seccomp-profiles/docker.json");
    let Ok(profile) = std::fs::read(docker) else {
        return skip("Docker's profile is not on this machine; tests/fetch-seccomp-profiles gets it");
    };
    let bundle = host::idmappable_dir(Caller::Root);
    let root = bundle.dir("root");
    for name in ["proc", "dev", "tmp"] {
        bundle.dir(&format!("root/{name}"));
    }
    let probe = root.join("probe");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/seccomp/probe.c");
    let made = Command::new("gcc").args(["-static", "-O1", "-o", text(&probe), source]).status();
    assert!(made.is_ok_and(|status| status.success()), "the prober compiles");
    set_mode(&probe, 0o755);
    let file = bundle.file("docker.json", &profile);

    let profile: Value = serde_json::from_slice(&profile).expect("it is JSON");
    let (theirs, ours) = (under_runc(&bundle, Some(&resolved(&profile))), under_stockade(&root, text(&file)));
    let (theirs_free, ours_free) = (under_runc(&bundle, None), under_stockade(&root, "unconfined"));
    assert!(theirs.len() > 500 && theirs.keys().eq(ours.keys()), "{} and {} probes", theirs.len(), ours.len());

    let (mut compared, mut elsewhere, mut wrong) = (0, Vec::new(), Vec::new());
    for (name, their) in &theirs {
        let our = &ours[name];
        if let Some((_, expected, meant)) = MEANT.iter().find(|(call, ..)| call == name) {
            // A User-Mode kernel takes `int 0x80` for a call of its own table.
            assert!(host::is_uml() || (their == expected && our == meant), "{name}: {their} and {our}");
        } else if their == our {
            compared += 1;
        } else if theirs_free[name] != ours_free[name] {
            elsewhere.push(format!("{name}: {} and {} without a filter", theirs_free[name], ours_free[name]));
        } else {
            wrong.push(format!("{name}: {their} under runc, {our} here"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(elsewhere.len() < 10, "too little is compared: {elsewhere:#?}");
    let refused = theirs.iter().filter(|(name, result)| **result != theirs_free[*name]).count();
    assert!(refused > 20, "the profile refuses {refused} of the calls that work or fail otherwise without it");
    eprintln!(
        "{compared} calls compared, {refused} of them refused by the profile, {} differ for other reasons",
        elsewhere.len()
    );
}
