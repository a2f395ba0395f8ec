//! `restore`: restores a container from files with criu.
//!
//! criu runs in the container's cgroups, and in a mount namespace of its own that contains the root and the covers of masked
//! paths, so that no mount is left behind if the runtime dies. The restored container is verified before it continues: other
//! runtimes lose a read-only root here.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, mkdirat, mknodat, umask};

use super::criu::{self, Criu, PRE_RESUME, Request, Stage, fd_number};
use super::images::Images;
use super::messages::{CgroupRoot, InheritFd};
use super::{joined, refuse, savable};
use crate::cgroup::container::Groups;
use crate::confine::caps::Sets;
use crate::container::{Launched, hooks};
use crate::error::{Error, Result, Step};
use crate::oci::config::{self, Config};
use crate::oci::record::Record;
use crate::oci::store::{self, Held};
use crate::oci::{Runtime, create, delete};
use crate::plan::container::MountSource;
use crate::plan::{Bytes, ContainerPlan};
use crate::rootfs::proc::{COVER_DIRECTORY_MODE, COVER_FILE_MODE};
use crate::sys::clone::{Cloned, clone3};
use crate::sys::mount::{self, Attributes, FsContext, NODEV, NOEXEC, NOSUID, RDONLY, open_beneath};
use crate::sys::process::{self, borrow_standard};
use crate::sys::status::Status;
use crate::sys::{mountinfo, namespace};

const ROOT: &str = "criu.root";
const COVERS: &str = "criu.covers";

