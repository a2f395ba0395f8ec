//! Excessive use of resources, and leftovers: D48 to D56. All attempts are bounded, because they also run without a sandbox.

use std::time::{Duration, Instant};

use libc::{MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, O_CREAT, O_RDONLY, O_WRONLY};

use crate::kernel::{call, open, open_at, path, send_descriptors, spawn, touch, wait};
use crate::{Outcome, RIG, Stop, attempt, tell};

pub fn run(id: &str, way: &str) -> bool {
    match id {
        "D48" => processes(way),
        "D49" => memory(way),
        "D50" => fill_directories(),
        "D51" => many_files(),
        "D52" => descriptors(),
        "D53" => spin(),
        "D54" => print(),
        "D55" => stay_behind(),
        "D56" => stop_everything(),
        _ => return false,
    }
    true
}

const MEMBERS: usize = 300;
const BYTES: usize = 256 << 20;

fn processes(way: &str) {
    match way {
        "threads" => attempt("300 threads", || {
            for number in 0..MEMBERS {
                let started =
                    std::thread::Builder::new().stack_size(16384).spawn(|| std::thread::sleep(Duration::from_secs(9)));
                if let Err(error) = started {
                    println!("note\tstopped after {number}");
                    return Err(error.raw_os_error().unwrap_or(0).into());
                }
            }
            Ok(String::new())
        }),
        _ => attempt("300 processes", || {
            let mut pids = Vec::new();
            let mut result = Ok(String::new());
            for _ in 0..MEMBERS {
                match spawn(|| std::thread::sleep(Duration::from_secs(9))) {
                    Ok(pid) => pids.push(pid),
                    Err(errno) => {
                        result = Err(errno.into());
                        break;
                    }
                }
            }
            for pid in pids {
                let _ = call(libc::SYS_kill, &[pid as usize, libc::SIGKILL as usize]);
                wait(pid);
            }
            result
        }),
    }
}

/// Four times the sandbox's budget. The budget ends the whole tree, so an attempt without output failed.
fn memory(way: &str) {
    let write_file = |fd: i32| -> Outcome {
        let block = vec![1u8; 1 << 20];
        for _ in 0..BYTES >> 20 {
            call(libc::SYS_write, &[fd as usize, block.as_ptr() as usize, block.len()])?;
        }
        Ok(String::new())
    };
    match way {
        "heap" => attempt("heap", || Ok(touch(BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1).map(|()| String::new())?)),
        "shared" => {
            attempt("shared memory", || Ok(touch(BYTES, MAP_SHARED | MAP_ANONYMOUS, -1).map(|()| String::new())?))
        }
        "memfd" => attempt("memfd", || write_file(call(libc::SYS_memfd_create, &[path("attack"), 0])? as i32)),
        "pipes" => attempt("pipes", || {
            let block = vec![1u8; 1 << 20];
            let mut held = 0;
            while held < BYTES {
                let mut ends = [0i32; 2];
                call(libc::SYS_pipe2, &[ends.as_mut_ptr() as usize, libc::O_NONBLOCK as usize])?;
                let _ = call(libc::SYS_fcntl, &[ends[1] as usize, 1031, 1 << 20]);
                held += call(libc::SYS_write, &[ends[1] as usize, block.as_ptr() as usize, block.len()])?;
            }
            Ok(String::new())
        }),
        // One page in each 2 MiB: the same amount in page tables, which count as memory of the tree.
        _ => attempt("page tables", || {
            let rounds = 8;
            for _ in 0..rounds {
                touch(BYTES / rounds, MAP_PRIVATE | MAP_ANONYMOUS, -1)?;
            }
            Ok(String::new())
        }),
    }
}

fn fill_directories() {
    for place in ["/tmp", "/dev/shm", "/home/sandbox", "/var/tmp"] {
        attempt(&format!("96 MiB in {place}"), || {
            let name = format!("{place}/attack-fill");
            let fd = open(&name, O_CREAT | O_WRONLY)?;
            let block = vec![1u8; 1 << 20];
            let mut result = Ok(String::new());
            for _ in 0..96 {
                match call(libc::SYS_write, &[fd as usize, block.as_ptr() as usize, block.len()]) {
                    Ok(written) if written == block.len() => {}
                    Ok(_) => continue,
                    Err(errno) => {
                        result = Err(Stop::Errno(errno));
                        break;
                    }
                }
            }
            call(libc::SYS_unlink, &[path(&name)])?;
            result
        });
    }
}

