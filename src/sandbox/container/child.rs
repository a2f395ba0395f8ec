//! The container's process: the start-up sequence from clone3 to execve, one line a step.
//!
//! As for a direct run, what it needs was prepared, and a failure leaves as numbers. Hooks are the exception: they are
//! programs of the administrator's, started from here because they run inside.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use landlock::RulesetCreated;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::fstatfs;

use super::gate::Gate;
use super::hooks;
use super::prepare::Prepared;
use crate::error::Step;
use crate::layers::landlock::PreparedLandlock;
use crate::layers::root::BuiltRoot;
use crate::layers::{Applied, During, root, schedule};
use crate::plan::container::{Container, Hook};
use crate::sandbox::sync::{self, ChildEnds, ParentEnds, failure_with_words};
use crate::sys::mount::FsContext;
use crate::sys::{mount, namespace, net, process, terminal};

/// What the go-between of a process that is confined before it joins hands on.
#[derive(Debug)]
pub struct Confined {
    terminal: Option<OwnedFd>,
    rules: Option<PathRules>,
}

/// Becomes the container. Never returns to the code that cloned it.
pub fn run(
    prepared: &Prepared<'_>,
    container: &Container,
    confined: Option<Confined>,
    parent: ParentEnds,
    ends: &ChildEnds,
    state: &dyn Fn(i32, &str) -> String,
) -> ! {
    drop(parent); // or our own copy would keep the lifeline open
    if ends.wait() {
        let mut said = String::new();
        let Err(failure) = match confined {
            Some(confined) => join(prepared, confined, ends),
            None => start(prepared, container, ends, state, &mut said),
        };
        // Once it waited for its start, nobody but whoever started it listens.
        if let Some(gate) = &prepared.gate {
            let _ = nix::unistd::write(gate.answer(), &failure_with_words(failure, &said));
        }
        ends.fail_with_words(failure, &said);
    }
    process::exit(125)
}

fn start(
    prepared: &Prepared<'_>,
    container: &Container,
    ends: &ChildEnds,
    state: &dyn Fn(i32, &str) -> String,
    said: &mut String,
) -> Applied<Infallible> {
    process::ignore_broken_pipes();
    process::set_dumpable(false).during(Step::Lifeline, 0)?;
    if prepared.in_user_namespace {
        process::set_ids(0, 0).during(Step::SetIds, 0)?; // its own root, for as long as it is set up
    }
    if prepared.hides_cgroup {
        process::unshare_cgroup().during(Step::Cgroup, 0)?; // now that it is in its own
    }
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?; // after the change of ids, which clears it
    if !ends.parent_lives() {
        process::exit(125);
    }
    nix::sys::stat::umask(Mode::empty());
    if prepared.loopback {
        net::loopback_up().during(Step::Loopback, 0)?;
    }
    let terminal = match &prepared.root {
        Some(root) => {
            let built = root.build()?;
            let terminal = open_terminal(prepared, built.devpts.as_ref(), ends)?;
            if let Some(terminal) = &terminal {
                root.show_console(&built, terminal.as_fd())?;
            }
            if prepared.waits_for_hooks && !ends.built() {
                process::exit(125);
            }
            run_hooks(&container.hooks.create_container, 0, state, "creating", said)?;
            set_up(prepared, container, Some(&built))?;
            terminal
        }
        None => {
            let devpts = match prepared.terminal {
                Some(_) => Some(devpts().during(Step::Terminal, 0)?),
                None => None,
            };
            set_up(prepared, container, None)?;
            open_terminal(prepared, devpts.as_ref(), ends)?
        }
    };
    take_streams(prepared, terminal.as_ref())?;
    let rules = path_rules(prepared)?;
    prepared.process.settle_but(prepared.first_closed)?;
    let rules = confine(prepared, container, ends, rules)?;
    let program = prepared.process.find_executable()?;
    if prepared.gate.is_some() {
        process::set_parent_death_signal(0).during(Step::Lifeline, 1)?;
    }
    ends.send_ready().during(Step::Fork, 0)?;
    // The runtime may not like what it sees; and without anybody who knows of us we would wait for ever: it has to have
    // written us down first.
    if !ends.wait() {
        process::exit(125);
    }
    if let Some(gate) = &prepared.gate {
        gate.wait().during(Step::Wait, 0)?;
        let first = container.hooks.create_container.len();
        run_hooks(&container.hooks.start_container, first, state, "created", said)?;
    }
    // Only now: hooks inside are the administrator's.
    if let Some(rules) = rules {
        rules.apply()?;
    }
    execute(prepared, ends, program)
}

/// In the go-between of a process that joins a container, where none of the container's can see it yet: all that takes
/// privilege. What then appears among them has no more than they have.
pub fn confine_first(prepared: &Prepared<'_>, container: &Container, ends: &ChildEnds) -> Applied<Confined> {
    process::ignore_broken_pipes();
    nix::sys::stat::umask(Mode::empty());
    let devpts = prepared.terminal.map(|_| devpts()).transpose().during(Step::Terminal, 0)?;
    set_up(prepared, container, None)?;
    let terminal = open_terminal(prepared, devpts.as_ref(), ends)?;
    let rules = confine(prepared, container, ends, path_rules(prepared)?)?;
    Ok(Confined { terminal, rules })
}

