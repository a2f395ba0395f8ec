//! Compares what confines a process with what was planned, from outside. The process's `/proc/PID/status` is the kernel's word,
//! not the process's own.

use crate::confine::caps::Sets;
use crate::error::{Error, Result, Step};
use crate::sys::status::Status;

/// The fields of the five sets of capabilities.
const CAPABILITY_SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

/// The expected status of a process.
#[derive(Clone, Debug)]
pub struct Expected {
    /// User and group in the reader's user namespace. `None` for an id that has no mapping there, or that the process may have
    /// changed.
    pub ids: (Option<u32>, Option<u32>),
    /// Supplementary groups, if they were set and all of them have a mapping.
    pub groups: Option<Vec<u32>>,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Whether execve must no longer grant privileges.
    pub no_new_privs: bool,
    /// The minimum number of filters, if it must have a filter.
    pub filters: Option<u64>,
    /// Whether it is in a nested user namespace, which the plan permits. Its ids and capabilities then count only there.
    pub nested: bool,
}

/// The expected capabilities.
#[derive(Clone, Copy, Debug)]
pub enum Capabilities {
    /// No set has any other than these.
    AtMost(u64),
    /// No set has any, except the bounding set, which may have these.
    NoneBut(u64),
    /// Exactly these sets, except the bounding set, which may have fewer: the runtime itself may lack some.
    Exactly(Sets),
}

/// Fails if the process is not confined as expected. The error names the first difference.
pub fn compare(status: &Status, expected: &Expected) -> Result<()> {
    if !expected.nested {
        compare_ids(status, expected.ids, expected.groups.as_deref())?;
        compare_capabilities(status, expected.capabilities)?;
    }
    if expected.no_new_privs && status.no_new_privs() != Some(true) {
        return differs(status, "no_new_privs", "NoNewPrivs");
    }
    expected.filters.map_or(Ok(()), |filters| compare_filters(status, filters))
}

/// Fails if the process has fewer filters.
pub fn compare_filters(status: &Status, filters: u64) -> Result<()> {
    let number = status.filters().unwrap_or(filters); // older kernels do not report it
    if !status.is_filtered() || number < filters {
        let found = format!("the process has Seccomp {}, {number} of {filters}", value(status, "Seccomp"));
        return Err(Error::new(Step::Verify, "seccomp filters", found));
    }
    Ok(())
}

/// How many filters our child has after it installed one: ours and its own.
pub fn filters_with_one_more() -> u64 {
    Status::own().ok().and_then(|status| status.filters()).unwrap_or(0) + 1
}

/// The capabilities in any of its five sets. A set that cannot be read counts as full.
pub fn capabilities(status: &Status) -> u64 {
    CAPABILITY_SETS.iter().fold(0, |all, name| all | status.mask(name).unwrap_or(u64::MAX))
}

fn compare_ids(status: &Status, ids: (Option<u32>, Option<u32>), groups: Option<&[u32]>) -> Result<()> {
    for (what, name, id) in [("user", "Uid", ids.0), ("group", "Gid", ids.1)] {
        if id.is_some_and(|id| status.numbers(name) != Some(vec![id; 4])) {
            return differs(status, what, name);
        }
    }
    let Some(groups) = groups else { return Ok(()) };
    let mut wanted = groups.to_vec();
    let mut found = status.numbers("Groups").unwrap_or_else(|| vec![u32::MAX]);
    for list in [&mut wanted, &mut found] {
        list.sort_unstable();
        list.dedup();
    }
    if wanted == found { Ok(()) } else { differs(status, "supplementary groups", "Groups") }
}

fn compare_capabilities(status: &Status, expected: Capabilities) -> Result<()> {
    let exceeds = |name: &str, most: u64| status.mask(name).is_none_or(|found| found & !most != 0);
    match expected {
        Capabilities::AtMost(_) | Capabilities::NoneBut(_) => {
            let most = |name: &str| match expected {
                Capabilities::AtMost(most) => most,
                Capabilities::NoneBut(bounding) if name == "CapBnd" => bounding,
                _ => 0,
            };
            match CAPABILITY_SETS.into_iter().find(|name| exceeds(name, most(name))) {
                Some(name) => differs(status, "capabilities", name),
                None => Ok(()),
            }
        }
        Capabilities::Exactly(Sets { bounding, effective, inheritable, permitted, ambient }) => {
            let exact = [("CapInh", inheritable), ("CapPrm", permitted), ("CapEff", effective), ("CapAmb", ambient)];
            for (name, set) in exact {
                if status.mask(name) != Some(set) {
                    return differs(status, "capabilities", name);
                }
            }
            if exceeds("CapBnd", bounding) { differs(status, "capabilities", "CapBnd") } else { Ok(()) }
        }
    }
}

fn differs(status: &Status, what: &str, name: &str) -> Result<()> {
    Err(Error::new(Step::Verify, what, format!("the process has {name} {}", value(status, name))))
}

