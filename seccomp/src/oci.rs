//! The seccomp part of the OCI runtime specification, with the extensions of two engines: Docker's `archMap`, `includes` and
//! `excludes`, and Podman's `errno` names.
//!
//! Unknown keys are ignored, as by other readers of these files; duplicate keys are errors. One extension is ours: `otherwise`,
//! a second list of rules for calls that no rule of `syscalls` matches. It determines the error of a refused call (`ENOTTY` for
//! an ioctl, `EAFNOSUPPORT` for a socket). A reader that does not know it refuses the same calls with the default error.

mod architectures;

use crate::MAX_BYTES;
use crate::action::{Action, ENOSYS, MAX_ERRNO, errno_number};
use crate::model::{Condition, Flags, Format, Listener, OTHERWISE, Operator, Origin, Profile, Rule, Stage};
use crate::names::{Arch, Width, exists_somewhere};
use stockade_json::{At, Error, Json, parse};

/// The environment for the conditions of a profile (`includes`, `excludes`).
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// The architecture to compile for.
    pub arch: Arch,
    /// The running kernel's version: `(6, 1)`.
    pub kernel: (u32, u32),
    /// The workload's capabilities, as `CAP_SYS_ADMIN`.
    pub capabilities: &'a [&'a str],
    /// Whether warnings are errors, for example for a name that no architecture has.
    pub strict: bool,
}

/// How the warning about a name that no architecture has ends.
pub const UNKNOWN_CALL: &str = "is not a system call of any architecture";

/// A part of a profile that has no effect, or another effect than it seems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The place: `syscalls[3].names[0]`.
    pub path: String,
    /// The problem.
    pub text: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}

/// Reads a profile.
pub fn read(bytes: &[u8], context: &Context) -> Result<(Profile, Vec<Warning>), Error> {
    read_tree(&parse(bytes, MAX_BYTES)?, context)
}

/// Reads a profile from a parsed tree.
pub fn read_tree(json: &Json, context: &Context) -> Result<(Profile, Vec<Warning>), Error> {
    let mut reader = Reader { context, warnings: Vec::new(), is_group: false };
    let root = At::root(json);
    let profile = reader.profile(&root)?;
    Ok((profile, reader.warnings))
}

/// Reads the part of a profile that a group consists of: its `syscalls` and its `otherwise`.
pub fn read_group(bytes: &[u8], name: &str, context: &Context) -> Result<[Stage; 2], Error> {
    let json = parse(bytes, MAX_BYTES)?;
    let root = At::root(&json);
    let mut reader = Reader { context, warnings: Vec::new(), is_group: true };
    let rules = Stage { name: name.to_owned(), ..reader.stage(&root, "syscalls")? };
    let otherwise = Stage { name: format!("{name} otherwise"), ..reader.stage(&root, OTHERWISE)? };
    Ok([rules, otherwise])
}

struct Reader<'c> {
    context: &'c Context<'c>,
    warnings: Vec<Warning>,
    /// Groups and guards are ours: a call that does nothing and succeeds is intended there.
    is_group: bool,
}

