//! The gateway's process.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::world::World;
use crate::common::clock::eventually;
use crate::common::{Live, for_each_caller};

/// The gateway of a run.
fn gateway_of(run: &Live) -> i32 {
    let is_gateway = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).starts_with("stockade: gateway ")
    };
    run.processes().into_iter().find(is_gateway).expect("the run has a gateway")
}

#[test]
fn the_gateway_has_no_privilege_and_no_file() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let run = world.run(caller, &["api.example.com"]).sh("echo runs; sleep 60").spawn();
        run.wait_for("runs");
        let gateway = gateway_of(&run);
        let status = std::fs::read_to_string(format!("/proc/{gateway}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap_or_default();
            line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        assert_eq!((field("NoNewPrivs").as_str(), field("Seccomp").as_str()), ("1", "2"), "{status}");
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(field(set), "0000000000000000", "{set}");
        }
        let root = field("Uid").split_whitespace().any(|uid| uid == "0");
        assert!(
            !root && !field("Gid").split_whitespace().any(|gid| gid == "0") && field("Groups").is_empty(),
            "{status}"
        );
        assert_eq!(field("Threads"), "1");
        let descriptors = std::fs::read_dir(format!("/proc/{gateway}/fd")).unwrap();
        let links: Vec<_> = descriptors.map(|entry| std::fs::read_link(entry.unwrap().path()).unwrap()).collect();
        let is_harmless = |link: &Path| {
            let link = link.to_string_lossy();
            link == "/dev/null" || link.starts_with("socket:") || link.starts_with("anon_inode:[event")
        };
        assert!(links.iter().all(|link| is_harmless(link)), "{links:?}");
        assert_ne!(inode(gateway, "net"), inode(workload_of(&run), "net"), "it is outside");
        run.signal(Signal::SIGTERM);
        run.finish();
    });
    world.came();
}

fn inode(pid: i32, namespace: &str) -> std::path::PathBuf {
    std::fs::read_link(format!("/proc/{pid}/ns/{namespace}")).unwrap()
}

fn workload_of(run: &Live) -> i32 {
    *run.processes().last().unwrap()
}

#[test]
fn it_dies_with_the_supervisor() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let mut run = world.run(caller, &["api.example.com"]).sh("echo runs; sleep 60").spawn();
        run.wait_for("runs");
        let gateway = gateway_of(&run);
        run.kill_supervisor();
        assert!(eventually(|| !Path::new(&format!("/proc/{gateway}/ns")).exists()
            || crate::common::leaks::stat(gateway).is_none_or(|(state, _)| state == 'Z')));
        run.finish();
    });
    world.came();
}

#[test]
fn its_death_ends_the_connections_and_is_reported() {
    let Some(mut world) = World::new() else { return };
    for_each_caller(|caller| {
        let script = "exec 3<>/dev/tcp/api.example.com/22; echo runs; cat <&3 >/dev/null; echo ended; \
                      curl -sS -m 5 http://api.example.com/ 2>&1; echo $?";
        let run = world.run(caller, &["api.example.com:22,80"]).cmd(["/bin/bash", "-c", script]).spawn();
        run.wait_for("runs");
        kill(Pid::from_raw(gateway_of(&run)), Signal::SIGKILL).unwrap();
        let outcome = run.finish();
        assert!(outcome.text().contains("ended\n") && !outcome.text().ends_with("0\n"), "{outcome}");
        assert_eq!(outcome.code(), 125, "{outcome}");
        let report = outcome.report();
        assert_eq!((&report["status"], &report["error"]["object"]), (&"internal_error".into(), &"gateway".into()));
        assert!(outcome.stderr.contains("gateway: died"), "{outcome}");
    });
    world.came();
}
