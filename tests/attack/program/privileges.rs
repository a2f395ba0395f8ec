//! Privileges, system calls and other processes: D21 to D36.

use libc::{O_RDONLY, O_RDWR};

use crate::kernel::{call, exit, open, open_by_ring, path, read, read_fd, spawn, wait};
use crate::{Outcome, RIG, Stop, attempt};

pub fn run(id: &str) -> bool {
    match id {
        "D21" => namespaces(),
        "D22" => namespaces_by_clone3(),
        "D23" => enter_namespaces(),
        "D24" => ring(),
        "D25" => doors_of_32_bits(),
        "D26" => x32(),
        "D27" => be_traced(),
        "D28" => look_into_processes(),
        "D29" => keyrings(),
        "D30" => privileged_calls(),
        "D31" => socket_families(),
        "D32" => terminal(),
        "D33" => upper_protocols(),
        "D34" => personality(),
        "D35" => filters(),
        "D36" => capabilities(),
        _ => return false,
    }
    true
}

const KINDS: [(&str, i32); 8] = [
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("net", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("time", 0x80),
];

fn number(result: Result<usize, i32>) -> Outcome {
    Ok(result.map(|value| value.to_string())?)
}

fn namespaces() {
    for (name, flag) in KINDS {
        attempt(&format!("unshare {name}"), || number(call(libc::SYS_unshare, &[flag as usize])));
        if name == "time" {
            continue; // clone does not have this flag
        }
        attempt(&format!("clone {name}"), || clone(flag as usize));
        attempt(&format!("unshare user and {name}"), || {
            number(call(libc::SYS_unshare, &[(flag | libc::CLONE_NEWUSER) as usize]))
        });
    }
    attempt("clone user, high bits set", || clone(libc::CLONE_NEWUSER as usize | 1 << 33));
    attempt("clone everything", || clone(KINDS.iter().fold(0, |all, (_, flag)| all | *flag) as usize & !0x80));
}

fn clone(flags: usize) -> Outcome {
    let pid = call(libc::SYS_clone, &[flags | libc::SIGCHLD as usize, 0, 0, 0, 0])?;
    if pid == 0 {
        exit(0);
    }
    wait(pid as i32);
    Ok(String::new())
}

fn namespaces_by_clone3() {
    let try_with = |arguments: &[u64; 11]| -> Outcome {
        let pid = call(libc::SYS_clone3, &[arguments.as_ptr() as usize, size_of_val(arguments)])?;
        if pid == 0 {
            exit(0);
        }
        wait(pid as i32);
        Ok(String::new())
    };
    let with_flags = |flags: u64| {
        let mut arguments = [0u64; 11];
        (arguments[0], arguments[4]) = (flags, libc::SIGCHLD as u64);
        arguments
    };
    for (name, flag) in KINDS {
        attempt(&format!("clone3 {name}"), || try_with(&with_flags(flag as u64)));
    }
    attempt("choose a process id", || {
        let wanted = [4242i32];
        let mut arguments = with_flags(0);
        (arguments[8], arguments[9]) = (wanted.as_ptr() as u64, 1);
        try_with(&arguments)
    });
    attempt("be born into another cgroup", || {
        let group = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().find_map(|dir| {
            open(&format!("{dir}/cgroup.procs"), O_RDONLY).ok()?;
            open(dir, O_RDONLY).ok()
        });
        let mut arguments = with_flags(0x2_0000_0000);
        arguments[10] = group.ok_or_else(|| Stop::Absent("no cgroup v2 is to be seen".into()))? as u64;
        try_with(&arguments)
    });
}

fn enter_namespaces() {
    for who in ["self", "1"] {
        for (name, flag) in KINDS {
            attempt(&format!("enter {name} of {who}"), || {
                let fd = open(&format!("/proc/{who}/ns/{name}"), O_RDONLY)?;
                number(call(libc::SYS_setns, &[fd as usize, flag as usize]))
            });
        }
    }
    attempt("enter everything of 1 by pidfd", || {
        let fd = call(libc::SYS_pidfd_open, &[1, 0])?;
        number(call(libc::SYS_setns, &[fd, (libc::CLONE_NEWNS | libc::CLONE_NEWNET) as usize]))
    });
}

fn ring() {
    attempt("io_uring_setup", || {
        let mut parameters = [0u32; 30];
        number(call(libc::SYS_io_uring_setup, &[4, parameters.as_mut_ptr() as usize]))
    });
    attempt("read a secret by io_uring", || Ok(read_fd(open_by_ring(&format!("{RIG}/host/secret"))?)?));
}

#[cfg(target_arch = "x86_64")]
fn doors_of_32_bits() {
    use crate::kernel::{Low, call_32};
    let done = |result: Result<u32, i32>| -> Outcome {
        let value = result?;
        // A kernel without the 32-bit entry uses its own numbers.
        if call_32(20, &[])? != std::process::id() {
            return Err(Stop::Absent("this kernel has no such door".into()));
        }
        Ok(value.to_string())
    };
    let words = |words: [u32; 3]| words.into_iter().flat_map(u32::to_ne_bytes).collect::<Vec<_>>();
    attempt("getpid", || done(call_32(20, &[])));
    attempt("socketcall: unix socket", || done(call_32(102, &[Low::Number(1), Low::Bytes(&words([1, 1, 0]))])));
    attempt("socketcall: AF_ALG socket", || done(call_32(102, &[Low::Number(1), Low::Bytes(&words([38, 5, 0]))])));
    attempt("read a secret", || {
        let name = format!("{RIG}/host/secret\0");
        let fd = call_32(5, &[Low::Bytes(name.as_bytes()), Low::Number(0), Low::Number(0)])?;
        Ok(read_fd(fd as i32)?)
    });
    attempt("unshare a user namespace", || done(call_32(310, &[Low::Number(libc::CLONE_NEWUSER as u32)])));
    attempt("trace pid 1", || done(call_32(26, &[Low::Number(0x4206), Low::Number(1), Low::Number(0)])));
}

#[cfg(not(target_arch = "x86_64"))]
fn doors_of_32_bits() {
    crate::tell("getpid", Err(Stop::Absent("not on this architecture".into())));
}

fn x32() {
    const X32: i64 = 0x4000_0000;
    attempt("getpid", || number(call(libc::SYS_getpid | X32, &[])));
    attempt("unshare a user namespace", || number(call(libc::SYS_unshare | X32, &[libc::CLONE_NEWUSER as usize])));
    attempt("mount", || number(call(libc::SYS_mount | X32, &[path("x"), path("/tmp"), path("tmpfs"), 0, 0])));
    attempt("bpf", || number(call(libc::SYS_bpf | X32, &[0, 0, 0])));
    attempt("ptrace", || number(call(521 | X32, &[0x4206, 1, 0, 0])));
}

fn be_traced() {
    for _ in 0..20 {
        spawn(|| {
            let _ = call(libc::SYS_ptrace, &[0, 0, 0, 0]);
            let _ = call(libc::SYS_kill, &[std::process::id() as usize, libc::SIGSTOP as usize]);
        })
        .ok();
    }
    // Its own tracer waits for it. The rig detects a hang by the clock.
    let _ = call(libc::SYS_ptrace, &[0, 0, 0, 0]);
    let _ = call(libc::SYS_kill, &[std::process::id() as usize, libc::SIGSTOP as usize]);
}

fn look_into_processes() {
    let own = std::process::id();
    let parent = std::os::unix::process::parent_id();
    let victim = std::env::var("VICTIM").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut targets = vec![1, parent, victim];
    targets.sort_unstable();
    targets.dedup();
    for pid in targets.into_iter().filter(|pid| *pid != own && *pid != 0) {
        let target = pid as usize;
        let name = if pid == victim {
            "the victim"
        } else if pid == 1 {
            "1"
        } else {
            "the parent"
        };
        attempt(&format!("trace {name}"), || number(call(libc::SYS_ptrace, &[0x4206, target, 0, 0])));
        for (way, number) in [("read", libc::SYS_process_vm_readv), ("write", libc::SYS_process_vm_writev)] {
            attempt(&format!("{way} the memory of {name}"), || {
                let buffer = [0u8; 1];
                let (local, remote) = ([buffer.as_ptr() as usize, 1], [stack(target), 1]);
                let vectors = [target, local.as_ptr() as usize, 1, remote.as_ptr() as usize, 1, 0];
                if way == "write" {
                    call(libc::SYS_process_vm_readv, &vectors)?; // writes back the present content
                }
                Ok(call(number, &vectors).map(|value| value.to_string())?)
            });
        }
        attempt(&format!("take a descriptor of {name}"), || {
            let fd = call(libc::SYS_pidfd_open, &[target, 0])?;
            number(call(libc::SYS_pidfd_getfd, &[fd, 0, 0]))
        });
        for file in ["mem", "environ", "maps", "auxv", "syscall"] {
            attempt(&format!("read /proc/PID/{file} of {name}"), || match read(&format!("/proc/{pid}/{file}")) {
                Ok(text) if text.is_empty() => Err(Stop::Absent("empty".into())),
                Err(libc::EIO) if file == "mem" => Ok("opened".into()), // nothing is mapped at zero
                result => Ok(result?),
            });
        }
        attempt(&format!("open the program of {name} for writing"), || {
            Ok(format!("{}", open(&format!("/proc/{pid}/exe"), O_RDWR)?))
        });
        attempt(&format!("signal {name}"), || {
            if pid != victim {
                return Err(Stop::Absent("not a process of the host".into()));
            }
            number(call(libc::SYS_kill, &[target, libc::SIGCONT as usize]))
        });
    }
}

/// The start of a process's stack, if readable.
fn stack(pid: usize) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let line = maps.lines().find(|line| line.ends_with("[stack]")).and_then(|line| line.split(['-', ' ']).nth(1));
    line.and_then(|text| usize::from_str_radix(text, 16).ok()).map_or(0x40_0000, |end| end - 8)
}