impl Reader<'_> {
    fn profile(&mut self, root: &At) -> Result<Profile, Error> {
        let default = root.get("defaultAction")?.ok_or_else(|| root.lacks("defaultAction is missing"))?;
        let errno = self.errno(root, "defaultErrnoRet", "defaultErrno")?;
        let default = self.action(&default, errno)?;
        if default == Action::Notify {
            return Err(root.get("defaultAction")?.unwrap_or(*root).wrong("a listener cannot decide every call"));
        }
        self.architectures(root)?;
        let mut stages = vec![self.stage(root, "syscalls")?];
        if root.get(OTHERWISE)?.is_some() {
            stages.push(Stage { name: OTHERWISE.to_owned(), ..self.stage(root, OTHERWISE)? });
        }
        // As in runc: a C library that tries a new call falls back to the old one on ENOSYS, but gives up on EPERM. With an
        // action that makes the call or leaves it to a tracer, the kernel itself returns ENOSYS.
        let refuses = default.leniency() <= Action::Errno(0).leniency();
        let beyond = if refuses { Action::Errno(ENOSYS) } else { default };
        let flags = self.flags(root)?;
        let listener = self.listener(root)?;
        let arch = self.context.arch;
        let profile = Profile { format: Format::Oci, arch, default, beyond, stages, flags, listener };
        if profile.notifies() && profile.listener.is_none() {
            return Err(root.lacks("SCMP_ACT_NOTIFY is used, but there is no listenerPath to send the calls to"));
        }
        Ok(profile)
    }

    fn stage(&mut self, root: &At, list: &'static str) -> Result<Stage, Error> {
        let mut stage = Stage::default();
        let Some(entries) = root.get(list)? else { return Ok(stage) };
        for (index, entry) in entries.items()?.enumerate() {
            let rules = self.rules(&entry, Origin(list, index))?;
            if self.applies(&entry)? {
                stage.rules.extend(rules);
            }
        }
        Ok(stage)
    }

    fn rules(&mut self, entry: &At, origin: Origin) -> Result<Vec<Rule>, Error> {
        let action = entry.get("action")?.ok_or_else(|| entry.lacks("action is missing"))?;
        let errno = self.errno(entry, "errnoRet", "errno")?;
        let action = self.action(&action, errno)?;
        if action == Action::Errno(0) && !self.is_group {
            self.warn(entry, "a refused call returns 0, which the program takes for success")?;
        }
        let calls = self.numbers(entry)?;
        let write = self.context.arch.number("write");
        if action == Action::Notify && calls.iter().any(|call| Some(call.0) == write) {
            return Err(entry.lacks("SCMP_ACT_NOTIFY cannot be used for the write syscall"));
        }
        let mut tests = Vec::new();
        if let Some(args) = entry.get("args")? {
            for arg in args.items()? {
                tests.push(self.condition(&arg)?);
            }
        }
        // One rule, unless the calls in it have different widths for the tested arguments.
        let mut rules: Vec<Rule> = Vec::new();
        for (number, widths) in calls {
            let condition = |&(argument, operator, value): &(u8, Operator, u64)| Condition {
                argument,
                width: widths[usize::from(argument)],
                operator,
                value,
            };
            let mut same = rules.iter_mut().filter(|rule| {
                rule.conditions.iter().all(|condition| condition.width == widths[usize::from(condition.argument)])
            });
            match same.next() {
                Some(rule) => rule.numbers.push(number),
                None => {
                    let conditions: Vec<Condition> = tests.iter().map(condition).collect();
                    self.check_conjunction(entry, &conditions)?;
                    rules.push(Rule { numbers: vec![number], conditions, action, origin });
                }
            }
        }
        Ok(rules)
    }

    /// The numbers and parameter widths of an entry's names, without duplicates.
    fn numbers(&mut self, entry: &At) -> Result<Vec<(u32, [Width; 6])>, Error> {
        let mut calls: Vec<(u32, [Width; 6])> = Vec::new();
        let names = entry.get("names")?;
        let name = entry.get("name")?.filter(|name| *name.json != Json::String("".into()));
        match (&names, &name) {
            (Some(names), None) => {
                for name in names.items()? {
                    self.number(&name, &mut calls)?;
                }
            }
            (None, Some(name)) => self.number(name, &mut calls)?,
            (Some(names), Some(name)) if names.items()?.next().is_none() => self.number(name, &mut calls)?,
            (Some(_), Some(name)) => return Err(name.wrong("conflicts with names; remove one of them")),
            (None, None) => return Err(entry.lacks("names is missing")),
        }
        if names.is_some_and(|names| matches!(names.json, Json::Array(items) if items.is_empty())) && name.is_none() {
            self.warn(entry, "names no system call: the rule does nothing")?;
        }
        calls.sort_unstable_by_key(|call| call.0);
        calls.dedup_by_key(|call| call.0);
        Ok(calls)
    }

    fn number(&mut self, name: &At, calls: &mut Vec<(u32, [Width; 6])>) -> Result<(), Error> {
        let text = name.text()?;
        match self.context.arch.lookup(text) {
            Some(call) => calls.push(call),
            None if exists_somewhere(text) => {}
            None if self.context.strict => return Err(name.wrong(UNKNOWN_CALL)),
            None => self.warn(name, &format!("{text:?} {UNKNOWN_CALL}"))?,
        }
        Ok(())
    }

    fn condition(&mut self, arg: &At) -> Result<(u8, Operator, u64), Error> {
        let field = |name| arg.get(name)?.map(|value| value.number(u64::MAX)).transpose();
        let index = arg.get("index")?.map_or(Ok(0), |index| index.number(5))?;
        let (value, two) = (field("value")?.unwrap_or(0), field("valueTwo")?.unwrap_or(0));
        let op = arg.get("op")?.ok_or_else(|| arg.lacks("op is missing"))?;
        let operator = match op.text()? {
            "SCMP_CMP_NE" => Operator::NotEqual,
            "SCMP_CMP_LT" => Operator::Less,
            "SCMP_CMP_LE" => Operator::LessOrEqual,
            "SCMP_CMP_EQ" => Operator::Equal,
            "SCMP_CMP_GE" => Operator::GreaterOrEqual,
            "SCMP_CMP_GT" => Operator::Greater,
            "SCMP_CMP_MASKED_EQ" => Operator::MaskedEqual(value),
            _ => {
                let known = "SCMP_CMP_NE, _LT, _LE, _EQ, _GE, _GT or _MASKED_EQ";
                return Err(op.wrong(format!("is not a comparison operator; known are {known}")));
            }
        };
        let masked = matches!(operator, Operator::MaskedEqual(_));
        if !masked && two != 0 {
            self.warn(arg, "valueTwo has a meaning only for SCMP_CMP_MASKED_EQ")?;
        }
        if masked && two & !value != 0 {
            self.warn(arg, "valueTwo has bits that the mask in value lacks: this never holds")?;
        }
        Ok((index as u8, operator, if masked { two } else { value }))
    }

    /// runc and crun turn a rule that tests one argument twice into alternatives, but the specification says "and". We follow
    /// the specification and warn. A rule that only makes sense as alternatives is refused, because "and" would let calls
    /// through.
    fn check_conjunction(&mut self, entry: &At, conditions: &[Condition]) -> Result<(), Error> {
        let (mut seen, mut repeated) = ([false; 6], false);
        for condition in conditions {
            repeated |= std::mem::replace(&mut seen[usize::from(condition.argument)], true);
        }
        if !repeated {
            return Ok(());
        }
        if crate::ranges::of(conditions).is_none() {
            return Err(entry.lacks("its conditions exclude each other; alternatives must be separate entries"));
        }
        self.warn(
            entry,
            "tests one argument more than once: all conditions must hold here, but runc and crun accept any",
        )
    }

    /// Whether `includes` and `excludes` admit the entry.
    fn applies(&mut self, entry: &At) -> Result<bool, Error> {
        let mut applies = true;
        for (key, wanted) in [("includes", true), ("excludes", false)] {
            let Some(filter) = entry.get(key)? else { continue };
            if let Some(arches) = filter.get("arches")? {
                let names: Vec<&str> = arches.items()?.map(|arch| arch.text()).collect::<Result<_, _>>()?;
                applies &= names.is_empty() || names.contains(&self.context.arch.docker_name()) == wanted;
            }
            if let Some(caps) = filter.get("caps")? {
                for cap in caps.items()? {
                    let name = cap.text()?;
                    if !name.starts_with("CAP_") {
                        self.warn(&cap, &format!("{name:?} is not a capability"))?;
                    }
                    applies &= self.context.capabilities.contains(&name) == wanted;
                }
            }
            if let Some(version) = filter.get("minKernel")? {
                applies &= (self.context.kernel >= kernel_version(&version)?) == wanted;
            }
        }
        Ok(applies)
    }

    fn action(&mut self, name: &At, errno: Option<u16>) -> Result<Action, Error> {
        let action = Action::from_oci(name.text()?).ok_or_else(|| {
            name.wrong("is not an action; known are SCMP_ACT_ALLOW, _ERRNO, _KILL, _KILL_PROCESS, _KILL_THREAD, _LOG, _NOTIFY, _TRACE and _TRAP")
        })?;
        match (action, errno) {
            (Action::Errno(_), Some(number)) => Ok(Action::Errno(number)),
            (Action::Trace(_), Some(number)) => Ok(Action::Trace(number)),
            (_, Some(_)) => Err(name.wrong("has no error number, but one is given")),
            (_, None) => Ok(action),
        }
    }

    /// The error number. Podman's name overrides the number, as in Podman.
    fn errno(&mut self, at: &At, number: &str, name: &str) -> Result<Option<u16>, Error> {
        let given = at.get(number)?.map(|value| value.number(u64::from(MAX_ERRNO))).transpose()?;
        let named = match at.get(name)?.filter(|text| *text.json != Json::String("".into())) {
            None => None,
            Some(text) => {
                let errno = text.text()?;
                Some(errno_number(errno).ok_or_else(|| text.wrong("is not a known error name; use errnoRet"))?)
            }
        };
        if let (Some(given), Some(named)) = (given, named)
            && given != u64::from(named)
        {
            self.warn(at, &format!("{number} and {name} differ; {name} counts"))?;
        }
        Ok(named.or(given.map(|given| given as u16)))
    }

    fn flags(&mut self, root: &At) -> Result<Flags, Error> {
        let mut flags = Flags::default();
        if let Some(list) = root.get("flags")? {
            for flag in list.items()? {
                if !flags.set(flag.text()?) {
                    return Err(flag.wrong(format!("is not a flag; known are {}", Flags::NAMES.join(", "))));
                }
            }
        }
        Ok(flags)
    }

    fn listener(&mut self, root: &At) -> Result<Option<Listener>, Error> {
        let metadata = match root.get("listenerMetadata")? {
            Some(metadata) => metadata.text()?.to_owned(),
            None => String::new(),
        };
        match root.get("listenerPath")? {
            None if metadata.is_empty() => Ok(None),
            None => Err(root.lacks("listenerMetadata is given, but no listenerPath")),
            Some(path) => match path.text()? {
                "" => Ok(None),
                text if !text.starts_with('/') || text.contains('\0') => Err(path.wrong("must be an absolute path")),
                text => Ok(Some(Listener { path: text.to_owned(), metadata })),
            },
        }
    }

    fn warn(&mut self, at: &At, text: &str) -> Result<(), Error> {
        if self.context.strict {
            return Err(at.lacks(text));
        }
        self.warnings.push(Warning { path: at.path(), text: text.to_owned() });
        Ok(())
    }
}

/// A version such as `6.1`, in Docker's format: exactly two numbers.
fn kernel_version(version: &At) -> Result<(u32, u32), Error> {
    let parsed = version.text()?.split_once('.').and_then(|(major, minor)| {
        let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().ok(),
            false => None,
        };
        Some((number(major)?, number(minor)?)).filter(|version| *version != (0, 0))
    });
    parsed.ok_or_else(|| version.wrong("must be a kernel version of two numbers, such as \"4.8\""))
}
