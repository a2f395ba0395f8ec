//! `events`: what a container uses, now and then or once, and when the kernel killed for want of memory.

use std::time::Duration;

use serde_json::json;

use super::{Runtime, print};
use crate::error::{Error, Result, Step};

/// Between two looks, unless `--interval` says otherwise.
const USUAL_INTERVAL: Duration = Duration::from_secs(5);

/// One JSON object a line, until the container ends.
pub fn events(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    let id = runtime.args.id()?;
    let (_, record) = runtime.store.look(id)?;
    if !record.is_alive() {
        return Err(Error::new(Step::State, id, "container not running"));
    }
    let no_cgroup = || Error::new(Step::Cgroup, id, "the container has no cgroup that counts");
    let groups = record.groups().ok_or_else(no_cgroup)?;
    let stats = || print(&format!("{}\n", json!({ "type": "stats", "id": id, "data": groups.stats() })));
    if runtime.args.is_on("stats") {
        return stats().map(|()| 0);
    }
    let interval = match runtime.args.text("interval")? {
        None => USUAL_INTERVAL,
        Some(text) => humantime::parse_duration(text)
            .ok()
            .filter(|interval| !interval.is_zero())
            .ok_or_else(|| Error::new(Step::Usage, format!("--interval {text}"), "is no duration"))?,
    };
    let mut kills = groups.oom_kills().unwrap_or(0);
    while record.is_alive() {
        stats()?;
        std::thread::sleep(interval);
        let now = groups.oom_kills().unwrap_or(kills);
        if now > kills {
            print(&format!("{}\n", json!({ "type": "oom", "id": id })))?;
            kills = now;
        }
    }
    Ok(0)
}
