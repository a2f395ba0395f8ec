//! Processes that an intermediate process created and cannot report. A separate suite, because it looks at all children of its process.

use crate::common::bundle::ours;
use crate::common::confined::{Before, by, confined, prepare, said_in};
use crate::common::{inject, leaks};

/// A pid namespace ends when all in it have been waited for: by whoever made them, or else when the host's init gets to it.
#[test]
fn a_process_that_nobody_heard_of_is_ended_and_waited_for() {
    if !inject::may_inject() {
        return;
    }
    ours(|_| {
        leaks::adopt_orphans();
        let Some(bundle) = confined() else { return };
        let own = std::process::id() as i32;
        for (process, call, error) in [("1", libc::SYS_sendmsg, "EINTR"), ("0", libc::SYS_recvmsg, "EPERM")] {
            prepare(&bundle, Before::Running);
            said_in(&bundle, "out"); // after which the container makes no more processes of its own
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
