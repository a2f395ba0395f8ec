//! Subordinate ids: the caller's range is mapped around its own id, and its groups are dropped.

use std::process::{Command, Output};

use crate::common::{Caller, TempDir, has_program, is_root, set_mode, skip, text};

/// `stockade run --subuid` as an unprivileged user with a group of its own, and with this line in subuid and subgid.
fn run_with_range(line: &str, script: &str) -> Option<Output> {
    if !is_root() {
        skip("covering /etc/subuid takes root");
        return None;
    }
    if !has_program("newuidmap") || !std::path::Path::new("/etc/subuid").exists() {
        skip("no newuidmap, or no /etc/subuid to cover");
        return None;
    }
    let dir = TempDir::new(Caller::Unprivileged);
    let ids = dir.file("ids", line);
    set_mode(&ids, 0o644);
    let program = dir.join("stockade");
    std::fs::copy(env!("CARGO_BIN_EXE_stockade"), &program).unwrap();
    let (uid, gid) = Caller::Unprivileged.ids();
    let run = format!(
        "mount --bind {ids} /etc/subuid && mount --bind {ids} /etc/subgid && cd / && \
         exec setpriv --reuid {uid} --regid {gid} --groups {gid},5 {program} run --subuid --report fd:2 -- sh -c '{script}'",
        ids = text(&ids),
        program = text(&program),
    );
    Some(Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &run]).output().unwrap())
}

#[test]
fn a_subordinate_range_is_mapped_around_the_caller() {
    let (uid, gid) = Caller::Unprivileged.ids();
    let script = "cat /proc/self/uid_map /proc/self/gid_map | tr -s \" \"; id -G; touch /tmp/x; stat -c %u /tmp/x";
    let Some(output) = run_with_range(&format!("{uid}:200000:65536\n"), script) else { return };
    let expected = format!(
        " 1000 {uid} 1\n 0 200000 1000\n 1001 201000 64536\n 1000 {gid} 1\n 0 200000 1000\n 1001 201000 64536\n1000\n1000\n"
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{stderr}");
    assert!(stderr.contains("\"supplementary_groups\": []"), "the caller's groups are dropped: {stderr}");
}

#[test]
fn without_a_range_the_way_out_is_named() {
    let Some(output) = run_with_range("somebody-else:200000:65536\n", "echo ran") else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(output.stdout.is_empty(), "the workload ran");
    assert!(stderr.contains("/etc/subuid") && stderr.contains("usermod --add-subuids"), "{stderr}");
}
