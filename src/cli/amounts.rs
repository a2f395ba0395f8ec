//! Sizes and times as people write them in options.

/// A size with the largest unit that divides it.
pub fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    match units.into_iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// A size with one decimal place.
pub fn about(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T", "P", "E"];
    let exponent = bytes.checked_ilog2().map_or(0, |bits| bits as usize / 10);
    match exponent {
        0 => format!("{bytes}B"),
        _ => format!("{:.1}{}", bytes as f64 / (1u64 << (10 * exponent)) as f64, units[exponent]),
    }
}

/// A time with the largest unit that divides it.
pub fn time(us: u64) -> String {
    match us {
        _ if us.is_multiple_of(1_000_000) => format!("{}s", us / 1_000_000),
        _ if us.is_multiple_of(1_000) => format!("{}ms", us / 1_000),
        _ => format!("{us}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0, 1023, 1024, 64 << 20, u64::MAX].map(about), ["0B", "1023B", "1.0K", "64.0M", "16.0E"]);
        assert_eq!([0, 1023, 1024, 64 << 20].map(size), ["0 bytes", "1023 bytes", "1K", "64M"]);
        assert_eq!([1, 1_500, 2_000, 1_500_000, 60_000_000].map(time), ["1us", "1500us", "2ms", "1500ms", "60s"]);
    }
}
