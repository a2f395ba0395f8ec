//! Resource usage, from the files of cgroup v1.

use super::Cgroup;
use crate::cgroup::files::keyed;
use crate::report::Usage;

impl Cgroup {
    /// The CPU time so far, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        Some(self.with("cpuacct")?.number("cpuacct.usage")? / 1_000)
    }

    /// How often the kernel killed one of its processes for lack of memory.
    pub fn oom_kills(&self) -> Option<u64> {
        keyed(&self.with("memory")?.read("memory.oom_control").ok()?, "oom_kill")
    }

    /// Fills in every value that the hierarchies of this host provide.
    pub fn fill_in(&self, usage: &mut Usage) {
        let source = || Some("cgroup1".to_owned());
        if let Some(dir) = self.with("cpuacct") {
            let micros = |name: &str| dir.number(name).map(|nanos| nanos / 1_000);
            usage.cpu.user_us = micros("cpuacct.usage_user");
            usage.cpu.system_us = micros("cpuacct.usage_sys");
            usage.cpu.total_us = micros("cpuacct.usage");
            usage.cpu.source = source();
        }
        if let Some(text) = self.with("cpu").and_then(|dir| dir.read("cpu.stat").ok()) {
            usage.cpu.throttled_us = keyed(&text, "throttled_time").map(|nanos| nanos / 1_000);
            usage.cpu.throttled_periods = keyed(&text, "nr_throttled");
        }
        if let Some(dir) = self.with("memory") {
            usage.memory.current_bytes = dir.number("memory.usage_in_bytes");
            usage.memory.peak_bytes = dir.number("memory.max_usage_in_bytes");
            // Without a limit the file contains a very large number.
            usage.memory.limit_bytes = dir.number("memory.limit_in_bytes").filter(|bytes| *bytes < 1 << 62);
            usage.memory.oom_kills = self.oom_kills();
            usage.memory.max_events = dir.number("memory.failcnt");
            usage.memory.source = source();
        }
        if let Some(dir) = self.with("pids") {
            usage.pids.current = dir.number("pids.current");
            usage.pids.peak = dir.number("pids.peak"); // from Linux 6.12 on
            usage.pids.limit = dir.number("pids.max");
            usage.pids.max_events = keyed(&dir.read("pids.events").unwrap_or_default(), "max");
        }
    }
}
