//! Names of signals.

/// A signal by its number or its name, with or without `SIG`; real-time ones as `RTMIN+2`.
pub fn signal_number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (0..=64).contains(&number).then_some(number);
    }
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    if let Ok(signal) = format!("SIG{name}").parse::<nix::sys::signal::Signal>() {
        return Some(signal as i32);
    }
    let real_time = |base: i32, rest: &str| rest.parse::<i32>().ok().map(|offset| base + offset);
    let found = match name {
        "CLD" => Some(libc::SIGCHLD),
        "POLL" => Some(libc::SIGIO),
        "RTMIN" => Some(34),
        "RTMAX" => Some(64),
        name => match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
            (Some(rest), _) => real_time(34, rest),
            (_, Some(rest)) => real_time(64, rest),
            _ => None,
        },
    };
    found.filter(|number| (34..=64).contains(number) || *number == libc::SIGCHLD || *number == libc::SIGIO)
}

#[cfg(test)]
mod tests {
    use super::signal_number;

    #[test]
    fn signals_have_names_and_numbers() {
        for (text, expected) in [
            ("9", 9),
            ("KILL", 9),
            ("sigterm", 15),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
            ("CLD", 17),
            ("64", 64),
            ("0", 0),
        ] {
            assert_eq!(signal_number(text), Some(expected), "{text}");
        }
        for text in ["", "65", "-9", "SIGNAL", "RTMIN+40", "KILL9"] {
            assert_eq!(signal_number(text), None, "{text}");
        }
    }
}
