//! The gateway's process, and the supervisor's hold on it.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use landlock::{ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _, Scope};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{SockaddrStorage, getsockname};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use stockade_egress::gateway::{Config, serve, told};
use stockade_egress::record::Totals;
use stockade_seccomp::{Arch, Context, Program};

use crate::confine::caps;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During, Failure};
use crate::launch::failures::{FAILURE_LENGTH, failure_record, parse_failure};
use crate::launch::steps::step;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{self, credentials, entry, process, socket};

/// The calls that the gateway makes once it is confined.
const FILTER: &str = include_str!("../../../profiles/seccomp/gateway.json");

/// Descriptors besides the sockets of the sandbox and the connections: channels, log, questions to name servers.
const SPARE: u64 = 128;

/// Two sockets, and a pipe for each direction.
const OF_CONNECTION: u64 = 6;

/// The announcement of a failure, which a record of it follows.
const FAILED: u8 = b'f';

/// How long the gateway may take to be ready, and to hand over its totals.
const READY: Duration = Duration::from_secs(10);
const LAST: Duration = Duration::from_secs(5);

/// The longest totals that are read.
const LONGEST: u64 = 4 << 20;

/// What the gateway's process is made from.
#[derive(Debug)]
pub struct Waiting {
    config: Config,
    title: CString,
    filter: Vec<libc::sock_filter>,
    descriptors: u64,
    /// Brings the sockets of the sandbox.
    channel: OwnedFd,
    log: Option<OwnedFd>,
}

impl Waiting {
    /// Everything that can fail without a process.
    pub fn prepare(config: Config, channel: OwnedFd, log: Option<OwnedFd>) -> Result<Self> {
        let context = Context { arch: Arch::NATIVE, kernel: (5, 0), capabilities: &[], strict: true };
        let wrong = |error: stockade_seccomp::Error| Error::new(Step::SeccompProfile, "gateway", error.to_string());
        let (profile, _) = stockade_seccomp::load(FILTER.as_bytes(), None, &context).map_err(wrong)?;
        let program = Program::compile(&profile).map_err(wrong)?;
        let filter = program.instructions.iter();
        let filter = filter.map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect();
        let descriptors =
            config.layout.sockets.len() as u64 + OF_CONNECTION * u64::from(config.limits.connections) + SPARE;
        let hard = process::rlimit(libc::RLIMIT_NOFILE as u32).map_or(u64::MAX, |(_, hard)| hard);
        if descriptors > hard {
            let reason = format!("{descriptors} are needed, and the limit of this process is {hard} (ulimit -Hn)");
            return Err(Error::new(Step::Egress, "descriptors", reason).hint("lower --net-connections"));
        }
        let title = CString::new(format!("stockade: gateway {}", config.id))
            .map_err(|_| Error::new(Step::Plan, "id", "contains a NUL byte"))?;
        Ok(Self { config, title, filter, descriptors, channel, log })
    }

    /// Creates the process. `ids` are those that it takes, if this process may take any.
    pub fn start(self, ids: Option<(u32, u32)>) -> Result<Gateway> {
        let failed = |errno| Error::errno(Step::Egress, "gateway", errno);
        let (control, theirs) = UnixStream::pair().map_err(|error| Error::io(Step::Egress, "gateway", &error))?;
        let parent = nix::unistd::getpid();
        match clone3(0, None).map_err(failed)? {
            Cloned::Child => self.run(theirs, ids, parent),
            Cloned::Parent { pid, pidfd } => {
                step("gateway", || format!("pid {pid}"));
                Ok(Gateway { pid, pidfd, control, ended: None })
            }
        }
    }

    /// The process: never returns to the code that cloned it.
    fn run(mut self, mut control: UnixStream, ids: Option<(u32, u32)>, parent: Pid) -> ! {
        entry::retitle(&self.title);
        let _ = process::set_name(c"stockade-net");
        if let Err(failure) = self.confine(&control, ids, parent) {
            let _ = control.write_all(&[&[FAILED][..], &failure_record(failure)].concat());
            process::exit(125);
        }
        let ready = control.write_all(&[told::READY]);
        let sockets: Option<Vec<OwnedFd>> =
            self.config.layout.sockets.iter().map(|expected| take(&self.channel, &expected.address.into())).collect();
        drop(self.channel);
        let log = self.log.take().map(File::from);
        match (ready, sockets) {
            (Ok(()), Some(sockets)) => {
                let served = serve(self.config, sockets, control, log);
                process::exit(if served.is_ok() { 0 } else { 1 })
            }
            _ => process::exit(1), // the sandbox was not built, and its failure says why
        }
    }

