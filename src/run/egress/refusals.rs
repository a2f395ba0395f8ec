//! What the gateway refused, as denials with the rule that would allow it.

use stockade_egress::record::{Refusal, Totals};

use crate::report::Denial;

/// The refusals that a rule would change.
pub fn denials(totals: &Totals) -> impl Iterator<Item = Denial> + '_ {
    totals.refusals.iter().map(|refusal| {
        let Refusal { host, port, reason, count } = refusal;
        let at = |host: &str| match port {
            Some(port) if host.contains(':') => format!("[{host}]:{port}"),
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Denial {
            layer: "network".to_owned(),
            op: if port.is_some() { "connect" } else { "resolve" }.to_owned(),
            target: Some(at(host)),
            rule: Some(reason.clone()),
            // What programs report for a reset, and for a name that does not exist.
            errno: Some(if port.is_some() { libc::ECONNRESET } else { libc::ENOENT }),
            pid: None,
            comm: None,
            count: *count,
            first_us: None,
            hint: hint(reason, &at(host), at),
            confidence: "exact".to_owned(),
        }
    })
}

fn hint(reason: &str, target: &str, at: impl Fn(&str) -> String) -> Option<String> {
    let refused = reason.strip_prefix("address_refused: ").and_then(|rest| rest.split_once(" is "));
    match (reason, refused) {
        (_, Some((address, _))) => Some(format!("--allow-net {} would let names lead there", at(address))),
        ("no_rule", None) => Some(format!("--allow-net {target} would allow it")),
        ("too_many_connections", None) => Some("--net-connections raises the limit".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_the_rule_that_would_allow_it() {
        let refusal =
            |host: &str, port, reason: &str| Refusal { host: host.into(), port, reason: reason.into(), count: 3 };
        let refusals = vec![
            refusal("a.example", None, "no_rule"),
            refusal("2001:db8::1", Some(22), "no_rule"),
            refusal("b.example", Some(80), "address_refused: 10.0.0.5 is private"),
            refusal("b.example", Some(443), "sni_mismatch"),
        ];
        let found: Vec<_> = denials(&Totals { refusals, ..Totals::default() }).collect();
        let hints: Vec<_> = found.iter().map(|denial| denial.hint.as_deref().unwrap_or_default()).collect();
        assert_eq!(
            hints,
            [
                "--allow-net a.example would allow it",
                "--allow-net [2001:db8::1]:22 would allow it",
                "--allow-net 10.0.0.5:80 would let names lead there",
                ""
            ]
        );
        assert_eq!((found[0].op.as_str(), found[2].op.as_str(), found[1].count), ("resolve", "connect", 3));
    }
}
