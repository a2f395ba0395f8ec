//! A budget as files of cgroup v2: what is written, and whether the kernel has it then.
//!
//! A write that succeeds is no proof: numbers are rounded to pages, CPUs that are not there are left out, and a number that
//! is too large becomes `max`. So every value is read back, and a limit that came out weaker is an error.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use nix::errno::Errno;

use super::failed;
use super::files::Dir;
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Facility, IoMax};

/// One `cpu.max` period in microseconds, to which [`Budget::cpu_quota_us`] refers.
pub const CPU_PERIOD_US: u64 = 100_000;

/// One file and what it has to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The controller whose file it is.
    pub controller: Facility,
    /// The file's name.
    pub file: String,
    /// What is written.
    pub value: String,
    /// Whether the file may be absent, because then there is nothing to limit, or the kernel is too old for what only adds
    /// to another limit.
    optional: bool,
}

/// The limits of a budget.
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
    // Without swap in the kernel there is none to limit; a budget of some swap is one to have.
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

/// Whether anything can be swapped to, `proc_swaps(5)`; the first line is a heading.
pub fn has_swap() -> bool {
    std::fs::read_to_string("/proc/swaps").is_ok_and(|text| text.lines().count() > 1)
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

/// `MAJOR:MINOR` of a block device.
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
    /// A file and what it has to hold, as it is written.
    pub fn of_file(controller: Facility, file: &str, value: &str) -> Self {
        Self { controller, file: file.to_owned(), value: value.to_owned(), optional: false }
    }

    /// Puts it in force. What the kernel has then, if that is a number.
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
            // Those that are not there, or that an enclosing cgroup withholds, are left out without a word; and if none
            // is left, all that it has are used instead.
            let effective = dir.read(&format!("{}.effective", self.file)).map_err(fail)?;
            let asked = members(&self.value);
            if members(&effective).iter().any(|member| !asked.contains(member)) {
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

/// Whether what was read back is what was asked for: the same numbers, though not in the same spelling, rounded down by
/// less than the unit in which the kernel counts.
pub fn agrees(file: &str, asked: &str, read: &str) -> bool {
    if file.starts_with("cpuset.") && file.matches('.').count() == 1 {
        return members(asked) == members(read);
    }
    if let (Some(asked), Some(read)) = (size(asked), size(read.trim())) {
        return read <= asked && asked - read < unit(file, asked);
    }
    // Files of several lines are written one at a time; a line is a key and its values.
    let mut wanted = asked.split_ascii_whitespace();
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

/// The unit in which a file counts: pages, or whole numbers.
fn unit(file: &str, asked: u64) -> u64 {
    const LARGEST_PAGE: u64 = 64 << 10;
    match file.split_once('.') {
        Some(("memory", _)) => LARGEST_PAGE,
        // A limit below one huge page allows none.
        Some(("hugetlb", rest)) => {
            rest.split_once('.').and_then(|(page, _)| size(page.trim_end_matches('B'))).unwrap_or(asked)
        }
        _ => 1,
    }
}

/// As the kernel reads a number: with K, M, G, T.
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

/// The numbers of a list such as `0-2,7`, sorted.
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
    fn rounding_down_is_agreed_to_and_nothing_else() {
        assert!(agrees("memory.max", "1000000", "999424\n"));
        assert!(agrees("memory.low", "64M", "67108864\n"));
        assert!(agrees("hugetlb.2MB.max", "3000000", "2097152"));
        assert!(agrees("pids.max", "7", "7\n"));
        for (file, asked, read) in [
            ("memory.max", "1000000", "1003520"),
            ("memory.max", "1000000", "max"),
            ("memory.max", "1000000", "0"),
            ("pids.max", "7", "6"),
            ("pids.max", "7", "max"),
            ("hugetlb.2MB.max", "5000000", "2097152"),
            ("memory.max", "1000000", ""),
        ] {
            assert!(!agrees(file, asked, read), "{file} {asked} {read}");
        }
    }

    #[test]
    fn lines_agree_by_key_and_values() {
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
