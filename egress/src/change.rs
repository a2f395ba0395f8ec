//! A change of the rules while they are in force.

use serde::{Deserialize, Serialize};

use crate::rule::{Rule, Rules};

/// The most rules of a kind, so that changes cannot fill the gateway's memory.
const MOST: usize = 4096;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Allow this, and no longer deny exactly this.
    Allow(Rule),
    /// Deny this, whatever is allowed.
    Deny(Rule),
}

impl Change {
    /// The rules with this change. Allowing rules keep their numbers. An error is a reason.
    pub fn apply(&self, rules: &Rules) -> Result<Rules, String> {
        let mut rules = rules.clone();
        match self {
            Self::Allow(rule) => {
                rules.deny.retain(|denied| denied != rule);
                if let Some(denied) = rules.deny.iter().find(|denied| denied.denies_all_of(rule)) {
                    return Err(format!("{rule} would stay denied by the rule {denied}, which wins"));
                }
                add(&mut rules.allow, rule)?;
            }
            Self::Deny(rule) => add(&mut rules.deny, rule)?,
        }
        Ok(rules)
    }
}

fn add(rules: &mut Vec<Rule>, rule: &Rule) -> Result<(), String> {
    match rules.len() {
        _ if rules.contains(rule) => Ok(()),
        MOST.. => Err(format!("at most {MOST} rules are possible")),
        _ => {
            rules.push(rule.clone());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(allow: &[&str], deny: &[&str]) -> Rules {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Rules { allow: parse(allow), deny: parse(deny) }
    }

    fn allow(text: &str) -> Change {
        Change::Allow(text.parse().unwrap())
    }

    #[test]
    fn the_last_word_about_a_rule_wins() {
        let first = rules(&["a.example"], &[]);
        let denied = Change::Deny("a.example".parse().unwrap()).apply(&first).unwrap();
        assert_eq!(denied, rules(&["a.example"], &["a.example"]));
        assert_eq!(allow("a.example").apply(&denied).unwrap(), first, "the same rule is lifted");
        assert_eq!(allow("b.example").apply(&first).unwrap(), rules(&["a.example", "b.example"], &[]));
    }

    #[test]
    fn a_rule_that_another_denies_is_not_added_in_vain() {
        for (denied, allowed) in [
            ("*.example", "a.example"),
            ("*.example", "*.b.example:22"),
            ("a.example", "a.example:443"),
            ("10.0.0.0/8", "10.1.0.0/16:22"),
            ("a.example:1-999", "a.example:22,443"),
        ] {
            assert!(allow(allowed).apply(&rules(&[], &[denied])).is_err(), "{denied} {allowed}");
        }
        for (denied, allowed) in
            [("*.example", "example"), ("a.example:22", "a.example"), ("10.1.0.0/16", "10.0.0.0/8"), ("a.b", "*.b")]
        {
            assert!(allow(allowed).apply(&rules(&[], &[denied])).is_ok(), "{denied} {allowed}");
        }
    }

    #[test]
    fn changes_are_bounded() {
        let many: Vec<String> = (0..MOST).map(|number| format!("n{number}.example")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(Change::Deny("x.example".parse().unwrap()).apply(&rules(&[], &many)).is_err());
        assert!(Change::Deny("n0.example".parse().unwrap()).apply(&rules(&[], &many)).is_ok());
    }
}
