//! `linux.seccomp`: which calls a profile refuses, and how.

use serde_json::{Value, json};

use super::Runtime::{Crun, Runc};
use super::case::{Case, case};

/// A profile that allows everything but these entries.
fn all_but(entries: Value) -> Value {
    json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": entries })
}

/// Refuses `mkdir`, as the shell's command makes it.
fn mkdir(action: &str) -> Value {
    all_but(json!([{ "names": ["mkdir", "mkdirat"], "action": action }]))
}

fn refuses(name: &'static str, profile: Value) -> Case {
    case(name).set("linux.seccomp", profile).mount("/t", "tmpfs", "tmpfs", &[]).inside("busybox mkdir /t/x; echo $?")
}

/// One call with a condition on its argument: `kill` with 10, 12 and 17. Prints those that it allows.
fn condition(name: &'static str, op: &str, value: u64, two: u64) -> Case {
    let arg = json!([{ "index": 1, "value": value, "valueTwo": two, "op": op }]);
    let profile = all_but(json!([{ "names": ["kill"], "action": "SCMP_ACT_ERRNO", "args": arg }]));
    let script = "trap '' 10 12 17; for s in 10 12 17; do kill -$s $$ && echo $s; done; true";
    case(name).set("linux.seccomp", profile).inside(script)
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        refuses("no_profile", json!(null)).prints("0\n"),
        refuses("a_profile_that_allows_everything", all_but(json!([]))).prints("0\n"),
        refuses("a_profile_without_calls", json!({"defaultAction": "SCMP_ACT_ALLOW"})).prints("0\n"),
        refuses("errno_is_eperm", mkdir("SCMP_ACT_ERRNO")).prints("1\n").says("Operation not permitted"),
        refuses("an_errno_of_its_own", all_but(json!([{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}])))
            .prints("1\n").says("No space left"),
        refuses("an_errno_of_zero", all_but(json!([{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 0}])))
            .prints("0\n"),
        refuses("a_default_errno", json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 28, "syscalls": [ {"names": ["execve", "exit_group", "exit", "read", "write", "open", "openat", "close", "mmap", "munmap", "mprotect", "brk", "futex", "stat", "lstat", "fstat", "newfstatat", "getuid", "geteuid", "getgid", "getegid", "getpid", "getppid", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "arch_prctl", "set_tid_address", "set_robust_list", "rseq", "prlimit64", "getrandom", "readlink", "readlinkat", "clone", "clone3", "fork", "vfork", "wait4", "uname", "getcwd", "fcntl", "dup2", "ioctl", "umask", "faccessat2", "chdir", "fchdir", "capset", "capget", "prctl", "setuid", "setgid", "setgroups", "getdents64", "faccessat", "access", "sigaltstack", "getxattr", "fchown", "fstatfs", "statx", "setresuid", "setresgid", "poll", "tgkill", "gettid", "nanosleep", "epoll_ctl", "epoll_pwait", "sched_yield", "lseek", "pread64", "sched_getaffinity", "madvise", "eventfd2", "epoll_create1", "pipe2", "kill", "epoll_wait", "getsockopt", "seccomp", "close_range"], "action": "SCMP_ACT_ALLOW"}]}))
            .prints("1\n").says("No space left"),
        refuses("kill_process", mkdir("SCMP_ACT_KILL_PROCESS")).prints("159\n"),
        refuses("kill_thread", mkdir("SCMP_ACT_KILL_THREAD")).prints("159\n"),
        refuses("kill", mkdir("SCMP_ACT_KILL")).prints("159\n"),
        refuses("trap", mkdir("SCMP_ACT_TRAP")).prints("159\n"),
        refuses("log_allows", mkdir("SCMP_ACT_LOG")).prints("0\n"),
        refuses("trace_without_a_tracer", mkdir("SCMP_ACT_TRACE")).prints("1\n").says("Function not implemented"),
        refuses("an_unknown_action", mkdir("SCMP_ACT_NONSENSE")).fails("SCMP_ACT_NONSENSE"),
        refuses("an_unknown_call_is_ignored", all_but(json!([{"names": ["nonsense", "mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}])))
            .prints("1\n"),
        refuses("a_name_of_no_length", all_but(json!([{"names": [], "action": "SCMP_ACT_ERRNO"}]))).prints("0\n")
            .says("names no system call"),
        refuses("no_default_action", json!({"syscalls": []})).fails("defaultAction")
            .but(Runc, |seen| seen.exits(0).prints("0\n"), "the specification demands one"),
        refuses("an_architecture", json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}))
            .prints("1\n"),
        refuses("an_unknown_architecture", json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_NONSENSE"]}))
            .prints("0\n").says("SCMP_ARCH_NONSENSE")
            .but(Runc, |seen| seen.fails(), "it refuses a profile for newer machines, which ours applies to this one")
            .but(Crun, |seen| seen.fails(), "it refuses a profile for newer machines, which ours applies to this one"),
        refuses("no_architectures", json!({"defaultAction": "SCMP_ACT_ALLOW", "architectures": [], "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}))
            .prints("1\n"),
        refuses("a_flag", json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_LOG"], "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}))
            .prints("1\n").but(Runc, |seen| seen.fails(), "1.1 of Debian knows no flags"),
        refuses("no_flags", json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": [], "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}))
            .prints("1\n"),
        refuses("an_unknown_flag", json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_NONSENSE"]}))
            .fails("SECCOMP_FILTER_FLAG_NONSENSE"),
        refuses("with_new_privileges", mkdir("SCMP_ACT_ERRNO")).set("process.noNewPrivileges", json!(false))
            .prints("1\n"),
        refuses("as_a_user", mkdir("SCMP_ACT_ERRNO")).set("process.user", json!({"uid": 1000, "gid": 1000}))
            .prints("1\n").says("Operation not permitted"),
        refuses("as_a_user_with_new_privileges", mkdir("SCMP_ACT_ERRNO"))
            .set("process.user", json!({"uid": 1000, "gid": 1000})).set("process.noNewPrivileges", json!(false))
            .prints("1\n").says("Operation not permitted"),
        condition("an_argument_is_equal", "SCMP_CMP_EQ", 12, 0).prints("10\n17\n"),
        condition("an_argument_is_not_equal", "SCMP_CMP_NE", 12, 0).prints("12\n"),
        condition("an_argument_is_less", "SCMP_CMP_LT", 12, 0).prints("12\n17\n"),
        condition("an_argument_is_less_or_equal", "SCMP_CMP_LE", 12, 0).prints("17\n"),
        condition("an_argument_is_greater", "SCMP_CMP_GT", 12, 0).prints("10\n12\n"),
        condition("an_argument_is_greater_or_equal", "SCMP_CMP_GE", 12, 0).prints("10\n"),
        condition("an_argument_is_equal_under_a_mask", "SCMP_CMP_MASKED_EQ", 8, 8).prints("17\n"),
        condition("an_argument_of_an_unknown_condition", "SCMP_CMP_NONSENSE", 0, 0).fails("SCMP_CMP_NONSENSE"),
        refuses("an_argument_out_of_range", all_but(json!([{"names": ["mkdir"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 6, "value": 1, "op": "SCMP_CMP_EQ"}]}])))
            .fails("index"),
        refuses("a_filter_is_shown", mkdir("SCMP_ACT_ERRNO")).inside("grep -w Seccomp /proc/self/status")
            .prints("Seccomp:\t2\n"),
        refuses("no_filter_is_shown", json!(null)).inside("grep -w Seccomp /proc/self/status").prints("Seccomp:\t0\n"),
        refuses("the_first_process_is_killed", mkdir("SCMP_ACT_KILL_PROCESS"))
            .set("process.args", json!(["busybox", "mkdir", "/t/x"])).exits(159),
        refuses("a_start_container_hook_is_filtered", mkdir("SCMP_ACT_ERRNO"))
            .set("process.noNewPrivileges", json!(false))
            .set("hooks", json!({"startContainer": [{"path": "/bin/busybox", "args": ["busybox", "mkdir", "/t/hook"]}]}))
            .inside("ls /t").fails("startContainer"),
        refuses("a_listener_without_a_path", mkdir("SCMP_ACT_NOTIFY")).fails("listenerPath")
            .but(Crun, |seen| seen.exits(0).prints("1\n"), "the calls then fail as unknown ones, which hides the mistake"),
        refuses("write_with_a_listener", json!({"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": "{dir}/x", "syscalls": [{"names": ["write"], "action": "SCMP_ACT_NOTIFY"}]}))
            .fails(""),
        refuses("the_last_of_two_entries", all_but(json!([{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 28}, {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}])))
            .prints("1\n"),
        refuses("the_default_action_in_an_entry", all_but(json!([{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ALLOW"}])))
            .prints("0\n"),
    ]
}
