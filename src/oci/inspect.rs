//! `state`, `list` and `ps`.

use serde_json::{Value, json};

use super::record::{Record, Status};

use super::{Runtime, print};
use crate::error::{Error, Result, Step};
use crate::sys::helper;

/// Prints the state of a container.
pub fn state(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    let (record, status) = runtime.store.status(runtime.args.id()?)?;
    let text = serde_json::to_string_pretty(&describe(&record, status)).unwrap_or_default();
    print(&format!("{text}\n")).map(|()| 0)
}

/// What the specification wants, and what engines read beside it.
fn describe(record: &Record, status: Status) -> Value {
    let pid = if status == Status::Stopped { 0 } else { record.pid };
    let mut state = record.state(pid, status.name());
    state["rootfs"] = json!(record.rootfs);
    state["created"] = json!(record.created);
    state["owner"] = json!("");
    state
}

/// Lists containers.
pub fn list(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(0)?;
    let ids = runtime.store.ids();
    if runtime.args.is_on("quiet") {
        return print(&ids.iter().map(|id| format!("{id}\n")).collect::<String>()).map(|()| 0);
    }
    let mut found = Vec::new();
    for id in ids {
        match runtime.store.status(&id) {
            Ok((record, status)) => found.push((status, record)),
            Err(error) if super::store::is_missing(&error) => {}
            Err(error) => runtime.log.warn(&super::log::sentence(&error)),
        }
    }
    match runtime.args.text("format")? {
        Some("json") => {
            let all: Vec<Value> = found.iter().map(|(status, record)| describe(record, *status)).collect();
            let text = if all.is_empty() { "null".to_owned() } else { Value::Array(all).to_string() };
            print(&format!("{text}\n")).map(|()| 0)
        }
        None | Some("table") => {
            let mut text = format!("{:<20} {:<10} {:<10} {:<30} {}\n", "ID", "PID", "STATUS", "BUNDLE", "CREATED");
            for (status, record) in found {
                let pid = if status == Status::Stopped { 0 } else { record.pid };
                let bundle = record.bundle.display().to_string();
                text.push_str(&format!(
                    "{:<20} {pid:<10} {:<10} {bundle:<30} {}\n",
                    record.id,
                    status.name(),
                    record.created
                ));
            }
            print(&text).map(|()| 0)
        }
        Some(_) => Err(Error::new(Step::Usage, "--format", "must be table or json")),
    }
}

/// Lists the processes of a container: their pids as JSON, or the output of `ps(1)` as a table.
pub fn ps(runtime: &Runtime) -> Result<u8> {
    let id = runtime.args.id()?;
    let (record, status) = runtime.store.status(id)?;
    if status == Status::Stopped {
        return Err(Error::new(Step::State, id, "container not running"));
    }
    let groups = record
        .groups()
        .ok_or_else(|| Error::new(Step::Cgroup, id, "the container has no cgroup, so its processes are unknown"))?;
    let pids = groups.pids();
    match runtime.args.text("format")? {
        Some("json") => print(&format!("{}\n", json!(pids))).map(|()| 0),
        None | Some("table") => {
            let list = pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            let options = runtime.args.words.get(1..).filter(|words| !words.is_empty());
            let ps = helper::find("ps").ok_or_else(|| Error::errno(Step::State, "ps", nix::errno::Errno::ENOENT))?;
            let mut command = std::process::Command::new(ps);
            match options {
                Some(words) => command.args(words),
                None => command.arg("-f"),
            };
            let output = helper::output(command.arg("-p").arg(list));
            let output = output.map_err(|error| Error::new(Step::State, "ps", error.to_string()))?;
            let said = String::from_utf8_lossy(&output.stderr);
            // ps fails without a message if none of the processes exist any more.
            let no_process = output.status.code().is_some() && said.trim().is_empty();
            if !output.status.success() && !no_process {
                return Err(Error::new(Step::State, "ps", format!("{}: {}", output.status, said.trim())));
            }
            print(&String::from_utf8_lossy(&output.stdout)).map(|()| 0)
        }
        Some(_) => Err(Error::new(Step::Usage, "--format", "must be table or json")),
    }
}
