//! A profile has the same meaning under `stockade run --seccomp FILE` as under an OCI runtime: runc and our program run the same
//! table of probes under Docker's and Podman's unmodified profiles, and every answer is compared.
//!
//! `seccomp/probes.c` is the table, and explains how a filter's decision is told from an error of the kernel. The profiles are
//! converted to a container's configuration the way Docker does it, independently of our own reader.

#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common;
use crate::common::{Caller, Run, TempDir, for_each_caller, has_program, is_root, set_mode, skip, text};
use serde_json::{Value, json};

/// Docker's default capabilities of containers. The second case of every comparison; the first has none.
const DOCKERS_CAPABILITIES: [&str; 14] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FSETID",
    "CAP_FOWNER",
    "CAP_MKNOD",
    "CAP_NET_RAW",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETFCAP",
    "CAP_SETPCAP",
    "CAP_NET_BIND_SERVICE",
    "CAP_SYS_CHROOT",
    "CAP_KILL",
    "CAP_AUDIT_WRITE",
];

/// Probe and answer.
type Answers = BTreeMap<String, String>;

/// Whether an answer differs deliberately; docs/seccomp.md gives the reasons.
fn differs_on_purpose(profile: &str, probe: &str, ours: &str) -> bool {
    match probe {
        // Calls of other tables end the process here, whatever the profile says.
        _ if probe.starts_with("int 0x80 ") || probe.starts_with("x32 ") => ours == "signal 31",
        // An argument is compared in the bits that the kernel reads: these are personality(0) and personality(0xffffffff).
        "personality 0 high" | "personality asking, signed" => ours == "allowed" || ours == "returned",
        // Podman's profile both allows and refuses it; libseccomp keeps the first rule, ours the stricter one.
        "setns" | "setns NEWUSER" | "number 308" => profile == "podman" && ours == "EPERM",
        // If a profile allows it (Podman's does), the namespace limits refuse it here.
        _ if probe.starts_with("unshare NEW") => ours == "ENOSPC",
        _ => false,
    }
}

/// The probes with different answers. Fails if a difference is not deliberate.
#[track_caller]
fn differences<'a>(profile: &str, theirs: &'a Answers, ours: &Answers) -> Vec<&'a str> {
    assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>());
    let differ: Vec<&str> =
        theirs.iter().filter(|(probe, answer)| ours[*probe] != **answer).map(|(probe, _)| probe.as_str()).collect();
    for probe in &differ {
        let (theirs, ours) = (&theirs[*probe], &ours[*probe]);
        assert!(differs_on_purpose(profile, probe, ours), "{probe} under {profile}: {theirs} under runc, {ours} here");
    }
    differ
}

#[test]
fn a_profile_decides_as_under_runc() {
    compare("decide", |profile, capabilities, theirs, ours| {
        let differ = differences(profile, theirs, ours);
        let refused = |answers: &Answers| answers.values().filter(|answer| *answer != "allowed").count();
        let named = theirs.keys().filter(|name| !name.starts_with("number ")).count();
        eprintln!(
            "{profile}, {capabilities} capabilities: {named} probes and {} numbers; {} refused under runc, {} here; \
             {} differ on purpose",
            theirs.len() - named,
            refused(theirs),
            refused(ours),
            differ.len()
        );
        // The table must be selective: a profile refuses many probes, and allows many.
        assert!(refused(theirs) > 100 && theirs.len() - refused(theirs) > 250, "{theirs:?}");
        assert_eq!(ours["x32 getpid"], "signal 31");
        // A User-Mode kernel takes int 0x80 for a call of its own table.
        if !common::host::is_uml() {
            assert_eq!((&*ours["int 0x80 getpid"], &*ours["int 0x80 socketcall"]), ("signal 31", "signal 31"));
        }
    });
}

/// The same table with the calls made: the results that a program sees.
#[test]
fn a_program_sees_under_a_profile_what_it_sees_under_runc() {
    compare("make", |profile, _, theirs, ours| {
        let differ = differences(profile, theirs, ours);
        eprintln!("{profile}: {} probes made, {} differ on purpose", theirs.len(), differ.len());
    });
}