fn keyrings() {
    for (name, ring) in [("session", -3isize), ("user session", -5), ("user", -4), ("process", -2)] {
        attempt(&format!("find a key in the {name} keyring"), || {
            let arguments = [10, ring as usize, path("user"), path("attackcanary"), 0];
            let key = call(libc::SYS_keyctl, &arguments)?;
            let mut buffer = [0u8; 100];
            let length = call(libc::SYS_keyctl, &[11, key, buffer.as_mut_ptr() as usize, buffer.len()])?;
            Ok(String::from_utf8_lossy(&buffer[..length.min(100)]).into_owned())
        });
    }
    attempt("join a session keyring by name", || number(call(libc::SYS_keyctl, &[1, path("attackring")])));
    attempt("add a key", || {
        let payload = *b"x";
        let ring = -3isize as usize;
        number(call(libc::SYS_add_key, &[path("user"), path("attack"), payload.as_ptr() as usize, 1, ring]))
    });
    attempt("request a key", || {
        let key = call(libc::SYS_request_key, &[path("user"), path("attackcanary"), 0, 0])?;
        let mut buffer = [0u8; 100];
        let length = call(libc::SYS_keyctl, &[11, key, buffer.as_mut_ptr() as usize, buffer.len()])?;
        Ok(String::from_utf8_lossy(&buffer[..length.min(100)]).into_owned())
    });
}

