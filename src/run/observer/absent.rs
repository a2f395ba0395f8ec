//! Paths that the sandbox does not have. Whether the host has them is looked up when the run is over: while it runs, the time that
//! this takes would tell the workload what there is on the host.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::view::{Place, View};
use crate::plan::Bytes;

/// Most paths that are kept, and most bytes of them. A workload can ask for any number.
const MOST_PATHS: usize = 1024;
const MOST_BYTES: usize = 128 << 10;

/// What libraries look for and do without.
const TRIED: [&str; 6] = [
    "/dev/log",
    "/etc/host.conf",
    "/etc/ld.so.preload",
    "/etc/locale.alias",
    "/run/nscd/socket",
    "/var/run/nscd/socket",
];

/// A call with a path that leads to nothing.
#[derive(Clone, Debug)]
pub struct Absence {
    pub op: &'static str,
    /// The path.
    pub target: PathBuf,
    /// Whether the call makes its last component.
    pub makes: bool,
    /// Whether the call changes something.
    pub writes: bool,
    pub thread: u32,
    pub comm: Option<Bytes>,
    pub count: u64,
    pub first_us: Option<u64>,
}

impl Absence {
    /// What must exist for the call.
    pub fn wanted(&self) -> &Path {
        if self.makes { self.target.parent().unwrap_or(&self.target) } else { &self.target }
    }
}

/// The absences of a run.
#[derive(Debug, Default)]
pub struct Absences {
    listed: Vec<Absence>,
    known: HashMap<(&'static str, PathBuf), usize>,
    bytes: usize,
    /// Whether there were more than are kept.
    pub overflowed: bool,
}

impl Absences {
    pub fn note(&mut self, absence: Absence) {
        if TRIED.iter().any(|path| absence.target == Path::new(path)) {
            return;
        }
        let key = (absence.op, absence.target.clone());
        if let Some(at) = self.known.get(&key) {
            self.listed[*at].count += 1;
            return;
        }
        let bytes = self.bytes + key.1.as_os_str().len();
        if self.listed.len() >= MOST_PATHS || bytes > MOST_BYTES {
            self.overflowed = true;
            return;
        }
        self.bytes = bytes;
        self.known.insert(key, self.listed.len());
        self.listed.push(absence);
    }

    /// Those of which the host has what is wanted.
    pub fn on_host(&mut self) -> Vec<Absence> {
        let listed = std::mem::take(&mut self.listed);
        let Some(host) = (!listed.is_empty()).then(|| View::of("self").ok()).flatten() else { return Vec::new() };
        let exists = |absence: &Absence| {
            let path = absence.wanted().as_os_str().as_encoded_bytes();
            matches!(host.look_up(path, true, None), Some(Place::Found(_)))
        };
        listed.into_iter().filter(exists).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(target: &str, makes: bool) -> Absence {
        let (thread, comm, count, first_us) = (1, None, 1, None);
        Absence { op: "openat", target: target.into(), makes, writes: makes, thread, comm, count, first_us }
    }

    #[test]
    fn what_a_workload_asks_for_is_kept_in_bounded_space() {
        let mut many = Absences::default();
        (0..3 * MOST_PATHS).for_each(|at| many.note(absence(&format!("/{at}"), false)));
        many.note(absence("/0", false));
        assert_eq!((many.listed.len(), many.listed[0].count, many.overflowed), (MOST_PATHS, 2, true));
        let mut long = Absences::default();
        (0..100).for_each(|at| long.note(absence(&format!("/{at}{}", "x".repeat(4000)), false)));
        assert!(long.bytes <= MOST_BYTES && long.overflowed);
    }

    #[test]
    fn only_what_the_host_has_is_listed() {
        let mut absences = Absences::default();
        for (path, makes) in [("/usr", false), ("/usr/no-such-file", false), ("/usr/new", true), ("/none/new", true)] {
            absences.note(absence(path, makes));
        }
        let found: Vec<_> = absences.on_host().into_iter().map(|absence| absence.target).collect();
        assert_eq!(found, [Path::new("/usr"), Path::new("/usr/new")]);
    }
}
