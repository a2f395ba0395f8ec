//! What a session costs besides time: commands at once, an idle session, and whether many leave growth.

use std::time::{Duration, Instant};

use super::session::Session;

/// How long a level of concurrency is measured.
const PERIOD: Duration = Duration::from_secs(1);

/// Commands per second with one and with four at a time, in turns.
pub fn at_once(session: &Session, program: &str) -> Result<(), String> {
    let rate = |in_flight: usize| -> Result<f64, String> {
        let mut connections = (0..in_flight).map(|_| session.connect()).collect::<Result<Vec<_>, _>>()?;
        let begun = Instant::now();
        let done: Result<usize, String> = std::thread::scope(|scope| {
            let run = |one: &mut super::session::Connection| {
                let mut done = 0;
                while begun.elapsed() < PERIOD {
                    one.command(&[program, "true"])?;
                    done += 1;
                }
                Ok::<_, String>(done)
            };
            let threads: Vec<_> = connections.iter_mut().map(|one| scope.spawn(move || run(one))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a thread died".to_owned()))).sum()
        });
        Ok(done? as f64 / begun.elapsed().as_secs_f64())
    };
    let mut ratios = Vec::new();
    for _ in 0..5 {
        let one = rate(1)?;
        ratios.push(rate(4)? / one);
    }
    println!("\nfour at a time / one at a time: {:.2} (median of 5)", super::median(ratios));
    Ok(())
}

/// Private memory of a process in KiB.
fn private_kib(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let sizes = text.lines().filter(|line| line.starts_with("Private_"));
    sizes.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}

/// How often a process has waited.
fn wake_ups(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Memory and wake-ups of an idle session.
pub fn idle(session: &Session) {
    let Ok(pids) = session.processes() else { return println!("an idle session could not be looked at") };
    std::thread::sleep(Duration::from_millis(200)); // for the end of that connection
    let before = pids.map(wake_ups);
    std::thread::sleep(Duration::from_secs(5));
    let after = pids.map(wake_ups);
    let [supervisor, init] = pids.map(private_kib);
    println!("an idle session: supervisor {supervisor} KiB private, init {init} KiB");
    println!("wake-ups in 5 s: supervisor {}, init {}", after[0] - before[0], after[1] - before[1]);
}

/// Memory before and after many commands.
pub fn commands(session: &Session, program: &str, count: usize) -> Result<(), String> {
    let mut connection = session.connect()?;
    let pids = session.processes()?;
    for _ in 0..200 {
        connection.command(&[program, "true"])?; // more than are remembered
    }
    let before = pids.map(private_kib);
    for _ in 0..count {
        connection.command(&[program, "true"])?;
    }
    println!("{count} commands: supervisor and init {before:?} KiB before, {:?} after", pids.map(private_kib));
    Ok(())
}

/// Memory of many idle sessions.
pub fn sessions(count: usize) -> Result<(), String> {
    let name = |at: usize| format!("bench-{}-{at}", std::process::id());
    let sessions = (0..count).map(|at| Session::make(&name(at))).collect::<Result<Vec<_>, _>>()?;
    let all: Vec<u64> =
        sessions.iter().filter_map(|one| one.processes().ok()).map(|pids| pids.map(private_kib).iter().sum()).collect();
    let (first, last) = (all.first().copied().unwrap_or(0), all.last().copied().unwrap_or(0));
    println!("{count} idle sessions: the first has {first} KiB, the last {last} KiB");
    Ok(())
}