fn value<'a>(status: &'a Status, name: &str) -> &'a str {
    status.field(name).unwrap_or("nothing that can be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Name:\tsh\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t9 4 \nCapInh:\t0000000000000001\n\
        CapPrm:\t0000000000000003\nCapEff:\t0000000000000002\nCapBnd:\t0000000000000007\nCapAmb:\t0000000000000001\n\
        NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n";

    fn expected() -> Expected {
        let sets = Sets { bounding: 0xf, effective: 2, inheritable: 1, permitted: 3, ambient: 1 };
        Expected {
            ids: (Some(7), Some(8)),
            groups: Some(vec![4, 9, 4]),
            capabilities: Capabilities::Exactly(sets),
            no_new_privs: true,
            filters: Some(2),
            nested: false,
        }
    }

    fn changed(from: &str, to: &str) -> Status {
        let text = TEXT.replace(from, to);
        assert_ne!(text, TEXT);
        Status::new(text)
    }

    #[test]
    fn a_process_as_expected_passes() {
        compare(&Status::new(TEXT), &expected()).unwrap();
        compare(&changed("Seccomp_filters:\t2\n", ""), &expected()).unwrap();
        compare(&changed("Seccomp:\t2", "Seccomp:\t0"), &Expected { filters: None, ..expected() }).unwrap();
        compare(&Status::new(TEXT), &Expected { capabilities: Capabilities::AtMost(7), ..expected() }).unwrap();
    }

    #[test]
    fn so_does_one_that_its_filter_has_killed() {
        compare(&changed("Seccomp:\t2", "Seccomp:\t3"), &expected()).unwrap();
    }

    #[test]
    fn every_difference_is_found() {
        for (from, to, what) in [
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7", "user"),
            ("Uid:\t7\t7\t7\t7\n", "", "user"),
            ("Gid:\t8\t8\t8\t8", "Gid:\t8\t8\t8\t0", "group"),
            ("Gid:\t8\t8\t8\t8\n", "", "group"),
            ("Groups:\t9 4 ", "Groups:\t9 4 0", "supplementary groups"),
            ("Groups:\t9 4 ", "Groups:\t9", "supplementary groups"),
            ("Groups:\t9 4 ", "Groups:\tjunk", "supplementary groups"),
            ("CapInh:\t0000000000000001", "CapInh:\t0000000000000000", "capabilities"),
            ("CapPrm:\t0000000000000003", "CapPrm:\t0000000000000007", "capabilities"),
            ("CapEff:\t0000000000000002", "CapEff:\t0000000000000003", "capabilities"),
            ("CapAmb:\t0000000000000001", "CapAmb:\t0000000000000003", "capabilities"),
            ("CapBnd:\t0000000000000007", "CapBnd:\t0000000000000017", "capabilities"),
            ("CapBnd:\t0000000000000007", "CapBnd:\tjunk", "capabilities"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0", "no_new_privs"),
            ("NoNewPrivs:\t1\n", "", "no_new_privs"),
            ("Seccomp:\t2", "Seccomp:\t0", "seccomp filters"),
            ("Seccomp_filters:\t2", "Seccomp_filters:\t1", "seccomp filters"),
        ] {
            let error = compare(&changed(from, to), &expected()).unwrap_err();
            assert_eq!((error.step, error.object.as_str()), (Step::Verify, what), "{to}");
        }
    }

    #[test]
    fn no_set_exceeds_what_is_kept() {
        let expected = Expected { capabilities: Capabilities::AtMost(7), ..expected() };
        for name in CAPABILITY_SETS {
            for (value, all) in [("0000020000000000", 0x200_0000_0007), ("junk", u64::MAX)] {
                let line = TEXT.lines().find(|line| line.starts_with(name)).unwrap();
                let status = changed(line, &format!("{name}:\t{value}"));
                assert_eq!(compare(&status, &expected).unwrap_err().object, "capabilities", "{name} {value}");
                assert_eq!(capabilities(&status) | 7, all);
            }
        }
    }

    #[test]
    fn only_the_bounding_set_may_be_undroppable() {
        let none = TEXT.lines().map(|line| match line.starts_with("Cap") {
            true => format!("{}:\t0000000000000000\n", &line[..6]),
            false => format!("{line}\n"),
        });
        let none = none.collect::<String>();
        let expected = Expected { capabilities: Capabilities::NoneBut(7), ..expected() };
        for name in CAPABILITY_SETS {
            let text = none.replace(&format!("{name}:\t0000000000000000"), &format!("{name}:\t0000000000000005"));
            assert_eq!(compare(&Status::new(text), &expected).is_ok(), name == "CapBnd", "{name}");
        }
        let other = none.replace("CapBnd:\t0000000000000000", "CapBnd:\t0000000000000008");
        assert!(compare(&Status::new(other), &expected).is_err());
    }

    #[test]
    fn a_nested_process_keeps_its_filters_and_no_new_privs() {
        let nested = Expected { nested: true, capabilities: Capabilities::AtMost(0), ..expected() };
        compare(&Status::new(TEXT.replace("\t7\t", "\t0\t")), &nested).unwrap();
        for (from, to) in [("NoNewPrivs:\t1", "NoNewPrivs:\t0"), ("Seccomp:\t2", "Seccomp:\t0")] {
            assert!(compare(&changed(from, to), &nested).is_err(), "{to}");
        }
    }
}
