//! `events`: prints resource usage, periodically or once, and OOM kills.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;

use super::{Runtime, print};
use crate::cgroup::container::OomWatch;
use crate::error::{Error, Result, Step};

/// The default of `--interval`.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// One JSON object a line, until the container ends.
pub fn events(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    let id = runtime.args.id()?;
    let (_, record) = runtime.store.read(id)?;
    if !record.runs() {
        return Err(Error::new(Step::Status, id, "container not running"));
    }
    let no_cgroup = || Error::new(Step::Cgroup, id, "the container has no cgroup, so its usage is unknown");
    let groups = record.groups().ok_or_else(no_cgroup)?;
    // In the order of runc's keys.
    let stats = || print(&format!("{{\"type\":\"stats\",\"id\":{},\"data\":{}}}\n", json!(id), groups.stats()));
    if runtime.args.is_on("stats") {
        return stats().map(|()| 0);
    }
    let interval = match runtime.args.text("interval")? {
        None => DEFAULT_INTERVAL,
        Some(text) => humantime::parse_duration(text)
            .ok()
            .filter(|interval| !interval.is_zero())
            .ok_or_else(|| Error::new(Step::Usage, format!("--interval {text}"), "is not a duration"))?,
    };
    let Some(process) = record.process() else { return Ok(0) };
    let mut watch = groups.watch_oom();
    let mut next = Instant::now();
    loop {
        if next <= Instant::now() {
            stats()?;
            next = Instant::now() + interval;
        }
        let left = next.saturating_duration_since(Instant::now()).as_millis() + 1;
        let mut polled = vec![PollFd::new(process.as_fd(), PollFlags::POLLIN)];
        polled.extend(watch.as_ref().map(OomWatch::poll_fd));
        match poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Err(Errno::EINTR) => continue,
            polled => polled.map_err(|errno| Error::errno(Step::State, id, errno))?,
        };
        let ended = polled[0].any().unwrap_or(true);
        // An OOM kill that ended the container is printed before returning.
        if watch.as_mut().is_some_and(|watch| watch.happened(&groups)) {
            print(&format!("{{\"type\":\"oom\",\"id\":{}}}\n", json!(id)))?;
        }
        if ended {
            return Ok(0);
        }
    }
}
