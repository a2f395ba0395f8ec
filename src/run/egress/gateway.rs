//! The gateway's process: what it is made from, and how it confines itself.

use std::ffi::CString;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{SockaddrStorage, getsockname};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use stockade_egress::gateway::{Config, Given, Managed, Orders, serve, told};
use stockade_egress::layout::{Kind, MOST};
use stockade_seccomp::{Arch, Context, Program};

use crate::confine::caps;
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During};
use crate::launch::failures::failure_record;
use crate::launch::steps::step;
use crate::sys::clone::{Cloned, clone3};
use crate::sys::{self, credentials, entry, packet, process, socket};

use super::changing::{CONNECTORS, Changing};
use super::hold::{FAILED, Gateway};

/// The calls that the gateway makes once it is confined.
const FILTER: &str = include_str!("../../../profiles/seccomp/gateway.json");

/// Descriptors besides the sockets of the sandbox and the connections: channels, log, questions to name servers.
const SPARE: u64 = 128;

/// Two sockets, and a pipe for each direction.
const OF_CONNECTION: u64 = 6;

/// The name of its process, `comm` in `proc(5)`.
pub const GATEWAY: &str = "stockade-net";

/// How many descriptors a gateway takes.
pub const fn descriptors(sockets: u64, connections: u64) -> u64 {
    sockets + OF_CONNECTION * connections + SPARE
}

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
    /// The listeners on the host.
    published: Vec<OwnedFd>,
    /// The supervisor's side, if it makes sockets while the gateway runs.
    changing: Option<Changing>,
    /// The file of its counters, which the supervisor keeps.
    counters: OwnedFd,
}

impl Waiting {
    /// Everything that can fail without a process.
    pub fn prepare(
        config: Config,
        channel: OwnedFd,
        log: Option<OwnedFd>,
        published: Vec<OwnedFd>,
        changing: Option<Changing>,
        counters: OwnedFd,
    ) -> Result<Self> {
        let context = Context { arch: Arch::NATIVE, kernel: (5, 0), capabilities: &[], strict: true };
        let wrong = |error: stockade_seccomp::Error| Error::new(Step::SeccompProfile, "gateway", error.to_string());
        let (profile, _) = stockade_seccomp::load(FILTER.as_bytes(), None, &context).map_err(wrong)?;
        let program = Program::compile(&profile).map_err(wrong)?;
        let filter = program.instructions.iter();
        let filter = filter.map(|one| libc::sock_filter { code: one.code, jt: one.jt, jf: one.jf, k: one.k }).collect();
        let sockets = if config.is_session { MOST } else { config.layout.sockets.len() };
        let sockets = sockets + published.len() + if published.is_empty() { 0 } else { 2 * CONNECTORS };
        let descriptors = descriptors(sockets as u64, config.limits.connections.into());
        let hard = process::rlimit(libc::RLIMIT_NOFILE as u32).map_or(u64::MAX, |(_, hard)| hard);
        if descriptors > hard {
            let reason = format!("{descriptors} are needed, and the limit of this process is {hard} (ulimit -Hn)");
            return Err(Error::new(Step::Egress, "descriptors", reason).hint("lower --net-connections"));
        }
        let title = CString::new(format!("stockade: gateway {}", config.id))
            .map_err(|_| Error::new(Step::Plan, "id", "contains a NUL byte"))?;
        Ok(Self { config, title, filter, descriptors, channel, log, published, changing, counters })
    }

    /// Creates the process. `ids` are those that it takes, if this process may take any.
    pub fn start(mut self, ids: Option<(u32, u32)>) -> Result<Gateway> {
        let failed = |errno| Error::errno(Step::Egress, "gateway", errno);
        let (control, theirs) = UnixStream::pair().map_err(|error| Error::io(Step::Egress, "gateway", &error))?;
        let parent = nix::unistd::getpid();
        match clone3(0, None).map_err(failed)? {
            Cloned::Child => self.run(theirs, ids, parent),
            Cloned::Parent { pid, pidfd } => {
                step("gateway", || format!("pid {pid}"));
                Ok(Gateway::new(pid, pidfd, control, self.changing.take(), self.counters))
            }
        }
    }

