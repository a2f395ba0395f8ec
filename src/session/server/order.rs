//! A request to run becomes a plan and streams, or is refused.

use std::os::fd::OwnedFd;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::SFlag;

use crate::confine::user;
use crate::error::{Error, Result, Step};
use crate::plan::{Budget, Bytes, Deadlines, OutputLimit, RunPlan, Stdio};
use crate::session::protocol::{Run, User};
use crate::sys::packet::known_mode;

/// The plan of a command: that of the session, with what the request asks for.
pub fn plan(session: &RunPlan, run: Run) -> Result<RunPlan> {
    let mut plan = session.clone();
    if let Some(user) = run.user {
        move_to(&mut plan, &user)?;
    }
    plan.command.argv = run.argv;
    plan.command.env = run.env.unwrap_or(plan.command.env);
    run.add_env.into_iter().for_each(|entry| set(&mut plan.command.env, entry));
    plan.command.cwd = run.cwd.unwrap_or(plan.command.cwd);
    plan.command.umask = run.umask.unwrap_or(plan.command.umask);
    plan.deadlines = Deadlines {
        wall_us: run.timeout_us,
        cpu_us: run.cpu_us,
        idle_us: run.idle_us,
        kill_after_us: run.kill_after_us.unwrap_or(session.deadlines.kill_after_us),
    };
    let output_limit = run.output_limit.map(|limit| OutputLimit { bytes: limit.bytes, keep: limit.keep });
    plan.stdio = Stdio { stdin: true, tty: run.tty.is_some(), output_limit, relay: false };
    plan.budget = Budget {
        memory_bytes: run.memory_bytes,
        swap_bytes: run.memory_bytes.map(|_| 0), // otherwise it could exceed its memory limit by swapping
        pids: run.pids,
        cpu_quota_us: run.cpu_quota_us,
        ..Budget::default()
    };
    plan.explain_denials = run.explain_denials.unwrap_or(false);
    plan.hash_program = run.hash_program.unwrap_or(plan.hash_program);
    plan.policy_sha256.clear();
    Ok(plan)
}

/// Makes it the plan of this user, without the variables that say who the sandbox's user is: init adds those of the other.
fn move_to(plan: &mut RunPlan, user: &User) -> Result<()> {
    let (uid, gid) = match user {
        User::Ids(uid, gid) => (*uid, *gid),
        User::Named(name) => user::named(&plan.identity, name).ok_or_else(|| {
            let known = format!("use {}, root or nobody, or UID[:GID] as numbers", plan.identity.user);
            Error::new(Step::Identity, format!("user {name:?}"), "the sandbox has no user with this name").hint(known)
        })?,
    };
    if (uid, gid) != (plan.identity.uid, plan.identity.gid) {
        (plan.identity.uid, plan.identity.gid) = (uid, gid);
        let is_own = |entry: &Bytes| OF_A_USER.iter().any(|name| entry.as_bytes().starts_with(name));
        plan.command.env.retain(|entry| !is_own(entry));
    }
    Ok(())
}

/// The variables that a user has.
const OF_A_USER: [&[u8]; 3] = [b"HOME=", b"USER=", b"LOGNAME="];

/// Sets a variable; the last one of a name wins.
fn set(env: &mut Vec<Bytes>, entry: Bytes) {
    let name = |entry: &Bytes| entry.as_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
    env.retain(|other| name(other) != name(&entry));
    env.push(entry);
}

/// The streams of a command: three descriptors, or with a terminal none.
pub fn streams(fds: Vec<OwnedFd>, tty: bool) -> Result<[OwnedFd; 3]> {
    let wrong = |object: &str, reason: &str| Error::new(Step::SessionRequest, object, reason);
    if tty {
        return match fds.is_empty() {
            true => Ok([null()?, null()?, null()?]),
            false => Err(wrong("descriptors", "a command with tty takes none")),
        };
    }
    let count = fds.len();
    let streams: [OwnedFd; 3] =
        fds.try_into().map_err(|_| wrong("descriptors", &format!("run takes three, and {count} came")))?;
    for (stream, name) in streams.iter().zip(["standard input", "standard output", "standard error"]) {
        let mode = known_mode(stream).map_err(|errno| Error::errno(Step::SessionRequest, name, errno))?;
        let kind = SFlag::from_bits_truncate(mode) & SFlag::S_IFMT;
        let flags =
            fcntl(stream, FcntlArg::F_GETFL).map_err(|errno| Error::errno(Step::SessionRequest, name, errno))?;
        if kind == SFlag::S_IFDIR || OFlag::from_bits_truncate(flags).contains(OFlag::O_PATH) {
            return Err(wrong(name, "is a directory or a path, which would lead out of the sandbox"));
        }
        if kind == SFlag::S_IFCHR && nix::unistd::isatty(stream).unwrap_or(false) {
            return Err(wrong(name, "is a terminal, which could be read and, on old kernels, typed into from inside")
                .hint("pass on its bytes through a pipe, or ask for a terminal of the command's own with tty"));
        }
    }
    Ok(streams)
}

/// The null device.
pub fn null() -> Result<OwnedFd> {
    crate::sys::file::open("/dev/null", OFlag::O_RDWR)
        .map_err(|errno| Error::errno(Step::SessionRequest, "/dev/null", errno))
}