/// Whether the kernel passed the permission check. The arguments are invalid, so that nothing happens.
fn permitted(result: Result<usize, i32>) -> Outcome {
    match result {
        Ok(_) => Ok(String::new()),
        Err(errno @ (libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EOPNOTSUPP)) => Err(errno.into()),
        Err(errno) => Ok(format!("let through: {:?}", nix::errno::Errno::from_raw(errno))),
    }
}

#[cfg(target_arch = "x86_64")]
const IOPL: Option<i64> = Some(libc::SYS_iopl);
#[cfg(not(target_arch = "x86_64"))]
const IOPL: Option<i64> = None;

fn privileged_calls() {
    const NOWHERE: usize = 1; // a bad pointer
    let bpf_map = [2u32, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attempt("bpf", || permitted(call(libc::SYS_bpf, &[0, bpf_map.as_ptr() as usize, 72])));
    let mut event = [0u64; 16];
    event[0] = 1 | 128 << 32; // a software event, of the CPU's clock
    attempt("perf_event_open of the whole machine", || {
        permitted(call(libc::SYS_perf_event_open, &[event.as_ptr() as usize, usize::MAX, 0, usize::MAX, 0]))
    });
    attempt("perf_event_open of itself", || {
        permitted(call(libc::SYS_perf_event_open, &[event.as_ptr() as usize, 0, usize::MAX, usize::MAX, 0]))
    });
    attempt("userfaultfd", || permitted(call(libc::SYS_userfaultfd, &[0])));
    attempt("kexec_load", || permitted(call(libc::SYS_kexec_load, &[0, 9999, NOWHERE, usize::MAX])));
    attempt("init_module", || permitted(call(libc::SYS_init_module, &[NOWHERE, 0, NOWHERE])));
    attempt("finit_module", || permitted(call(libc::SYS_finit_module, &[usize::MAX, NOWHERE, usize::MAX])));
    attempt("delete_module", || permitted(call(libc::SYS_delete_module, &[NOWHERE, 0])));
    attempt("acct", || permitted(call(libc::SYS_acct, &[NOWHERE])));
    attempt("swapon", || permitted(call(libc::SYS_swapon, &[NOWHERE, 0])));
    attempt("swapoff", || permitted(call(libc::SYS_swapoff, &[NOWHERE])));
    attempt("reboot", || permitted(call(libc::SYS_reboot, &[1, 1, 1, 0])));
    attempt("syslog", || permitted(call(libc::SYS_syslog, &[10, 0, 0])));
    attempt("sethostname", || permitted(call(libc::SYS_sethostname, &[NOWHERE, 3])));
    attempt("vhangup", || {
        spawn(|| {}).ok();
        match std::env::var_os("CONTROL") {
            Some(_) => Err(Stop::Absent("hangs up a terminal: not done outside".into())),
            None => permitted(call(libc::SYS_vhangup, &[])),
        }
    });
    attempt("set the clock", || {
        let mut change = [0u64; 32];
        (change[0], change[11]) = (0x4000, 1); // struct timex: ADJ_TICK, and an invalid tick
        permitted(call(libc::SYS_adjtimex, &[change.as_mut_ptr() as usize]))
    });
    attempt("raise a hard limit", || {
        let mut limit = [0u64; 2];
        call(libc::SYS_prlimit64, &[0, 7, 0, limit.as_mut_ptr() as usize])?;
        if std::env::var_os("CONTROL").is_some() {
            return Err(Stop::Absent("the machine's own limit".into()));
        }
        limit[1] += 1;
        number(call(libc::SYS_prlimit64, &[0, 7, limit.as_ptr() as usize, 0]))
    });
    if let Some(iopl) = IOPL {
        attempt("iopl", || permitted(call(iopl, &[3])));
    }
    let mut handle = [0u64; 20];
    handle[0] = 128;
    attempt("a file handle of / and the file it names", || {
        let mut mount = 0i32;
        let here = libc::AT_FDCWD as usize;
        let arguments = [here, path(RIG), handle.as_mut_ptr() as usize, (&raw mut mount) as usize, 0];
        call(libc::SYS_name_to_handle_at, &arguments)?;
        let directory = open(RIG, O_RDONLY)?;
        number(call(libc::SYS_open_by_handle_at, &[directory as usize, handle.as_ptr() as usize, 0]))
    });
    attempt("watch the file system", || permitted(call(libc::SYS_fanotify_init, &[0, 0])));
    attempt("change who owns memory", || permitted(call(libc::SYS_move_pages, &[1, 0, 0, 0, 0, 0])));
}

fn socket_families() {
    let allowed = |domain: usize, kind: usize, protocol: usize| match domain {
        1 => true,
        2 | 10 => matches!((kind, protocol), (1, 0 | 6) | (2, 0 | 17)),
        16 => protocol == 0,
        _ => false,
    };
    attempt("every other family, type and protocol", || {
        // Families that can be opened prove it, and netlink's is opened first: outside, the kernel loads a module for each
        // unknown family.
        let (mut open, mut refused) = (Vec::new(), 0);
        'all: for domain in (16..48).chain(0..16) {
            for kind in [1, 2, 3, 4, 5, 10] {
                for protocol in (0..=30).chain([58, 89, 103, 132, 136, 255, 256, 262]) {
                    if allowed(domain, kind, protocol) {
                        continue;
                    }
                    for flags in [0, 1 << 32] {
                        match call(libc::SYS_socket, &[domain, kind | flags, protocol]) {
                            Ok(fd) => {
                                open.push(format!("{domain}/{kind}/{protocol}"));
                                call(libc::SYS_close, &[fd]).ok();
                                if open.len() == 8 {
                                    break 'all;
                                }
                            }
                            Err(_) => refused += 1,
                        }
                    }
                }
            }
        }
        if open.is_empty() {
            return Err(libc::EAFNOSUPPORT.into());
        }
        Ok(format!("{} of {} that were tried: {}", open.len(), open.len() + refused, open.join(" ")))
    });
}

