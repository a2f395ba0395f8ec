//! `state`, `list` and `ps`.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::json;

use super::record::{Record, Status};
use super::{Runtime, print};
use crate::error::{Error, Result, Step};
use crate::plan::container::OCI_VERSION;
use crate::sys::helper;

/// Prints the state of a container.
pub fn state(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    let (record, status) = runtime.store.status(runtime.args.id()?)?;
    let text = serde_json::to_string_pretty(&Described::of(&record, status)).unwrap_or_default();
    print(&format!("{text}\n")).map(|()| 0)
}

/// What the specification wants, and what engines read beside it, in the order of runc's keys.
#[derive(Serialize)]
struct Described<'a> {
    #[serde(rename = "ociVersion")]
    oci_version: &'static str,
    id: &'a str,
    pid: i32,
    status: &'static str,
    bundle: &'a Path,
    rootfs: &'a Path,
    created: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
    owner: &'static str,
}

impl<'a> Described<'a> {
    fn of(record: &'a Record, status: Status) -> Self {
        Self {
            oci_version: OCI_VERSION,
            id: &record.id,
            pid: if status == Status::Stopped { 0 } else { record.pid },
            status: status.name(),
            bundle: &record.bundle,
            rootfs: &record.rootfs,
            created: &record.created,
            annotations: &record.annotations,
            owner: "",
        }
    }
}

/// Lists containers.
pub fn list(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(0)?;
    // The default directory is missing until there is a first container. One that was named is a mistake.
    if let Some(root) = runtime.args.path("root") {
        std::fs::metadata(&root).map_err(|error| Error::io(Step::State, root.display().to_string(), &error))?;
    }
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
            let all: Vec<_> = found.iter().map(|(status, record)| Described::of(record, *status)).collect();
            let text = if all.is_empty() { "null".to_owned() } else { serde_json::to_string(&all).unwrap_or_default() };
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

/// Lists the processes of a container: their pids as JSON, or the lines of `ps(1)` about them. The words after the id are options
/// of ps.
pub fn ps(runtime: &Runtime) -> Result<u8> {
    let id = runtime.args.id()?;
    let (record, status) = runtime.store.status(id)?;
    let pids = match record.groups() {
        _ if status == Status::Stopped => Vec::new(),
        Some(groups) => {
            let pids = groups.pids();
            if pids.is_empty() {
                return Err(Error::new(Step::Cgroup, id, "the processes of the container cannot be read"));
            }
            pids
        }
        None => {
            return Err(Error::new(Step::Cgroup, id, "the container has no cgroup, so its processes are unknown"));
        }
    };
    match runtime.args.text("format")? {
        Some("json") => print(&format!("{}\n", json!(pids))).map(|()| 0),
        None | Some("table") => {
            let ps = helper::find("ps").ok_or_else(|| Error::errno(Step::State, "ps", nix::errno::Errno::ENOENT))?;
            let mut command = std::process::Command::new(ps);
            match runtime.args.words.get(1..).filter(|words| !words.is_empty()) {
                Some(words) => command.args(words),
                None => command.arg("-ef"),
            };
            let output = helper::output(&mut command);
            let output = output.map_err(|error| Error::new(Step::State, "ps", error.to_string()))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(Error::new(Step::State, "ps", format!("{}: {}", output.status, said.trim())));
            }
            print(&lines_of(&String::from_utf8_lossy(&output.stdout), &pids)?).map(|()| 0)
        }
        Some(_) => Err(Error::new(Step::Usage, "--format", "must be table or json")),
    }
}

/// The heading of ps and its lines about these processes. A line with `-` for the pid is about a thread of the process before it.
fn lines_of(text: &str, pids: &[i32]) -> Result<String> {
    let mut lines = text.lines();
    let heading = lines.next().unwrap_or_default();
    let column = heading.split_ascii_whitespace().position(|name| name == "PID");
    let column = column.ok_or_else(|| Error::new(Step::State, "ps", "prints no column PID with these options"))?;
    let mut shown = format!("{heading}\n");
    let mut is_shown = false;
    for line in lines {
        let word = line.split_ascii_whitespace().nth(column).unwrap_or_default();
        if word != "-" {
            is_shown = word.parse().is_ok_and(|pid: i32| pids.contains(&pid));
        }
        if is_shown {
            shown.push_str(line);
            shown.push('\n');
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_containers_processes_are_shown() {
        let text =
            "USER  PID COMMAND\nroot    1 init\nroot   12 sh -c 1\nroot    - thread\nroot    2 other\nroot    - its\n";
        let shown = lines_of(text, &[12]).unwrap();
        assert_eq!(shown, "USER  PID COMMAND\nroot   12 sh -c 1\nroot    - thread\n");
        assert_eq!(lines_of(text, &[]).unwrap(), "USER  PID COMMAND\n");
        assert!(lines_of("COMMAND\nsh\n", &[12]).is_err());
    }
}
