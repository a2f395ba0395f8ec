//! `process`: arguments, environment, ids, limits, capabilities, scheduling.

use serde_json::json;

use super::Runtime::{Crun, Runc};
use super::case::{Case, Need, case};

/// The five capability sets with these in each.
fn capabilities(names: &[&str]) -> serde_json::Value {
    json!({ "bounding": names, "effective": names, "permitted": names, "inheritable": names, "ambient": names })
}

/// Large sizes and small numbers; priorities stay at 0, which every caller may set.
fn every_limit() -> serde_json::Value {
    let sizes = ["AS", "DATA", "STACK"].map(|name| (name, 1 << 30));
    let numbers = ["CORE", "CPU", "FSIZE", "LOCKS", "MEMLOCK", "MSGQUEUE", "NOFILE", "NPROC", "RSS", "RTTIME", "SIGPENDING"];
    let limits = sizes.into_iter().chain(numbers.map(|name| (name, 1000))).chain(["NICE", "RTPRIO"].map(|name| (name, 0)));
    limits.map(|(name, value)| json!({ "type": format!("RLIMIT_{name}"), "soft": value, "hard": value })).collect()
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        case("arguments_are_passed_as_they_are")
            .set("process.args", json!(["busybox", "printf", "[%s]", "", "a b", "$HOME", "*", "\\"]))
            .prints("[][a b][$HOME][*][\\]"),
        case("arguments_that_are_empty").set("process.args", json!([])).fails("process.args"),
        case("arguments_that_are_missing").without("process.args").fails("args must name a program"),
        case("a_program_that_is_the_empty_string").set("process.args", json!([""])).fails(""),
        case("a_program_by_path").set("process.args", json!(["/bin/echo", "x"])).prints("x\n"),
        case("a_program_by_relative_path").set("process.cwd", json!("/bin"))
            .set("process.args", json!(["./echo", "x"])).prints("x\n"),
        case("a_program_found_in_the_containers_path").set("process.env", json!(["PATH=/nonexistent:/bin"]))
            .set("process.args", json!(["echo", "x"])).prints("x\n"),
        case("a_program_that_is_not_in_the_path").set("process.env", json!(["PATH=/nonexistent"]))
            .set("process.args", json!(["echo"])).fails("executable file not found in $PATH"),
        case("a_program_without_a_path").set("process.env", json!([])).set("process.args", json!(["echo", "x"]))
            .fails("executable file not found in $PATH"),
        case("a_program_that_is_missing").set("process.args", json!(["/nonexistent"]))
            .fails("no such file or directory"),
        case("a_program_that_is_a_directory").set("process.args", json!(["/bin"])).fails("permission denied"),
        case("a_program_that_is_not_executable").set("process.args", json!(["/etc/passwd"]))
            .fails("permission denied"),
        case("a_program_of_no_known_format").host("echo nonsense >rootfs/bin/x; chmod 755 rootfs/bin/x; run")
            .set("process.args", json!(["/bin/x"])).fails("exec format error"),
        case("a_script_runs_by_its_interpreter")
            .host("printf '#!/bin/sh\\necho script $1' >rootfs/bin/x; chmod 755 rootfs/bin/x; run")
            .set("process.args", json!(["x", "y"])).prints("script y\n"),
        case("a_script_whose_interpreter_is_missing")
            .host("printf '#!/nonexistent\\n' >rootfs/bin/x; chmod 755 rootfs/bin/x; run")
            .set("process.args", json!(["x"])).fails("no such file or directory"),
        case("a_program_behind_a_link_in_the_root").host("ln -s /bin/echo rootfs/say; run")
            .set("process.args", json!(["/say", "x"])).prints("").exits(127),
        case("the_environment_is_the_given_one")
            .set("process.env", json!(["PATH=/bin", "A=1", "B=x=y", "EMPTY=", "HOME=/h"]))
            .set("process.args", json!(["busybox", "env"])).prints("PATH=/bin\nA=1\nB=x=y\nEMPTY=\nHOME=/h\n"),
        case("the_environment_of_the_caller_stays_outside").host("LEAKED=1 run")
            .set("process.args", json!(["busybox", "env"])).set("process.env", json!(["PATH=/bin", "HOME=/h"]))
            .prints("PATH=/bin\nHOME=/h\n"),
        case("a_variable_twice_has_the_last_value").set("process.env", json!(["PATH=/bin", "A=1", "A=2"]))
            .inside("echo $A").prints("2\n"),
        case("an_environment_that_is_missing").without("process.env").set("process.args", json!(["/bin/echo", "x"]))
            .prints("x\n"),
        case("an_environment_that_is_null").set("process.env", json!(null))
            .set("process.args", json!(["/bin/echo", "x"])).prints("x\n"),
        case("home_comes_from_passwd").inside("echo $HOME").prints("/root\n"),
        case("home_of_another_user_comes_from_passwd").set("process.user", json!({"uid": 1000, "gid": 1000}))
            .inside("echo $HOME").prints("/home/user\n"),
        case("home_of_a_user_without_entry").set("process.user", json!({"uid": 4242, "gid": 1})).inside("echo $HOME")
            .prints("/\n").but(Crun, |seen| seen.prints("\n"), "it sets no HOME then; runc and ours set /"),
        case("home_is_not_replaced").push("process.env", json!("HOME=/x")).inside("echo $HOME").prints("/x\n"),
        case("an_empty_home").push("process.env", json!("HOME=")).inside("echo =$HOME=").prints("=/root=\n")
            .but(Crun, |seen| seen.prints("==\n"), "it takes an empty HOME as given; shells and tools do not work with one"),
        case("the_working_directory").set("process.cwd", json!("/etc")).inside("busybox pwd").prints("/etc\n"),
        case("a_working_directory_with_a_trailing_slash").set("process.cwd", json!("/etc/")).inside("busybox pwd")
            .prints("/etc\n"),
        case("a_working_directory_with_dots").set("process.cwd", json!("/bin/../etc/.")).inside("busybox pwd")
            .prints("/etc\n"),
        case("a_working_directory_above_the_root").set("process.cwd", json!("/../../etc")).inside("busybox pwd")
            .prints("/etc\n"),
        case("a_working_directory_behind_a_link").set("process.cwd", json!("/link"))
            .host("ln -s /etc rootfs/link; run").inside("busybox pwd").prints("/etc\n"),
        case("a_working_directory_is_made").set("process.cwd", json!("/new/deep")).writable().inside("busybox pwd")
            .prints("/new/deep\n"),
        case("a_working_directory_in_a_read_only_root").set("process.cwd", json!("/new")).inside("busybox pwd")
            .prints("/new\n"),
        case("a_working_directory_that_is_a_file").set("process.cwd", json!("/etc/passwd"))
            .fails("working directory: /etc/passwd"),
        case("a_relative_working_directory").set("process.cwd", json!("etc")).fails("cwd")
            .but(Crun, |seen| seen.exits(0), "it starts the program there; the specification demands an absolute path"),
        case("an_empty_working_directory").set("process.cwd", json!("")).fails("cwd"),
        case("a_missing_working_directory").without("process.cwd").fails("cwd"),
        case("a_working_directory_that_only_its_user_may_enter")
            .set("process.user", json!({"uid": 1000, "gid": 1000})).set("process.cwd", json!("/private"))
            .host("mkdir -m 700 rootfs/private; chown 1000:1000 rootfs/private; run").inside("busybox pwd")
            .prints("/private\n"),
        case("a_working_directory_that_the_user_may_not_enter").set("process.user", json!({"uid": 1000, "gid": 1000}))
            .set("process.cwd", json!("/private")).host("mkdir -m 700 rootfs/private; run").inside("echo x")
            .prints("x\n"),
        case("user_and_group").set("process.user", json!({"uid": 12, "gid": 34})).inside("id -u; id -g; id -G")
            .prints("12\n34\n34\n"),
        case("additional_groups").set("process.user", json!({"uid": 12, "gid": 34, "additionalGids": [56, 78]}))
            .inside("id -G").prints("34 56 78\n"),
        case("additional_groups_of_root").set("process.user", json!({"uid": 0, "gid": 0, "additionalGids": [5]}))
            .inside("grep Groups /proc/self/status").prints("Groups:\t5 \n"),
        case("groups_of_the_caller_are_dropped").inside("grep Groups /proc/self/status")
            .host("setpriv --groups 7,8 true; run").prints("Groups:\t \n"),
        case("the_group_is_the_owners_of_new_files").set("process.user", json!({"uid": 12, "gid": 34}))
            .mount("/t", "tmpfs", "tmpfs", &["mode=1777"]).inside("touch /t/x; stat -c %u:%g /t/x").prints("12:34\n"),
        case("the_largest_ids").set("process.user", json!({"uid": 4294967294u32, "gid": 4294967294u32}))
            .inside("id -u; id -g").prints("4294967294\n4294967294\n")
            .but(Runc, |seen| seen.fails(), "it takes ids up to 2147483647; the kernel has all but the last"),
        case("an_id_that_is_none").set("process.user", json!({"uid": 4294967295u32, "gid": 0})).fails("uid")
            .but(Crun, |seen| seen.exits(0), "setresuid(2) takes this id as no change: the program would stay root"),
        case("a_negative_id").set("process.user", json!({"uid": -1, "gid": 0})).fails("uid"),
        case("a_user_that_is_missing_is_root").without("process.user").inside("id -u").prints("0\n"),
        case("the_default_umask").inside("umask").prints("0022\n"),
        case("a_umask").set("process.user.umask", json!(0o27)).inside("umask").prints("0027\n"),
        case("a_umask_of_zero").set("process.user.umask", json!(0)).inside("umask").prints("0000\n"),
        case("the_umask_of_the_caller_stays_outside").host("umask 077; run").inside("umask").prints("0022\n"),
        case("a_limit_on_files").set("process.rlimits", json!([{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200}]))
            .inside("ulimit -Sn; ulimit -Hn").prints("100\n200\n"),
        case("a_limit_of_zero").set("process.rlimits", json!([{"type": "RLIMIT_CORE", "soft": 0, "hard": 0}]))
            .inside("ulimit -Sc; ulimit -Hc").prints("0\n0\n"),
        case("limits_of_every_kind").set("process.rlimits", every_limit())
            .inside("grep -c -E ' 1073741824 +1073741824 ' /proc/self/limits; grep -c -E ' 1000 +1000 ' /proc/self/limits")
            .prints("3\n11\n"),
        case("a_limit_twice")
            .set("process.rlimits", json!([{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 100}, {"type": "RLIMIT_NOFILE", "soft": 50, "hard": 50}]))
            .fails("RLIMIT_NOFILE")
            .but(Runc, |seen| seen.exits(0), "it takes the last; the specification demands an error")
            .but(Crun, |seen| seen.exits(0), "it takes the last; the specification demands an error"),
        case("a_limit_of_an_unknown_kind")
            .set("process.rlimits", json!([{"type": "RLIMIT_NONSENSE", "soft": 1, "hard": 1}]))
            .fails("RLIMIT_NONSENSE"),
        case("a_soft_limit_above_the_hard_one")
            .set("process.rlimits", json!([{"type": "RLIMIT_NOFILE", "soft": 200, "hard": 100}]))
            .fails("soft is more than hard"),
        case("no_limits_at_all").set("process.rlimits", json!([])).host("ulimit -n 321; run").inside("ulimit -n")
            .prints("321\n"),
        case("no_capabilities").set("process.capabilities", json!({})).inside("grep Cap /proc/self/status")
            .prints("CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n"),
        case("capabilities_that_are_missing").without("process.capabilities").inside("grep CapEff /proc/self/status")
            .prints("CapEff:\t0000000000000000\n"),
        case("capabilities_of_root").set("process.capabilities", capabilities(&["CAP_KILL"]))
            .inside("grep Cap /proc/self/status | busybox cut -f2 | busybox uniq").prints("0000000000000020\n"),
        case("ambient_capabilities_reach_a_user")
            .set("process.capabilities", capabilities(&["CAP_KILL", "CAP_NET_BIND_SERVICE"]))
            .set("process.user", json!({"uid": 1000, "gid": 1000}))
            .inside("grep -E 'Cap(Eff|Amb)' /proc/self/status | busybox cut -f2")
            .prints("0000000000000420\n0000000000000420\n"),
        case("a_user_without_ambient_capabilities_has_none").set("process.user", json!({"uid": 1000, "gid": 1000}))
            .inside("grep -E 'CapEff|CapBnd' /proc/self/status | busybox cut -f2")
            .prints("0000000000000000\n0000000020000420\n"),
        case("only_a_bounding_set").set("process.capabilities", json!({"bounding": ["CAP_KILL"]}))
            .set("process.noNewPrivileges", json!(false))
            .inside("grep -E 'CapPrm|CapBnd' /proc/self/status | busybox cut -f2")
            .prints("0000000000000020\n0000000000000020\n"),
        case("effective_beyond_permitted")
            .set("process.capabilities", json!({"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": []}))
            .fails("apabilit"),
        case("an_unknown_capability_is_a_warning")
            .set("process.capabilities", capabilities(&["CAP_KILL", "CAP_NONSENSE"]))
            .inside("grep CapEff /proc/self/status").prints("CapEff:\t0000000000000020\n"),
        case("a_capability_without_its_prefix").set("process.capabilities", capabilities(&["KILL"]))
            .inside("grep CapEff /proc/self/status").prints("CapEff:\t0000000000000020\n")
            .but(Runc, |seen| seen.prints("CapEff:\t0000000000000000\n"), "it ignores the name; what is meant is clear")
            .but(Crun, |seen| seen.prints("CapEff:\t0000000000000000\n"), "it ignores the name; what is meant is clear"),
        case("a_capability_in_lower_case").set("process.capabilities", capabilities(&["cap_kill"]))
            .inside("grep CapEff /proc/self/status").prints("CapEff:\t0000000000000020\n")
            .but(Runc, |seen| seen.prints("CapEff:\t0000000000000000\n"), "it ignores the name; what is meant is clear"),
        case("a_capability_twice").set("process.capabilities", capabilities(&["CAP_KILL", "CAP_KILL"]))
            .inside("grep CapEff /proc/self/status").prints("CapEff:\t0000000000000020\n"),
        case("no_new_privileges").inside("grep NoNewPrivs /proc/self/status").prints("NoNewPrivs:\t1\n"),
        case("new_privileges").set("process.noNewPrivileges", json!(false))
            .inside("grep NoNewPrivs /proc/self/status").prints("NoNewPrivs:\t0\n"),
        case("new_privileges_if_nothing_is_said").without("process.noNewPrivileges")
            .inside("grep NoNewPrivs /proc/self/status").prints("NoNewPrivs:\t0\n"),
        case("an_oom_score").set("process.oomScoreAdj", json!(500)).inside("cat /proc/self/oom_score_adj")
            .prints("500\n"),
        case("the_oom_score_of_the_caller_stays").host("echo 300 >/proc/self/oom_score_adj; run")
            .inside("cat /proc/self/oom_score_adj").prints("300\n"),
        case("an_oom_score_of_zero").set("process.oomScoreAdj", json!(0))
            .host("echo 300 >/proc/self/oom_score_adj; run").inside("cat /proc/self/oom_score_adj").prints("0\n")
            .but(Crun, |seen| seen.prints("300\n"), "it takes 0 as not set"),
        case("an_oom_score_out_of_range").set("process.oomScoreAdj", json!(1001)).fails("oomScoreAdj"),
        case("a_personality").set("linux.personality", json!({"domain": "LINUX32"})).inside("busybox uname -m")
            .needs(Need::NotUml("has no 32-bit personality")).prints("i686\n")
            .but(Runc, |seen| seen.prints("x86_64\n"), "1.1 does not know personalities"),
        case("an_ordinary_personality").set("linux.personality", json!({"domain": "LINUX"}))
            .inside("busybox uname -m").needs(Need::NotUml("has no 32-bit personality")).prints("x86_64\n"),
        case("an_unknown_personality").set("linux.personality", json!({"domain": "BSD"})).fails("personality")
            .but(Runc, |seen| seen.exits(0), "1.1 does not know personalities"),
        case("a_nice_value").set("process.scheduler", json!({"policy": "SCHED_OTHER", "nice": 5}))
            .inside("busybox cut -d' ' -f19 /proc/self/stat").prints("5\n")
            .but(Runc, |seen| seen.prints("0\n"), "this version does not know schedulers")
            .but(Crun, |seen| seen.prints("0\n"), "this version does not know schedulers"),
        case("an_idle_policy").set("process.scheduler", json!({"policy": "SCHED_IDLE"}))
            .inside("busybox cut -d' ' -f41 /proc/self/stat").prints("5\n")
            .but(Runc, |seen| seen.prints("0\n"), "this version does not know schedulers")
            .but(Crun, |seen| seen.prints("0\n"), "this version does not know schedulers"),
        case("an_unknown_policy").set("process.scheduler", json!({"policy": "SCHED_NONSENSE"})).fails("scheduler")
            .but(Runc, |seen| seen.exits(0), "this version does not know schedulers")
            .but(Crun, |seen| seen.exits(0), "this version does not know schedulers"),
        case("an_io_priority").set("process.ioPriority", json!({"class": "IOPRIO_CLASS_IDLE", "priority": 0}))
            .inside("busybox ionice").prints("idle\n")
            .but(Runc, |seen| seen.prints("none: prio 0\n"), "this version does not know I/O priorities")
            .but(Crun, |seen| seen.prints("none: prio 0\n"), "this version does not know I/O priorities"),
        case("standard_input_is_the_callers").host("echo typed | run").inside("cat").prints("typed\n"),
        case("descriptors_of_the_caller_stay_outside").host("exec 7</dev/null; run").inside("ls /proc/self/fd")
            .prints("0\n1\n2\n3\n"),
        case("descriptors_are_preserved_by_count").host("exec 3</etc/hostname 4</dev/null; run --preserve-fds 2")
            .inside("ls /proc/self/fd").prints("0\n1\n2\n3\n4\n5\n"),
        case("a_blocked_signal_of_the_caller").host("env --block-signal=USR2 true 2>/dev/null; run")
            .inside("grep SigBlk /proc/self/status").prints("SigBlk:\t0000000000000000\n"),
        case("the_cpus_of_the_caller_are_not_those_of_the_container")
            .host("[ \"$(taskset -c 0 sh -c '. ./prelude; run')\" = \"$(grep Cpus_allowed_list /proc/self/status)\" ] && echo all")
            .inside("grep Cpus_allowed_list /proc/self/status").prints("all\n").needs(Need::File("/sys/devices/system/cpu/cpu1"))
            .but(Runc, |seen| seen.exits(1).prints(""), "1.1 keeps them; newer ones do as ours")
            .but(Crun, |seen| seen.exits(1).prints(""), "1.8 keeps them; newer ones do as ours"),
        case("the_cpus_of_the_caller_are_not_those_of_exec").inside("sleep 20")
            .host("up; [ \"$(taskset -c 0 sh -c '. ./prelude; inside \"grep Cpus_allowed_list /proc/self/status\"')\" = \"$(grep Cpus_allowed_list /proc/self/status)\" ] && echo all")
            .prints("all\n").needs(Need::File("/sys/devices/system/cpu/cpu1"))
            .but(Runc, |seen| seen.exits(1).prints(""), "1.1 keeps them; newer ones do as ours")
            .but(Crun, |seen| seen.exits(1).prints(""), "1.8 keeps them; newer ones do as ours"),
        case("the_program_leads_its_session").inside("busybox cut -d' ' -f1,5,6 /proc/1/stat").prints("1 1 1\n"),
        case("the_program_has_no_parent_inside").inside("busybox cut -d' ' -f4 /proc/1/stat").prints("0\n"),
    ]
}