fn terminal() {
    let byte = *b"x";
    for (name, fd) in [("standard input", 0), ("/dev/tty", -1), ("/dev/console", -2)] {
        for (call_name, command) in
            [("TIOCSTI", 0x5412usize), ("TIOCLINUX", 0x541c), ("TIOCSETD", 0x5423), ("TIOCCONS", 0x541d)]
        {
            for high in [0, 1 << 32] {
                let suffix = if high == 0 { "" } else { ", high bits set" };
                attempt(&format!("{call_name} on {name}{suffix}"), || {
                    let fd = match fd {
                        -1 => open("/dev/tty", O_RDWR)?,
                        -2 => open("/dev/console", O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK)?,
                        fd => fd,
                    };
                    if command == 0x541d && std::env::var_os("CONTROL").is_some() {
                        return Err(Stop::Absent("takes the machine's console: not done outside".into()));
                    }
                    number(call(libc::SYS_ioctl, &[fd as usize, command | high, byte.as_ptr() as usize]))
                });
            }
        }
    }
}

fn upper_protocols() {
    for (name, level, option, text) in [
        ("TCP_ULP tls", 6, 31, "tls"),
        ("TCP_ULP espintcp", 6, 31, "espintcp"),
        ("TCP_REPAIR", 6, 19, ""),
        ("IP_XFRM_POLICY", 0, 17, ""),
        ("SO_ATTACH_FILTER", 1, 26, ""),
        ("IPT_SO_SET_REPLACE", 0, 64, ""),
        ("UDP_ENCAP", 17, 100, ""),
    ] {
        attempt(name, || {
            let kind = if option == 100 { 2 } else { 1 };
            let fd = [2, 10, 1].iter().find_map(|family| call(libc::SYS_socket, &[*family, kind, 0]).ok());
            let fd = fd.ok_or_else(|| Stop::Absent("no socket".into()))?;
            let value = [0x1_0001u64; 16];
            let at = if text.is_empty() { value.as_ptr() as usize } else { path(text) };
            let length = if text.is_empty() { 4 } else { text.len() };
            match call(libc::SYS_setsockopt, &[fd, level, option, at, length]) {
                Ok(_) => Ok(String::new()),
                Err(errno @ (libc::ENOTCONN | libc::EINVAL | libc::ENOMEM | libc::EFAULT)) if text.len() != 1 => {
                    Ok(format!("let through: {:?}", nix::errno::Errno::from_raw(errno)))
                }
                Err(errno) => Err(errno.into()),
            }
        });
    }
}

