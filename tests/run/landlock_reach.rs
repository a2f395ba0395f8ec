//! The rights of this kernel that Landlock covers, and its other restrictions: ports, abstract sockets, signals; and runs on
//! kernels with fewer of them.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::common;
use crate::common::{Caller, Outcome, Run, attack, for_each_caller, python_outside, skip_part, unique};
use serde_json::Value;

/// Asks the kernel directly which rights it handles: each bit alone, in rulesets that are discarded.
const RIGHTS: &str = r#"
FS = ["Execute", "WriteFile", "ReadFile", "ReadDir", "RemoveDir", "RemoveFile", "MakeChar", "MakeDir", "MakeReg",
      "MakeSock", "MakeFifo", "MakeBlock", "MakeSym", "Refer", "Truncate", "IoctlDev", "ResolveUnix"]
NET = ["BindTcp", "ConnectTcp"]
SCOPE = ["AbstractUnixSocket", "Signal"]
def handles(field, bit):
    attributes = (ctypes.c_uint64 * 3)()
    attributes[field] = 1 << bit
    # A field that the kernel's structure lacks is E2BIG when set, a right that it lacks EINVAL.
    fd = libc.syscall(444, attributes, ctypes.c_size_t(8 * (field + 1)), 0)
    if fd >= 0:
        os.close(fd)
    return fd >= 0
print("abi=%d" % libc.syscall(444, None, ctypes.c_size_t(0), 1))
for field, (prefix, names) in enumerate([("fs", FS), ("net", NET), ("scope", SCOPE)]):
    for bit, name in enumerate(names):
        if handles(field, bit):
            print("%s:%s" % (prefix, name))
"#;

fn abi_of_this_kernel(caller: Caller) -> (u64, Vec<String>) {
    let (status, text) = python_outside(caller, &attack(RIGHTS));
    assert_eq!(status, 0, "{text}");
    let mut lines = text.lines().map(str::to_owned);
    let abi = lines.next().and_then(|line| line.strip_prefix("abi=")?.parse::<i64>().ok()).unwrap();
    (u64::try_from(abi).unwrap_or(0), lines.collect())
}

fn strings(value: &Value) -> Vec<String> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

fn enforced(outcome: &Outcome, what: &str) -> Value {
    outcome.report()["enforced"][what].clone()
}

#[test]
fn every_right_of_the_kernel_is_handled() {
    for_each_caller(|caller| {
        let (abi, mut rights) = abi_of_this_kernel(caller);
        // With a network, ports are free unless they are listed.
        let outcome = Run::new(caller).opts(["--network", "none"]).cmd(["true"]).go().expect(0);
        let mut reported = strings(&enforced(&outcome, "landlock_rights"));
        rights.sort();
        reported.sort();
        assert_eq!(reported, rights, "kernel ABI {abi}: {outcome}");
        let newest_known = 9;
        assert_eq!(enforced(&outcome, "landlock_abi"), abi.min(newest_known), "{outcome}");
        assert_eq!(strings(&enforced(&outcome, "landlock_missing")).len(), 21 - rights.len(), "{outcome}");
    });
}

#[test]
fn without_landlock_the_report_claims_nothing_of_it() {
    for_each_caller(|caller| {
        let outcome = Run::new(caller).opts(["--landlock", "off"]).cmd(["true"]).go().expect(0);
        assert_eq!(enforced(&outcome, "landlock_abi"), Value::Null);
        assert!(strings(&enforced(&outcome, "landlock_rights")).is_empty(), "{outcome}");
        assert!(outcome.stderr.contains("warning: Landlock is off"), "{outcome}");
    });
}

const PORTS: &str = r#"
import socket
for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    def bind(port):
        with socket.socket(family) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind((host, port))
    def connect(port):
        with socket.socket(family) as s:
            s.settimeout(2)
            s.connect((host, port))
    for port in (4001, 4002, 0):
        attempt(f"{host} bind {port}", lambda: bind(port))
    for port in (4001, 4002):
        attempt(f"{host} connect {port}", lambda: connect(port))
"#;

/// The kernel refuses a connection because there is no listener, or Landlock because the rules forbid it.
fn ports(caller: Caller, options: &[&str]) -> (Vec<String>, Outcome) {
    let outcome = Run::new(caller).opts(options.iter().copied()).python(&attack(PORTS)).go().expect(0);
    let open = outcome.lines().into_iter().filter(|line| line.ends_with("=OK") || line.ends_with("=ECONNREFUSED"));
    (open.map(|line| line.split_once('=').unwrap().0.to_owned()).collect(), outcome)
}

#[test]
fn no_port_is_used_but_what_was_named() {
    for_each_caller(|caller| {
        if abi_of_this_kernel(caller).0 < 4 {
            return common::skip("this kernel's Landlock has no rules for ports");
        }
        let (open, all) = ports(caller, &[]);
        assert_eq!(open.len(), 10, "{all}");
        let (open, named) = ports(caller, &["--allow-bind", "4001", "--allow-connect", "4002"]);
        let expected = ["127.0.0.1 bind 4001", "127.0.0.1 connect 4002", "::1 bind 4001", "::1 connect 4002"];
        assert_eq!(open, expected, "{named}");
        assert_eq!(named.text().matches("=EACCES").count(), 6, "{named}");
        let (open, any) = ports(caller, &["--allow-bind", "0"]);
        assert!(open.contains(&"::1 bind 0".into()) && !open.contains(&"::1 bind 4001".into()), "{any}");
    });
}

