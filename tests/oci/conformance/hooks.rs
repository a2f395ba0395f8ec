//! `hooks`: their order, state, environment, time limits and failures.

use serde_json::{Value, json};

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

const KINDS: [&str; 6] = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

/// crun's exit code after a failed hook is 1 or 255, as its processes happen to run.
const ENDS_WITH_ONE: &str = "run || exit 1";

/// A hook that runs this script with a shell that the host and the root have. It reads the state in any case: crun dies of
/// SIGPIPE if a hook ends before it has written the state.
fn hook(script: &str) -> Value {
    let reads = if script.contains("cat >") || script.contains("<&-") { "" } else { "cat >/dev/null; " };
    json!({ "path": "/bin/sh", "args": ["sh", "-c", format!("{reads}{script}")] })
}

/// One hook of every kind, which writes its name to a file that all share, with the status that it reads.
fn all_hooks(script: &str) -> Value {
    KINDS.iter().map(|kind| ((*kind).to_owned(), json!([hook(&script.replace("KIND", kind))]))).collect::<serde_json::Map<_, _>>().into()
}

/// A case with a hook of one kind.
fn with(name: &'static str, kind: &str, script: &str) -> Case {
    case(name).set("hooks", json!({ kind: [hook(script)] }))
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("hooks_run_in_their_order").set("hooks", all_hooks("echo KIND >>{dir}/log"))
            .bind("{dir}/log", "{dir}/log", &[])
            .host("touch log; create; echo created >>log; start; await stopped; remove; cat log")
            .prints("prestart\ncreateRuntime\ncreateContainer\ncreated\nstartContainer\npoststart\npoststop\n")
            .but(Runc, |seen| seen.prints("prestart\ncreateRuntime\ncreateContainer\npoststart\ncreated\nstartContainer\npoststop\n"), "1.1 runs poststart hooks when it has created the container")
            .not_on(Crun, "its start does not wait for the program, so the hooks at the start and after it race"),
        case("several_hooks_of_a_kind")
            .set("hooks", json!({"createRuntime": [hook("echo 1 >>{dir}/log"), hook("echo 2 >>{dir}/log"), hook("echo 3 >>{dir}/log")]}))
            .host("run; cat log").prints("1\n2\n3\n"),
        case("no_hooks").set("hooks", json!({})),
        case("hooks_that_are_null").set("hooks", json!(null)),
        case("empty_lists_of_hooks")
            .set("hooks", json!({"prestart": [], "createRuntime": [], "createContainer": [], "startContainer": [], "poststart": [], "poststop": []})),
        case("hooks_of_an_unknown_kind").set("hooks", json!({"nonsense": [hook("echo x >{dir}/log")]}))
            .host("run; ls log").exits(2),
        with("a_prestart_hook_that_fails", "prestart", "exit 3").host("run || echo failed; status").inside("echo ran")
            .prints("failed\n").says("hook"),
        with("a_create_runtime_hook_that_fails", "createRuntime", "exit 3").host("run || echo failed; status")
            .inside("echo ran").prints("failed\n").says("hook"),
        with("a_create_container_hook_that_fails", "createContainer", "exit 3").host("run || echo failed; status")
            .inside("echo ran").prints("failed\n").says("hook"),
        with("a_start_container_hook_that_fails", "startContainer", "exit 3").host("run || echo failed; status")
            .inside("echo ran").prints("failed\n").says("hook"),
        with("a_start_container_hook_that_fails_does_not_fail_create", "startContainer", "exit 3")
            .host("create; echo $?; status").inside("echo ran").prints("0\ncreated\n"),
        with("a_poststart_hook_that_fails", "poststart", "exit 3").host("create; start; echo $?")
            .inside("exec sleep 60").prints("1\n").says("hook")
            .but(Crun, |seen| seen.prints("0\n"), "the specification has made it an error since 1.3"),
        with("a_poststart_hook_that_fails_ends_the_container", "poststart", "exit 3")
            .set("hooks.poststop", json!([hook("echo poststop >>{dir}/log")]))
            .host("create; start; status; cat log").inside("exec sleep 60").prints("poststop\n")
            .but(Crun, |seen| seen.exits(1).prints("running\n"), "1.8 goes on; newer ones do as ours"),
        with("a_start_container_hook_has_a_home", "startContainer", "[ \"$HOME\" = /root ] || exit 4").host("run || echo failed")
            .inside("echo $HOME").prints("/root\n"),
        with("a_poststop_hook_that_fails_is_a_warning", "poststop", "exit 3")
            .host("up; await stopped; remove; echo $?; status").prints("0\n"),
        case("the_next_hook_does_not_run_after_a_failure")
            .set("hooks", json!({"createRuntime": [hook("exit 1"), hook("echo x >{dir}/log")]})).host("run; ls log")
            .exits(2).says("hook"),
        case("the_next_poststop_hook_runs_after_a_failure")
            .set("hooks", json!({"poststop": [hook("exit 1"), hook("echo x >{dir}/log")]})).host("run; ls log")
            .prints("log\n")
            .but(Runc, |seen| seen.exits(2).prints(""), "it stops at the first that fails; the specification demands that the others run"),
        case("poststop_hooks_run_after_a_failed_create")
            .set("hooks", json!({"createRuntime": [hook("exit 1")], "poststop": [hook("echo x >{dir}/log")]}))
            .host("run; ls log").prints("log\n").says("hook")
            .but(Crun, |seen| seen.exits(2).prints(""), "the specification demands them"),
        with("the_output_of_a_failed_hook_is_in_the_error", "createRuntime", "echo explanation >&2; exit 1")
            .host(ENDS_WITH_ONE).fails("explanation"),
        case("a_hook_that_is_missing").set("hooks", json!({"createRuntime": [{"path": "/nonexistent"}]}))
            .host(ENDS_WITH_ONE).fails("/nonexistent"),
        case("a_hook_by_relative_path").set("hooks", json!({"createRuntime": [{"path": "bin/true"}]}))
            .host(ENDS_WITH_ONE).fails("path"),
        case("a_hook_without_a_path").set("hooks", json!({"createRuntime": [{"args": ["x"]}]})).host(ENDS_WITH_ONE)
            .fails("path"),
        case("a_hook_without_arguments").set("hooks", json!({"createRuntime": [{"path": "/bin/true"}]}))
            .not_on(Crun, "it dies of SIGPIPE if a hook ends before it has written the state"),
        case("a_hook_whose_arguments_are_its_own")
            .set("hooks", json!({"createRuntime": [{"path": "/bin/sh", "args": ["name", "-c", "cat >/dev/null; echo $0 $1 >{dir}/log", "a", "b"]}]}))
            .host("run; cat log").prints("a b\n"),
        with("a_hook_reads_the_state", "createRuntime", "cat >{dir}/log")
            .host("run; tr -d ' \\n' <log | grep -o -E '\"(id|bundle)\":\"[^\"]*\"' | sort")
            .prints("\"bundle\":\"{dir}\"\n\"id\":\"{id}\"\n"),
        with("a_hook_reads_the_version", "createRuntime", "cat >{dir}/log").host("run; grep -c ociVersion log")
            .prints("1\n"),
        with("a_hook_reads_the_annotations", "createRuntime", "cat >{dir}/log")
            .set("annotations", json!({"a.b": "c"})).host("run; tr -d ' \\n' <log | grep -o '\"a.b\":\"c\"'")
            .prints("\"a.b\":\"c\"\n"),
        with("a_hook_reads_the_process_id", "createRuntime", "cat >{dir}/log")
            .host("create; tr -d ' \\n' <log | grep -c \"\\\"pid\\\":$(pid)[,}]\"").prints("1\n"),
        with("a_poststart_hook_reads_running", "poststart", "cat >{dir}/log").inside("exec sleep 60")
            .host("up; tr -d ' \\n' <log | grep -o '\"status\":\"[a-z]*\"'").prints("\"status\":\"running\"\n")
            .but(Runc, |seen| seen.prints("\"status\":\"created\"\n"), "1.1 runs poststart hooks when it has created the container"),
        with("a_poststop_hook_reads_stopped", "poststop", "cat >{dir}/log")
            .host("run; tr -d ' \\n' <log | grep -o '\"status\":\"[a-z]*\"'").prints("\"status\":\"stopped\"\n"),
        with("a_hook_that_does_not_read_its_state", "createRuntime", "exec <&-; exit 0").inside("echo x")
            .prints("x\n").not_on(Crun, "it dies of SIGPIPE if a hook ends before it has written the state"),
        case("a_hook_has_the_given_environment")
            .set("hooks", json!({"createRuntime": [{"path": "/usr/bin/env", "env": ["A=1", "B=2"], "args": ["env", "sh", "-c", "cat >/dev/null; env | grep -E '^[AB]=|HOME' >{dir}/log"]}]}))
            .host("run; cat log").prints("A=1\nB=2\n"),
        case("an_empty_environment_of_a_hook")
            .set("hooks", json!({"createRuntime": [{"path": "/bin/sh", "env": [], "args": ["sh", "-c", "cat >/dev/null; echo =$MARK= >{dir}/log"]}]}))
            .host("MARK=x run; cat log").prints("==\n"),
        with("a_hook_without_environment_has_the_runtimes", "createRuntime", "echo $MARK >{dir}/log")
            .host("export MARK=x; run; cat log").prints("x\n"),
        with("a_runtime_hook_runs_outside", "createRuntime", "ls -d /proc/1/root/{dir}/config.json >/dev/null; readlink /proc/self/ns/mnt >{dir}/log")
            .host("run; [ $(cat log) = $(readlink /proc/self/ns/mnt) ] && echo outside").prints("outside\n")
            .not_on(Crun, "on a hybrid host it runs in a mount namespace that the tests make"),
        with("a_create_container_hook_is_in_the_mount_namespace", "createContainer", "readlink /proc/self/ns/mnt >{dir}/log")
            .host("run; [ $(cat log) = $(readlink /proc/self/ns/mnt) ] || echo inside").prints("inside\n"),
        with("a_create_container_hook_sees_the_hosts_files", "createContainer", "cp {dir}/config.json {dir}/log")
            .host("run; ls log").prints("log\n"),
        with("a_start_container_hook_sees_the_containers_files", "startContainer", "cat /etc/mark")
            .host("echo mark >rootfs/etc/mark; run").prints_parts(&[]),
        with("a_start_container_hook_runs_before_the_program", "startContainer", "echo hook >/t/log")
            .mount("/t", "tmpfs", "tmpfs", &[]).inside("cat /t/log").prints("hook\n"),
        with("a_runtime_hook_can_change_the_root", "createRuntime", "echo made >{dir}/rootfs/etc/made")
            .inside("cat /etc/made").prints("made\n"),
        with("a_create_container_hook_can_mount", "createContainer", "mount --bind {dir}/source {dir}/rootfs/etc")
            .host("mkdir source; touch source/mounted; run").inside("ls /etc").prints("mounted\n"),
        case("a_hook_that_takes_too_long")
            .set("hooks", json!({"createRuntime": [{"path": "/bin/sleep", "args": ["sleep", "30"], "timeout": 1}]}))
            .host("timeout 20 sh -c '. ./prelude; run'").fails("took longer than 1 s"),
        case("a_hook_within_its_time")
            .set("hooks", json!({"createRuntime": [{"path": "/bin/sleep", "args": ["sleep", "0.1"], "timeout": 20}]}))
            .inside("echo x").prints("x\n"),
        case("a_time_limit_of_zero").set("hooks", json!({"createRuntime": [{"path": "/bin/true", "timeout": 0}]}))
            .fails("timeout").not_on(Crun, "it takes 0 as no limit; the specification demands more than zero"),
        case("a_negative_time_limit").set("hooks", json!({"createRuntime": [{"path": "/bin/true", "timeout": -1}]}))
            .host(ENDS_WITH_ONE).fails("timeout"),
        with("a_hook_that_is_killed", "createRuntime", "kill -9 $$").host(ENDS_WITH_ONE).fails("hook"),
        with("a_poststop_hook_runs_at_delete_by_force", "poststop", "echo x >{dir}/log").inside("exec sleep 60")
            .host("up; ls log; remove --force; ls log").prints("log\n"),
        with("a_poststop_hook_does_not_run_at_kill", "poststop", "echo x >{dir}/log").inside("exec sleep 60")
            .host("up; rt kill $ID KILL; await stopped; ls log").exits(2),
        with("a_hook_has_no_terminal_or_input_of_the_caller", "createRuntime", "cat >/dev/null; echo done >{dir}/log")
            .host("echo typed | run; cat log").inside("cat").prints("typed\ndone\n"),
    ]
}
