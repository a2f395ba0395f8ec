//! Whether a system call may be made.

use std::ffi::OsStr;
use std::path::Path;

use stockade_seccomp::explain::order;
use stockade_seccomp::{Action, Arch, Call, explain};

use super::Answer;
use crate::confine::seccomp::install::{Implied, KnownCall, prepare};
use crate::confine::seccomp::listen::Judge;
use crate::error::{Error, Result, Step, nearest};
use crate::plan::{Bytes, RunPlan};
use crate::policy::mount::WORKSPACE;

/// At most this many rules are listed.
const MOST_RULES: usize = 8;

/// The filter's answer, whatever the arguments are.
pub fn answer(plan: &RunPlan, word: &OsStr) -> Result<Answer> {
    let name = word.to_str().unwrap_or_default();
    let number = Arch::NATIVE.number(name).ok_or_else(|| unknown(name, word))?;
    let known = KnownCall(number.into(), &[]);
    let (filter, _) = prepare(plan.confinement.seccomp.as_ref(), &plan.into())?;
    let Some(filter) = filter else { return Ok(Answer::yes("call", "no profile and no guard filters system calls")) };
    let call = Call { arch: Arch::NATIVE.audit(), number, args: [0; 6] };
    // Explains the same rules, if they did not come compiled.
    let implied = Implied { explain_denials: true, ..plan.into() };
    let (_, judge) = prepare(plan.confinement.seccomp.as_ref(), &implied)?;
    let rule = |action: Action| judge.as_ref().and_then(|judge| judge.rule(&call)).unwrap_or(action.to_string());
    let profile = filter.record().profile;
    Ok(match filter.answer(&known) {
        Some(action) if action.lets_through() => Answer::yes("call", format!("profile {profile}: {}", rule(action))),
        Some(action) => {
            let tried = judge.as_ref().is_some_and(|judge| judge.is_tried(&call));
            let hint = match judge.as_ref() {
                _ if tried => Some("most programs continue without it".to_owned()),
                None if plan.confinement.seccomp.is_none() => None, // a guard, which stays under every profile
                None => Some("use another profile, with --seccomp FILE".to_owned()),
                Some(judge) => judge.hint(&call),
            };
            Answer::no("call", error_of(action), format!("profile {profile}: {}", rule(action)), hint)
        }
        None => {
            let rules = judge.as_ref().and_then(Judge::profile).map(|profile| {
                let rules = order(profile, number);
                let certain = rules.iter().position(|(_, rule)| rule.conditions.is_empty());
                let seen = certain.map_or(rules.len(), |at| at + 1);
                let texts = rules.iter().take(seen.min(MOST_RULES)).map(|(stage, rule)| explain::describe(stage, rule));
                let more = (seen > MOST_RULES).then(|| format!("and {} more rules", seen - MOST_RULES));
                let otherwise = certain.is_none().then(|| format!("otherwise {}", profile.default));
                texts.chain(more).chain(otherwise).collect::<Vec<_>>().join("\n")
            });
            let rules = rules.map_or(String::new(), |rules| format!(":\n{rules}"));
            let hint = format!("`stockade seccomp explain {profile} {name} ARG…` decides for given arguments");
            Answer::depends("call", format!("profile {profile}: its arguments decide{rules}"), Some(hint))
        }
    })
}

fn unknown(name: &str, word: &OsStr) -> Error {
    let reason = "is neither a path of the sandbox (which begins with /), nor HOST:PORT, nor a system call";
    let error = Error::new(Step::Usage, Bytes::from(word).to_string(), reason);
    match nearest(name, Arch::NATIVE.all().map(|one| one.0)) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None if Path::new(word).exists() => {
            let place = Path::new(WORKSPACE).join(word);
            error.hint(format!("with --workspace . this file is {} in the sandbox", Bytes::from(&place)))
        }
        None if name.contains('.') && !name.contains('/') => error.hint(format!("add a port: {name}:443")),
        None => error,
    }
}

/// What the caller gets for an action that refuses.
fn error_of(action: Action) -> Option<String> {
    match action {
        Action::Errno(errno) => Some(format!("{:?}", nix::errno::Errno::from_raw(errno.into()))),
        Action::KillProcess | Action::KillThread | Action::Trap => Some("SIGSYS".to_owned()),
        _ => None,
    }
}