/// Without a profile, no filter decides a probe, neither here nor under runc: the comparison shows only the profile. Our guards
/// stay, and decide only calls of other tables.
#[test]
fn without_a_profile_every_probe_is_allowed() {
    for_each_caller(|caller| {
        let Some(bench) = Bench::new(caller) else { return };
        let free = bench.here(caller, "decide", None, &[]);
        let of_another_table = |name: &str| name.starts_with("int 0x80") || name.starts_with("x32");
        let refused = free.iter().filter(|(_, answer)| *answer != "allowed");
        let refused: Vec<_> = refused.filter(|(name, _)| !of_another_table(name)).collect();
        assert_eq!(refused, Vec::<(&String, &String)>::new());
        let made = bench.here(caller, "make", None, &[]);
        let says_nothing = made.values().filter(|answer| *answer == "EPERM").count();
        assert!(says_nothing < 40, "{says_nothing} probes are refused without a filter: {made:?}");
        if is_root() && runc_works() {
            let free = bench.runc("decide", None, &[]);
            assert!(free.values().all(|answer| answer == "allowed"), "{free:?}");
        }
    });
}

/// Runs the table under runc and here, for each profile and set of capabilities.
fn compare(mode: &str, check: impl Fn(&str, usize, &Answers, &Answers)) {
    if !is_root() {
        return skip("runc is started by root here");
    }
    if !has_program("runc") || !runc_works() {
        return;
    }
    let profiles = real_profiles();
    if profiles.is_empty() {
        return skip("no profile of Docker or Podman on this machine; tests/fetch-seccomp-profiles gets them");
    }
    for_each_caller(|caller| {
        let Some(bench) = Bench::new(caller) else { return };
        for profile in &profiles {
            let name = profile.file_stem().unwrap().to_string_lossy();
            let json = std::fs::read(profile).unwrap();
            let copy = bench.dir.file("profile.json", &json);
            for capabilities in [&[][..], &DOCKERS_CAPABILITIES] {
                let converted = as_docker_does(&serde_json::from_slice(&json).unwrap(), capabilities);
                let theirs = bench.runc(mode, Some(converted), capabilities);
                let ours = bench.here(caller, mode, Some(&copy), capabilities);
                check(&name, capabilities.len(), &theirs, &ours);
            }
        }
    });
}

fn real_profiles() -> Vec<PathBuf> {
    let directory = std::env::var("STOCKADE_SECCOMP_PROFILES").ok();
    let directory = directory.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/target/seccomp-profiles").into());
    ["docker.json", "podman.json"]
        .map(|name| Path::new(&directory).join(name))
        .into_iter()
        .filter(|path| path.exists())
        .collect()
}

/// `linux.seccomp` of a container's configuration from a profile, for x86_64 and these capabilities. The entries that apply are
/// chosen here, by Docker's rules, so that runc gets rules only.
fn as_docker_does(profile: &Value, capabilities: &[&str]) -> Value {
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let has = |capability: &String| capabilities.contains(&capability.as_str());
    let new_enough = |version: &Value| -> bool {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let numbers =
            |text: &str| -> Vec<u32> { text.split(['.', '-']).take(2).map(|part| part.parse().unwrap()).collect() };
        numbers(&release) >= numbers(version.as_str().unwrap())
    };
    let applies = |entry: &&Value| {
        let (with, without) = (&entry["includes"], &entry["excludes"]);
        let here = |arches: &Value| list(arches).contains(&"amd64".to_owned());
        !(here(&without["arches"])
            || list(&without["caps"]).iter().any(has)
            || without["minKernel"].is_string() && new_enough(&without["minKernel"])
            || !list(&with["arches"]).is_empty() && !here(&with["arches"])
            || !list(&with["caps"]).iter().all(has)
            || with["minKernel"].is_string() && !new_enough(&with["minKernel"]))
    };
    let rules = profile["syscalls"].as_array().unwrap().iter().filter(applies).map(|entry| {
        let mut rule = json!({ "names": entry["names"], "action": entry["action"] });
        if entry["args"].is_array() {
            rule["args"] = entry["args"].clone();
        }
        if entry["errnoRet"].is_u64() {
            rule["errnoRet"] = entry["errnoRet"].clone();
        }
        rule
    });
    let native = &profile["archMap"].as_array().unwrap()[0];
    let mut architectures = vec![native["architecture"].clone()];
    architectures.extend(native["subArchitectures"].as_array().unwrap().iter().cloned());
    let mut whole = json!({
        "defaultAction": profile["defaultAction"],
        "architectures": architectures,
        "syscalls": rules.collect::<Vec<_>>(),
    });
    if profile["defaultErrnoRet"].is_u64() {
        whole["defaultErrnoRet"] = profile["defaultErrnoRet"].clone();
    }
    whole
}