    /// Leaves nothing to this process but its sockets. In the order of `credentials(7)`: ids first, the filter last.
    fn confine(&self, control: &UnixStream, ids: Option<(u32, u32)>, parent: Pid) -> Applied {
        let null = open(c"/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).during(Step::Egress, 0)?;
        for number in 0..3 {
            process::dup_onto(null.as_fd(), number).during(Step::Egress, 0)?;
        }
        let mut kept = vec![control.as_raw_fd(), self.channel.as_raw_fd()];
        kept.extend(self.log.as_ref().map(|log| log.as_raw_fd()));
        std::mem::forget(null); // closed by number
        process::close_but(3, &mut kept).during(Step::Descriptors, 0)?;
        nix::unistd::chdir(c"/").during(Step::Cwd, 0)?;
        for (resource, limit) in [
            (libc::RLIMIT_NOFILE, self.descriptors),
            (libc::RLIMIT_NPROC, 0),
            (libc::RLIMIT_CORE, 0),
            (libc::RLIMIT_MEMLOCK, 0),
        ] {
            process::set_rlimit(None, resource as u32, limit, limit).during(Step::Rlimit, 0)?;
        }
        if let Some((uid, gid)) = ids {
            credentials::clear_groups().during(Step::Groups, 0)?;
            credentials::set_ids(uid, gid).during(Step::SetIds, 0)?;
        }
        match caps::drop_all_but(0) {
            // Without CAP_SETPCAP the bounding set stays, which no_new_privs makes void.
            Err(failure) if failure.errno == Errno::EPERM => caps::renounce()?,
            dropped => dropped?,
        }
        process::set_no_new_privs().during(Step::NoNewPrivs, 0)?;
        process::set_dumpable(false).during(Step::Egress, 1)?;
        process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?; // a change of ids clears it
        if nix::unistd::getppid() != parent {
            process::exit(1);
        }
        restrict_paths().during(Step::Landlock, 0)?;
        sys::seccomp::set_filter(&self.filter, 0).during(Step::Seccomp, 0)
    }
}

/// No file may be opened, and no port bound. On a kernel without Landlock the filter alone says so.
fn restrict_paths() -> sys::Result<()> {
    let Ok(kernel) = sys::landlock::abi() else { return Ok(()) };
    let abi = ABI::from(i32::try_from(kernel).unwrap_or(i32::MAX));
    let wrong = |_: landlock::RulesetError| Errno::EINVAL;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let mut ruleset = ruleset.handle_access(AccessFs::from_all(abi)).map_err(wrong)?;
    if AccessNet::from_all(abi).contains(AccessNet::BindTcp) {
        ruleset = ruleset.handle_access(AccessNet::BindTcp).map_err(wrong)?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(wrong)?;
    }
    let ruleset: Option<OwnedFd> = ruleset.create().map_err(wrong)?.into();
    sys::landlock::restrict_self(ruleset.ok_or(Errno::EINVAL)?, 0)
}

/// The next socket of the sandbox, if it has the expected address.
fn take(channel: &OwnedFd, expected: &SockaddrStorage) -> Option<OwnedFd> {
    let (_, fd) = socket::receive(channel, &mut [0; 1], true).ok()?;
    let fd = fd?;
    let address: SockaddrStorage = getsockname(fd.as_raw_fd()).ok()?;
    (address == *expected).then_some(fd)
}

/// What the supervisor must act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The budget is used up.
    Budget,
    /// A line could not be written to the log.
    LogFailed,
    /// The gateway has died.
    Died,
}

/// The running gateway. It ends when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    pid: Pid,
    pidfd: OwnedFd,
    control: UnixStream,
    /// Why it serves no more.
    ended: Option<Error>,
}

impl Gateway {
    /// Waits until it is confined.
    pub fn ready(&mut self) -> Result<()> {
        let failed = |error: std::io::Error| Error::io(Step::Egress, "gateway", &error);
        self.control.set_read_timeout(Some(READY)).map_err(failed)?;
        let mut said = [0; 1 + FAILURE_LENGTH];
        self.control.read_exact(&mut said[..1]).map_err(failed)?;
        if said[0] == told::READY {
            step("gateway", || "confined");
            return self.control.set_nonblocking(true).map_err(failed);
        }
        self.control.read_exact(&mut said[1..]).map_err(failed)?;
        Err(match parse_failure(&said[1..]) {
            Some(Failure { step, errno, .. }) => Error::errno(step, "gateway", errno),
            None => Error::new(Step::Egress, "gateway", "died while it confined itself"),
        })
    }

    /// What it waits for.
    pub fn interest(&self) -> Option<PollFd<'_>> {
        self.ended.is_none().then(|| PollFd::new(self.control.as_fd(), PollFlags::POLLIN))
    }

    /// The next event, if there is one.
    pub fn event(&mut self) -> Option<Event> {
        if self.ended.is_some() {
            return None;
        }
        let mut said = [0; 1];
        match self.control.read(&mut said) {
            Ok(1) if said[0] == told::BUDGET => return Some(Event::Budget),
            Ok(1) if said[0] == told::LOG => return Some(Event::LogFailed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return None,
            _ => {}
        }
        let reason = "died: no connection was possible any more";
        self.ended = Some(Error::new(Step::Egress, "gateway", reason));
        Some(Event::Died)
    }

    /// Lets it end, and takes its totals.
    pub fn finish(mut self) -> Result<Totals> {
        if let Some(error) = self.ended.take() {
            return Err(error);
        }
        let failed = |error: std::io::Error| Error::io(Step::Egress, "totals of the gateway", &error);
        let _ = self.control.shutdown(Shutdown::Write);
        self.control.set_nonblocking(false).map_err(failed)?;
        self.control.set_read_timeout(Some(LAST)).map_err(failed)?;
        let mut said = Vec::new();
        (&self.control).take(LONGEST).read_to_end(&mut said).map_err(failed)?;
        let begin = said.iter().position(|byte| *byte == told::TOTALS);
        let totals = begin.and_then(|at| serde_json::from_slice(&said[at + 1..]).ok());
        totals.ok_or_else(|| Error::new(Step::Egress, "gateway", "died before it handed over its totals"))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        process::end_child(self.pidfd.as_fd(), self.pid);
    }
}
