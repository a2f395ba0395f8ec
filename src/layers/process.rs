//! The workload's process: what it executes and what it inherits. Limits, groups, keyring, session, standard streams,
//! descriptors, signals, environment.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, Pid, faccessat, sethostname, setsid};

use super::program::Program;
use super::{Applied, During, Missing, MissingSet};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Facility, Plan, Rlimit, RlimitResource};
use crate::sys::ablate::{Layer, without};
use crate::sys::mount::{FileOnMount, NO_MAGICLINKS, open_beneath};
use crate::sys::process::{self, CStringArray};
use crate::sys::terminal;

/// Everything the child needs to become the workload.
#[derive(Debug)]
pub struct PreparedProcess {
    candidates: Vec<CString>,
    argv: CStringArray,
    env: CStringArray,
    umask: Mode,
    hostname: Option<Bytes>,
    cwd: CString,
    limits: Vec<Limit>,
    keyring_may_fail: bool,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    resource: u32,
    soft: u64,
    hard: u64,
    /// Above the caller's own hard limit: the parent has to set it, with CAP_SYS_RESOURCE.
    raised: bool,
}

/// Parent half.
pub fn prepare(plan: &Plan) -> Result<PreparedProcess> {
    let argv = c_strings("argument", &plan.command.argv)?;
    let program = plan.command.argv.first().ok_or_else(|| Error::new(Step::Plan, "command", "is empty"))?;
    Ok(PreparedProcess {
        candidates: candidates(program, &plan.command.env)?,
        argv: argv.into(),
        env: c_strings("environment variable", &plan.command.env)?.into(),
        umask: Mode::from_bits_truncate(plan.command.umask),
        hostname: plan.hostname.clone(),
        cwd: c_strings("working directory", std::slice::from_ref(&plan.command.cwd))?.remove(0),
        limits: limits(plan)?,
        keyring_may_fail: plan.allow_degraded.contains(&Facility::Keyring),
    })
}

fn c_strings(what: &str, all: &[Bytes]) -> Result<Vec<CString>> {
    all.iter()
        .map(|text| {
            CString::new(text.as_bytes())
                .map_err(|_| Error::new(Step::Plan, format!("{what} {text}"), "contains a NUL byte"))
        })
        .collect()
}

/// Where the program may be: its own path, or in each directory of the sandbox's PATH.
fn candidates(program: &Bytes, env: &[Bytes]) -> Result<Vec<CString>> {
    let c_string = |bytes: Vec<u8>| {
        CString::new(bytes).map_err(|_| Error::new(Step::Plan, format!("command {program}"), "contains a NUL byte"))
    };
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program.as_bytes().to_vec())?]);
    }
    let path = env.iter().find_map(|text| text.as_bytes().strip_prefix(b"PATH=")).unwrap_or_default();
    // An empty component means the working directory, which the workload may have filled: left out.
    path.split(|byte| *byte == b':')
        .filter(|directory| !directory.is_empty() && !program.as_bytes().is_empty())
        .map(|directory| c_string([directory, b"/", program.as_bytes()].concat()))
        .collect()
}

fn limits(plan: &Plan) -> Result<Vec<Limit>> {
    let mut limits = plan.rlimits.iter().map(limit).collect::<Result<Vec<_>>>()?;
    // Without a cgroup the kernel bounds CPU time by process only: a backstop for the supervisor's own count.
    if let Some(cpu_us) = plan.deadlines.cpu_us {
        let (seconds, cpu) = (cpu_us.div_ceil(1_000_000).max(1), RlimitResource::Cpu.number());
        let (_, own_hard) = process::rlimit(cpu).map_err(|errno| Error::errno(Step::Rlimit, "cpu", errno))?;
        if !limits.iter().any(|limit| limit.resource == cpu && limit.soft <= seconds) {
            limits.retain(|limit| limit.resource != cpu);
            let (soft, hard) = (seconds.min(own_hard), (seconds + 1).min(own_hard));
            limits.push(Limit { resource: cpu, soft, hard, raised: false });
        }
    }
    Ok(limits)
}

fn limit(planned: &Rlimit) -> Result<Limit> {
    let resource = planned.resource.number();
    let failed = |errno| Error::errno(Step::Rlimit, planned.resource.name(), errno);
    let (_, own_hard) = process::rlimit(resource).map_err(failed)?;
    let (mut soft, mut hard) =
        (planned.soft.unwrap_or(libc::RLIM_INFINITY), planned.hard.unwrap_or(libc::RLIM_INFINITY));
    if planned.clamp {
        (soft, hard) = (soft.min(own_hard), hard.min(own_hard));
    }
    Ok(Limit { resource, soft, hard, raised: hard > own_hard })
}

/// What execve(2) is to be tried with.
#[derive(Debug)]
pub struct Executable<'a> {
    paths: Vec<&'a CString>,
    /// What the first of them executes.
    pub executed: Option<FileOnMount>,
}

/// The candidates that are there, opened, in the order of the sandbox's PATH.
#[derive(Debug)]
pub struct Found<'a> {
    programs: Vec<(&'a CString, Program)>,
}

impl<'a> Found<'a> {
    /// The first one.
    pub fn program(&self) -> Option<&Program> {
        self.programs.first().map(|(_, program)| program)
    }

    /// Leaves out those that may not be executed: they are as missing as `execvp(3)` finds them.
    pub fn retain_executable(&mut self) -> Applied {
        self.programs.retain(|(_, program)| {
            let flags = AtFlags::AT_EACCESS | AtFlags::AT_EMPTY_PATH;
            let access = faccessat(&program.file, c"", AccessFlags::X_OK, flags);
            // Any other error is of a filter that is in force already: then execve says what is true.
            !program.is_directory() && access != Err(Errno::EACCES)
        });
        if self.programs.is_empty() { Err(Errno::EACCES).during(Step::Exec, 0) } else { Ok(()) }
    }

