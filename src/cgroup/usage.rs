//! Resource usage, from the files of cgroup v2.

use super::files::{Dir, keyed};
use crate::report::{Io, Psi, Usage};

/// Fills in every value that this kernel provides for a cgroup.
pub fn fill_in(dir: &Dir, usage: &mut Usage) {
    let source = || Some("cgroup2".to_owned());
    if let Ok(text) = dir.read("cpu.stat")
        && let Some(total) = keyed(&text, "usage_usec")
    {
        usage.cpu.user_us = keyed(&text, "user_usec");
        usage.cpu.system_us = keyed(&text, "system_usec");
        usage.cpu.total_us = Some(total);
        usage.cpu.throttled_us = keyed(&text, "throttled_usec");
        usage.cpu.throttled_periods = keyed(&text, "nr_throttled");
        usage.cpu.source = source();
    }
    if let Ok(text) = dir.read("memory.events") {
        usage.memory.current_bytes = dir.number("memory.current");
        usage.memory.peak_bytes = dir.number("memory.peak");
        usage.memory.swap_peak_bytes = dir.number("memory.swap.peak");
        usage.memory.limit_bytes = dir.number("memory.max");
        usage.memory.oom_kills = oom_kills(&text);
        usage.memory.high_events = keyed(&text, "high");
        usage.memory.max_events = keyed(&text, "max");
        usage.memory.source = source();
    }
    if let Ok(text) = dir.read("pids.events") {
        usage.pids.current = dir.number("pids.current");
        usage.pids.peak = dir.number("pids.peak");
        usage.pids.limit = dir.number("pids.max");
        usage.pids.max_events = keyed(&text, "max");
    }
    if let Ok(text) = dir.read("io.stat") {
        usage.io = io(&text);
    }
    usage.psi = psi(dir);
}

/// Processes that the kernel killed, from `memory.events`. Where all processes of a group die together, it counts the first one
/// twice (`oom_kill_process` in its `mm/oom_kill.c`).
fn oom_kills(events: &str) -> Option<u64> {
    let groups = keyed(events, "oom_group_kill").unwrap_or(0); // since Linux 5.17
    keyed(events, "oom_kill").map(|kills| kills.saturating_sub(groups).max(kills.min(1)))
}

/// The CPU time so far, in microseconds.
pub fn cpu_us(dir: &Dir) -> Option<u64> {
    keyed(&dir.read("cpu.stat").ok()?, "usage_usec")
}

/// Sums over all devices. The file of a cgroup without traffic has no lines.
fn io(stat: &str) -> Io {
    let sum = |key: &str| {
        let of_word = |word: &str| word.strip_prefix(key)?.strip_prefix('=')?.parse::<u64>().ok();
        Some(stat.split_ascii_whitespace().filter_map(of_word).fold(0, u64::saturating_add))
    };
    Io { read_bytes: sum("rbytes"), write_bytes: sum("wbytes"), reads: sum("rios"), writes: sum("wios") }
}

fn psi(dir: &Dir) -> Psi {
    let read = |name: &str| dir.read(name).unwrap_or_default();
    let (cpu, memory, io) = (read("cpu.pressure"), read("memory.pressure"), read("io.pressure"));
    Psi {
        cpu_some_us: stalled(&cpu, "some"),
        memory_some_us: stalled(&memory, "some"),
        memory_full_us: stalled(&memory, "full"),
        io_some_us: stalled(&io, "some"),
        io_full_us: stalled(&io, "full"),
    }
}

/// The total of a line of pressure stall information, in microseconds.
fn stalled(text: &str, which: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(which))?;
    line.rsplit_once("total=")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_group_is_counted_once() {
        for (text, kills) in [
            ("oom 0\noom_kill 0\noom_group_kill 0", Some(0)),
            ("oom 1\noom_kill 2\noom_group_kill 1", Some(1)),
            ("oom 2\noom_kill 6\noom_group_kill 2", Some(4)),
            ("oom 1\noom_kill 1\noom_group_kill 1", Some(1)),
            ("oom 1\noom_kill 3", Some(3)),
            ("oom 1", None),
        ] {
            assert_eq!(oom_kills(text), kills, "{text}");
        }
    }

    #[test]
    fn traffic_is_summed_over_devices() {
        let text =
            "8:0 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=900 dios=9\n7:1 rbytes=5 wbytes=0 rios=1 wios=x\n8:16\n";
        let sums = io(text);
        assert_eq!((sums.read_bytes, sums.write_bytes), (Some(15), Some(20)));
        assert_eq!((sums.reads, sums.writes), (Some(2), Some(2)));
        assert_eq!(io("").read_bytes, Some(0));
    }

    #[test]
    fn pressure_is_the_total() {
        let text =
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=45\n";
        assert_eq!((stalled(text, "some"), stalled(text, "full"), stalled("", "some")), (Some(123), Some(45), None));
    }
}