fn personality() {
    for (name, value) in [
        ("ADDR_NO_RANDOMIZE", 0x004_0000),
        ("READ_IMPLIES_EXEC", 0x040_0000),
        ("PER_LINUX32", 8),
        ("UNAME26", 0x002_0000),
    ] {
        attempt(name, || number(call(libc::SYS_personality, &[value])));
        attempt(&format!("{name}, high bits set"), || {
            call(libc::SYS_personality, &[value | 1 << 32])?;
            let now = call(libc::SYS_personality, &[0xffff_ffff])?;
            if now & value == 0 { Err(libc::EINVAL.into()) } else { Ok(format!("{now:#x}")) }
        });
    }
}

fn filters() {
    // One instruction: allow.
    let instruction = [0x7fff_0000_0000_0006u64];
    let program = [1u64, instruction.as_ptr() as u64];
    attempt("become the listener of a filter", || number(call(libc::SYS_seccomp, &[1, 8, program.as_ptr() as usize])));
    attempt("put a filter that allows everything on top, and unshare", || {
        call(libc::SYS_seccomp, &[1, 0, program.as_ptr() as usize])
            .or_else(|_| call(libc::SYS_prctl, &[libc::PR_SET_SECCOMP as usize, 2, program.as_ptr() as usize]))?;
        number(call(libc::SYS_unshare, &[libc::CLONE_NEWUSER as usize]))
    });
    attempt("take no_new_privs back", || {
        if call(libc::SYS_prctl, &[libc::PR_GET_NO_NEW_PRIVS as usize, 0, 0, 0, 0])? == 0 {
            return Err(Stop::Absent("it is not set".into()));
        }
        number(call(libc::SYS_prctl, &[libc::PR_SET_NO_NEW_PRIVS as usize, 0, 0, 0, 0]))
    });
    attempt("landlock: add rules of one's own", || {
        // More restrictions do no harm. Removing restrictions would, but no call does that.
        Err(Stop::Absent("there is no call that takes any away".into()))
    });
}

