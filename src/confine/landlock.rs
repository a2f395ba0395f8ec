//! Landlock: rules for paths, ports and scopes that hold even if a mount or a namespace does not, `landlock(7)`.
//!
//! The ruleset handles every access right of the kernel's ABI that the landlock crate knows. The parent creates it with the
//! port rules. Path rules need the finished root, so the child adds them, with a few system calls. No right is dropped
//! silently: a right that the kernel lacks is reported as missing, and a path that does not exist is an error.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset, RulesetAttr,
    RulesetCreatedAttr, Scope,
};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, openat};
use nix::sys::stat::{Mode, SFlag, fstat, makedev};

use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::plan::{self, Bytes, Facility, Mount, MountKind, Network, PathRule};
use crate::report::{Degraded, Enforced};
use crate::sys::mount::{IN_ROOT, NO_MAGICLINKS, NO_SYMLINKS, open_beneath};
use crate::sys::{self, file};

/// The newest ABI that this program uses.
const NEWEST: ABI = ABI::V9;

/// The first ABI that can deny truncate(2). Without that, a list of writable paths is incomplete.
pub const TRUNCATE: u32 = 3;

/// The first ABI with rules for TCP ports.
pub const PORTS: u32 = 4;

/// The first ABI that keeps signals inside.
pub const SCOPES: u32 = 6;

/// The first ABI that reports denials to the audit stream.
const LOGGING: u32 = 7;

/// Whether this kernel reports Landlock's denials.
pub fn is_logged() -> bool {
    sys::landlock::abi().is_ok_and(|abi| abi >= LOGGING)
}

/// Dynamic loaders. The kernel executes them on behalf of other programs.
const LOADERS: [&str; 3] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-x86_64.so.1"];

/// Everything that the child needs to restrict itself.
#[derive(Debug)]
pub struct PreparedLandlock {
    /// Owned, because the child must exempt it when it closes its descriptors.
    ruleset: OwnedFd,
    flags: u32,
    rules: Vec<Rule>,
    abi: ABI,
    handled_net: BitFlags<AccessNet>,
}

#[derive(Debug)]
struct Rule {
    path: CString,
    access: BitFlags<AccessFs>,
    optional: bool,
    /// Flags for the lookup, `openat2(2)`.
    resolve: u64,
}

/// What a rule of [`PreparedLandlock::allow`] allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Reading files and listing directories.
    pub read: bool,
    /// Changing, creating and removing files.
    pub write: bool,
    /// Executing files.
    pub execute: bool,
    /// Using a device node.
    pub device: bool,
}

/// Facts from the rest of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Implied<'a> {
    /// The mounts of a run, from which the writable paths follow. `None` for a container, whose mounts alone decide what is
    /// writable.
    pub mounts: Option<&'a [Mount]>,
    /// With `none` every port is closed. A container has `host`, because the engine may have connected its network.
    pub network: Network,
    /// Whether denials are also logged for programs that the workload executes.
    pub logs: bool,
    /// Whether `None` is acceptable if the kernel lacks Landlock or has an older ABI.
    pub may_be_missing: bool,
}

/// Parent half. Returns `None` if Landlock is off, or if it is missing and may be; the latter is recorded as degraded.
pub fn prepare(
    wanted: Option<&plan::Landlock>,
    implied: &Implied<'_>,
    degraded: &mut Vec<Degraded>,
) -> Result<Option<PreparedLandlock>> {
    let Some(wanted) = wanted else { return Ok(None) };
    let kernel = sys::landlock::abi();
    if let Some(error) = too_old(wanted, kernel) {
        if !implied.may_be_missing {
            return Err(error);
        }
        degraded.push(Degraded {
            what: Facility::Landlock.name().to_owned(),
            wanted: format!("ABI {} or newer", wanted.minimum_abi),
            got: kernel.map_or_else(|_| "none".to_owned(), |abi| format!("ABI {abi}")),
            why: error.to_string(),
        });
    }
    let Ok(kernel) = kernel else { return Ok(None) };
    let abi = ABI::from(i32::try_from(kernel).unwrap_or(i32::MAX));
    let handled_net = handled_net(wanted, implied.network) & AccessNet::from_all(abi);
    let failed = |error: landlock::RulesetError| Error::new(Step::Landlock, "ruleset", error.to_string());
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .map_err(failed)?;
    if !handled_net.is_empty() {
        ruleset = ruleset.handle_access(handled_net).map_err(failed)?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(failed)?;
    }
    let mut ruleset = ruleset.create().map_err(failed)?;
    for (ports, access) in [(&wanted.connect_tcp, AccessNet::ConnectTcp), (&wanted.bind_tcp, AccessNet::BindTcp)] {
        for port in ports.iter().flatten().filter(|_| handled_net.contains(access)) {
            ruleset = ruleset.add_rule(NetPort::new(*port, access)).map_err(failed)?;
        }
    }
    let ruleset: Option<OwnedFd> = ruleset.into();
    let ruleset = ruleset.ok_or_else(|| Error::new(Step::Landlock, "ruleset", "has no descriptor"))?;
    // The denials of our own verification must not be reported as the workload's.
    let flags = if implied.logs && kernel >= LOGGING { sys::landlock::LOG_NEW_PROGRAMS } else { 0 };
    Ok(Some(PreparedLandlock { ruleset, flags, rules: rules(wanted, implied.mounts, abi)?, abi, handled_net }))
}

