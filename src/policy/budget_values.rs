//! The values of the `[budget]` table that no other table has.

use serde::Deserialize;

use super::path::DevicePath;
use super::units;
use super::value::{Amount, Limit, Value, text, written};
use crate::plan::{Bytes, CgroupFile, Facility, HugetlbMax, IoMax};

/// The memory usage above which memory is reclaimed and the workload slowed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum High {
    /// This many bytes, at least one.
    Bytes(u64),
    /// This percentage of the memory limit: 1 to 99.
    Share(u8),
}

impl High {
    pub(super) fn of(self, memory: Option<Limit<Amount>>) -> Option<u64> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Share(percent) => {
                let max = memory.and_then(Limit::bound)?.get();
                // Rounded to pages as the kernel does, because the value read back is compared with the one written.
                Some(((u128::from(max) * u128::from(percent) / 100) as u64 / 4096).max(1) * 4096)
            }
        }
    }
}

impl Limit<High> {
    pub(super) fn is_share(&self) -> bool {
        matches!(self, Self::At(High::Share(_)))
    }
}

impl Value for High {
    const WHAT: &'static str = "a size such as 512M, or a percentage of the memory limit such as 90%";
    const NUMERIC: bool = true;
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let Some(percent) = bytes.strip_suffix(b"%") else {
            return Amount::parse(bytes).map(|size| Self::Bytes(size.get()));
        };
        match units::whole(text(percent)?)? {
            percent @ 1..=99 => Ok(Self::Share(percent as u8)),
            other => Err(format!("{other}% is not between 1% and 99% of the memory limit")),
        }
    }
}

/// Parses `KEY=VALUE`, the form of `--hugetlb` and `--cgroup-set`.
pub fn pair<K: Value, V: Value>(bytes: &[u8]) -> Result<(K, V), String> {
    let at = bytes.iter().position(|byte| *byte == b'=').ok_or("lacks a value: NAME=VALUE")?;
    Ok((K::parse(&bytes[..at])?, V::parse(&bytes[at + 1..])?))
}

/// Bounds on the traffic with one block device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String")]
#[cfg_attr(test, schemars(with = "String"))]
pub struct IoBound(pub(super) IoMax);

impl std::fmt::Display for IoBound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let IoMax { device, rbps, wbps, riops, wiops } = &self.0;
        let bounds = [("rbps", rbps), ("wbps", wbps), ("riops", riops), ("wiops", wiops)];
        let bounds = bounds.iter().filter_map(|(key, bound)| Some(format!("{key}={}", (*bound).as_ref()?)));
        write!(f, "{device}:{}", bounds.collect::<Vec<_>>().join(","))
    }
}

impl Value for IoBound {
    const WHAT: &'static str = "DEVICE:KEY=VALUE[,…], with keys rbps, wbps, riops and wiops";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let line = text(bytes)?;
        let wrong = || format!("{line:?} is not {}", Self::WHAT);
        // The device may contain a colon, as 8:0 does.
        let colon = line.find('=').and_then(|equals| line[..equals].rfind(':')).ok_or_else(wrong)?;
        let (device, bounds) = (&line[..colon], &line[colon + 1..]);
        let numbers = |device: &str| {
            let (major, minor) = device.split_once(':')?;
            (units::whole(major).ok()? < 4_096 && units::whole(minor).ok()? < 1 << 20).then_some(())
        };
        if numbers(device).is_none() {
            DevicePath::parse(device.as_bytes())?;
        }
        let mut io = IoMax { device: Bytes::from(device), ..IoMax::default() };
        for bound in bounds.split(',') {
            let (key, value) = bound.split_once('=').ok_or_else(wrong)?;
            let slot = match key {
                "rbps" => &mut io.rbps,
                "wbps" => &mut io.wbps,
                "riops" => &mut io.riops,
                "wiops" => &mut io.wiops,
                _ => return Err(wrong()),
            };
            if slot.is_some() {
                return Err(format!("{key} is given twice"));
            }
            let number = if key.ends_with("iops") { units::whole(value)? } else { units::size(value)? };
            // The kernel rejects 0, and its error does not name the key.
            *slot = Some(number).filter(|number| *number > 0);
            if slot.is_none() {
                return Err(format!("{key}=0 is not a limit: use at least 1"));
            }
        }
        Ok(Self(io))
    }
}

/// The size of a huge page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct PageSize(u64);

impl Value for PageSize {
    const WHAT: &'static str = "the size of a huge page, such as 2M or 1G";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let size = text(bytes)?;
        // The kernel's names end in B: 2MB.
        let bytes = units::size(size.strip_suffix(['B', 'b']).unwrap_or(size))?;
        if bytes.is_power_of_two() && bytes >= 1 << 14 {
            Ok(Self(bytes))
        } else {
            Err(format!("{size:?} is not {}", Self::WHAT))
        }
    }
}

