//! The workload's process: the program and everything that it inherits. Limits, groups, keyring, session, standard streams,
//! descriptors, signals, environment.

mod limits;
pub mod program;

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, sethostname, setsid};

pub use self::limits::core_helper;
use self::limits::{Limit, crashes_reach_a_helper, limits, name_of};
use self::program::{Executable, Found, Program};
use crate::error::{Error, Result, Step};
use crate::failure::{Applied, During, Missing, MissingSet};
use crate::plan::{Budget, Bytes, Command, Facility, RlimitResource};
use crate::report::Degraded;
use crate::sys::ablate::{Layer, without};
use crate::sys::mount::{NO_MAGICLINKS, open_beneath};
use crate::sys::pack::{Packer, Unpacker};
use crate::sys::process::{self, CStringArray};
use crate::sys::{credentials, terminal};

/// Everything that the child needs to become the workload.
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
    hostname_may_fail: bool,
}

/// Parent half. A container gets exactly the limits of its configuration. For a run, a limit that is only a safeguard may stay
/// as the caller has it.
pub fn prepare(command: &Command, hostname: Option<&Bytes>, rules: Rules) -> Result<PreparedProcess> {
    let argv = c_strings("argument", &command.argv)?;
    let program = command.argv.first().ok_or_else(|| Error::new(Step::Plan, "command", "is empty"))?;
    Ok(PreparedProcess {
        candidates: candidates(program, &command.env)?,
        argv: argv.into(),
        env: c_strings("environment variable", &command.env)?.into(),
        umask: Mode::from_bits_truncate(command.umask),
        hostname: hostname.cloned(),
        cwd: c_strings("working directory", std::slice::from_ref(&command.cwd))?.remove(0),
        limits: limits(&command.rlimits, rules.cpu_us, rules.core_is_a_guard)?,
        keyring_may_fail: rules.keyring_may_fail,
        hostname_may_fail: rules.hostname_may_fail,
    })
}

/// A limit of each process that replaces a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// The controller of the budget.
    pub controller: Facility,
    /// The limit.
    pub resource: RlimitResource,
    /// Its value.
    pub bound: u64,
}

impl std::fmt::Display for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.resource {
            RlimitResource::Nproc => write!(f, "RLIMIT_NPROC {} for the processes of its user", self.bound),
            _ => write!(f, "RLIMIT_DATA {} for each process", self.bound),
        }
    }
}

/// What run and container add to a command's own limits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The CPU time limit in microseconds, if no cgroup counts CPU time.
    pub cpu_us: Option<u64>,
    /// Whether a core limit of 1, which protects the host's crash helper, is dropped if the caller's limit is 0.
    pub core_is_a_guard: bool,
    /// Whether the caller's session keyring is kept if a new one cannot be created.
    pub keyring_may_fail: bool,
    /// Whether the caller's host name is kept if it cannot be changed.
    pub hostname_may_fail: bool,
}

fn c_strings(what: &str, all: &[Bytes]) -> Result<Vec<CString>> {
    all.iter()
        .map(|text| {
            CString::new(text.as_bytes())
                .map_err(|_| Error::new(Step::Plan, format!("{what} {text}"), "contains a NUL byte"))
        })
        .collect()
}

/// The paths to try: the program's own path, or its name in each directory of the sandbox's PATH.
fn candidates(program: &Bytes, env: &[Bytes]) -> Result<Vec<CString>> {
    let c_string = |bytes: Vec<u8>| {
        CString::new(bytes).map_err(|_| Error::new(Step::Plan, format!("command {program}"), "contains a NUL byte"))
    };
    if program.as_bytes().contains(&b'/') {
        return Ok(vec![c_string(program.as_bytes().to_vec())?]);
    }
    let path = env.iter().find_map(|text| text.as_bytes().strip_prefix(b"PATH=")).unwrap_or_default();
    // An empty component means the working directory, which the workload may control. It is skipped.
    path.split(|byte| *byte == b':')
        .filter(|directory| !directory.is_empty() && !program.as_bytes().is_empty())
        .map(|directory| c_string([directory, b"/", program.as_bytes()].concat()))
        .collect()
}

impl PreparedProcess {
    /// Parent half: limits each process where a budget cannot be enforced. `lacking` are its controllers.
    ///
    /// Processes are bounded by RLIMIT_NPROC: since Linux 5.14 it counts those of one user in one user namespace, which is the
    /// sandbox. Memory is bounded by RLIMIT_DATA, which counts private writable memory such as heaps and thread stacks.
    /// RLIMIT_AS would also count reserved address space, and programs that reserve much (node, Java, Go) would fail at once.
    /// For a default budget even RLIMIT_DATA is too much: a JVM with 200 threads, 300 threads of C and every program with a
    /// sanitizer fail with 2G.
    pub fn stand_in(&mut self, budget: &Budget, lacking: &[Facility], is_root_outside: bool) -> Result<Vec<StandIn>> {
        let mut stand_ins = Vec::new();
        for &controller in lacking {
            let (resource, bound) = match controller {
                Facility::Memory if !budget.if_possible.contains(&controller) => {
                    (RlimitResource::Data, budget.memory_bytes)
                }
                Facility::Pids if !is_root_outside => (RlimitResource::Nproc, budget.pids),
                _ => continue,
            };
            let Some(bound) = bound else { continue };
            stand_ins.push(StandIn { controller, resource, bound: self.lower(resource, bound)? });
        }
        Ok(stand_ins)
    }

