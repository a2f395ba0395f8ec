//! Verifies the sandbox from outside, and records what was found.

use nix::errno::Errno;

use crate::confine::caps;
use crate::confine::user::Other;
use crate::error::{Error, Result, Step};
use crate::launch::executed;
use crate::launch::namespaces::Inhabited;
use crate::launch::steps::step;
use crate::launch::verify::{self, Capabilities, Expected};
use crate::plan::Namespaces;
use crate::report::Enforced;
use crate::sys::ablate::{Layer, without};
use crate::sys::mount::FileOnMount;
use crate::sys::status::Status;

/// The sandbox's namespaces that differ from ours. Fails if a planned one does not. The network namespace is left out: the child
/// enters it later and verifies it.
pub fn differing(sandbox: Inhabited, planned: &Namespaces) -> Result<Vec<String>> {
    let differing = sandbox.differing(|name| match name {
        "net" => false,
        "user" => !without(Layer::UserNamespace),
        "ipc" => planned.ipc,
        "uts" => planned.uts,
        "cgroup" => planned.cgroup,
        _ => true,
    })?;
    Ok(differing.into_iter().filter(|name| *name != "net").map(str::to_owned).collect())
}

/// What was planned for the workload, to be found in the running process.
#[derive(Clone, Copy, Debug)]
pub struct Verifier {
    /// The capabilities that it may have, as a mask.
    pub kept_capabilities: u64,
    /// Without a user namespace: what its bounding set may have.
    pub undroppable: Option<u64>,
    /// Its user and group inside.
    pub ids: (u32, u32),
    /// Those on the host.
    pub host_ids: (u32, u32),
    /// Whether it must have no supplementary groups.
    pub no_groups: bool,
    /// Whether it has a filter.
    pub filtered: bool,
    /// The sandbox's namespaces.
    pub sandbox: Option<Inhabited>,
    /// Whether it may create a user namespace.
    pub may_nest: bool,
    /// Whether it executes a program, which must be one of the sandbox.
    pub executes: bool,
}

impl Verifier {
    /// Verifies and records the running workload. `looked_up` is the file that it found for its program. Returns `false` if it
    /// has ended.
    pub fn verify(&self, pid: i32, looked_up: Option<FileOnMount>, enforced: &mut Enforced) -> Result<bool> {
        let status = match Status::of(pid) {
            Err(Errno::ENOENT | Errno::ESRCH) => return Ok(false), // it has ended
            status => status.map_err(|errno| Error::errno(Step::Verify, format!("/proc/{pid}/status"), errno))?,
        };
        // Read after the status: a process whose status shows a nested namespace has not left that namespace since.
        let nested = self.may_nest && self.sandbox.is_some_and(|sandbox| sandbox.has_left(pid));
        let kept = self.kept_capabilities;
        let mut expected = expected(kept, self.host_ids, self.filtered, nested);
        expected.groups = self.no_groups.then(Vec::new);
        if let Some(undroppable) = self.undroppable {
            expected.capabilities = Capabilities::NoneBut(undroppable);
        }
        match verify::compare(&status, &expected) {
            Err(_) if status.is_ending() => return Ok(false), // it was killed on its way to execve, when only part of the confinement was in place
            compared => compared?,
        }
        record(&status, if nested { kept } else { verify::capabilities(&status) }, enforced); // the child has verified those kept
        // The kernel shows the ids on the host; these are their names inside.
        enforced.uid = (enforced.host_uid == Some(self.host_ids.0)).then_some(self.ids.0);
        enforced.gid = (enforced.host_gid == Some(self.host_ids.1)).then_some(self.ids.1);
        step("verified", || format!("the confinement of pid {pid}"));
        if self.executes {
            executed::verify(pid, looked_up)?;
        }
        Ok(true)
    }

    /// The same for a command of another user of the sandbox.
    pub fn of_user(self, user: Option<Other>) -> Self {
        let Some(Other { uid, gid, host_ids }) = user else { return self };
        Self { ids: (uid, gid), host_ids, no_groups: true, ..self }
    }

    /// The same for a process of ours, which executes nothing, has a filter of its own and no capability.
    pub fn of_own_program(self) -> Self {
        let undroppable = Some(self.kept_capabilities);
        Self { executes: false, filtered: true, kept_capabilities: 0, undroppable, ..self }
    }
}

fn expected(kept: u64, host_ids: (u32, u32), filtered: bool, nested: bool) -> Expected {
    // With CAP_SETUID it may already have changed to another user of its namespace.
    let fixed = |id| (kept == 0).then_some(id);
    Expected {
        ids: (fixed(host_ids.0), fixed(host_ids.1)),
        groups: None, // an unprivileged caller cannot drop its own
        capabilities: Capabilities::AtMost(kept),
        no_new_privs: !without(Layer::NoNewPrivileges),
        filters: filtered.then_some(1),
        nested,
    }
}

fn record(status: &Status, capabilities: u64, enforced: &mut Enforced) {
    enforced.caps = caps::names(capabilities);
    enforced.no_new_privs = true;
    enforced.host_uid = status.numbers("Uid").and_then(|ids| ids.first().copied());
    enforced.host_gid = status.numbers("Gid").and_then(|ids| ids.first().copied());
    enforced.supplementary_groups = status.numbers("Groups").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFINED: &str = "Name:\ta\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t4 5 \nNoNewPrivs:\t1\nSeccomp:\t2\n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n\
        CapAmb:\t0000000000000000\n";

    #[test]
    fn a_confined_process_passes() {
        let status = Status::new(CONFINED);
        verify::compare(&status, &expected(0, (7, 8), true, false)).unwrap();
        let mut enforced = Enforced::default();
        record(&status, verify::capabilities(&status), &mut enforced);
        assert_eq!((enforced.host_uid, enforced.no_new_privs, enforced.caps), (Some(7), true, vec![]));
        assert_eq!(enforced.supplementary_groups, [4, 5]);
    }

    #[test]
    fn so_does_one_that_its_filter_has_killed() {
        let status = Status::new(CONFINED.replace("Seccomp:\t2", "Seccomp:\t3"));
        verify::compare(&status, &expected(0, (7, 8), true, false)).unwrap();
    }

    #[test]
    fn a_weaker_process_fails() {
        for (from, to) in [
            ("CapBnd:\t0000000000000000", "CapBnd:\t0000020000000000"),
            ("CapAmb:\t0000000000000000", "CapAmb:\tjunk"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("NoNewPrivs:\t1\n", ""),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t0\t7\t7"),
            ("Gid:\t8\t8\t8\t8\n", ""),
        ] {
            let text = CONFINED.replace(from, to);
            assert_ne!(text, CONFINED);
            assert!(verify::compare(&Status::new(text), &expected(0, (7, 8), true, false)).is_err(), "{to}");
        }
    }

    #[test]
    fn only_a_process_that_may_change_its_user_is_another() {
        let status = Status::new(CONFINED.replace("Uid:\t7\t7\t7\t7", "Uid:\t9\t9\t9\t9"));
        verify::compare(&status, &expected(1 << 7, (7, 8), true, false)).unwrap();
        verify::compare(&status, &expected(0, (7, 8), true, true)).unwrap();
        assert_eq!(verify::compare(&status, &expected(0, (7, 8), true, false)).unwrap_err().object, "user");
    }
}