impl PageSize {
    /// The size.
    pub(super) fn bytes(&self) -> u64 {
        self.0
    }

    pub(super) fn limited_to(&self, max_bytes: u64) -> HugetlbMax {
        let (shift, unit) = match self.0 {
            size if size >= 1 << 30 => (30, "GB"),
            size if size >= 1 << 20 => (20, "MB"),
            _ => (10, "KB"),
        };
        HugetlbMax { page_size: format!("{}{unit}", self.0 >> shift), max_bytes }
    }
}

/// The name of a controller's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct FileName(pub(super) String);

impl Value for FileName {
    const WHAT: &'static str = "a file of a cgroup v2 controller, such as memory.low";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let name = text(bytes)?;
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        let file = CgroupFile { name: name.to_owned(), value: String::new() };
        if name.starts_with("cgroup.") {
            return Err(format!("{name} is reserved for stockade: only files of controllers can be set"));
        }
        if file.controller().is_none() || name.len() > 64 || name.ends_with('.') || !name.bytes().all(allowed) {
            let known: Vec<_> = Facility::CONTROLLERS.iter().map(|controller| controller.name()).collect();
            return Err(format!("{name:?} is not {}; known controllers: {}", Self::WHAT, known.join(", ")));
        }
        Ok(Self(name.to_owned()))
    }
}

impl FileName {
    pub(super) fn holding(&self, value: &FileValue) -> CgroupFile {
        CgroupFile { name: self.0.clone(), value: value.0.clone() }
    }
}

/// The content of a controller's file: one line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct FileValue(pub(super) String);

impl Value for FileValue {
    const WHAT: &'static str = "one line of printable text";
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value = text(bytes)?;
        let printable = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        match printable && !value.trim().is_empty() && value.len() <= 256 {
            true => Ok(Self(value.trim().to_owned())),
            false => Err(format!("{value:?} is not {}", Self::WHAT)),
        }
    }
}

macro_rules! from_text {
    ($($type:ident)+) => {$(
        impl TryFrom<String> for $type {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                Self::parse(text.as_bytes())
            }
        }
    )+};
}

written! { High }

from_text! { IoBound PageSize FileName FileValue }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_bounds_name_a_device_and_at_least_one_rate() {
        let bound = IoBound::parse(b"/dev/sda:rbps=1M,wiops=5").unwrap().0;
        assert_eq!((bound.device, bound.rbps, bound.wiops), ("/dev/sda".into(), Some(1 << 20), Some(5)));
        assert_eq!(IoBound::parse(b"8:16:wbps=7").unwrap().0.device, "8:16".into());
        for wrong in ["", "8:0", "/dev/sda", "sda:rbps=1", "/dev/sda:", "/dev/sda:x=1", "8:0:rbps", "8:0:rbps=0"] {
            IoBound::parse(wrong.as_bytes()).expect_err(wrong);
        }
        for wrong in
            ["8:0:rbps=1,rbps=2", "8:0:riops=1K", "8:0:rbps=1,", "/dev/../sda:rbps=1", "8:0:rbps=-1", "a:b:rbps=1"]
        {
            IoBound::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }

    #[test]
    fn only_files_of_controllers_can_be_set() {
        for name in ["memory.low", "cpu.weight.nice", "hugetlb.2MB.rsvd.max", "misc.max", "io.latency"] {
            FileName::parse(name.as_bytes()).expect(name);
        }
        for wrong in
            ["", "memory", "memory.", ".max", "cgroup.procs", "cgroup.freeze", "memory./../x", "memory.a/b", "tasks"]
        {
            FileName::parse(wrong.as_bytes()).expect_err(wrong);
        }
        for wrong in ["landlock.max", "keyring.x", "memory.low\n", "memory.low\0", "Memory.low"] {
            FileName::parse(wrong.as_bytes()).expect_err(wrong);
        }
        for wrong in ["", " ", "1\n2", "\x1b"] {
            FileValue::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }

    #[test]
    fn huge_pages_have_the_kernels_names() {
        for (text, name) in [("2M", "2MB"), ("2MB", "2MB"), ("1G", "1GB"), ("64K", "64KB"), ("16777216", "16MB")] {
            assert_eq!(PageSize::parse(text.as_bytes()).unwrap().limited_to(1).page_size, name);
        }
        for wrong in ["3M", "0", "1", "", "2MX"] {
            PageSize::parse(wrong.as_bytes()).expect_err(wrong);
        }
    }
}
