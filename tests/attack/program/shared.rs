//! Resources that a workload shares with its caller's other processes and with its init: D57, D58, D61 and D62.

use std::time::{Duration, Instant};

use libc::{O_CREAT, O_RDONLY, O_RDWR, O_WRONLY};

use crate::kernel::{call, open, path, send_descriptors};
use crate::{Outcome, RIG, Stop, attempt};

pub fn run(id: &str, way: &str) -> bool {
    match id {
        "D57" => take_all("watches", take_watches),
        "D58" => match way {
            "signals" => take_all(way, take_signals),
            "queues" => take_all(way, take_queues),
            _ => take_all(way, take_descriptors),
        },
        "D61" => set_nonblocking(),
        "D62" => grasp_init(),
        "neighbour" => neighbour(way),
        _ => return false,
    }
    true
}

/// More than a user may have of any resource.
const MANY: usize = 200_000;

/// The number of descriptors that this user may have in flight, in a process with the usual limit.
const USUAL_FILES: u64 = 1024;

/// Takes one more; `Err` at the limit.
type Take = fn(usize) -> Result<(), i32>;

/// Takes all that is available, and holds it until the rig has checked how much a neighbour gets.
fn take_all(what: &str, take: Take) {
    attempt(what, || {
        raise_limit(u64::MAX);
        let ended = (0..MANY).find_map(|number| take(number).err().map(|errno| (number, errno)));
        open(&format!("{RIG}/ws/taken"), O_CREAT | O_WRONLY)?;
        let until = Instant::now() + Duration::from_secs(10);
        while open(&format!("{RIG}/ws/release"), O_RDONLY).is_err() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let (taken, errno) = ended.unwrap_or((MANY, 0));
        Err(Stop::Absent(format!("{taken}, then error {errno}; what a neighbour gets is seen outside")))
    });
}

/// Takes one, as another process of the caller's: the exit status is the result.
fn neighbour(what: &str) {
    raise_limit(USUAL_FILES);
    let take: Take = match what {
        "watches" => take_watches,
        "signals" => take_signals,
        "queues" => take_queues,
        _ => take_descriptors,
    };
    if let Err(errno) = take(MANY) {
        println!("{what}: error {errno}");
        crate::kernel::exit(1);
    }
}

fn raise_limit(most: u64) {
    let mut limit = [0u64; 2];
    let _ = call(libc::SYS_prlimit64, &[0, 7, 0, limit.as_mut_ptr() as usize]);
    limit[0] = limit[1].min(most);
    let _ = call(libc::SYS_prlimit64, &[0, 7, limit.as_ptr() as usize, 0]);
}

fn take_watches(_: usize) -> Result<(), i32> {
    call(libc::SYS_inotify_init1, &[0]).map(drop)
}

/// A blocked signal that was queued with a value stays queued.
fn take_signals(number: usize) -> Result<(), i32> {
    const SIGNAL: usize = 35;
    const SI_QUEUE: i32 = -1;
    let blocked = 1u64 << (SIGNAL - 1);
    call(libc::SYS_rt_sigprocmask, &[0, &raw const blocked as usize, 0, 8])?;
    let own = std::process::id();
    let mut info = [0u32; 32];
    (info[2], info[4], info[6]) = (SI_QUEUE as u32, own, number as u32);
    call(libc::SYS_rt_sigqueueinfo, &[own as usize, SIGNAL, info.as_ptr() as usize]).map(drop)
}

/// A queue is charged with its capacity.
fn take_queues(number: usize) -> Result<(), i32> {
    let attributes = [0i64, 10, 8192, 0, 0, 0, 0, 0];
    let name = format!("attack{}-{number}", std::process::id());
    let flags = (O_CREAT | O_RDWR) as usize;
    call(libc::SYS_mq_open, &[path(&name), flags, 0o600, attributes.as_ptr() as usize])?;
    call(libc::SYS_mq_unlink, &[path(&name)]).map(drop) // it exists as long as it is open
}

/// Descriptors in flight, a hundred at a time; one from a neighbour.
fn take_descriptors(number: usize) -> Result<(), i32> {
    let mut ends = [0i32; 2];
    call(libc::SYS_socketpair, &[1, 2, 0, ends.as_mut_ptr() as usize])?;
    if number == MANY {
        return send_descriptors(ends[0], &[0]);
    }
    loop {
        match send_descriptors(ends[0], &[0; 100]) {
            Ok(()) => {}
            Err(libc::EAGAIN) if number < 200 => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// The rig checks whether a stream of the caller's stays so.
fn set_nonblocking() {
    for (fd, name) in ["standard input", "standard output", "standard error"].into_iter().enumerate() {
        attempt(&format!("O_NONBLOCK on {name}"), || {
            let flags = call(libc::SYS_fcntl, &[fd, libc::F_GETFL as usize])?;
            call(libc::SYS_fcntl, &[fd, libc::F_SETFL as usize, flags | libc::O_NONBLOCK as usize])?;
            Err(Stop::Absent("set; the caller's stream tells".into()))
        });
    }
}

/// Limits and scheduling of pid 1, which reaps every orphan and ends the run. These calls do not affect a shell that only waits.
fn grasp_init() {
    let number = |result: Result<usize, i32>| -> Outcome { Ok(result.map(|value| value.to_string())?) };
    let limits = [64u64; 2];
    let zero = [0u64; 8];
    let idle = [48u64 | 5 << 32, 0, 0, 0, 0, 0];
    let cpu = [1u64];
    let with = |numbers: &[usize], buffer: &[u64]| [numbers, &[buffer.as_ptr() as usize]].concat();
    attempt("limit its descriptors", || number(call(libc::SYS_prlimit64, &with(&[1, 7], &limits))));
    attempt("limit its descriptors, high bits set", || {
        number(call(libc::SYS_prlimit64, &with(&[(1 << 32) + 1, 7], &limits)))
    });
    attempt("schedule it as idle", || number(call(libc::SYS_sched_setscheduler, &with(&[1, 5], &zero))));
    attempt("schedule it by its attributes", || number(call(libc::SYS_sched_setattr, &[1, idle.as_ptr() as usize, 0])));
    attempt("bind it to a processor", || number(call(libc::SYS_sched_setaffinity, &with(&[1, 8], &cpu))));
    attempt("lower its priority", || number(call(libc::SYS_setpriority, &[0, 1, 19])));
    attempt("lower its I/O priority", || number(call(libc::SYS_ioprio_set, &[1, 1, 3 << 13])));
    attempt("move its memory between nodes", || {
        number(call(libc::SYS_migrate_pages, &[1, 8, cpu.as_ptr() as usize, cpu.as_ptr() as usize]))
    });
}