    /// Closes them.
    pub fn close(self) -> Executable<'a> {
        let executed = self.program().map(|program| program.executed);
        Executable { paths: self.programs.into_iter().map(|(path, _)| path).collect(), executed }
    }
}

impl PreparedProcess {
    /// Parent half after clone3: sets the limits that are above the caller's own, which takes CAP_SYS_RESOURCE.
    pub fn raise_limits(&self, pid: Pid) -> Result<()> {
        for limit in self.limits.iter().filter(|limit| limit.raised) {
            process::set_rlimit(Some(pid), limit.resource, limit.soft, limit.hard).map_err(|errno| {
                Error::errno(Step::Rlimit, name_of(limit.resource), errno).hint(
                    "the caller's own hard limit is lower, and raising it takes CAP_SYS_RESOURCE: ask for less, or raise it first \
                     (ulimit -H, limits.conf)",
                )
            })?;
        }
        Ok(())
    }

    /// Child half, with capabilities: what needs them before they are dropped.
    pub fn with_capabilities(&self, clear_groups: bool, missing: &mut MissingSet) -> Applied {
        self.set_hostname()?;
        match process::join_new_session_keyring() {
            _ if without(Layer::Keyring) => {}
            Err(Errno::ENOSYS) => {} // a kernel without keyrings has none to share
            Err(_) if self.keyring_may_fail => missing.add(Missing::Keyring),
            result => result.during(Step::Keyring, 0)?,
        }
        if clear_groups {
            process::clear_groups().during(Step::Groups, 0)?;
        }
        Ok(())
    }

    /// Child half: the name of the new UTS namespace.
    pub fn set_hostname(&self) -> Applied {
        use std::os::unix::ffi::OsStrExt as _;
        let Some(hostname) = &self.hostname else { return Ok(()) };
        sethostname(std::ffi::OsStr::from_bytes(hostname.as_bytes())).during(Step::Hostname, 0)
    }

    /// Child half: a session of its own, and the standard streams.
    ///
    /// The three descriptors are those that become 0, 1 and 2; with `terminal` the first is made the controlling one.
    pub fn take_streams(&self, streams: [BorrowedFd<'_>; 3], terminal: bool) -> Applied {
        if !without(Layer::Session) {
            setsid().during(Step::Session, 0)?;
        }
        for (number, stream) in streams.into_iter().enumerate() {
            process::dup_onto(stream, number as i32).during(Step::Streams, number)?;
        }
        if terminal {
            terminal::take_control(0).during(Step::Terminal, 1)?;
        }
        Ok(())
    }

    /// Child half: everything else it inherits. After this no descriptor but 0 to 2 survives execve.
    pub fn settle(&self) -> Applied {
        self.settle_but(3)
    }

    /// As [`Self::settle`]: the descriptors below `first` survive.
    pub fn settle_but(&self, first: i32) -> Applied {
        umask(self.umask);
        for (index, limit) in self.limits.iter().enumerate().filter(|(_, limit)| !limit.raised) {
            process::set_rlimit(None, limit.resource, limit.soft, limit.hard).during(Step::Rlimit, index)?;
        }
        if !without(Layer::Descriptors) {
            process::cloexec_from(first).during(Step::Descriptors, 0)?;
        }
        process::reset_signals().during(Step::Signals, 0)
    }

    /// Child half: looks the candidates up. A look before the filter is on: no call but execve, and whatever tells of its
    /// failure, then has to be allowed.
    pub fn find(&self) -> Applied<Found<'_>> {
        let mut programs: Vec<(&CString, Program)> = Vec::new();
        let mut failed = Errno::ENOENT;
        for candidate in &self.candidates {
            match Program::find(candidate) {
                // Another name of the same file, as /bin is of /usr/bin, is no other candidate.
                Ok(program) if programs.iter().any(|(_, known)| known.named == program.named) => {}
                Ok(program) => programs.push((candidate, program)),
                Err(errno @ (Errno::EACCES | Errno::ELOOP)) => failed = errno,
                Err(_) => {}
            }
        }
        if programs.is_empty() { Err(failed).during(Step::Exec, 0) } else { Ok(Found { programs }) }
    }

    /// Child half: the working directory, in a root that is already ours.
    pub fn open_cwd(&self) -> std::result::Result<OwnedFd, Errno> {
        open_beneath(AT_FDCWD, &self.cwd, libc::O_PATH | libc::O_DIRECTORY, NO_MAGICLINKS)
    }

    /// Child half: executes the first of these that can be executed. Returns only with a failure.
    pub fn exec(&self, found: &Executable<'_>) -> Applied<std::convert::Infallible> {
        let mut failed = (Step::Interpreter, Errno::ENOENT); // it is there, so what is missing is what its first line names
        for path in &found.paths {
            match process::execve(path, &self.argv, &self.env) {
                Errno::ENOENT | Errno::ENOTDIR => {}
                errno @ Errno::EACCES => failed = (Step::Exec, errno), // as execvp(3): another directory may have it
                errno => return Err(errno).during(Step::Exec, 0),
            }
        }
        Err(failed.1).during(failed.0, 0)
    }

    /// Names the limit that a failure was about.
    pub fn object(&self, step: Step, index: usize) -> Option<String> {
        match step {
            Step::Rlimit => self.limits.get(index).map(|limit| name_of(limit.resource).to_owned()),
            Step::Streams => {
                ["standard input", "standard output", "standard error"].get(index).map(ToString::to_string)
            }
            _ => None,
        }
    }
}

fn name_of(resource: u32) -> &'static str {
    RlimitResource::ALL.iter().find(|item| item.number() == resource).map_or("?", |item| item.name())
}