/// A path rule, for explanations.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The path inside. Everything below it is allowed too.
    pub path: Bytes,
    /// Reading files and listing directories.
    pub read: bool,
    /// Changing files.
    pub write: bool,
    /// Making files.
    pub make: bool,
    /// Executing files.
    pub execute: bool,
}

/// The path rules of a run. `None` if this kernel has no Landlock.
pub fn grants(wanted: &plan::Landlock, mounts: &[Mount]) -> Result<Option<Vec<Grant>>> {
    let Ok(abi) = sys::landlock::abi() else { return Ok(None) };
    let abi = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let grant = |rule: Rule| Grant {
        path: Bytes::from([b"/".as_slice(), rule.path.to_bytes()].concat()),
        read: rule.access.contains(AccessFs::ReadFile),
        write: rule.access.contains(AccessFs::WriteFile),
        make: rule.access.contains(AccessFs::MakeReg),
        execute: rule.access.contains(AccessFs::Execute),
    };
    Ok(Some(rules(wanted, Some(mounts), abi)?.into_iter().map(grant).collect()))
}

fn too_old(wanted: &plan::Landlock, kernel: std::result::Result<u32, Errno>) -> Option<Error> {
    let error = match kernel {
        Ok(abi) if abi >= wanted.minimum_abi => return None,
        Ok(abi) => Error::new(
            Step::Landlock,
            format!("ABI {abi}"),
            format!("{} Landlock ABI {} or newer", reason_for_minimum(wanted), wanted.minimum_abi),
        )
        .hint("--allow-degraded landlock runs with as much of it as this kernel has"),
        Err(Errno::EOPNOTSUPP) => {
            Error::new(Step::Landlock, "kernel", "Landlock is built in, but was not enabled at boot").hint(
                "add landlock to the lsm= list of the kernel command line; \
                 --allow-degraded landlock runs without this layer",
            )
        }
        Err(_) => Error::new(Step::Landlock, "kernel", "has no Landlock")
            .hint("--allow-degraded landlock runs without this layer"),
    };
    Some(error)
}

fn reason_for_minimum(wanted: &plan::Landlock) -> &'static str {
    match wanted.minimum_abi {
        TRUNCATE if wanted.write.is_some() => "a list of what may be written needs",
        PORTS if wanted.connect_tcp.is_some() || wanted.bind_tcp.is_some() => "a list of ports needs",
        _ => "the policy asks for",
    }
}

/// Without a network every port is closed; otherwise a port is closed only if ports are listed.
fn handled_net(wanted: &plan::Landlock, network: Network) -> BitFlags<AccessNet> {
    let closed = network == Network::None;
    let mut handled = BitFlags::EMPTY;
    if closed || wanted.connect_tcp.is_some() {
        handled |= AccessNet::ConnectTcp;
    }
    if closed || wanted.bind_tcp.is_some() {
        handled |= AccessNet::BindTcp;
    }
    handled
}

