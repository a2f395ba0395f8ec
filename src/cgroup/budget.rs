//! A budget as files of cgroup v2: the values to write, and the check that the kernel applies them.
//!
//! A successful write proves nothing: the kernel rounds numbers to pages, drops CPUs that do not exist, and turns a number that
//! is too large into `max`. So every value is read back, and a weaker limit is an error.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use nix::errno::Errno;

use super::failed;
use super::files::Dir;
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility, IoMax};
use crate::sys::file;

/// The `cpu.max` period in microseconds, to which [`Budget::cpu_quota_us`] refers.
pub const CPU_PERIOD_US: u64 = 100_000;

/// A file and its required value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The controller that owns the file.
    pub controller: Facility,
    /// The file's name.
    pub file: String,
    /// The value to write.
    pub value: String,
    /// Whether the file may be missing: because there is nothing to limit, or because an old kernel lacks an additional limit.
    optional: bool,
}

/// Converts a budget to limits.
pub fn limits(budget: &Budget) -> Result<Vec<Limit>> {
    let mut limits = Vec::new();
    let mut add = |controller, file: String, value: String, optional| {
        limits.push(Limit { controller, file, value, optional });
    };
    let mut set = |controller, file: &str, value: Option<String>| {
        if let Some(value) = value {
            add(controller, file.to_owned(), value, false);
        }
    };
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    set(Facility::Memory, "memory.max", number(budget.memory_bytes));
    set(Facility::Memory, "memory.high", number(budget.memory_high_bytes));
    set(Facility::Cpu, "cpu.max", budget.cpu_quota_us.map(|quota| format!("{quota} {CPU_PERIOD_US}")));
    set(Facility::Cpu, "cpu.weight", number(budget.cpu_weight));
    set(Facility::Cpuset, "cpuset.cpus", budget.cpuset_cpus.clone());
    set(Facility::Cpuset, "cpuset.mems", budget.cpuset_mems.clone());
    set(Facility::Pids, "pids.max", number(budget.pids));
    set(Facility::Io, "io.weight", budget.io_weight.map(|weight| format!("default {weight}")));
    for io in &budget.io_max {
        set(Facility::Io, "io.max", Some(io_line(io)?));
    }
    for pages in &budget.hugetlb {
        let file = format!("hugetlb.{}.max", pages.page_size);
        set(Facility::Hugetlb, &file, Some(pages.max_bytes.to_string()));
    }
    // A kernel without swap has nothing to limit. A budget that allows some swap still needs the file.
    let without_swap = budget.swap_bytes == Some(0) && !has_swap();
    if let Some(bytes) = budget.swap_bytes {
        add(Facility::Memory, "memory.swap.max".to_owned(), bytes.to_string(), without_swap);
    }
    if budget.memory_bytes.is_some() {
        add(Facility::Memory, "memory.oom.group".to_owned(), "1".to_owned(), true); // since Linux 4.19
    }
    for file in &budget.files {
        if let Some(controller) = file.controller() {
            add(controller, file.name.clone(), file.value.clone(), false);
        }
    }
    Ok(limits)
}

/// Whether the host has swap, `proc_swaps(5)`. The first line is a heading.
pub fn has_swap() -> bool {
    file::read_text("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
}

fn io_line(io: &IoMax) -> Result<String> {
    let mut line = device_number(io)?;
    let bounds = [("rbps", io.rbps), ("wbps", io.wbps), ("riops", io.riops), ("wiops", io.wiops)];
    for (key, bound) in bounds {
        if let Some(bound) = bound {
            line.push_str(&format!(" {key}={bound}"));
        }
    }
    Ok(line)
}

/// Returns `MAJOR:MINOR` of a block device.
pub fn device_number(io: &IoMax) -> Result<String> {
    let path = io.device.as_path();
    if !io.device.as_bytes().starts_with(b"/") {
        return Ok(io.device.to_string());
    }
    let wrong = |reason: &str| Error::new(Step::Cgroup, io.device.to_string(), reason);
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(Step::Cgroup, io.device.to_string(), &error))?;
    if !metadata.file_type().is_block_device() {
        return Err(wrong("is not a block device, and only their traffic can be bounded"));
    }
    Ok(format!("{}:{}", nix::sys::stat::major(metadata.rdev()), nix::sys::stat::minor(metadata.rdev())))
}

impl Limit {
    /// A limit for a file, with the value exactly as it is written.
    pub fn of_file(controller: Facility, file: &str, value: &str) -> Self {
        Self { controller, file: file.to_owned(), value: value.to_owned(), optional: false }
    }