    /// The process: never returns to the code that cloned it.
    fn run(mut self, mut control: UnixStream, ids: Option<(u32, u32)>, parent: Pid) -> ! {
        entry::retitle(&self.title);
        let _ = CString::new(GATEWAY).map(|name| process::set_name(&name));
        if let Err(failure) = self.confine(&control, ids, parent) {
            let _ = control.write_all(&[&[FAILED][..], &failure_record(failure)].concat());
            process::exit(125);
        }
        let ready = control.write_all(&[told::READY]);
        match (ready, self.given()) {
            (Ok(()), Some(given)) => {
                drop(self.channel);
                let served = serve(self.config, given, control);
                process::exit(if served.is_ok() { 0 } else { 1 })
            }
            _ => process::exit(1), // the sandbox was not built, and its failure says why
        }
    }

    /// Takes what the child sends, in the order in which it does.
    fn given(&mut self) -> Option<Given> {
        let sockets = self.config.layout.sockets.iter();
        let sockets: Vec<OwnedFd> =
            sockets.map(|expected| take(&self.channel, &expected.address.into())).collect::<Option<_>>()?;
        let any = || socket::receive(&self.channel, &mut [0; 1], true).ok().and_then(|(_, fd)| fd);
        let published = std::mem::take(&mut self.published);
        let count = if published.is_empty() { 0 } else { CONNECTORS };
        let connectors: Vec<OwnedFd> = (0..count).map(|_| any()).collect::<Option<_>>()?;
        let managed = match self.changing.take() {
            None => None,
            Some(changing) => {
                std::mem::forget(changing); // its descriptors are the supervisor's, and were closed by number
                let diagnosis = any()?;
                let channel = self.channel.try_clone().ok()?;
                Some(Managed { diagnosis, orders: Orders { channel, receive } })
            }
        };
        Some(Given { sockets, published, connectors, log: self.log.take(), managed })
    }

    /// Leaves nothing to this process but its sockets. In the order of `credentials(7)`: ids first, the filter last.
    fn confine(&self, control: &UnixStream, ids: Option<(u32, u32)>, parent: Pid) -> Applied {
        let null = open(c"/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).during(Step::Egress, 0)?;
        for number in 0..3 {
            process::dup_onto(null.as_fd(), number).during(Step::Egress, 0)?;
        }
        let mut kept = vec![control.as_raw_fd(), self.channel.as_raw_fd()];
        kept.extend(self.log.iter().chain(&self.published).map(|fd| fd.as_raw_fd()));
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
        match caps::drop_all_but(0, 0) {
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
        restrict_itself(outer_ports(&self.config).as_deref()).during(Step::Landlock, 0)?;
        sys::seccomp::set_filter(&self.filter, 0).during(Step::Seccomp, 0)
    }
}

/// No file may be opened, no port bound, and none connected to that is not listed; with `None`, any. On a kernel without Landlock the
/// filter alone says so.
fn restrict_itself(ports: Option<&[u16]>) -> sys::Result<()> {
    let Ok(kernel) = sys::landlock::abi() else { return Ok(()) };
    let abi = ABI::from(i32::try_from(kernel).unwrap_or(i32::MAX));
    let wrong = |_: landlock::RulesetError| Errno::EINVAL;
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let mut ruleset = ruleset.handle_access(AccessFs::from_all(abi)).map_err(wrong)?;
    let known = AccessNet::from_all(abi);
    if known.contains(AccessNet::BindTcp) {
        ruleset = ruleset.handle_access(AccessNet::BindTcp).map_err(wrong)?;
    }
    let listed = ports.filter(|_| known.contains(AccessNet::ConnectTcp));
    if listed.is_some() {
        ruleset = ruleset.handle_access(AccessNet::ConnectTcp).map_err(wrong)?;
    }
    if !Scope::from_all(abi).is_empty() {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(wrong)?;
    }
    let mut ruleset = ruleset.create().map_err(wrong)?;
    for port in listed.into_iter().flatten() {
        ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp)).map_err(wrong)?;
    }
    let ruleset: Option<OwnedFd> = ruleset.into();
    sys::landlock::restrict_self(ruleset.ok_or(Errno::EINVAL)?, 0)
}