fn rules(wanted: &plan::Landlock, mounts: Option<&[Mount]>, abi: ABI) -> Result<Vec<Rule>> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = written(abi);
    let all = AccessFs::from_all(abi);
    let mut rules = Vec::new();
    let mut add = |path: &Bytes, access: BitFlags<AccessFs>, optional: bool| -> Result<()> {
        let links = if is_writable(mounts.unwrap_or_default(), path) { NO_SYMLINKS } else { 0 };
        let resolve = IN_ROOT | NO_MAGICLINKS | links;
        rules.push(Rule { path: relative(path)?, access: access & all, optional, resolve });
        Ok(())
    };
    let root = Bytes::from("/");
    let mut listed = |list: &Option<Vec<PathRule>>, access| match list {
        None => add(&root, access, false),
        Some(paths) => paths.iter().try_for_each(|rule| add(&rule.path, access, rule.optional)),
    };
    listed(&wanted.read, read)?;
    listed(&wanted.execute, AccessFs::Execute.into())?;
    if wanted.execute.is_some() {
        LOADERS.iter().try_for_each(|loader| add(&Bytes::from(*loader), AccessFs::Execute.into(), true))?;
    }
    if mounts.is_none() {
        if wanted.write.is_none() {
            add(&root, write, false)?;
        }
        add(&"/proc".into(), read | AccessFs::WriteFile | AccessFs::Truncate, true)?;
        add(&"/dev".into(), read | AccessFs::WriteFile | AccessFs::IoctlDev, true)?;
    }
    for mount in mounts.unwrap_or_default() {
        match mount.kind {
            MountKind::Proc { .. } => {
                add(&mount.destination, read | AccessFs::WriteFile | AccessFs::Truncate, false)?;
            }
            MountKind::Dev { .. } => add(&mount.destination, read | AccessFs::WriteFile | AccessFs::IoctlDev, false)?,
            MountKind::Bind { .. } | MountKind::AsHost | MountKind::Tmpfs { .. } | MountKind::Scratch { .. }
                if !mount.read_only && wanted.write.is_none() =>
            {
                add(&mount.destination, write, mount.optional)?;
            }
            _ => {}
        }
    }
    for rule in wanted.write.iter().flatten() {
        add(&rule.path, write, rule.optional)?;
    }
    Ok(rules)
}

/// No rule permits creating devices, on any mount.
fn written(abi: ABI) -> BitFlags<AccessFs> {
    AccessFs::from_write(abi) & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev)
}

/// Whether an earlier run may have placed a symlink in this path, so that it no longer names the file that the rule's author
/// meant.
fn is_writable(mounts: &[Mount], path: &Bytes) -> bool {
    mounts.iter().any(|mount| {
        let from_host = matches!(mount.kind, MountKind::Bind { .. }) && !mount.read_only;
        let (mount, path) = (mount.destination.as_path(), path.as_path());
        from_host && path.starts_with(mount) && path != mount
    })
}

fn relative(path: &Bytes) -> Result<CString> {
    let bytes = path.as_bytes();
    let start = bytes.iter().position(|byte| *byte != b'/').unwrap_or(bytes.len());
    let text = if start == bytes.len() { b".".as_slice() } else { &bytes[start..] };
    CString::new(text).map_err(|_| Error::new(Step::Landlock, path.to_string(), "contains a NUL byte"))
}

impl PreparedLandlock {
    /// Parent half: lets the workload open a standard stream anew (`/dev/stderr`), if it is a file or the null device. The rule is
    /// for this inode alone, and gives no right that the descriptor does not give.
    pub fn allow_stream(&self, stream: BorrowedFd<'_>, is_output: bool) -> Result<()> {
        let failed = |errno| Error::errno(Step::Landlock, "standard stream", errno);
        let stat = fstat(stream).map_err(failed)?;
        let null = libc::S_IFCHR == stat.st_mode & libc::S_IFMT && stat.st_rdev == makedev(1, 3);
        let mode = fcntl(stream, FcntlArg::F_GETFL).map_err(failed)?;
        let opened = match (is_output, mode & libc::O_ACCMODE) {
            (false, libc::O_RDONLY | libc::O_RDWR) => AccessFs::ReadFile.into(),
            // Opened anew, the file could be written anywhere.
            (true, libc::O_WRONLY | libc::O_RDWR) if mode & libc::O_APPEND == 0 => {
                AccessFs::WriteFile | AccessFs::Truncate
            }
            _ => BitFlags::EMPTY,
        };
        let access = opened & AccessFs::from_file(self.abi);
        if access.is_empty() || !(null || stat.st_mode & libc::S_IFMT == libc::S_IFREG) {
            return Ok(());
        }
        sys::landlock::allow_beneath(&self.ruleset, stream, access.bits()).map_err(failed)
    }

