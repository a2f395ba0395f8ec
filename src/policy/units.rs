//! Parsers for sizes, durations, CPUs, ids and modes.
//!
//! Each parser accepts the whole text or returns an error that names it. No parser rounds up, wraps around or guesses.
//! Numbers are decimal, without sign, fraction, exponent or leading zero, unless the function's comment says otherwise.

/// One whole CPU in [`crate::plan::Budget::cpu_quota_us`].
const CPU_PERIOD_US: u64 = 100_000;

/// The kernel's PID_MAX_LIMIT: a larger `pids.max` has no effect.
pub const MAX_PIDS: u64 = 4_194_304;

/// A whole decimal number.
pub fn whole(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Err("is empty".into());
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text:?} is not a whole number"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{text:?} has a leading zero"));
    }
    text.parse().map_err(|_| format!("{text:?} is larger than {}", u64::MAX))
}

/// A size: bytes, or binary `K`, `M`, `G`, `T` (also `KiB`, `KB` and so on, which are powers of 1024 too, as with docker;
/// case does not matter). Multiples may have a fraction, such as `1.5G`; a part of a byte is dropped.
pub fn size(text: &str) -> Result<u64, String> {
    let at = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(at);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => {
            return Err(format!(
                "{text:?} is not a size: a whole number of bytes, or a number of K, M, G or T (powers of 1024)"
            ));
        }
    };
    if number.is_empty() || number.starts_with('.') {
        return Err(match text {
            "" => "is empty".into(),
            _ => format!("{text:?} is not a size: the number is missing"),
        });
    }
    let fraction = match number.split_once('.') {
        None => 0,
        Some((_, digits)) if shift > 0 && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let digits = &digits[..digits.len().min(18)];
            let (numerator, scale) = (whole_padded(digits), 10_u128.pow(digits.len() as u32));
            ((u128::from(numerator) << shift) / scale) as u64
        }
        Some(_) => return Err(format!("{text:?} is not a size: only K, M, G and T have fractions, such as 1.5G")),
    };
    let units = whole(number.split('.').next().unwrap_or_default())?;
    let bytes = units.checked_mul(1 << shift).and_then(|bytes| bytes.checked_add(fraction));
    // The kernel stores sizes in a loff_t.
    bytes.filter(|bytes| *bytes <= i64::MAX as u64).ok_or(format!("{text:?} is larger than any memory"))
}