    /// Lowers a limit and returns the new value.
    fn lower(&mut self, resource: RlimitResource, bound: u64) -> Result<u64> {
        let number = resource.number();
        let (_, own_hard) =
            process::rlimit(number).map_err(|errno| Error::errno(Step::Rlimit, resource.name(), errno))?;
        let planned = self.limits.iter().find(|limit| limit.resource == number);
        let bound = bound.min(planned.map_or(own_hard, |limit| limit.hard));
        let soft = bound.min(planned.map_or(bound, |limit| limit.soft));
        let raised = bound > own_hard; // only if a limit above the caller's was requested too
        self.limits.retain(|limit| limit.resource != number);
        self.limits.push(Limit { resource: number, soft, hard: bound, raised, verified: true, ..Limit::default() });
        Ok(bound)
    }

    /// Parent half after clone3: raises the limits that are above the caller's own, which requires CAP_SYS_RESOURCE. Returns
    /// the limit that a run must do without.
    pub fn raise_limits(&self, pid: Pid) -> Result<Option<Degraded>> {
        let mut lacking = None;
        for limit in self.limits.iter().filter(|limit| limit.raised) {
            match process::set_rlimit(Some(pid), limit.resource, limit.soft, limit.hard) {
                Err(Errno::EPERM) if limit.optional => lacking = crashes_reach_a_helper(),
                set => set.map_err(|errno| {
                    Error::errno(Step::Rlimit, name_of(limit.resource), errno).hint(
                        "the caller's own hard limit is lower, and raising it takes CAP_SYS_RESOURCE: ask for less, or raise it \
                         first (ulimit -H, limits.conf)",
                    )
                })?,
            }
        }
        Ok(lacking)
    }

    /// Child half: the steps that need capabilities.
    pub fn with_capabilities(&self, clear_groups: bool, missing: &mut MissingSet) -> Applied {
        match self.set_hostname() {
            Err(_) if self.hostname_may_fail => missing.add(Missing::Hostname),
            result => result?,
        }
        if !self.take_keyring()? {
            missing.add(Missing::Keyring);
        }
        if clear_groups {
            credentials::clear_groups().during(Step::Groups, 0)?;
        }
        Ok(())
    }

    /// Child half: joins a new session keyring. Returns `false` if there can be none and the policy allows that.
    pub fn take_keyring(&self) -> Applied<bool> {
        match process::join_new_session_keyring() {
            _ if without(Layer::Keyring) => Ok(true),
            Err(Errno::ENOSYS) => Ok(true), // a kernel without keyrings has none to share
            Err(_) if self.keyring_may_fail => Ok(false),
            result => result.during(Step::Keyring, 0).map(|()| true),
        }
    }

    /// Init's half: adds variables that the environment lacks.
    pub fn add_missing(&mut self, variables: impl IntoIterator<Item = CString>) {
        let name = |text: &CString| text.to_bytes().split(|byte| *byte == b'=').next().map(<[u8]>::to_vec);
        for variable in variables {
            if !self.env.strings().iter().any(|other| name(other) == name(&variable)) {
                self.env = self.env.with(variable);
            }
        }
    }

    /// Child half: sets the name of the new UTS namespace.
    pub fn set_hostname(&self) -> Applied {
        use std::os::unix::ffi::OsStrExt as _;
        let Some(hostname) = &self.hostname else { return Ok(()) };
        sethostname(std::ffi::OsStr::from_bytes(hostname.as_bytes())).during(Step::Hostname, 0)
    }

