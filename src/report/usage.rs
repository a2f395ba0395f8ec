//! Resource usage: of a finished run, and in samples of one in progress.

use serde::{Deserialize, Serialize};

/// Resource usage of the whole process tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Usage {
    /// Wall-clock time of the workload in microseconds, from its execve to its end.
    pub wall_us: Option<u64>,
    /// CPU time.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// Processes and threads.
    pub pids: Pids,
    /// Block input and output, summed over devices.
    pub io: Io,
    /// Time stalled on a lack of resources, pressure stall information (PSI).
    pub psi: Psi,
    /// Counters of `getrusage(2)` for the workload and the children it waited for.
    pub rusage: Rusage,
    /// Scratch space.
    pub disk: Disk,
}

/// CPU time of the workload's processes, in microseconds. It begins when the sandbox is set up, just before the system call filter
/// is installed and the program is executed. Without a cgroup it includes the end of pid 1. In `stockade top` and `--stats` it is
/// the time of the whole sandbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cpu {
    /// In user mode.
    pub user_us: Option<u64>,
    /// In the kernel.
    pub system_us: Option<u64>,
    /// User and system time together, also if the kernel counts these less exactly than the total.
    pub total_us: Option<u64>,
    /// Time throttled by `cpu.max`.
    pub throttled_us: Option<u64>,
    /// Periods in which the tree was throttled.
    pub throttled_periods: Option<u64>,
    /// Origin of the figures: `cgroup2`, `cgroup1` or `rusage`.
    pub source: Option<String>,
}

/// Memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Memory {
    /// Usage at the time of the sample: at the end, or of `--stats`.
    pub current_bytes: Option<u64>,
    /// Highest usage.
    pub peak_bytes: Option<u64>,
    /// The limit, as read back.
    pub limit_bytes: Option<u64>,
    /// Highest swap usage.
    pub swap_peak_bytes: Option<u64>,
    /// Processes that the OOM killer killed.
    pub oom_kills: Option<u64>,
    /// Times that `memory.high` slowed the tree down.
    pub high_events: Option<u64>,
    /// Times that the limit was reached.
    pub max_events: Option<u64>,
    /// Origin of the figures.
    pub source: Option<String>,
}

/// Processes and threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pids {
    /// Number at the time of the sample: at the end, or of `--stats`.
    pub current: Option<u64>,
    /// Highest number. Cgroup v1 has it from Linux 6.12 on.
    pub peak: Option<u64>,
    /// The limit, as read back.
    pub limit: Option<u64>,
    /// Forks refused by the limit.
    pub max_events: Option<u64>,
}

/// Block input and output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Io {
    pub read_bytes: Option<u64>,
    pub write_bytes: Option<u64>,
    pub reads: Option<u64>,
    pub writes: Option<u64>,
}

/// Time in which some task waited for a resource (PSI), in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Psi {
    pub cpu_some_us: Option<u64>,
    pub memory_some_us: Option<u64>,
    pub memory_full_us: Option<u64>,
    pub io_some_us: Option<u64>,
    pub io_full_us: Option<u64>,
}

/// Counters of `getrusage(2)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[allow(missing_docs)]
pub struct Rusage {
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub ctx_voluntary: Option<u64>,
    pub ctx_involuntary: Option<u64>,
}

/// The scratch tmpfs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Disk {
    /// Bytes in use when the workload ended.
    pub scratch_used_bytes: Option<u64>,
    /// The limit.
    pub scratch_limit_bytes: Option<u64>,
    /// Files in use when the workload ended.
    pub inodes_used: Option<u64>,
}

/// The value of [`Sample::schema`].
pub const SAMPLE_SCHEMA: &str = "stockade/sample/v1";

/// A sample of a run in progress: one line of `--stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// Always [`SAMPLE_SCHEMA`].
    pub schema: String,
    /// Name of the sandbox.
    pub id: String,
    /// Microseconds since the workload began.
    pub elapsed_us: u64,
    /// Resource usage so far.
    pub usage: Usage,
}
