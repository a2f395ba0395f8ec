//! `checkpoint`: saves a container's processes to files with criu.

use std::os::fd::AsFd as _;
use std::path::Path;

use super::criu::{self, Criu, Request};
use super::images::Images;
use super::{joined, refuse, savable};
use crate::container::gate;
use crate::error::{Error, Result, Step};
use crate::oci::record::Status;
use crate::oci::{Runtime, delete};
use crate::plan::ContainerPlan;
use crate::plan::container::MountSource;

/// Saves a container. Deletes it afterwards, unless it is left running.
pub fn checkpoint(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    refuse(runtime)?;
    criu::find()?;
    let held = runtime.store.hold(runtime.args.id()?)?;
    let id = held.record.id.clone();
    let pre = runtime.args.is_on("pre-dump");
    match held.status() {
        Status::Running | Status::Paused if gate::is_underway(&held.directory) => {
            return Err(Error::new(Step::Checkpoint, id, "cannot be saved while it is being started"));
        }
        Status::Running | Status::Paused => {}
        status => {
            let reason = format!("a container that is {} cannot be saved: its program must be running", status.name());
            return Err(Error::new(Step::Checkpoint, id, reason));
        }
    }
    let plan = held.plan()?;
    savable(&plan)?;
    let images = Images::make(runtime)?;
    let log = if pre { "pre-dump.log" } else { "dump.log" };
    let mut options = images.options(runtime, log)?;
    let pid = held.record.pid;
    options.pid = pid as u64;
    options.root = held.record.rootfs.as_os_str().as_encoded_bytes().into();
    options.track_mem = pre;
    options.leave_running = runtime.args.is_on("leave-running");
    if let Some(parent) = runtime.args.path("parent-path") {
        check_parent(&images.path, &parent)?;
        options.parent_img = parent.as_os_str().as_encoded_bytes().into();
    }
    for destination in outside(&plan) {
        options.external.push(format!("mnt[{destination}]:{destination}").into());
    }
    for (_, short, cookie) in joined(&plan) {
        let path = format!("/proc/{pid}/ns/{short}");
        let inode = std::fs::metadata(&path).map(|found| std::os::unix::fs::MetadataExt::ino(&found));
        let inode = inode.map_err(|error| Error::new(Step::State, path, error.to_string()))?;
        options.external.push(format!("{short}[{inode}]:{cookie}").into());
    }
    // criu freezes its cgroup, so that it cannot create processes meanwhile.
    let freezer = held.record.groups().and_then(|groups| groups.freezer());
    if let Some(freezer) = freezer {
        options.freeze_cgroup = freezer.as_os_str().as_encoded_bytes().into();
    }
    if !pre {
        images.write_descriptors(pid)?;
    }
    let request = if pre { Request::PreDump } else { Request::Dump };
    let criu = Criu::start(0, None, &[images.dir.as_fd(), images.work.as_fd()], || Ok(()))?;
    criu.ask(request, options, &images.log(log), &mut |_| Ok(()))?;
    drop(criu);
    if !pre && !runtime.args.is_on("leave-running") {
        delete::destroy(runtime, held)?;
    }
    Ok(0)
}

/// Mounts whose content criu does not save: binds from the host, and the covers of masked paths.
fn outside(plan: &ContainerPlan) -> Vec<String> {
    let bound = plan.mounts.iter().filter(|mount| matches!(mount.source, MountSource::Bind { .. }));
    let bound = bound.map(|mount| mount.destination.to_string());
    let masked = plan.confinement.masked_paths.iter().map(ToString::to_string);
    // In a user namespace device nodes cannot be created, so they are binds of the host's nodes.
    let nodes = plan.devices.iter().filter(|_| !plan.uid_map.is_empty()).map(|device| device.path.to_string());
    bound.chain(masked).chain(nodes).collect()
}

/// Checks the path of an earlier image, which is relative to this one.
fn check_parent(images: &Path, parent: &Path) -> Result<()> {
    let wrong = |reason: &str| Err(Error::new(Step::Usage, format!("--parent-path {}", parent.display()), reason));
    if parent.is_absolute() {
        return wrong("must be relative to --image-path");
    }
    if images.join(parent).is_dir() { Ok(()) } else { wrong("is not a directory below --image-path") }
}
