//! Explains how a profile decides a call.

use std::fmt::Write as _;

use crate::action::Action;
use crate::model::{Call, Condition, Operator, Profile, Rule, Stage};
use crate::names::Width;

/// The reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason<'p> {
    /// A rule.
    Rule(&'p Stage, &'p Rule),
    /// No rule matches.
    Default,
    /// The number is above all numbers in the profile.
    Beyond,
    /// The call is of another architecture, or of the x32 table.
    Foreign,
}

/// The action for a call, and its reason.
pub fn decide<'p>(profile: &'p Profile, call: &Call) -> (Action, Reason<'p>) {
    let reason = match profile.deciding(call) {
        _ if profile.is_foreign(call) => Reason::Foreign,
        Some((stage, rule)) => Reason::Rule(stage, rule),
        None if call.number > profile.highest() => Reason::Beyond,
        None => Reason::Default,
    };
    (profile.decide(call), reason)
}

/// Whether the kernel would make a call of this number with some arguments.
pub fn may_pass(profile: &Profile, number: u32) -> bool {
    let order = order(profile, number);
    let certain = order.iter().position(|(_, rule)| rule.conditions.is_empty());
    let reached = &order[..certain.map_or(order.len(), |at| at + 1)];
    let fallback = if number > profile.highest() { profile.beyond } else { profile.default };
    reached.iter().any(|(_, rule)| rule.action.lets_through()) || certain.is_none() && fallback.lets_through()
}

/// The rules for a number in the order in which they decide: the first matching rule wins.
pub fn order(profile: &Profile, number: u32) -> Vec<(&Stage, &Rule)> {
    let mut order = Vec::new();
    for stage in &profile.stages {
        let mut rules: Vec<&Rule> = stage.rules.iter().filter(|rule| rule.numbers.contains(&number)).collect();
        rules.sort_by_key(|rule| rule.action.leniency());
        order.extend(rules.into_iter().map(|rule| (stage, rule)));
    }
    order
}

/// A rule as text: `syscalls[3]: ALLOW if arg0 == 16 and arg2 == 0`.
pub fn describe(stage: &Stage, rule: &Rule) -> String {
    let mut text = String::new();
    if !stage.name.is_empty() && stage.name != rule.origin.0 {
        let _ = write!(text, "{}: ", stage.name);
    }
    let _ = write!(text, "{}: {}", rule.origin, rule.action);
    for (at, condition) in rule.conditions.iter().enumerate() {
        let _ = write!(text, "{}{}", if at == 0 { " if " } else { " and " }, condition_text(condition));
    }
    text
}

fn condition_text(condition: &Condition) -> String {
    let argument = match condition.width {
        Width::Whole => format!("arg{}", condition.argument),
        Width::Int => format!("(int) arg{}", condition.argument),
        Width::Mode => format!("(umode_t) arg{}", condition.argument),
    };
    let value = number_text(condition.datum());
    match condition.operator {
        Operator::Equal => format!("{argument} == {value}"),
        Operator::NotEqual => format!("{argument} != {value}"),
        Operator::Less => format!("{argument} < {value}"),
        Operator::LessOrEqual => format!("{argument} <= {value}"),
        Operator::Greater => format!("{argument} > {value}"),
        Operator::GreaterOrEqual => format!("{argument} >= {value}"),
        Operator::MaskedEqual(mask) => format!("{argument} & {mask:#x} == {value}"),
    }
}

fn number_text(value: u64) -> String {
    if value < 4096 { value.to_string() } else { format!("{value:#x}") }
}

/// The explanation for a call or, without arguments, for all calls of a number.
pub fn explain(profile: &Profile, number: u32, args: Option<[u64; 6]>) -> String {
    let name = profile.arch.name(number).map_or_else(|| number.to_string(), |name| format!("{name} ({number})"));
    let order = order(profile, number);
    let beyond = number > profile.highest();
    let fallback = if beyond {
        format!("{} because the number is above every number the profile names", profile.beyond)
    } else {
        format!("{}, the default", profile.default)
    };
    let mut text = String::new();
    let Some(args) = args else {
        let certain = order.iter().position(|(_, rule)| rule.conditions.is_empty());
        let _ = writeln!(text, "{name}: the first that holds decides");
        for (stage, rule) in &order[..certain.map_or(order.len(), |at| at + 1)] {
            let _ = writeln!(text, "  {}", describe(stage, rule));
        }
        if certain.is_none() {
            let _ = writeln!(text, "  otherwise: {fallback}");
        }
        return text;
    };
    let call = Call { arch: profile.arch.audit(), number, args };
    let (action, reason) = decide(profile, &call);
    let reason = match reason {
        Reason::Rule(stage, rule) => describe(stage, rule),
        Reason::Default | Reason::Beyond => fallback,
        Reason::Foreign => "it is a call of the x32 table".to_owned(),
    };
    let _ = writeln!(text, "{name}: {action}\n  by {reason}");
    text
}