    /// Child half: takes the standard streams. The descriptors become 0, 1 and 2.
    pub fn take_streams(&self, streams: [BorrowedFd<'_>; 3]) -> Applied {
        for (number, stream) in streams.into_iter().enumerate() {
            process::dup_onto(stream, number as i32).during(Step::Streams, number)?;
        }
        Ok(())
    }

    /// Child half: creates a session. With `terminal` the standard input becomes its controlling terminal.
    pub fn start_session(&self, terminal: bool) -> Applied {
        if !without(Layer::Session) {
            setsid().during(Step::Session, 0)?;
        }
        if terminal {
            terminal::take_control(0).during(Step::Terminal, 1)?;
        }
        Ok(())
    }

    /// Whether the child half sets resource limits.
    pub fn has_limits(&self) -> bool {
        self.limits.iter().any(|limit| !limit.raised)
    }

    /// Child half: sets the resource limits that the parent does not set.
    pub fn limit(&self) -> Applied {
        for (index, limit) in self.limits.iter().enumerate().filter(|(_, limit)| !limit.raised) {
            process::set_rlimit(None, limit.resource, limit.soft, limit.hard).during(Step::Rlimit, index)?;
        }
        for (index, limit) in self.limits.iter().enumerate().filter(|(_, limit)| limit.verified) {
            if process::rlimit(limit.resource).during(Step::Rlimit, index)? != (limit.soft, limit.hard) {
                return Err(Errno::EINVAL).during(Step::Rlimit, index);
            }
        }
        Ok(())
    }

    /// Child half: sets everything else that the program inherits. All descriptors below `first` survive execve.
    pub fn settle(&self, first: i32) -> Applied {
        umask(self.umask);
        if !without(Layer::Descriptors) {
            process::cloexec_from(first).during(Step::Descriptors, 0)?;
        }
        process::reset_signals().during(Step::Signals, 0)
    }

    /// Child half: looks up the candidates. This happens before the filter is installed, so that the filter needs to allow only
    /// execve and the report of its failure.
    pub fn find(&self) -> Applied<Found<'_>> {
        let mut programs: Vec<(&CString, Program)> = Vec::new();
        let mut failed = Errno::ENOENT;
        for candidate in &self.candidates {
            match Program::find(candidate) {
                // /bin/sh and /usr/bin/sh are often the same file, which is tried only once.
                Ok(program) if programs.iter().any(|(_, known)| known.named == program.named) => {}
                Ok(program) => programs.push((candidate, program)),
                Err(errno @ (Errno::EACCES | Errno::ELOOP)) => failed = errno,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG) => {}
                Err(errno) => return Err(errno).during(Step::Exec, 0), // it may exist
            }
        }
        if programs.is_empty() { Err(failed).during(Step::Exec, 0) } else { Ok(Found { programs }) }
    }

    /// The working directory, an absolute path.
    pub fn cwd(&self) -> &CStr {
        &self.cwd
    }

    /// Init's half: changes it.
    pub fn set_cwd(&mut self, cwd: CString) {
        self.cwd = cwd;
    }

    /// Child half: opens the working directory within the new root.
    pub fn open_cwd(&self) -> std::result::Result<OwnedFd, Errno> {
        open_beneath(AT_FDCWD, &self.cwd, libc::O_PATH | libc::O_DIRECTORY, NO_MAGICLINKS)
    }

    /// The environment with one more variable.
    pub fn env_with(&self, variable: CString) -> CStringArray {
        self.env.with(variable)
    }

    /// Child half: executes the first candidate that can be executed, with this environment or its own. Returns only a failure.
    pub fn exec(&self, found: &Executable<'_>, env: Option<&CStringArray>) -> Applied<std::convert::Infallible> {
        let env = env.unwrap_or(&self.env);
        let mut failed = (Step::Interpreter, Errno::ENOENT); // the file exists, so ENOENT is about the interpreter in its first line
        for path in &found.paths {
            match process::execve(path, &self.argv, env) {
                Errno::ENOENT | Errno::ENOTDIR => {}
                errno @ Errno::EACCES => failed = (Step::Exec, errno), // as execvp(3): another directory may have it
                errno => return Err(errno).during(Step::Exec, 0),
            }
        }
        Err(failed.1).during(failed.0, 0)
    }

    /// Writes what a later command of a session needs.
    pub fn pack(&self, packer: &mut Packer) {
        packer.strings(&self.candidates);
        packer.strings(self.argv.strings());
        packer.strings(self.env.strings());
        packer.string(&self.cwd);
        packer.number(self.umask.bits().into());
        packer.number(self.keyring_may_fail.into());
        packer.number(self.limits.len() as u64);
        for Limit { resource, soft, hard, raised, optional, verified } in &self.limits {
            [u64::from(*resource), *soft, *hard].into_iter().for_each(|number| packer.number(number));
            [raised, optional, verified].into_iter().for_each(|flag| packer.number((*flag).into()));
        }
    }

    /// Init's half.
    pub fn unpack(packed: &mut Unpacker<'_>) -> std::result::Result<Self, Errno> {
        let mut process = Self {
            candidates: packed.strings()?,
            argv: packed.strings()?.into(),
            env: packed.strings()?.into(),
            cwd: packed.string()?,
            umask: Mode::from_bits_truncate(packed.number()? as libc::mode_t),
            keyring_may_fail: packed.number()? != 0,
            hostname: None,
            limits: Vec::new(),
            hostname_may_fail: false,
        };
        for _ in 0..packed.number()? {
            let (resource, soft, hard) = (packed.number()? as u32, packed.number()?, packed.number()?);
            let mut flag = || packed.number().map(|number| number != 0);
            let (raised, optional, verified) = (flag()?, flag()?, flag()?);
            process.limits.push(Limit { resource, soft, hard, raised, optional, verified });
        }
        Ok(process)
    }

    /// The name of the limit or stream of a failure.
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
