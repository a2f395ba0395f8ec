//! `exec`: processes in a running container.

use serde_json::json;

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

/// A case whose container runs, with commands on it.
pub(super) fn running(name: &'static str, host: &'static str) -> Case {
    case(name).inside("trap exit TERM; while :; do sleep 0.05; done").set("process.user", json!({"uid": 0, "gid": 0})).host(host)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        running("exec_prints", "up; inside 'echo x; echo y >&2'").prints("x\n").says("y"),
        running("exec_returns_the_code", "up; inside 'exit 42'").exits(42),
        running("exec_returns_one", "up; inside 'exit 1'").exits(1),
        running("exec_returns_255", "up; inside 'exit 255'").exits(255),
        running("exec_returns_the_signal", "up; inside 'kill -9 $$'").exits(137),
        running("exec_returns_term", "up; inside 'kill -15 $$'").exits(143),
        running("exec_reads_its_input", "up; echo typed | rt exec $ID cat").prints("typed\n"),
        running("exec_of_a_missing_program", "up; rt exec $ID /nonexistent").exits(255)
            .says("no such file or directory"),
        running("exec_of_a_program_not_in_the_path", "up; rt exec $ID nonsense").exits(255)
            .says("executable file not found in $PATH"),
        running("exec_of_a_file_that_is_not_executable", "up; rt exec $ID /etc/passwd").exits(255)
            .says("permission denied"),
        running("exec_into_a_missing_container", "rt exec $ID true").exits(255).says("does not exist")
            .but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        running("exec_into_a_stopped_container", "up; rt kill $ID KILL; await stopped; rt exec $ID true").exits(255)
            .says("stopped").but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        running("exec_into_a_created_container", "create; inside 'echo x'").prints("x\n"),
        running("exec_without_a_command", "up; rt exec $ID").exits(255)
            .but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        running("exec_as_a_user", "up; rt exec --user 1000 $ID id -u").prints("1000\n"),
        running("exec_as_a_user_and_group", "up; rt exec -u 12:34 $ID sh -c 'id -u; id -g'").prints("12\n34\n"),
        running("exec_as_a_user_by_name", "up; rt exec -u user $ID id -u").exits(255)
            .but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        running("exec_with_additional_groups", "up; rt exec -g 56 -g 78 $ID id -G").prints("0 56 78\n")
            .but(Crun, |seen| seen.exits(64).prints(""), "1.8 does not have the option"),
        running("exec_in_a_directory", "up; rt exec --cwd /etc $ID busybox pwd").prints("/etc\n"),
        running("exec_in_a_missing_directory", "up; rt exec --cwd /nonexistent $ID true").exits(255)
            .says("/nonexistent"),
        running("exec_in_a_relative_directory", "up; rt exec --cwd etc $ID busybox pwd").exits(255).says("--cwd etc")
            .but(Crun, |seen| seen.exits(0).prints("/etc\n"), "it takes the path from the root, not from the container's directory"),
        running("exec_in_an_empty_directory", "up; rt exec --cwd '' $ID busybox pwd").set("process.cwd", json!("/etc"))
            .prints("/etc\n").but(Crun, |seen| seen.exits(1).prints(""), "it tries to enter it"),
        running("exec_in_the_containers_directory", "up; rt exec $ID busybox pwd").set("process.cwd", json!("/etc"))
            .prints("/etc\n").but(Crun, |seen| seen.prints("/\n"), "its exec starts at /"),
        running("exec_with_a_variable", "up; rt exec -e A=1 -e B=2 $ID /bin/sh -c 'echo $A $B'").prints("1 2\n"),
        running("exec_replaces_a_variable", "up; rt exec -e A=2 $ID /bin/sh -c 'echo $A'")
            .push("process.env", json!("A=1")).prints("2\n"),
        running("exec_has_the_containers_variables", "up; rt exec $ID sh -c 'echo $A'")
            .push("process.env", json!("A=1")).prints("1\n"),
        running("exec_has_home_of_its_user", "up; rt exec -u 1000 $ID sh -c 'echo $HOME'").prints("/home/user\n"),
        running("exec_does_not_have_the_callers_variables", "up; LEAKED=1 rt exec $ID sh -c 'echo =$LEAKED='")
            .prints("==\n"),
        running("exec_has_the_containers_capabilities", "up; rt exec $ID grep CapEff /proc/self/status")
            .prints("CapEff:\t0000000020000420\n"),
        running("exec_with_a_capability", "up; rt exec --cap CAP_CHOWN $ID grep CapEff /proc/self/status")
            .prints("CapEff:\t0000000020000421\n")
            .but(Crun, |seen| seen.prints("CapEff:\t0000000000000001\n"), "it replaces the container's capabilities"),
        running("exec_with_a_capability_that_is_inheritable", "up; rt exec -u 1000 --cap CAP_KILL $ID grep CapAmb /proc/self/status")
            .set("process.capabilities.inheritable", json!(["CAP_KILL"])).prints("CapAmb:\t0000000000000020\n")
            .but(Crun, |seen| seen.prints("CapAmb:\t0000000000000000\n"), "it replaces the container's capabilities"),
        running("exec_with_a_capability_that_is_not_inheritable", "up; rt exec -u 1000 --cap CAP_CHOWN $ID grep -E 'CapInh|CapAmb' /proc/self/status")
            .set("process.capabilities.inheritable", json!(["CAP_KILL"]))
            .prints("CapInh:\t0000000000000020\nCapAmb:\t0000000000000000\n")
            .but(Crun, |seen| seen.prints("CapInh:\t0000000000000000\nCapAmb:\t0000000000000000\n"), "it replaces the container's capabilities"),
        running("exec_has_no_new_privileges", "up; rt exec $ID grep NoNewPrivs /proc/self/status")
            .prints("NoNewPrivs:\t1\n")
            .but(Crun, |seen| seen.prints("NoNewPrivs:\t0\n"), "its exec does not take it from the container"),
        running("exec_asks_for_no_new_privileges", "up; rt exec --no-new-privs $ID grep NoNewPrivs /proc/self/status")
            .set("process.noNewPrivileges", json!(false)).prints("NoNewPrivs:\t1\n"),
        running("exec_has_new_privileges", "up; rt exec $ID grep NoNewPrivs /proc/self/status")
            .set("process.noNewPrivileges", json!(false)).prints("NoNewPrivs:\t0\n"),
        running("exec_has_the_limits", "up; inside 'ulimit -n'").prints("1024\n")
            .not_on(Crun, "its exec has the caller's limits"),
        running("exec_has_the_oom_score", "up; inside 'cat /proc/self/oom_score_adj'")
            .set("process.oomScoreAdj", json!(400)).prints("400\n")
            .but(Crun, |seen| seen.prints("0\n"), "its exec does not take it from the container"),
        running("exec_has_the_umask", "up; inside umask").set("process.user.umask", json!(0o27)).prints("0027\n")
            .but(Runc, |seen| seen.prints("0022\n"), "its exec does not take it from the container")
            .but(Crun, |seen| seen.prints("0022\n"), "its exec does not take it from the container"),
        running("exec_sees_the_container", "up; inside 'for n in ipc mnt net pid uts cgroup; do [ $(readlink /proc/self/ns/$n) = $(readlink /proc/1/ns/$n) ] || echo $n; done'"),
        running("exec_is_in_the_cgroup", "up; inside '[ \"$(cat /proc/self/cgroup)\" = \"$(cat /proc/1/cgroup)\" ] && echo same'")
            .prints("same\n"),
        running("exec_sees_no_descriptors", "exec 7</dev/null; up; rt exec $ID ls /proc/self/fd")
            .prints("0\n1\n2\n3\n"),
        running("exec_with_a_group_twice", "up; rt exec -g 7 -g 7 $ID id -G").prints("0 7 7\n").but(Runc, |seen| seen.prints("0 7\n"), "it leaves the second out")
            .but(Crun, |seen| seen.exits(64).prints(""), "1.8 does not have the option"),
        running("exec_with_a_group_that_is_not_a_number", "up; rt exec --additional-gids x $ID true").exits(255)
            .says("--additional-gids x").but(Runc, |seen| seen.exits(1).prints_parts(&["USAGE"]), "it prints its usage")
            .but(Crun, |seen| seen.exits(64), "1.8 does not have the option"),
        running("exec_with_groups_in_a_list", "up; rt exec --additional-gids 1,2 $ID true").exits(255)
            .says("--additional-gids 1,2").but(Runc, |seen| seen.exits(1).prints_parts(&["USAGE"]), "it prints its usage")
            .but(Crun, |seen| seen.exits(64), "1.8 does not have the option"),
        running("exec_with_a_group_out_of_range", "up; rt exec --additional-gids 4294967296 $ID true").exits(255)
            .says("--additional-gids 4294967296").but(Runc, |seen| seen.exits(0), "it takes the number modulo 2^32").but(Crun, |seen| seen.exits(64), "1.8 does not have the option"),
        running("exec_with_the_group_of_no_one", "up; rt exec --additional-gids 4294967295 $ID true").exits(255)
            .says("--additional-gids 4294967295").but(Crun, |seen| seen.exits(64), "1.8 does not have the option"),
        running("exec_preserves_no_descriptors", "up; exec 3</dev/null; rt exec --preserve-fds 0 $ID ls /proc/self/fd")
            .prints("0\n1\n2\n3\n"),
        running("exec_preserves_closed_descriptors", "up; exec 3</dev/null; rt exec --preserve-fds 9 $ID true").exits(255)
            .says("descriptor 4").but(Crun, |seen| seen.exits(0), "it ignores the missing ones"),
        running("exec_preserves_descriptors", "up; exec 3</dev/null; rt exec --preserve-fds 1 $ID ls /proc/self/fd")
            .prints("0\n1\n2\n3\n4\n"),
        running("exec_detached", "up; rt exec --detach --pid-file p $ID sh -c 'echo x; exec sleep 60'; echo $?; printed x; kill -0 $(cat p) && echo lives")
            .prints_parts(&["0\n", "x\n", "lives\n"]),
        running("exec_writes_a_bare_number", "up; rt exec --pid-file p $ID true; tr -d 0-9 <p | wc -c").prints("0\n"),
        running("exec_takes_words_as_they_are", "up; rt exec $ID sh -c 'echo \"$@\"' sh --user -e -- x")
            .prints("--user -e -- x\n"),
        running("exec_of_a_process_file", "up; rt exec --process p.json $ID")
            .host("echo '{\"args\":[\"sh\",\"-c\",\"id -u; pwd; echo $A\"],\"cwd\":\"/etc\",\"env\":[\"PATH=/bin\",\"A=1\"],\"user\":{\"uid\":5,\"gid\":6}}' >p.json; up; rt exec --process p.json $ID")
            .prints("5\n/etc\n1\n"),
        running("exec_of_a_process_file_without_capabilities_has_the_containers", "")
            .host("echo '{\"args\":[\"grep\",\"CapEff\",\"/proc/self/status\"],\"cwd\":\"/\",\"env\":[\"PATH=/bin\"],\"user\":{\"uid\":0,\"gid\":0}}' >p.json; up; rt exec --process p.json $ID")
            .prints("CapEff:\t0000000020000420\n"),
        running("exec_of_a_missing_process_file", "up; rt exec --process /nonexistent $ID").exits(255)
            .says("/nonexistent").but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        running("exec_of_a_broken_process_file", "echo '{' >p.json; up; rt exec --process p.json $ID").exits(255)
            .says("p.json").but(Crun, |seen| seen.exits(1), "it ends with the code of a failed command"),
        running("exec_of_a_process_file_without_arguments", "echo '{\"cwd\":\"/\",\"user\":{\"uid\":0,\"gid\":0}}' >p.json; up; rt exec --process p.json $ID")
            .exits(255).says("args"),
        running("exec_outlives_nothing", "up; rt exec -d $ID sleep 100; rt kill $ID KILL; await stopped; remove; status"),
        running("many_execs_at_once", "up; for i in 1 2 3 4 5; do inside \"exit $i\" & p=\"$p $!\"; done; for i in $p; do wait $i; echo $?; done")
            .prints("1\n2\n3\n4\n5\n"),
        running("exec_while_the_container_ends", "up; inside 'while :; do kill -15 1; sleep 0.1; done'; echo $?")
            .prints("137\n"),
        running("exec_joins_the_containers_network", "up; inside 'ls /sys/class/net'").prints("lo\n"),
        running("exec_has_the_seccomp_filter", "up; inside 'grep -w Seccomp /proc/self/status'")
            .set("linux.seccomp", json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["acct"], "action": "SCMP_ACT_ERRNO"}]}))
            .prints("Seccomp:\t2\n"),
    ]
}