    /// Parent half: lets the workload open a standard stream anew that is the host's null device.
    pub fn allow_null(&self) -> Result<()> {
        let null =
            file::open("/dev/null", OFlag::O_RDWR).map_err(|errno| Error::errno(Step::Landlock, "/dev/null", errno))?;
        self.allow_stream(null.as_fd(), false)?;
        self.allow_stream(null.as_fd(), true)
    }

    /// Parent half: allows this file of the host, or this directory and everything below it, for a run whose root is the caller's.
    pub fn allow(&self, file: BorrowedFd<'_>, rights: Rights) -> Result<()> {
        let failed = |errno| Error::errno(Step::Landlock, "rule", errno);
        let is_dir = fstat(file).map_err(failed)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
        let granted = [
            (rights.read, AccessFs::ReadFile | AccessFs::ReadDir),
            (rights.write, written(self.abi)),
            (rights.execute, AccessFs::Execute.into()),
            (rights.device, device),
        ];
        let access =
            granted.into_iter().filter(|(granted, _)| *granted).fold(BitFlags::EMPTY, |all, (_, one)| all | one);
        let possible = if is_dir { AccessFs::from_all(self.abi) } else { AccessFs::from_file(self.abi) };
        let access = access & possible;
        if access.is_empty() {
            return Ok(());
        }
        sys::landlock::allow_beneath(&self.ruleset, file, access.bits()).map_err(failed)
    }

    /// The ruleset's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ruleset.as_fd()
    }

    /// Child half: adds the path rules, while every path is still reachable.
    pub fn add_paths(&self, root: BorrowedFd<'_>) -> Applied {
        for (index, rule) in self.rules.iter().enumerate() {
            let beneath = match open_beneath(root, &rule.path, libc::O_PATH, rule.resolve) {
                Err(Errno::ENOENT | Errno::ENOTDIR) if rule.optional => continue,
                beneath => beneath.during(Step::Landlock, index)?,
            };
            let is_dir =
                fstat(&beneath).during(Step::Landlock, index)?.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
            let access = if is_dir { rule.access } else { rule.access & AccessFs::from_file(self.abi) };
            if access.is_empty() {
                continue;
            }
            sys::landlock::allow_beneath(&self.ruleset, &beneath, access.bits()).during(Step::Landlock, index)?;
        }
        Ok(())
    }

    /// Child half: enforces the ruleset on this process and its future children. `outside` is a directory of ours that no rule
    /// permits; once it cannot be read, the restriction is in force.
    pub fn restrict(&self, outside: BorrowedFd<'_>) -> Applied {
        // Without CAP_SYS_ADMIN, enforcing a ruleset requires no_new_privs.
        sys::process::set_no_new_privs().during(Step::Landlock, usize::MAX)?;
        sys::landlock::restrict_self(&self.ruleset, self.flags).during(Step::Landlock, usize::MAX)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match openat(outside, c".", flags, Mode::empty()) {
            Err(Errno::EACCES) => Ok(()),
            Ok(_) => Err(Errno::EPERM).during(Step::Verify, 4),
            Err(errno) => Err(errno).during(Step::Verify, 4),
        }
    }

    /// The enforced ruleset, after the child has verified it.
    pub fn record(&self, enforced: &mut Enforced) {
        let fs = |abi| AccessFs::from_all(abi).iter().map(|right| format!("fs:{right:?}")).collect::<Vec<_>>();
        let net = |set: BitFlags<AccessNet>| set.iter().map(|right| format!("net:{right:?}")).collect::<Vec<_>>();
        let scope = |abi| Scope::from_all(abi).iter().map(|right| format!("scope:{right:?}")).collect::<Vec<_>>();
        enforced.landlock_abi = Some(self.abi as u32);
        enforced.landlock_rights = [fs(self.abi), net(self.handled_net), scope(self.abi)].concat();
        let newest = [fs(NEWEST), net(AccessNet::from_all(NEWEST)), scope(NEWEST)].concat();
        let known = [fs(self.abi), net(AccessNet::from_all(self.abi)), scope(self.abi)].concat();
        enforced.landlock_missing = newest.into_iter().filter(|right| !known.contains(right)).collect();
    }

    /// The path of a failed rule.
    pub fn object(&self, index: usize) -> Option<String> {
        self.rules.get(index).map(|rule| format!("/{}", rule.path.to_string_lossy()))
    }
}