/// The rest of such a process, in the container's pid namespace.
fn join(prepared: &Prepared<'_>, confined: Confined, ends: &ChildEnds) -> Applied<Infallible> {
    process::set_parent_death_signal(libc::SIGKILL).during(Step::Lifeline, 0)?;
    if !ends.parent_lives() {
        process::exit(125);
    }
    take_streams(prepared, confined.terminal.as_ref())?;
    prepared.process.settle_but(prepared.first_closed)?;
    let program = prepared.process.find_executable()?;
    ends.send_ready().during(Step::Fork, 0)?;
    if !ends.wait() {
        process::exit(125);
    }
    process::set_parent_death_signal(0).during(Step::Lifeline, 1)?;
    if let Some(rules) = confined.rules {
        rules.apply()?;
    }
    execute(prepared, ends, program)
}

/// The filter, if it is not in force yet, and the program.
fn execute(prepared: &Prepared<'_>, ends: &ChildEnds, program: usize) -> Applied<Infallible> {
    if let (Some(seccomp), Some(hold)) = (&prepared.seccomp, &prepared.hold) {
        let pipe = prepared.gate.as_ref().map_or(ends.failure(), Gate::answer);
        sync::tell_due(pipe).during(Step::Wait, 1)?;
        seccomp.apply()?;
        hold.wait(prepared.scheduled_last); // without any call, as all that follows
    }
    prepared.process.exec(program)
}

fn take_streams(prepared: &Prepared<'_>, terminal: Option<&OwnedFd>) -> Applied {
    let null = own_null();
    let streams = prepared.streams.map(|stream| match (terminal, &null) {
        (Some(terminal), _) => terminal.as_fd(),
        (None, Some(null)) if is_null(stream) => null.as_fd(),
        _ => stream,
    });
    prepared.process.take_streams(streams, terminal.is_some())
}

fn path_rules(prepared: &Prepared<'_>) -> Applied<Option<PathRules>> {
    prepared.landlock.as_ref().map(PathRules::of).transpose()
}

/// What takes privilege, and the old root: host name, kernel parameters, keyring, label, scheduling; then the new root.
fn set_up(prepared: &Prepared<'_>, container: &Container, built: Option<&BuiltRoot>) -> Applied {
    if let (Some(root), Some(built)) = (&prepared.root, built) {
        prepared.process.set_hostname()?;
        if let Some(name) = &container.domainname {
            namespace::set_domain_name(name.as_bytes()).during(Step::Hostname, 1)?;
        }
        if !container.sysctl.is_empty() {
            root.write_sysctl(private_proc(Step::Sysctl)?.as_fd())?;
        }
        label(prepared)?;
        root.finish(built)?;
    } else {
        label(prepared)?;
    }
    if container.new_keyring {
        match process::join_new_session_keyring() {
            Err(Errno::ENOSYS) => {} // a kernel without keyrings has none to share
            joined => joined.during(Step::Keyring, 0)?,
        }
    }
    if !prepared.confines_first && !prepared.scheduled_last {
        schedule::set_policy(container, 0)?; // the runtime does it otherwise
    }
    schedule::apply(container)
}

fn label(prepared: &Prepared<'_>) -> Applied {
    if prepared.label.is_empty() {
        return Ok(());
    }
    prepared.label.apply(private_proc(Step::Label)?.as_fd())
}

/// A procfs that nobody else can reach; where none may be mounted, the one of the old root.
fn private_proc(step: Step) -> Applied<OwnedFd> {
    mount::private_proc().or_else(|_| root::host_proc()).during(step, 0)
}

