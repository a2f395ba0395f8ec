//! The workload's process: what it executes and what it inherits. Limits, groups, keyring, session, standard streams,
//! descriptors, signals, environment.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{AccessFlags, Pid, faccessat, sethostname, setsid};

use super::{Applied, During, Missing, MissingSet};
use crate::error::{Error, Result, Step};
use crate::plan::{Bytes, Facility, Plan, Rlimit, RlimitResource};
use crate::sys::ablate::{Layer, without};
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

    /// Child half: the first candidate that is there, by its index. A look before the filter is on: no call but execve, and
    /// whatever tells of its failure, then has to be allowed.
    pub fn find(&self) -> Applied<usize> {
        self.candidates.iter().position(|candidate| exists(candidate)).ok_or(Errno::ENOENT).during(Step::Exec, 0)
    }

    /// Child half: a path to that candidate, which has no side effect whatever it is, and when it was last changed.
    pub fn open(&self, found: usize) -> nix::Result<(OwnedFd, u64)> {
        let candidate = self.candidates.get(found).ok_or(Errno::ENOENT)?;
        let file = nix::fcntl::open(candidate.as_c_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
        let changed_ns = changed_ns(&nix::sys::stat::fstat(&file)?);
        Ok((file, changed_ns))
    }

    /// Child half: as [`Self::find`], and that may be executed. One that may not is as missing as `execvp(3)` finds it.
    pub fn find_executable(&self) -> Applied<usize> {
        let mut failed = Errno::ENOENT;
        for (index, candidate) in self.candidates.iter().enumerate() {
            match faccessat(nix::fcntl::AT_FDCWD.as_fd(), candidate.as_c_str(), AccessFlags::X_OK, AtFlags::AT_EACCESS)
            {
                Ok(()) if !is_directory(candidate) => return Ok(index),
                Ok(()) | Err(Errno::EACCES) => failed = Errno::EACCES,
                Err(_) => {}
            }
        }
        Err(failed).during(Step::Exec, 0)
    }

    /// Child half: enters the working directory by its path, in a root that is already ours.
    pub fn enter_cwd(&self) -> Applied {
        nix::unistd::chdir(self.cwd.as_c_str()).during(Step::Cwd, 0)
    }

    /// Child half: that the working directory lies below our root, whatever its path led through.
    pub fn verify_cwd(&self) -> Applied {
        match nix::unistd::getcwd() {
            Ok(path) if path.is_absolute() => Ok(()),
            Ok(_) => Err(Errno::EXDEV),
            Err(errno) => Err(errno),
        }
        .during(Step::Cwd, 1)
    }

    /// Child half: executes the first candidate that can be executed, of those from `found` on. Returns only with a failure.
    pub fn exec(&self, found: usize) -> Applied<std::convert::Infallible> {
        let mut failed = (Step::Interpreter, Errno::ENOENT); // it is there, so what is missing is what its first line names
        for candidate in &self.candidates[found..] {
            match process::execve(candidate, &self.argv, &self.env) {
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

/// When a file's contents or attributes were last changed, by the kernel's clock, which nobody can set back.
pub fn changed_ns(stat: &nix::sys::stat::FileStat) -> u64 {
    (stat.st_ctime as u64).wrapping_mul(1_000_000_000).wrapping_add(stat.st_ctime_nsec as u64)
}

fn is_directory(path: &std::ffi::CStr) -> bool {
    nix::sys::stat::stat(path).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

fn exists(path: &std::ffi::CStr) -> bool {
    faccessat(nix::fcntl::AT_FDCWD.as_fd(), path, AccessFlags::F_OK, AtFlags::empty()).is_ok()
}

fn name_of(resource: u32) -> &'static str {
    RlimitResource::ALL.iter().find(|item| item.number() == resource).map_or("?", |item| item.name())
}