/// The ports of TCP that the gateway connects to: the proxy's or, without one, those of the listeners, which connections keep. `None`
/// for a session without a proxy, because its rules can change.
fn outer_ports(config: &Config) -> Option<Vec<u16>> {
    let listeners = config.layout.sockets.iter().skip(2).filter(|socket| socket.kind == Kind::Listener);
    let mut ports: Vec<u16> = match &config.proxy {
        Some(proxy) => vec![proxy.port],
        None if config.is_session => return None,
        None => listeners.map(|socket| socket.address.port()).collect(),
    };
    ports.extend(config.servers.iter().map(SocketAddr::port).chain(config.published.iter().copied()));
    ports.sort_unstable();
    ports.dedup();
    Some(ports)
}

/// Receives a packet of the supervisor.
fn receive(channel: &OwnedFd, buffer: &mut [u8]) -> std::io::Result<(usize, Vec<OwnedFd>)> {
    match packet::receive(channel, buffer, false)? {
        received if received.whole => Ok((received.length, received.fds)),
        _ => Err(ErrorKind::InvalidData.into()),
    }
}

/// The next socket of the sandbox, if it has the expected address.
fn take(channel: &OwnedFd, expected: &SockaddrStorage) -> Option<OwnedFd> {
    let (_, fd) = socket::receive(channel, &mut [0; 1], true).ok()?;
    let fd = fd?;
    let address: SockaddrStorage = getsockname(fd.as_raw_fd()).ok()?;
    (address == *expected).then_some(fd)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use stockade_egress::gateway::{Limits, Traffic};
    use stockade_egress::layout::Layout;
    use stockade_egress::rule::Rules;
    use stockade_egress::upstream::Hosts;

    use super::*;

    fn config(proxy: Option<&str>, is_session: bool) -> Config {
        let allow = vec!["a.example:443,22".parse().unwrap(), "10.0.0.5:5432".parse().unwrap()];
        let rules = Rules { allow, deny: Vec::new() };
        let time = Duration::from_secs(1);
        Config {
            id: "x".to_owned(),
            layout: Layout::of(&rules).unwrap(),
            rules,
            hosts: Hosts::default(),
            servers: vec!["192.0.2.1:5353".parse().unwrap()],
            proxy: proxy.map(|url| url.parse().unwrap()),
            limits: Limits { connections: 1, rate: None, budget: None, connect: time, idle: time },
            published: vec![8080],
            is_session,
            traffic: Traffic(Box::leak(Box::default())),
        }
    }

    #[test]
    fn the_gateway_needs_the_ports_of_rules_or_that_of_the_proxy() {
        let ports = |proxy, is_session| outer_ports(&config(proxy, is_session));
        assert_eq!(ports(None, false), Some(vec![22, 443, 5353, 5432, 8080]));
        assert_eq!(ports(None, true), None);
        for is_session in [false, true] {
            assert_eq!(ports(Some("http://p.example:3128"), is_session), Some(vec![3128, 5353, 8080]));
        }
    }

    /// The restriction holds for the thread alone that asks for it.
    #[test]
    fn the_gateway_connects_to_listed_ports_alone() {
        if !sys::landlock::abi().is_ok_and(|abi| abi >= 4) {
            eprintln!("skipped: the kernel's Landlock has no rules for ports");
            return;
        }
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [listed, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        let restricted = move || {
            process::set_no_new_privs().unwrap();
            assert!(TcpStream::connect(other).is_ok(), "it can before");
            restrict_itself(Some(&[listed.port()])).unwrap();
            assert!(TcpStream::connect(listed).is_ok());
            let refused = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
            let denied = Some(libc::EACCES);
            assert_eq!(refused(TcpStream::connect(other).map(drop)), denied, "another port");
            assert_eq!(refused(TcpListener::bind("127.0.0.1:0").map(drop)), denied, "a listener");
            assert_eq!(refused(std::fs::File::open("/proc/self/stat").map(drop)), denied, "a file");
        };
        std::thread::spawn(restricted).join().unwrap();
    }
}