fn capabilities() {
    attempt("raise every capability", || {
        let header = [0x2008_0522u32, 0];
        let mut data = [0u32; 6];
        call(libc::SYS_capget, &[header.as_ptr() as usize, data.as_mut_ptr() as usize])?;
        if data[1] >> 21 & 1 == 1 {
            return Ok("has CAP_SYS_ADMIN".into());
        }
        let all = [u32::MAX, u32::MAX, u32::MAX, 0x1ff, 0x1ff, 0x1ff];
        number(call(libc::SYS_capset, &[header.as_ptr() as usize, all.as_ptr() as usize]))
    });
    let prctl = |option: i32, value: usize| number(call(libc::SYS_prctl, &[option as usize, value, 0, 0, 0]));
    attempt("ambient capabilities", || {
        call(libc::SYS_prctl, &[libc::PR_CAP_AMBIENT as usize, 2, 21, 0, 0])
            .map_or_else(|errno| Err(errno.into()), |_| Ok(String::new()))
    });
    attempt("unlock the securebits", || prctl(libc::PR_SET_SECUREBITS, 0));
    attempt("move its own memory map", || {
        number(call(libc::SYS_prctl, &[libc::PR_SET_MM as usize, 3, 4096, 0, 0])).or_else(|stop| match stop {
            Stop::Errno(libc::EINVAL) if std::env::var_os("CONTROL").is_some() => Ok("let through: EINVAL".into()),
            other => Err(other),
        })
    });
    for (name, call_number) in [("setuid(0)", libc::SYS_setuid), ("setgid(0)", libc::SYS_setgid)] {
        attempt(name, || {
            let id = if name.contains("uid") { libc::SYS_getuid } else { libc::SYS_getgid };
            if call(id, &[])? == 0 && std::env::var_os("CONTROL").is_none() {
                return Err(Stop::Absent("is 0 already, as configured".into()));
            }
            number(call(call_number, &[0]))
        });
    }
    attempt("set groups", || {
        let groups = [0u32];
        number(call(libc::SYS_setgroups, &[1, groups.as_ptr() as usize]))
    });
}