/// Without a network the default profile forbids such sockets too; this tests the layer below it.
#[test]
fn without_a_network_every_port_is_closed() {
    for_each_caller(|caller| {
        if abi_of_this_kernel(caller).0 < 4 {
            return common::skip("this kernel's Landlock has no rules for ports");
        }
        let (open, outcome) = ports(caller, &["--network", "none", "--seccomp", "unconfined"]);
        assert!(open.is_empty() && outcome.text().matches("=EACCES").count() == 10, "{outcome}");
        let (open, outcome) = ports(caller, &["--network", "none", "--seccomp", "unconfined", "--landlock", "off"]);
        assert_eq!(open.len(), 10, "{outcome}");
        let (open, outcome) = ports(caller, &["--network", "none", "--landlock", "off"]);
        assert!(open.is_empty(), "a port is open: {outcome}");
    });
}

#[test]
fn abstract_sockets_of_a_shared_network_are_out_of_reach() {
    for_each_caller(|caller| {
        if abi_of_this_kernel(caller).0 < 6 {
            return common::skip("this kernel's Landlock has no scopes");
        }
        let name = unique();
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let program = attack(&format!(
            r#"
import socket
def connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0{name}")
attempt("connect", connect)
"#
        ));
        let run = |options: &[&str]| {
            let shared = ["--network", "host"];
            Run::new(caller).opts(shared.iter().chain(options).copied()).python(&program).go().expect(0)
        };
        assert_eq!(run(&["--landlock", "off"]).value("connect"), "OK");
        assert_eq!(run(&[]).value("connect"), "EPERM");
    });
}

/// Init has the same user and pid namespace, but is outside of the workload's Landlock domain.
#[test]
fn signals_do_not_leave_the_workload() {
    for_each_caller(|caller| {
        if abi_of_this_kernel(caller).0 < 6 {
            return common::skip("this kernel's Landlock has no scopes");
        }
        let program = attack(
            r#"
attempt("init", lambda: os.kill(1, 0))
child = os.fork()
if child == 0:
    import time
    time.sleep(60)
attempt("child", lambda: os.kill(child, 9))
os.waitpid(child, 0)
"#,
        );
        let run = |options: &[&str]| Run::new(caller).opts(options.iter().copied()).python(&program).go().expect(0);
        let without = run(&["--landlock", "off"]);
        assert_eq!((without.value("init").as_str(), without.value("child").as_str()), ("OK", "OK"));
        let with = run(&[]);
        assert_eq!((with.value("init").as_str(), with.value("child").as_str()), ("EPERM", "OK"));
    });
}

#[test]
fn below_the_least_abi_a_run_is_refused_with_the_way_out() {
    for_each_caller(|caller| {
        let run = |options: &[&str]| Run::new(caller).opts(options.iter().copied()).sh("echo ran").go();
        let refused = run(&["--landlock-abi", "99"]).expect(125).expect_status("setup_error");
        assert_eq!(refused.text(), "");
        assert!(refused.stderr.contains("99") && refused.stderr.contains("--allow-degraded landlock"), "{refused}");
        for way_out in [&["--allow-degraded", "landlock"][..], &["--landlock", "auto"]] {
            let outcome = run(&[&["--landlock-abi", "99"], way_out].concat()).expect(0);
            assert_eq!(outcome.text(), "ran\n");
            let degraded = enforced(&outcome, "degraded");
            assert_eq!(degraded[0]["what"], "landlock", "{outcome}: {degraded}");
            assert!(degraded[0]["wanted"].as_str().unwrap().contains("99"), "{degraded}");
            assert!(
                !strings(&enforced(&outcome, "landlock_rights")).is_empty(),
                "the available rights are used: {outcome}"
            );
        }
    });
}

/// A filter simulates a kernel without Landlock: its first call fails as on such kernels.
#[test]
fn on_a_kernel_without_landlock_a_run_is_refused_with_the_way_out() {
    let refusing = |errno: i32| {
        format!(
            r#"
import ctypes, struct
program = b"".join(struct.pack("HBBI", *one) for one in [
    (0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | {errno}), (0x06, 0, 0, 0x7fff0000)])
buffer = ctypes.create_string_buffer(program)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
filter = Program(4, ctypes.cast(buffer, ctypes.c_void_p))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(filter)) == 0
"#
        )
    };
    for_each_caller(|caller| {
        for (errno, why) in [(libc::ENOSYS, "has no Landlock"), (libc::EOPNOTSUPP, "not enabled at boot")] {
            let run = |options: &[&str]| {
                let run = Run::new(caller).after_python(&refusing(errno));
                run.opts(options.iter().copied()).cmd(["true"]).go()
            };
            let refused = run(&[]).expect(125);
            assert!(refused.stderr.contains(why), "{refused}");
            let outcome = run(&["--landlock", "auto"]);
            if outcome.status.code() == Some(125) && outcome.stderr.contains("newuidmap") {
                return skip_part("auto", "no_new_privs prevents this caller from mapping its ids");
            }
            let outcome = outcome.expect(0);
            assert_eq!(enforced(&outcome, "landlock_abi"), Value::Null, "{outcome}");
            assert_eq!(enforced(&outcome, "degraded")[0]["what"], "landlock", "{outcome}");
            run(&["--landlock", "off"]).expect(0);
        }
    });
}
