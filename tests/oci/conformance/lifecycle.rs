//! The life of a container: every command in every state.

use super::Runtime::Crun;
use super::case::{Case, Need, case};

/// Ends at TERM with 3.
const WAITS: &str = "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("run_returns_zero"),
        case("run_returns_the_exit_code").inside("exit 42").exits(42),
        case("run_returns_the_signal").inside(WAITS)
            .host("run & until_so is running; printed up; rt kill $ID KILL; wait $!").exits(137).prints("up\n"),
        case("run_of_a_failing_program_has_its_streams").inside("echo a; echo b >&2; exit 1").exits(1).prints("a\n")
            .says("b\n"),
        case("create_does_not_run_the_program").inside("echo ran").host("create; echo $?; status")
            .prints("0\ncreated\n"),
        case("start_runs_the_program").inside("echo ran").host("up; await stopped; remove; status").prints("ran\n"),
        case("a_created_container_is_not_created_again").host("create; code create; status").prints("1\ncreated\n"),
        case("a_running_container_is_not_created_again").inside(WAITS).host("up; printed up; create")
            .fails("already exists").prints("up\n"),
        case("a_stopped_container_is_not_created_again").host("up; await stopped; create").fails("already exists"),
        case("a_running_container_is_not_started").inside(WAITS).host("up; printed up; start").exits(1).prints("up\n")
            .says("cannot start"),
        case("a_stopped_container_is_not_started").host("up; await stopped; start").fails("cannot start"),
        case("a_missing_container_is_not_started").host("start").fails("does not exist"),
        case("state_of_a_missing_container").host("rt state $ID").fails("does not exist"),
        case("kill_of_a_missing_container").host("rt kill $ID TERM").fails("does not exist"),
        case("kill_of_a_stopped_container").host("up; await stopped; rt kill $ID TERM").fails("not running"),
        case("kill_by_name_of_the_signal").inside(WAITS).host("up; printed up; rt kill $ID SIGKILL; await stopped")
            .prints("up\n"),
        case("kill_by_short_name").inside(WAITS).host("up; printed up; rt kill $ID KILL; await stopped")
            .prints("up\n"),
        case("kill_by_number").inside(WAITS).host("up; printed up; rt kill $ID 9; await stopped").prints("up\n"),
        case("kill_without_a_signal_is_term")
            .inside("trap 'echo term; exit' TERM; echo up; while :; do sleep 0.05; done")
            .host("up; printed up; rt kill $ID; await stopped").prints("up\nterm\n"),
        case("kill_in_lower_case").inside(WAITS).host("up; printed up; rt kill $ID kill; await stopped")
            .prints("up\n").not_on(Crun, "it knows names of signals in capitals alone"),
        case("kill_with_an_unknown_signal").inside(WAITS)
            .host("up; printed up; rt kill $ID NONSENSE; echo $?; status").prints("up\n1\nrunning\n")
            .but(Crun, |seen| seen.prints("up\n0\nrunning\n"), "it sends signal 0 then, and succeeds"),
        case("kill_all_is_accepted").inside(WAITS).host("up; printed up; rt kill --all $ID KILL; await stopped")
            .prints("up\n"),
        case("kill_of_a_created_container").host("create; rt kill $ID KILL; await stopped; remove; status"),
        case("a_signal_that_the_program_handles")
            .inside("trap 'echo usr1' USR1; trap 'exit' TERM; echo up; while :; do sleep 0.05; done")
            .host("up; printed up; rt kill $ID USR1; printed usr1; status; rt kill $ID TERM; await stopped")
            .prints("up\nusr1\nrunning\n"),
        case("a_running_container_is_not_deleted").inside(WAITS).host("up; printed up; remove; echo $?; status")
            .prints("up\n1\nrunning\n").says("not stopped"),
        case("a_running_container_is_deleted_by_force").inside(WAITS)
            .host("up; printed up; remove --force; echo $?; status").prints("up\n0\n"),
        case("a_created_container_is_deleted").host("create; remove; echo $?; status").prints("0\n"),
        case("a_created_container_is_deleted_by_force").host("create; remove -f; echo $?; status").prints("0\n"),
        case("a_missing_container_is_not_deleted").host("remove").fails("does not exist"),
        case("a_missing_container_is_deleted_by_force").host("remove --force"),
        case("pause_and_resume").inside(WAITS).host("up; printed up; rt pause $ID; status; rt resume $ID; status")
            .prints("up\npaused\nrunning\n"),
        case("pause_of_a_stopped_container").host("up; await stopped; rt pause $ID").fails("not running"),
        case("pause_of_a_paused_container").inside(WAITS)
            .host("up; printed up; rt pause $ID; rt pause $ID; echo $?; status").prints("up\n1\npaused\n")
            .but(Crun, |seen| seen.prints("up\n0\npaused\n"), "it takes the state that is asked for as success"),
        case("resume_of_a_running_container").inside(WAITS).host("up; printed up; rt resume $ID; echo $?; status")
            .prints("up\n1\nrunning\n")
            .but(Crun, |seen| seen.prints("up\n0\nrunning\n"), "it takes the state that is asked for as success"),
        case("pause_of_a_missing_container").host("rt pause $ID").fails("does not exist"),
        case("resume_of_a_missing_container").host("rt resume $ID").fails("does not exist"),
        case("a_created_container_is_paused")
            .host("create; rt pause $ID; status; rt resume $ID; status; start; await stopped")
            .prints("paused\ncreated\n")
            .but(Crun, |seen| seen.prints("created\ncreated\n"), "it shows a paused container that is not started as created"),
        case("a_paused_container_is_not_deleted").inside(WAITS)
            .host("up; printed up; rt pause $ID; remove; echo $?; status").prints("up\n1\npaused\n"),
        case("a_paused_container_is_deleted_by_force").inside(WAITS)
            .host("up; printed up; rt pause $ID; remove --force; echo $?; status").prints("up\n0\n"),
        case("exec_into_a_paused_container_is_refused").inside(WAITS)
            .host("up; printed up; rt pause $ID; inside true").exits(255).prints("up\n").says("paused")
            .but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        case("a_paused_container_does_not_run").inside("while :; do echo x; sleep 0.01; done")
            .host( "up; printed x; rt pause $ID; sleep 0.1; a=$(wc -l <$B/host.out); sleep 0.2; b=$(wc -l <$B/host.out); [ $a = $b ]; echo =$? >&2; cat /dev/null >$B/host.out; true")
            .prints_parts(&[]).says("=0"),
        case("run_detached").inside(WAITS).host("run --detach; echo $?; printed up; status")
            .prints_parts(&["0\n", "up\n", "running\n"]),
        case("run_keeps_nothing").host("run; status; ls $B/state"),
        case("run_of_an_existing_container").host("create; run; echo $?; status").prints("1\ncreated\n")
            .says("already exists"),
        case("the_pid_file_is_a_bare_number").host("create; tr -d 0-9 <pid | wc -c").prints("0\n"),
        case("the_pid_file_of_run").host("run --pid-file $B/p; tr -d 0-9 <p | wc -c").prints("0\n"),
        case("the_pid_file_names_the_process_of_state")
            .host("create; rt state $ID | grep -c \"\\\"pid\\\": $(pid),\"").prints("1\n"),
        case("the_pid_of_a_stopped_container_is_zero").host("up; await stopped; rt state $ID | grep -c '\"pid\": 0,'")
            .prints("1\n"),
        case("state_names_the_bundle").host("create; rt state $ID | grep -c \"\\\"bundle\\\": \\\"$B\\\"\"")
            .prints("1\n"),
        case("a_bundle_by_relative_path")
            .host("rt create --bundle . $ID && rt state $ID | grep -c \"\\\"bundle\\\": \\\"$B\\\"\"").prints("1\n"),
        case("the_bundle_is_the_current_directory").inside("echo ran").host("rt run $ID").prints("ran\n"),
        case("a_missing_bundle").host("rt run --bundle /nonexistent $ID").fails("/nonexistent"),
        case("a_bundle_without_a_configuration").host("rm config.json; run").fails("config.json"),
        case("state_has_the_annotations").set("annotations", serde_json::json!({ "a.b": "c" }))
            .host("create; rt state $ID | grep -c '\"a.b\": \"c\"'").prints("1\n"),
        case("an_id_with_a_slash").host("rt create --bundle $B ../x").fails("id"),
        case("an_id_with_a_blank")
            .host("rt create --bundle $B 'a b'; c=$?; rt delete --force 'a b' 2>/dev/null; exit $c").fails("id")
            .but(Crun, |seen| seen.exits(0), "it takes any name without a slash"),
        case("an_empty_id").host("rt create --bundle $B ''").fails("id"),
        case("ids_with_plus_and_dots").inside("echo ran").host("rt run --bundle $B $ID.a+b_c").prints("ran\n"),
        case("options_after_the_id").inside("echo ran").host("rt run $ID --bundle $B").prints("ran\n")
            .but(Crun, |seen| seen.fails(), "it takes options in front alone; engines send them behind for runc"),
        case("list_shows_the_container").host("create; rt list | grep -c \"^$ID .*created\"").prints("1\n"),
        case("list_quietly").host("create; rt list -q").prints("{id}\n"),
        case("list_as_json").host("create; rt list --format json | grep -c \"\\\"id\\\": *\\\"$ID\\\"\"")
            .prints("1\n"),
        case("ps_as_json").inside(WAITS).host("up; printed up; rt ps --format json $ID | grep -c \"$(pid)\"")
            .prints("up\n1\n"),
        case("a_list_in_the_order_of_runcs_keys").inside(WAITS)
            .host("up; printed up; rt list --format json | tr -d ' \\n\\t' | sed 's/:[^,]*//g'; echo")
            .prints("up\n[{\"ociVersion\",\"id\",\"pid\",\"status\",\"bundle\",\"rootfs\",\"created\",\"owner\"\n")
            .not_on(Crun, "it has an order of its own"),
        case("ps_as_a_table").inside(WAITS).host("up; printed up; rt ps $ID | grep -c \"^[^ ]* *$(pid) \"")
            .prints("up\n1\n").but(Crun, |seen| seen.exits(1).prints("up\n0\n"), "it prints bare numbers")
            .needs(Need::NotUml("ps finds no boot time in this kernel")),
        case("ps_of_a_missing_container").host("rt ps $ID").fails("does not exist")
            .but(Crun, |seen| seen.exits(253), "it ends with another code"),
        case("a_program_that_is_missing_fails_create").set("process.args", serde_json::json!(["/nonexistent"]))
            .host("create; echo $?; status").prints("1\n"),
        case("children_of_the_program_die_with_it").inside("sleep 100 & exec sleep 0.2")
            .host("up; await stopped; remove"),
    ]
}
