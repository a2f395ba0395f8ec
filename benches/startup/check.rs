//! Checks from inside that a contestant applies what it claims: wrong flags would make it fast.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Output;

use super::contest::{Claim, Contestant, Words};
use super::start;

/// The result of a check.
pub enum Checked {
    /// The claims are true.
    Fine(Observed),
    /// The contestant is left out, for this reason.
    Missing(String),
}

/// The observed confinement.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The number of its own namespaces.
    pub namespaces: usize,
    /// Whether it has its own network namespace.
    pub network: bool,
    /// `Seccomp:`. 2 means a filter.
    pub seccomp: u64,
    /// `NoNewPrivs:`.
    pub no_new_privs: bool,
    /// `CapEff:`.
    pub capabilities: u64,
    /// The number of mounts.
    pub mounts: usize,
    /// The number of mounts that cover or protect something in `/proc`.
    pub masks: usize,
    /// Whether `/` is mounted read-only.
    pub read_only_root: bool,
}

/// Runs the probe and compares its output with the claim.
pub fn check(contestant: &Contestant) -> Checked {
    if let Some(why) = &contestant.missing {
        return Checked::Missing(why.clone());
    }
    let Some(probe) = &contestant.probe else {
        // Another row with the same program and the same configuration is checked.
        return match start::once(contestant) {
            Some(_) => Checked::Fine(Observed::default()),
            None => Checked::Missing("does not run here".into()),
        };
    };
    let output = match run(probe) {
        Ok(output) => output,
        Err(error) => return Checked::Missing(error.to_string()),
    };
    if output.status.code() == Some(TIMEOUT_STATUS) {
        return Checked::Missing("does not run here: does not end".into());
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("says nothing");
        return Checked::Missing(format!("does not run here: {last}"));
    }
    let observed = observe(&String::from_utf8_lossy(&output.stdout));
    match false_claim(&observed, &contestant.claim, &String::from_utf8_lossy(&output.stdout)) {
        None => Checked::Fine(observed),
        Some(what) => Checked::Missing(format!("does not apply what it claims: {what}")),
    }
}

/// The exit code of `timeout(1)`. The probe does not use it.
const TIMEOUT_STATUS: i32 = 124;

/// Runs the probe for at most a minute. Its output goes to files: a pipe could be held open by processes that it leaves behind.
fn run(probe: &Words) -> std::io::Result<Output> {
    let (mut stdout, mut stderr) = (unnamed()?, unnamed()?);
    let limited = ["timeout", "-k", "5", "60"].map(str::to_owned).into_iter().chain(probe.iter().cloned()).collect();
    let mut command = start::command(&limited, start::number());
    let status = command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).status()?;
    let said = |file: &mut File| {
        let mut said = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut said).map(|_| said)
    };
    Ok(Output { status, stdout: said(&mut stdout)?, stderr: said(&mut stderr)? })
}

fn unnamed() -> std::io::Result<File> {
    File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(std::env::temp_dir())
}

const KINDS: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

fn own(text: &str) -> Vec<&'static str> {
    let inside: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("ns ")).collect();
    let outside =
        |kind: &str| std::fs::read_link(format!("/proc/self/ns/{kind}")).map(|link| link.display().to_string());
    KINDS
        .into_iter()
        .zip(inside)
        .filter(|(kind, inside)| outside(kind).is_ok_and(|outside| outside != *inside))
        .map(|(kind, _)| kind)
        .collect()
}

fn observe(text: &str) -> Observed {
    let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(":\t")).collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().trim();
    // The fields of mountinfo: id, parent, device, root, mount point, options, …
    let mounts: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() > 8 && words.contains(&"-"))
        .collect();
    let at = |words: &[&str]| words[4].to_owned();
    let own = own(text);
    Observed {
        namespaces: own.len(),
        network: own.contains(&"net"),
        seccomp: field("Seccomp").parse().unwrap_or_default(),
        no_new_privs: field("NoNewPrivs") == "1",
        capabilities: u64::from_str_radix(field("CapEff"), 16).unwrap_or(u64::MAX),
        mounts: mounts.len(),
        masks: mounts.iter().filter(|words| at(words).starts_with("/proc/")).count(),
        read_only_root: mounts
            .iter()
            .rfind(|words| at(words) == "/")
            .is_some_and(|words| words[5].split(',').any(|option| option == "ro")),
    }
}

/// The first claim that is false.
fn false_claim(observed: &Observed, claim: &Claim, text: &str) -> Option<String> {
    let own = own(text);
    if let Some(kind) = claim.namespaces.iter().find(|kind| !own.contains(kind)) {
        return Some(format!("its {kind} namespace is the host's"));
    }
    let wrong = [
        (claim.filter && observed.seccomp != 2, "no filter of system calls"),
        (claim.no_new_privs && !observed.no_new_privs, "no no_new_privs"),
        (claim.no_capabilities && observed.capabilities != 0, "it has capabilities"),
        (claim.read_only_root && !observed.read_only_root, "its root can be written to"),
    ];
    wrong.into_iter().find(|(wrong, _)| *wrong).map(|(_, what)| what.to_owned())
}