/// Whether a container without a filter starts here; otherwise a skip.
fn runc_works() -> bool {
    let works = Command::new("runc").arg("--version").output().is_ok_and(|output| output.status.success());
    if !works {
        skip("runc does not run");
    }
    works
}

/// The probes, and a bundle that contains nothing else.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new(caller: Caller) -> Option<Self> {
        if !has_program("gcc") {
            return None;
        }
        let dir = common::host::idmappable_dir(caller);
        let root = dir.dir("rootfs");
        dir.dir("rootfs/proc");
        dir.dir("rootfs/dev");
        let probes = common::compiled("gcc", &["-O1", "-static"], include_str!("probes.c")).unwrap();
        std::fs::copy(probes, root.join("probes")).unwrap();
        set_mode(&root.join("probes"), 0o755);
        Some(Self { dir })
    }

    /// Runs the probes under `stockade run`, without the layers that would answer before the filter.
    fn here(&self, caller: Caller, mode: &str, profile: Option<&Path>, capabilities: &[&str]) -> Answers {
        let mut run = Run::new(caller).opts(["--landlock", "off", "-v"]);
        run = run.opts([format!("{}:/probes:ro", text(&self.dir.join("rootfs/probes")))]);
        run = run.opts(["--seccomp", profile.map_or("unconfined", text)]);
        for capability in capabilities {
            run = run.opts(["--cap-add", *capability]);
        }
        parse(&run.cmd(["/probes", mode]).go().expect(0).stdout)
    }

    /// Runs the probes under runc, with a user namespace like ours.
    fn runc(&self, mode: &str, seccomp: Option<Value>, capabilities: &[&str]) -> Answers {
        let kept = json!(capabilities);
        let map = json!([{ "containerID": 0, "hostID": 200_000, "size": 65_536 }]);
        let namespaces = ["pid", "mount", "ipc", "uts", "network", "user"].map(|kind| json!({ "type": kind }));
        let mut config = json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": 1000, "gid": 1000 },
                "args": ["/probes", mode],
                "env": ["PATH=/"],
                "cwd": "/",
                // A non-root user keeps capabilities at execve only as ambient ones, which must be inheritable.
                "capabilities": {
                    "bounding": kept, "effective": kept, "permitted": kept, "inheritable": kept, "ambient": kept,
                },
                "noNewPrivileges": true,
            },
            "root": { "path": "rootfs", "readonly": true },
            "mounts": [
                { "destination": "/proc", "type": "proc", "source": "proc" },
                { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"] },
            ],
            "linux": { "namespaces": namespaces, "uidMappings": map, "gidMappings": map },
        });
        if let Some(seccomp) = seccomp {
            config["linux"]["seccomp"] = seccomp;
        }
        self.dir.file("config.json", config.to_string());
        let id = common::unique();
        let output = Command::new("runc")
            .arg("--root")
            .arg(self.dir.join("state"))
            .args(["run", "--bundle", text(self.dir.path()), &id])
            .env("PATH", common::PATH)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("runc starts");
        assert!(output.status.success(), "runc: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        parse(&output.stdout)
    }
}

fn parse(output: &[u8]) -> Answers {
    let text = String::from_utf8_lossy(output);
    let pairs = text.lines().map(|line| line.split_once('=').unwrap_or_else(|| panic!("{line:?} in {text}")));
    pairs.map(|(name, answer)| (name.to_owned(), answer.to_owned())).collect()
}
