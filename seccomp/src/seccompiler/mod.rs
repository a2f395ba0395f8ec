//! The JSON format of the seccompiler crate (Firecracker): an object of named filters, each with one action for matching calls
//! and one for the others. The crate compiles the rules. The text is parsed here, so that errors name the place and `explain`
//! knows the rules.
//!
//! A file has the same meaning as for the crate, with three exceptions. Calls of the x32 table and of other architectures kill
//! the process. An argument is compared in no more bits than the kernel reads. Rules of one call with and without arguments are
//! alternatives; the crate's own parser drops the rule without arguments. Unknown names and keys are errors, as in the crate.

mod compile;

pub use compile::compile;

use stockade_json::{At, Error, Json};

use crate::action::{Action, MAX_ERRNO};
use crate::model::{Condition, Flags, Format, Operator, Origin, Profile, Rule, Stage};
use crate::names::Width;
use crate::oci::Context;

/// Whether a document has this format: an object of objects with a `filter`.
pub fn is_it(json: &Json) -> bool {
    let Json::Object(entries) = json else { return false };
    let is_filter = |value: &Json| matches!(value, Json::Object(keys) if keys.iter().any(|key| key.0 == "filter"));
    !entries.is_empty() && entries.iter().all(|entry| is_filter(&entry.1))
}

/// Reads the filter of this name or, without a name, the only one.
pub fn read(json: &Json, name: Option<&str>, context: &Context) -> Result<Profile, Error> {
    let root = At::root(json);
    let names: Vec<&str> = root.entries()?.map(|entry| entry.0).collect();
    let wanted = match (name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => return Err(root.lacks(format!("has several filters: {}; select one by name", names.join(", ")))),
    };
    let filter = root
        .get(wanted)?
        .ok_or_else(|| root.lacks(format!("has no filter {wanted:?}; known are {}", names.join(", "))))?;
    // Every filter is parsed, so that a mistake in an unused one is found now.
    for (_, other) in root.entries()?.filter(|entry| entry.0 != wanted) {
        read_filter(&other, context)?;
    }
    read_filter(&filter, context)
}

fn read_filter(filter: &At, context: &Context) -> Result<Profile, Error> {
    known_keys(filter, &["mismatch_action", "default_action", "match_action", "filter_action", "filter"])?;
    let action = |new: &'static str, old: &'static str| match (filter.get(new)?, filter.get(old)?) {
        (Some(_), Some(old)) => Err(old.lacks(format!("conflicts with {new}, which means the same"))),
        (Some(at), None) | (None, Some(at)) => read_action(&at),
        (None, None) => Err(filter.lacks(format!("{new} is missing"))),
    };
    let default = action("mismatch_action", "default_action")?;
    let matched = action("match_action", "filter_action")?;
    if default == matched {
        return Err(filter.lacks("mismatch_action and match_action are the same: the filter does nothing"));
    }
    let mut stage = Stage::default();
    let rules = filter.get("filter")?.ok_or_else(|| filter.lacks("filter is missing"))?;
    for (index, rule) in rules.items()?.enumerate() {
        stage.rules.push(read_rule(&rule, matched, Origin("filter", index), context)?);
    }
    Ok(Profile {
        format: Format::Seccompiler,
        arch: context.arch,
        default,
        beyond: default,
        stages: vec![stage],
        flags: Flags::default(),
        listener: None,
    })
}

fn read_rule(rule: &At, action: Action, origin: Origin, context: &Context) -> Result<Rule, Error> {
    known_keys(rule, &["syscall", "args", "comment"])?;
    let name = rule.get("syscall")?.ok_or_else(|| rule.lacks("syscall is missing"))?;
    let (number, widths) =
        context.arch.lookup(name.text()?).ok_or_else(|| name.wrong("is not a system call of this architecture"))?;
    let mut conditions = Vec::new();
    if let Some(args) = rule.get("args")? {
        for arg in args.items()? {
            conditions.push(read_condition(&arg, widths)?);
        }
        if conditions.is_empty() {
            return Err(args.lacks("is empty; a rule for every call has no args"));
        }
    }
    Ok(Rule { numbers: vec![number], conditions, action, origin })
}

fn read_condition(arg: &At, widths: [Width; 6]) -> Result<Condition, Error> {
    known_keys(arg, &["index", "type", "op", "val", "comment"])?;
    let field = |name| arg.get(name)?.ok_or_else(|| arg.lacks(format!("{name} is missing")));
    let argument = field("index")?.number(5)? as u8;
    let kind = field("type")?;
    let (given, most) = match kind.text()? {
        "dword" => (Width::Int, u64::from(u32::MAX)),
        "qword" => (Width::Whole, u64::MAX),
        _ => return Err(kind.wrong("must be \"dword\" or \"qword\"")),
    };
    let value = field("val")?.number(most)?;
    let op = field("op")?;
    let operator = match op.json {
        Json::Object(_) => {
            known_keys(&op, &["masked_eq"])?;
            let mask = op.get("masked_eq")?.ok_or_else(|| op.lacks("masked_eq is missing"))?;
            Operator::MaskedEqual(mask.number(most)?)
        }
        _ => match op.text()? {
            "eq" => Operator::Equal,
            "ne" => Operator::NotEqual,
            "lt" => Operator::Less,
            "le" => Operator::LessOrEqual,
            "gt" => Operator::Greater,
            "ge" => Operator::GreaterOrEqual,
            _ => return Err(op.wrong("must be eq, ne, lt, le, gt, ge or { \"masked_eq\": mask }")),
        },
    };
    // The crate masks the value too. Here it must be a value that the masked argument can have.
    let value = if let Operator::MaskedEqual(mask) = operator { value & mask } else { value };
    let kernel = widths[usize::from(argument)];
    let width = if kernel.mask() < given.mask() { kernel } else { given };
    Ok(Condition { argument, width, operator, value })
}

fn read_action(at: &At) -> Result<Action, Error> {
    let known = "must be allow, kill_process, kill_thread, log, trap, { \"errno\": n } or { \"trace\": n }";
    if let Json::Object(_) = at.json {
        known_keys(at, &["errno", "trace"])?;
        return match (at.get("errno")?, at.get("trace")?) {
            (Some(errno), None) => Ok(Action::Errno(errno.number(u64::from(MAX_ERRNO))? as u16)),
            (None, Some(trace)) => Ok(Action::Trace(trace.number(u64::from(u16::MAX))? as u16)),
            _ => Err(at.wrong(known)),
        };
    }
    match at.text()? {
        "allow" => Ok(Action::Allow),
        "kill_process" => Ok(Action::KillProcess),
        "kill_thread" => Ok(Action::KillThread),
        "log" => Ok(Action::Log),
        "trap" => Ok(Action::Trap),
        _ => Err(at.wrong(known)),
    }
}

fn known_keys(at: &At, known: &[&str]) -> Result<(), Error> {
    match at.entries()?.find(|entry| !known.contains(&entry.0)) {
        Some((_, unknown)) => {
            Err(unknown.lacks(format!("is not a key of this format; known are {}", known.join(", "))))
        }
        None => Ok(()),
    }
}