/// Restores a container from images. Without `--detach` waits for its end and deletes it.
pub fn restore(runtime: &Runtime) -> Result<u8> {
    runtime.args.at_most(1)?;
    refuse(runtime)?;
    criu::find()?;
    let id = runtime.args.id()?;
    store::valid_id(id)?;
    let images = Images::find(runtime)?;
    let bundle = runtime.bundle()?;
    let config = config::load(&runtime.config_file(&bundle)?, &bundle, id, runtime.flags()?)?;
    config.warnings.iter().for_each(|warning| runtime.log.warn(warning));
    savable(&config.plan)?;
    let detach = runtime.args.is_on("detach");
    runtime.check_console(&config.plan, !detach)?;
    let mut record = Record::new(id, &bundle, &config.rootfs)?;
    record.oci_version = config.oci_version.clone();
    record.annotations = config.annotations.clone();
    record.places = create::places(&config.plan, id)?;
    let foreground = runtime.foreground()?;
    let mut held = runtime.store.create(record)?;
    let restored = held.write().and_then(|()| fill(runtime, &mut held, &config, &images));
    let launched = match restored {
        Ok(launched) => launched,
        Err(error) => {
            let _ = delete::destroy(runtime, held);
            return Err(error);
        }
    };
    let Some(foreground) = foreground else { return Ok(0) };
    drop(held);
    let code = foreground.wait(launched)?;
    match runtime.store.hold(id) {
        Ok(held) => delete::destroy(runtime, held)?,
        Err(error) if store::is_missing(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(code)
}

fn fill(runtime: &Runtime, held: &mut Held, config: &Config, images: &Images) -> Result<Launched> {
    let plan = &config.plan;
    let (groups, placeholder) = create::make_places(runtime, held, plan)?;
    held.write_plan(plan)?;
    make_mount_points(&config.rootfs, plan)?;
    let (root, covers) = (held.directory.join(ROOT), held.directory.join(COVERS));
    for path in [&root, &covers] {
        std::fs::create_dir(path).map_err(|error| io(path, &error))?;
    }
    let mut options = images.options(runtime, "restore.log")?;
    options.rst_sibling = true;
    options.root = root.as_os_str().as_bytes().into();
    options.lsm_profile = runtime.args.text("lsm-profile")?.unwrap_or_default().into();
    options.lsm_mount_context = runtime.args.text("lsm-mount-context")?.unwrap_or_default().into();
    for (destination, source) in outside(plan, &covers) {
        options.external.push([format!("mnt[{destination}]:").as_bytes(), &source].concat());
    }
    let mut inherit = |key: &str, fd: u64| options.inherit_fd.push(InheritFd { key: key.into(), fd: Some(fd) });
    for (number, name) in images.descriptors().iter().take(3).enumerate().filter(|(_, name)| name.contains("pipe:")) {
        inherit(name, number as u64);
    }
    let mut kept: Vec<OwnedFd> = Vec::new();
    for (kind, _, cookie) in joined(plan) {
        for join in plan.joined.iter().filter(|join| join.kind == kind) {
            let failed = |errno| Error::errno(Step::Join, join.path.to_string(), errno);
            let fd = open(join.path.as_path(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(failed)?;
            inherit(cookie, fd_number(&fd));
            kept.push(fd);
        }
    }
    let mut inherited: Vec<BorrowedFd<'_>> = [0, 1, 2].map(borrow_standard).to_vec();
    inherited.extend([images.dir.as_fd(), images.work.as_fd()]);
    inherited.extend(kept.iter().map(|fd| fd.as_fd()));
    let criu = Criu::start(libc::CLONE_NEWNS as u64, groups.as_ref().and_then(Groups::dir), &inherited, || {
        show(&config.rootfs, &root).map_err(|errno| (config.rootfs.display().to_string(), errno))?;
        cover(&covers).map_err(|errno| (covers.display().to_string(), errno))?;
        images.enter().map_err(|errno| (images.path.display().to_string(), errno))
    })?;
    if let Some(groups) = &groups {
        groups.add(criu.pid())?;
    }
    for (controllers, path) in own_cgroups(&criu, groups.as_ref()) {
        options.cg_root.push(CgroupRoot { ctrl: controllers.into(), path: path.into() });
    }
    let mut terminal = None;
    let mut born = None;
    let mut stage = |stage: Stage<'_>| match stage.name {
        "setup-namespaces" => {
            let text = held.record.state_text(stage.pid, "creating");
            hooks::run("prestart", &plan.hooks.prestart, &plan.hooks.files, &text)?;
            hooks::run("createRuntime", &plan.hooks.create_runtime, &plan.hooks.files, &text)
        }
        "orphan-pts-master" => {
            terminal = stage.fd;
            Ok(())
        }
        "post-restore" => {
            let failed = |errno| Error::errno(Step::Supervise, "container", errno);
            let pid = nix::unistd::Pid::from_raw(stage.pid);
            let pidfd = process::pidfd_open(pid).map_err(failed)?;
            if plan.read_only {
                let read_only = Attributes { set: RDONLY, ..Attributes::default() };
                change_root(pidfd.as_fd(), read_only).map_err(|errno| Error::errno(Step::ReadOnly, "/", errno))?;
            }
            verify(stage.pid, plan)?;
            held.record.pid = stage.pid;
            held.record.started = crate::cgroup::started(stage.pid.unsigned_abs())
                .ok()
                .flatten()
                .ok_or_else(|| Error::new(Step::Supervise, "container", "died right after it was restored"))?;
            let mut launched = Launched::adopted(pid, pidfd, terminal.take());
            runtime.hand_over(&mut launched)?;
            held.write()?;
            runtime.write_pid_file(stage.pid)?;
            born = Some(launched);
            Ok(())
        }
        // criu restores credentials last, and ignores errors at this stage. So the container is killed on an error.
        PRE_RESUME => born.as_ref().map_or(Ok(()), |born| {
            verify_credentials(runtime, born, plan).inspect_err(|_| {
                let _ = process::pidfd_send_signal(born.pidfd.as_fd(), libc::SIGKILL);
            })
        }),
        _ => Ok(()),
    };
    criu.ask(Request::Restore, options, &images.log("restore.log"), &mut stage)?;
    drop((criu, placeholder));
    for path in [&root, &covers] {
        let _ = std::fs::remove_dir(path);
    }
    born.ok_or_else(|| Error::new(Step::Host, "criu", "did not report the restored process"))
}

/// The cgroups of criu, into which it restores the container: controllers and path for each hierarchy.
fn own_cgroups(criu: &Criu, groups: Option<&Groups>) -> Vec<(String, String)> {
    let Some(groups) = groups else { return Vec::new() };
    let text = std::fs::read_to_string(format!("/proc/{}/cgroup", criu.pid())).unwrap_or_default();
    let v2 = groups.places().is_v2();
    let parts = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
    });
    parts.filter(|(controllers, _)| controllers.is_empty() == v2).collect()
}

/// The source of each mount whose content is not in the images.
fn outside(plan: &ContainerPlan, covers: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for mount in &plan.mounts {
        if let MountSource::Bind { source, .. } = &mount.source {
            found.push((mount.destination.to_string(), source.as_bytes().to_vec()));
        }
    }
    for path in &plan.confinement.masked_paths {
        // Masked paths are below /proc and /sys, so a directory on the host is a directory in the container.
        let cover = if path.as_path().is_dir() { "directory" } else { "file" };
        found.push((path.to_string(), covers.join(cover).into_os_string().as_bytes().to_vec()));
    }
    for device in plan.devices.iter().filter(|_| !plan.uid_map.is_empty()) {
        found.push((device.path.to_string(), device.path.as_bytes().to_vec()));
    }
    found
}

/// Child half: mounts the root at the path that criu is given.
fn show(rootfs: &Path, place: &Path) -> std::result::Result<(), Errno> {
    let directory = |path: &Path| open(path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    let slave = Attributes { propagation: libc::MS_SLAVE, recursive: true, ..Attributes::default() };
    mount::set_attributes(directory(Path::new("/"))?, slave)?;
    let tree = mount::clone_tree(directory(rootfs)?.as_fd(), c"", true)?;
    let private = Attributes { propagation: libc::MS_PRIVATE, recursive: true, ..Attributes::default() };
    mount::set_attributes(&tree, private)?;
    mount::attach(tree, directory(place)?)
}

/// Child half: mounts a read-only tmpfs with an empty file and an empty directory, the covers of masked paths.
fn cover(place: &Path) -> std::result::Result<(), Errno> {
    let context = FsContext::open(c"tmpfs")?;
    context.set(c"size", c"64k")?;
    context.set(c"mode", c"755")?;
    let tree = context.mount(NOSUID | NODEV | NOEXEC)?;
    let within = openat(&tree, c".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let callers = umask(Mode::empty());
    let made = mkdirat(&within, c"directory", COVER_DIRECTORY_MODE)
        .and_then(|()| mknodat(&within, c"file", SFlag::S_IFREG, COVER_FILE_MODE, 0));
    umask(callers);
    made?;
    mount::set_attributes(&tree, Attributes { set: RDONLY, ..Attributes::default() })?;
    mount::attach(tree, open(place, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?)
}

/// Changes the root's mount from inside, before the container continues: criu needs a writable root, and leaves it writable.
fn change_root(container: BorrowedFd<'_>, change: Attributes<'_>) -> std::result::Result<(), Errno> {
    let close = || {
        namespace::enter(container, libc::CLONE_NEWNS)?;
        let root = open("/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        mount::set_attributes(root, change)
    };
    match clone3(0, None)? {
        Cloned::Child => process::exit(close().err().map_or(0, |errno| errno as i32)),
        Cloned::Parent { pid, .. } => match process::wait4(pid)?.0 {
            0 => Ok(()),
            status => Err(Errno::from_raw(libc::WEXITSTATUS(status))),
        },
    }
}

/// Creates every mount point in the root, and refuses symlinks in their paths: criu mounts by path and would follow them.
fn make_mount_points(rootfs: &Path, plan: &ContainerPlan) -> Result<()> {
    let failed = |path: &Bytes, errno| {
        let error = Error::errno(Step::MountPoint, path.to_string(), errno);
        if errno == Errno::ELOOP {
            error.hint("its path in the root contains a symlink, which criu would follow")
        } else {
            error
        }
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = open(rootfs, flags, Mode::empty())
        .map_err(|errno| Error::errno(Step::Source, rootfs.display().to_string(), errno))?;
    for (index, one) in plan.mounts.iter().enumerate() {
        let below = |other: &Bytes| one.destination.as_path().starts_with(other.as_path());
        if plan.mounts[..index].iter().any(|other| below(&other.destination)) {
            continue; // on another mount, not in the root
        }
        let is_dir = match &one.source {
            MountSource::Bind { source, .. } => source.as_path().is_dir(),
            _ => true,
        };
        make_in(&root, one.destination.as_path(), is_dir).map_err(|errno| failed(&one.destination, errno))?;
    }
    Ok(())
}

fn make_in(root: &OwnedFd, path: &Path, is_dir: bool) -> std::result::Result<(), Errno> {
    let mut at = root.try_clone().map_err(|_| Errno::EMFILE)?;
    let mut components = path.components().filter(|part| matches!(part, std::path::Component::Normal(_))).peekable();
    while let Some(component) = components.next() {
        let name = CString::new(component.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
        let within =
            |at: &OwnedFd| open_beneath(at, &name, libc::O_PATH, libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_BENEATH);
        at = match within(&at) {
            Err(Errno::ENOENT) => {
                let parent = openat(&at, c".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
                let made = if is_dir || components.peek().is_some() {
                    mkdirat(&parent, name.as_c_str(), Mode::from_bits_truncate(0o755))
                } else {
                    mknodat(&parent, name.as_c_str(), SFlag::S_IFREG, Mode::from_bits_truncate(0o644), 0)
                };
                match made {
                    Ok(()) | Err(Errno::EEXIST) => within(&at)?,
                    Err(errno) => return Err(errno),
                }
            }
            found => found?,
        };
    }
    Ok(())
}

/// Verifies read-only and masked paths before the container continues.
fn verify(pid: i32, plan: &ContainerPlan) -> Result<()> {
    let path = PathBuf::from(format!("/proc/{pid}/mountinfo"));
    let text = std::fs::read(&path).map_err(|error| io(&path, &error))?;
    // The last mount at a path is the top one.
    let attributes_at = |place: &str| {
        let mut mounts = mountinfo::parse(&text).rev();
        mounts.find(|mount| mount.point() == Path::new(place)).map(|mount| mount.attributes())
    };
    let frozen = |place: &str| attributes_at(place).is_some_and(|attributes| attributes & RDONLY != 0);
    let lost = |place: &str, what: &str| {
        Err(Error::new(Step::Verify, place, format!("criu did not restore that it is {what}")))
    };
    if plan.read_only && !frozen("/") {
        return lost("/", "read-only");
    }
    for mount in &plan.mounts {
        let read_only = mount.set & RDONLY != 0;
        let place = mount.destination.to_string();
        if read_only && attributes_at(&place).is_some() && !frozen(&place) {
            return lost(&place, "read-only");
        }
    }
    let root = File::open(format!("/proc/{pid}/root")).map_err(|error| io(&path, &error))?;
    let is_there = |place: &Bytes| {
        let path = CString::new(place.as_bytes()).unwrap_or_default();
        open_beneath(&root, &path, libc::O_PATH | libc::O_NOFOLLOW, mount::IN_ROOT | mount::NO_MAGICLINKS).is_ok()
    };
    for (paths, what) in [(&plan.confinement.readonly_paths, "read-only"), (&plan.confinement.masked_paths, "masked")] {
        for place in paths.iter().filter(|place| is_there(place)) {
            if !frozen(&place.to_string()) {
                return lost(&place.to_string(), what);
            }
        }
    }
    Ok(())
}

/// Verifies that the container has no more privileges than before. Some versions of criu lose no_new_privs, which cannot be
/// set from outside. Then every mount is made nosuid, so that execve cannot grant privileges either.
fn verify_credentials(runtime: &Runtime, born: &Launched, plan: &ContainerPlan) -> Result<()> {
    let path = format!("/proc/{}/status", born.pid);
    let status = Status::of(born.pid.as_raw()).map_err(|errno| Error::errno(Step::Restore, path, errno))?;
    let lost = |what: &str, reason: &str| Err(Error::new(Step::Verify, what, format!("criu did not restore {reason}")));
    let bounding = status.mask("CapBnd").unwrap_or(u64::MAX);
    if bounding & !Sets::of(&plan.process.capabilities).bounding != 0 {
        return lost("capabilities", "that they are bounded");
    }
    if plan.confinement.seccomp.is_some() && !status.is_filtered() {
        return lost("seccomp", "the filter");
    }
    if !plan.process.no_new_privs || status.no_new_privs() == Some(true) {
        return Ok(());
    }
    let nosuid = Attributes { set: NOSUID, recursive: true, ..Attributes::default() };
    change_root(born.pidfd.as_fd(), nosuid).map_err(|errno| Error::errno(Step::NoNewPrivs, "nosuid", errno))?;
    let path = PathBuf::from(format!("/proc/{}/mountinfo", born.pid));
    let text = std::fs::read(&path).map_err(|error| io(&path, &error))?;
    let mut mounts = mountinfo::parse(&text).peekable();
    if mounts.peek().is_none() || mounts.any(|mount| mount.attributes() & NOSUID == 0) {
        return lost("no_new_privs", "no_new_privs, and a mount could not be made nosuid");
    }
    runtime.log.warn("this criu does not restore no_new_privs: every mount of the container is nosuid instead");
    Ok(())
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    Error::io(Step::Restore, path.display().to_string(), error)
}
