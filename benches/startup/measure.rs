//! Measures the starts of contestants: samples of time, starts per second, memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use super::check::Checked;
use super::contest::{Contestant, IDLE};
use super::start::{number, quiet, reap};

/// The numbers of concurrent starts.
pub const IN_FLIGHT: [usize; 4] = [1, 2, 4, 16];

/// The results of a contestant.
pub struct Figures {
    /// Its name.
    pub name: &'static str,
    /// The observed confinement, or why there are no results.
    pub checked: Checked,
    /// Starts with everything in the page cache.
    pub warm: Samples,
    /// Starts with an empty page cache.
    pub cold: Samples,
    /// Starts per second, for each of [`IN_FLIGHT`].
    pub rates: [Vec<f64>; IN_FLIGHT.len()],
    /// Memory that the runtime uses while a container runs, in KiB.
    pub overhead_kib: Option<u64>,
}

impl Figures {
    /// Results without samples.
    pub fn of(contestant: &Contestant, checked: Checked) -> Self {
        let (warm, cold) = (Samples::default(), Samples::default());
        Self { name: contestant.name, checked, warm, cold, rates: Default::default(), overhead_kib: None }
    }

    /// Whether the contestant can be measured.
    pub fn runs(&self) -> bool {
        matches!(self.checked, Checked::Fine(_))
    }

    /// The median of starts per second.
    pub fn rate(&self, level: usize) -> Option<f64> {
        let mut rates = self.rates[level].clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied()
    }
}

/// Durations in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// The value at this quantile.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        sorted.get(((sorted.len() as f64 * part) as usize).min(last)).copied()
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl Extend<Duration> for Samples {
    fn extend<T: IntoIterator<Item = Duration>>(&mut self, all: T) {
        self.0.extend(all.into_iter().map(|one| one.as_nanos() as f64 / 1000.0));
    }
}

/// Measures starts per second with this many in flight.
pub fn rate(contestant: &Contestant, in_flight: usize, period: Duration) -> f64 {
    let done = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..in_flight {
            scope.spawn(|| {
                while begun.elapsed() < period {
                    let number = number();
                    let run = |words| quiet(words, number).status().is_ok_and(|status| status.success());
                    if contestant.steps.iter().all(run) {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    reap();
    rate
}

/// Shuffles the contestants. A contestant that follows one with cgroup moves finds the kernel's lock warm, so the order must
/// vary.
pub fn shuffled(all: &[usize], seed: u64) -> Vec<usize> {
    let mut left = all.to_vec();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut shuffled = Vec::with_capacity(left.len());
    while !left.is_empty() {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        shuffled.push(left.swap_remove((state >> 33) as usize % left.len()));
    }
    shuffled
}

/// Evicts the contestant's programs from the page cache. With `all`, and as root, drops all caches instead.
pub fn forget(contestant: &Contestant, all: bool) {
    if all {
        nix::unistd::sync();
        if std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
            return;
        }
    }
    for file in &contestant.files {
        if let Ok(file) = File::open(file) {
            let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
        }
    }
}

/// The memory (Pss, KiB) of all new descendants while a container runs, except its own program.
pub fn overhead_kib(contestant: &Contestant) -> Option<u64> {
    let before = descendants();
    let mut child = quiet(contestant.idle.as_ref()?, number()).spawn().ok()?;
    let begun = Instant::now();
    let stays = |pid: &u32| text(*pid, "cmdline").contains(IDLE[1]) && text(*pid, "comm").trim() != "";
    let is_workload = |pid: &u32| stays(pid) && text(*pid, "cmdline").split('\0').nth(1) == Some(IDLE[0]);
    let mut left = None;
    while begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(300));
        let new: BTreeSet<u32> = descendants().difference(&before).copied().collect();
        let Some(workload) = new.iter().copied().find(is_workload) else { continue };
        std::thread::sleep(Duration::from_millis(300));
        left = Some(new.iter().filter(|pid| !is_workload(pid)).filter_map(|pid| pss(*pid)).sum());
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(workload as i32), nix::sys::signal::Signal::SIGKILL);
        break;
    }
    end(&mut child);
    left
}

fn end(child: &mut Child) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if child.try_wait().is_ok_and(|status| status.is_some()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn text(pid: u32, name: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(Path::new("/proc").join(pid.to_string()).join(name)).unwrap_or_default())
        .into_owned()
}

fn pss(pid: u32) -> Option<u64> {
    let line = text(pid, "smaps_rollup").lines().find(|line| line.starts_with("Pss:"))?.to_owned();
    line.split_whitespace().nth(1)?.parse().ok()
}

/// All descendants of this process.
fn descendants() -> BTreeSet<u32> {
    let pids: Vec<u32> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    let parent =
        |pid: u32| -> Option<u32> { text(pid, "stat").rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok() };
    let parents: Vec<(u32, u32)> = pids.iter().filter_map(|pid| Some((*pid, parent(*pid)?))).collect();
    let mut found = BTreeSet::from([std::process::id()]);
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            found.remove(&std::process::id());
            return found;
        }
        found.extend(more);
    }
}