/// Limits, ids, capabilities, no_new_privs, working directory; each read back where that can be done.
fn confine(
    prepared: &Prepared<'_>,
    container: &Container,
    ends: &ChildEnds,
    mut rules: Option<PathRules>,
) -> Applied<Option<PathRules>> {
    process::ignore_broken_pipes(); // settled signals are the program's; until then a pipe may break
    if container.no_new_privs {
        process::set_no_new_privs().during(Step::NoNewPrivs, 0)?;
    }
    if prepared.filters_early
        && let Some(rules) = rules.take()
    {
        rules.apply()?;
    }
    // Without no_new_privs a filter takes CAP_SYS_ADMIN, and a listener must be handed over while somebody is there.
    if prepared.filters_early
        && let Some(seccomp) = &prepared.seccomp
        && let Some(listener) = seccomp.apply()?
    {
        ends.send_listener(listener.as_fd()).during(Step::Seccomp, 1)?;
    }
    let entered = prepared.process.enter_cwd(); // while it still may, if its user may not
    prepared.capabilities.bound()?;
    process::keep_capabilities(true).during(Step::Capabilities, 0)?;
    if prepared.users.can_clear_groups() {
        match process::set_groups(&container.groups) {
            // Where a user namespace forbids it, nobody inside has any that could be dropped.
            Err(Errno::EPERM) if container.groups.is_empty() && prepared.in_user_namespace => {}
            set => set.during(Step::Groups, 0)?,
        }
    }
    prepared.users.take()?;
    prepared.capabilities.take()?;
    process::keep_capabilities(false).during(Step::Capabilities, 0)?;
    match prepared.process.enter_cwd() {
        Err(_) if entered.is_ok() => {}
        result => result?,
    }
    prepared.process.verify_cwd()?;
    prepared.users.verify()?;
    prepared.capabilities.verify()?;
    if container.no_new_privs && !process::no_new_privs().during(Step::Verify, 2)? {
        return Err(Errno::EPERM).during(Step::Verify, 2);
    }
    // The change of ids has cleared this, and made us dumpable by them.
    process::set_dumpable(false).during(Step::Lifeline, 0)?;
    process::set_parent_death_signal(if prepared.gate.is_some() { libc::SIGKILL } else { 0 })
        .during(Step::Lifeline, 0)?;
    process::default_broken_pipes().during(Step::Signals, 0)?;
    Ok(rules)
}

/// Path and port rules that wait to be put in force.
#[derive(Debug)]
struct PathRules {
    ruleset: RulesetCreated,
    /// A file system that nobody else sees and no rule reaches: that it can no longer be read shows that they are.
    outside: OwnedFd,
}

impl PathRules {
    /// While every path can be reached, and a file system made.
    fn of(landlock: &PreparedLandlock) -> Applied<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = openat(AT_FDCWD, c"/", flags, Mode::empty()).during(Step::Landlock, usize::MAX)?;
        let outside =
            FsContext::open(c"tmpfs").and_then(|context| context.mount(0)).during(Step::Landlock, usize::MAX)?;
        Ok(Self { ruleset: landlock.built(root.as_fd())?, outside })
    }

    fn apply(self) -> Applied {
        PreparedLandlock::restrict(self.ruleset, self.outside.as_fd())
    }
}

fn run_hooks(
    all: &[Hook],
    first: usize,
    state: &dyn Fn(i32, &str) -> String,
    status: &str,
    said: &mut String,
) -> Applied {
    if all.is_empty() {
        return Ok(());
    }
    let state = state(std::process::id() as i32, status);
    for (index, hook) in all.iter().enumerate() {
        hooks::run_one(hook, &state)
            .map_err(|words| {
                *said = words;
                Errno::ECANCELED
            })
            .during(Step::Hook, first + index)?;
    }
    Ok(())
}

/// The container's own null device, which takes the place of the host's: nothing of the host's file systems stays open, and
/// what is open can be saved.
fn own_null() -> Option<OwnedFd> {
    let open = |flags| openat(AT_FDCWD, c"/dev/null", flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()).ok();
    // Looked at before it is opened: another device could do something when it is.
    open(OFlag::O_PATH).filter(|null| is_null(null.as_fd()))?;
    open(OFlag::O_RDWR | OFlag::O_NOCTTY).filter(|null| is_null(null.as_fd()))
}

fn is_null(fd: BorrowedFd<'_>) -> bool {
    let device = nix::sys::stat::makedev(1, 3);
    nix::sys::stat::fstat(fd).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFCHR && stat.st_rdev == device)
}

/// A terminal on the container's own devpts, whose master side goes to the runtime.
fn open_terminal(prepared: &Prepared<'_>, devpts: Option<&OwnedFd>, ends: &ChildEnds) -> Applied<Option<OwnedFd>> {
    let Some(size) = prepared.terminal else { return Ok(None) };
    let devpts = devpts.ok_or(Errno::ENODEV).during(Step::Terminal, 0)?;
    let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let master = openat(devpts, c"ptmx", flags, Mode::empty()).during(Step::Terminal, 0)?;
    let slave = terminal::open_peer(&master).during(Step::Terminal, 0)?;
    terminal::set_size(&slave, size).during(Step::Terminal, 0)?;
    // Whose terminal it is: the program's user must be able to open it again.
    let owner = nix::unistd::Uid::from_raw(prepared.users.inside().0);
    let _ = nix::unistd::fchown(&slave, Some(owner), None); // a devpts of another user namespace keeps its own
    send(ends, master.as_fd())?;
    Ok(Some(slave))
}

fn send(ends: &ChildEnds, master: BorrowedFd<'_>) -> Applied {
    ends.send_terminal(master).during(Step::Terminal, 0)
}

/// The devpts of the root we are in, verified to be one.
fn devpts() -> std::result::Result<OwnedFd, Errno> {
    const DEVPTS_SUPER_MAGIC: i64 = 0x1cd1;
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let devpts = openat(AT_FDCWD, c"/dev/pts", flags, Mode::empty())?;
    if fstatfs(&devpts)?.filesystem_type().0 as i64 == DEVPTS_SUPER_MAGIC { Ok(devpts) } else { Err(Errno::ENODEV) }
}
