//! Processes that an intermediate process created and cannot report. A separate suite, because the tests look at all children of
//! the test process.

use crate::common::bundle::ours;
use crate::common::confined::{Before, by, confined, prepare, said_in};
use crate::common::{inject, leaks};

/// A pid namespace ends when all of its processes were waited for: by their parents, or later by the host's init.
#[test]
fn an_unreported_process_is_killed_and_reaped() {
    if !inject::may_inject() {
        return;
    }
    ours(|_| {
        leaks::adopt_orphans();
        let Some(bundle) = confined() else { return };
        let own = std::process::id() as i32;
        for (process, call, error) in [("1", libc::SYS_sendmsg, "EINTR"), ("0", libc::SYS_recvmsg, "EPERM")] {
            prepare(&bundle, Before::Running);
            said_in(&bundle, "out"); // the container creates no more processes after this
            let before = leaks::descendants(own);
            let fault = [process, &call.to_string(), "1", error];
            let called = by(&bundle, &inject::words(&fault), &["exec", &bundle.id, "true"]);
            assert!(called.err().contains("intermediate process"), "{fault:?}: {}", called.err());
            let new: Vec<_> = leaks::descendants(own).into_iter().filter(|pid| !before.contains(pid)).collect();
            assert!(new.is_empty(), "{fault:?}: {}", leaks::describe(&new));
        }
        prepare(&bundle, Before::Nothing);
    });
}