fn many_files() {
    for place in ["/tmp", "/dev/shm"] {
        attempt(&format!("20000 files in {place}"), || {
            let directory = format!("{place}/attack-many");
            call(libc::SYS_mkdir, &[path(&directory), 0o755])?;
            let within = open(&directory, O_RDONLY)?;
            let made = (0..20_000).find_map(|number| {
                let fd = open_at(within, &number.to_string(), O_CREAT | O_WRONLY, 0o600);
                fd.map(|fd| call(libc::SYS_close, &[fd as usize])).err().map(|errno| (number, errno))
            });
            for number in 0..made.map_or(20_000, |(number, _)| number) {
                let _ = call(libc::SYS_unlinkat, &[within as usize, path(&number.to_string()), 0]);
            }
            let _ = call(libc::SYS_rmdir, &[path(&directory)]);
            made.map_or(Ok(String::new()), |(_, errno)| Err(errno.into()))
        });
    }
    attempt("2000 directories, each in the other", || {
        call(libc::SYS_chdir, &[path("/tmp")])?;
        for _ in 0..5000 {
            call(libc::SYS_mkdir, &[path("d"), 0o755])?;
            call(libc::SYS_chdir, &[path("d")])?;
        }
        Ok(String::new())
    });
}

fn descriptors() {
    let raise = || {
        let mut limit = [0u64; 2];
        let _ = call(libc::SYS_prlimit64, &[0, 7, 0, limit.as_mut_ptr() as usize]);
        limit[0] = limit[1];
        let _ = call(libc::SYS_prlimit64, &[0, 7, limit.as_ptr() as usize, 0]);
    };
    attempt("8000 descriptors", || {
        raise();
        for _ in 0..8000 {
            open("/dev/null", O_RDONLY)?;
        }
        Ok(String::new())
    });
    attempt("20000 descriptors in flight", || {
        raise();
        let passed = vec![0i32; 250];
        let mut sent = 0;
        while sent < 20_000 {
            let mut ends = [0i32; 2];
            call(libc::SYS_socketpair, &[1, 2, 0, ends.as_mut_ptr() as usize])?;
            loop {
                match send_descriptors(ends[0], &passed) {
                    Ok(()) => sent += passed.len(),
                    Err(libc::EAGAIN) => break,
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(String::new())
    });
}

/// Two seconds of CPU time in one second.
fn spin() {
    attempt("more than half a CPU", || {
        let _ = call(libc::SYS_setpriority, &[0, 0, -20isize as usize]);
        let start = Instant::now();
        let pids: Vec<_> =
            (0..4).filter_map(|_| spawn(|| while start.elapsed() < Duration::from_secs(1) {}).ok()).collect();
        pids.into_iter().for_each(wait);
        let mut usage = [0u64; 18];
        call(libc::SYS_getrusage, &[-1isize as usize, usage.as_mut_ptr() as usize])?;
        let used = (usage[0] + usage[2]) as f64 + (usage[1] + usage[3]) as f64 / 1e6;
        let share = used / start.elapsed().as_secs_f64();
        if share > 0.5 { Ok(format!("{share:.2} CPUs")) } else { Err(Stop::Absent(format!("{share:.2} CPUs"))) }
    });
    attempt("a better place in the queue", || {
        let nice = call(libc::SYS_setpriority, &[0, 0, -20isize as usize])?;
        Ok(nice.to_string())
    });
}

/// The rig counts the bytes that arrive.
fn print() {
    use std::io::Write as _;
    tell("print 32 MiB", Err(Stop::Absent("what arrives is counted outside".into())));
    let block = vec![b'x'; 1 << 20];
    let mut out = std::io::stdout();
    for _ in 0..32 {
        if out.write_all(&block).is_err() {
            break;
        }
    }
    println!();
}

/// The rig checks whether it is still there after the end.
fn stay_behind() {
    let _ = spawn(|| {
        let _ = call(libc::SYS_setsid, &[]);
        let _ = spawn(|| {
            for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                let ignore = [1u64, 0, 0, 0];
                let _ = call(libc::SYS_rt_sigaction, &[signal as usize, ignore.as_ptr() as usize, 0, 8]);
            }
            for fd in 0..64 {
                let _ = call(libc::SYS_close, &[fd]);
            }
            let _ = call(libc::SYS_prctl, &[libc::PR_SET_NAME as usize, path("attackremains"), 0, 0, 0]);
            std::thread::sleep(Duration::from_secs(30));
        });
    });
    tell("leave a process behind", Err(Stop::Absent("what is left is counted outside".into())));
    std::thread::sleep(Duration::from_millis(50));
}

/// The rig checks whether the run ends in time.
fn stop_everything() {
    tell("stop at the time limit", Err(Stop::Absent("the clock outside tells".into())));
    let _ = spawn(|| {
        let _ = call(libc::SYS_kill, &[std::process::id() as usize, libc::SIGSTOP as usize]);
    });
    if std::env::var_os("CONTROL").is_none() {
        let _ = call(libc::SYS_kill, &[usize::MAX, libc::SIGSTOP as usize]); // every process in the sandbox
    }
    let _ = open(&format!("{RIG}/ws/stopped"), O_CREAT | O_WRONLY);
    let _ = call(libc::SYS_kill, &[std::process::id() as usize, libc::SIGSTOP as usize]);
    std::thread::sleep(Duration::from_secs(20));
}