/// A duration in microseconds: `500ms`, `30s`, `5m`, `1h`, `1h30m`, or plain seconds.
pub fn duration(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 4] = [("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)];
    if text.is_empty() {
        return Err("is empty".into());
    }
    let wrong = || {
        format!(
            "{text:?} is not a duration: a whole number of ms, s, m or h, or several such as 1h30m (plain: seconds)"
        )
    };
    let long = || format!("{text:?} is longer than 292 years");
    let mut left = &UNITS[..];
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split(rest);
        if number.is_empty() {
            return Err(format!("{text:?} is not a duration: the number is missing"));
        }
        let end = after.bytes().take_while(|byte| !byte.is_ascii_digit()).count();
        let unit = if after.is_empty() && rest.len() == text.len() { "s" } else { &after[..end] };
        // From large to small, and each unit once: 30m1h is more likely a slip than a time.
        let at = left.iter().position(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let us = whole(number)?.checked_mul(left[at].1).ok_or_else(long)?;
        total = total.checked_add(us).ok_or_else(long)?;
        (left, rest) = (&left[at + 1..], &after[end..]);
    }
    // Timers count nanoseconds in a signed 64-bit number.
    if total <= i64::MAX as u64 / 1_000 { Ok(total) } else { Err(long()) }
}

/// A number of CPUs as microseconds of CPU time per 100 ms: decimals such as `2` or `0.5`, at least 0.01 (the kernel's
/// smallest quota is 1 ms). Digits after the fifth are dropped.
pub fn cpus(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number of CPUs: a decimal such as 2 or 0.5");
    let (units, fraction) = match text.split_once('.') {
        Some((units, fraction)) if !fraction.is_empty() => (units, fraction),
        Some(_) => return Err(wrong()),
        None => (text, ""),
    };
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let units = whole(units).map_err(|_| wrong())?;
    let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(5).collect();
    let quota = units.checked_mul(CPU_PERIOD_US).and_then(|us| us.checked_add(whole_padded(&padded)));
    match quota {
        Some(us) if us < 1_000 => Err(format!("{text:?} is too little: at least 0.01 CPUs")),
        Some(us) if us <= 65_536 * CPU_PERIOD_US => Ok(us),
        _ => Err(format!("{text:?} is too much: at most 65536 CPUs")),
    }
}

fn whole_padded(digits: &str) -> u64 {
    digits.bytes().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// A user or group id: 0 to 4294967294. The kernel reads 4294967295 as "no id".
pub fn id(text: &str) -> Result<u32, String> {
    match whole(text)? {
        number if number < u64::from(u32::MAX) => Ok(number as u32),
        _ => Err(format!("{text:?} is not an id: at most {}", u32::MAX - 1)),
    }
}

/// `UID[:GID]`. The group defaults to the user's number.
pub fn id_pair(text: &str) -> Result<(u32, u32), String> {
    match text.split_once(':') {
        Some((uid, gid)) if uid.is_empty() || gid.is_empty() => Err(format!("{text:?} is not UID[:GID]")),
        Some((uid, gid)) => Ok((id(uid)?, id(gid)?)),
        None => id(text).map(|uid| (uid, uid)),
    }
}

/// Permission bits in octal, such as `755`, `0755` or `1777`; at most `most`.
pub fn octal(text: &str, most: u32) -> Result<u32, String> {
    let wrong = || format!("{text:?} is not an octal mode between 0 and {most:o}");
    let octal = !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let number = u32::from_str_radix(text, 8).ok().filter(|_| octal).ok_or_else(wrong)?;
    if number <= most { Ok(number) } else { Err(wrong()) }
}

/// A whole number with a sign, between `least` and `most`.
pub fn signed(text: &str, least: i16, most: i16) -> Result<i16, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let number = whole(digits).map_err(|_| format!("{text:?} is not a whole number"))?;
    i64::try_from(number)
        .ok()
        .map(|number| sign * number)
        .filter(|number| (i64::from(least)..=i64::from(most)).contains(number))
        .map(|number| number as i16)
        .ok_or(format!("{text:?} is not between {least} and {most}"))
}

/// The leading digits, and the rest.
fn split(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuses<T: std::fmt::Debug>(parse: impl Fn(&str) -> Result<T, String>, texts: &[&str]) {
        for text in texts {
            let reason = parse(text).expect_err(text);
            assert!(
                text.is_empty() || reason.contains(&format!("{text:?}")) || reason.len() > 10,
                "{text:?}: {reason}"
            );
        }
    }

    #[test]
    fn sizes_are_bytes_or_binary_multiples() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("1k", 1 << 10),
            ("1K", 1 << 10),
            ("1KiB", 1 << 10),
            ("512M", 512 << 20),
            ("2g", 2 << 30),
            ("3TiB", 3 << 40),
            ("512MB", 512 << 20),
            ("1kb", 1 << 10),
            ("7B", 7),
            ("1.5G", 3 << 29),
            ("0.25k", 256),
            ("0.0001K", 0),
            ("1.1M", 1_153_433),
            ("1.9999999999999999999999K", 2047),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        let mut wrong =
            vec!["", "K", "-1", "+1", "1.5", "1e9", "1 G", " 1", "1 ", "01", "∞", "٣", "0x10", "1_000", "1.5B"];
        wrong.extend([
            "1.G",
            ".5G",
            "1.5.5G",
            "1.5",
            "01.5G",
            ".",
            "1P",
            "1GG",
            "NaN",
            "unlimited",
            "18446744073709551616",
            "9223372036854775808",
        ]);
        wrong.extend(["18446744073709551615", "16777216T", "99999999999999999999999999G", "1\n", "1\0"]);
        refuses(size, &wrong);
    }

    #[test]
    fn durations_have_units_from_large_to_small() {
        for (text, us) in [
            ("0", 0),
            ("1", 1_000_000),
            ("500ms", 500_000),
            ("30s", 30_000_000),
            ("5m", 300_000_000),
            ("1h", 3_600_000_000),
            ("1h30m", 5_400_000_000),
            ("1m1s500ms", 61_500_000),
            ("9223372036s", 9_223_372_036_000_000),
        ] {
            assert_eq!(duration(text), Ok(us), "{text}");
        }
        let wrong = [
            "",
            "s",
            "30m1h",
            "1m1m",
            "1h30",
            "1h m",
            "-1s",
            "1y",
            "1d",
            "1.5s",
            "1e3",
            "S",
            "1S",
            "1M",
            "9223372037s",
            "18446744073709551615h",
        ];
        refuses(duration, &wrong);
    }

    #[test]
    fn cpus_are_decimals_kept_exactly() {
        for (text, us) in [
            ("1", 100_000),
            ("0.5", 50_000),
            ("1.5", 150_000),
            ("0.01", 1_000),
            ("2.000019", 200_001),
            ("0.333333333333333333333333", 33_333),
            ("65536", 6_553_600_000),
        ] {
            assert_eq!(cpus(text), Ok(us), "{text}");
        }
        let wrong = [
            "",
            "0",
            "0.0",
            "0.001",
            "-1",
            "+1",
            "NaN",
            "inf",
            "1e9",
            "1.",
            ".5",
            "1.5.5",
            "1,5",
            "65536.1",
            "01",
            "99999999999999999999",
        ];
        refuses(cpus, &wrong);
    }

    #[test]
    fn ids_exclude_the_kernels_no_id() {
        assert_eq!(id("0"), Ok(0));
        assert_eq!(id("4294967294"), Ok(u32::MAX - 1));
        refuses(id, &["", "-1", "4294967295", "4294967296", "18446744073709551616", "1.0", "root", "010", "1 ", "+1"]);
        assert_eq!(id_pair("5"), Ok((5, 5)));
        assert_eq!(id_pair("5:6"), Ok((5, 6)));
        refuses(id_pair, &["", ":", "1:", ":1", "1:2:3", "1:-1", "4294967295:0"]);
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(octal("022", 0o777), Ok(0o22));
        assert_eq!(octal("1777", 0o7777), Ok(0o1777));
        assert_eq!(octal("0", 0o777), Ok(0));
        refuses(|text| octal(text, 0o777), &["", "8", "999", "01777", "1000", "-1", "+22", "0o22", "rwx", "000000022"]);
    }

    #[test]
    fn signed_numbers_stay_in_their_range() {
        assert_eq!(signed("-1000", -1000, 1000), Ok(-1000));
        assert_eq!(signed("1000", -1000, 1000), Ok(1000));
        assert_eq!(signed("0", -1000, 1000), Ok(0));
        refuses(
            |text| signed(text, -1000, 1000),
            &["", "-", "--1", "+1", "1001", "-1001", "1e2", "9223372036854775808"],
        );
    }
}