    /// Applies the limit. Returns the kernel's value if it is a number.
    pub fn apply(&self, dir: &Dir) -> Result<Option<u64>> {
        let fail = |errno| {
            let error = failed(&dir.path().join(&self.file), errno);
            match errno {
                Errno::ENOENT => error.hint("this kernel does not have it"),
                Errno::ENODEV if self.file.starts_with("io.") => {
                    error.hint("name a whole disk that is there, not a partition")
                }
                Errno::EINVAL | Errno::ERANGE => {
                    error.hint(format!("the kernel does not take \"{}\" for it", self.value))
                }
                _ => error,
            }
        };
        let read = match dir.write_and_read(&self.file, &self.value) {
            Err(Errno::ENOENT) if self.optional => return Ok(None),
            read => read.map_err(fail)?,
        };
        if !agrees(&self.file, &self.value, &read) {
            return Err(self.weaker(&read));
        }
        if self.controller == Facility::Cpuset {
            // The kernel silently drops CPUs and nodes that do not exist or that an enclosing cgroup withholds. If none
            // remains, it uses all CPUs and nodes of the enclosing cgroup.
            let effective = dir.read(&format!("{}.effective", self.file)).map_err(fail)?;
            let requested = members(&self.value);
            if members(&effective).iter().any(|member| !requested.contains(member)) {
                return Err(self.weaker(&effective));
            }
        }
        Ok(read.trim().parse().ok())
    }

    fn weaker(&self, read: &str) -> Error {
        let reason = format!("wrote \"{}\", but the kernel has \"{}\"", self.value, read.trim().replace('\n', "; "));
        Error::new(Step::Cgroup, self.file.clone(), reason)
    }
}

/// Whether the kernel's value matches the requested one: the same numbers, in any spelling, rounded down by less than the
/// kernel's unit.
pub fn agrees(file: &str, requested: &str, read: &str) -> bool {
    if file.starts_with("cpuset.") && file.matches('.').count() == 1 {
        return members(requested) == members(read);
    }
    if let (Some(requested), Some(read)) = (size(requested), size(read.trim())) {
        return read <= requested && requested - read < unit(file, requested);
    }
    // Files of several lines are written line by line. A line is a key and its values.
    let mut wanted = requested.split_ascii_whitespace();
    let key = wanted.next();
    let wanted: Vec<_> = wanted.collect();
    read.lines().any(|line| {
        let mut words = line.split_ascii_whitespace();
        words.next() == key && {
            let words: Vec<_> = words.collect();
            wanted.iter().all(|word| words.contains(word))
        }
    })
}

/// The unit in which the kernel counts for a file: a page, or one.
fn unit(file: &str, requested: u64) -> u64 {
    const LARGEST_PAGE: u64 = 64 << 10;
    match file.split_once('.') {
        Some(("memory", _)) => LARGEST_PAGE,
        // The kernel treats a limit below one huge page as zero.
        Some(("hugetlb", rest)) => {
            rest.split_once('.').and_then(|(page, _)| size(page.trim_end_matches('B'))).unwrap_or(requested)
        }
        _ => 1,
    }
}

/// Parses a number as the kernel does, with K, M, G or T.
fn size(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Parses a list such as `0-2,7` into sorted numbers.
fn members(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?.min(65_535))
    };
    let mut members: Vec<u32> = list.split(',').filter_map(range).flatten().collect();
    members.sort_unstable();
    members.dedup();
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rounding_down_is_accepted() {
        assert!(agrees("memory.max", "1000000", "999424\n"));
        assert!(agrees("memory.low", "64M", "67108864\n"));
        assert!(agrees("hugetlb.2MB.max", "3000000", "2097152"));
        assert!(agrees("pids.max", "7", "7\n"));
        for (file, requested, read) in [
            ("memory.max", "1000000", "1003520"),
            ("memory.max", "1000000", "max"),
            ("memory.max", "1000000", "0"),
            ("pids.max", "7", "6"),
            ("pids.max", "7", "max"),
            ("hugetlb.2MB.max", "5000000", "2097152"),
            ("memory.max", "1000000", ""),
        ] {
            assert!(!agrees(file, requested, read), "{file} {requested} {read}");
        }
    }

    #[test]
    fn lines_are_compared_by_key_and_values() {
        assert!(agrees("cpu.max", "50000 100000", "50000 100000\n"));
        assert!(!agrees("cpu.max", "50000 100000", "max 100000\n"));
        let io = "7:0 rbps=1 wbps=max riops=max wiops=max\n8:0 rbps=1048576 wbps=max riops=max wiops=7\n";
        assert!(agrees("io.max", "8:0 rbps=1048576 wiops=7", io));
        assert!(!agrees("io.max", "7:0 rbps=1048576", io));
        assert!(!agrees("io.max", "9:0 rbps=1", io));
        assert!(agrees("io.weight", "default 50", "default 50\n8:0 7\n"));
        assert!(agrees("memory.max", "max", "max\n"));
    }

    #[test]
    fn lists_are_sets() {
        assert_eq!(members("0-2,7\n"), [0, 1, 2, 7]);
        assert_eq!(members("3,0-1,1"), [0, 1, 3]);
        assert_eq!(members(""), Vec::<u32>::new());
        assert!(agrees("cpuset.cpus", "0,1", "0-1\n"));
        assert!(!agrees("cpuset.cpus", "0-1", "0\n"));
    }
}
