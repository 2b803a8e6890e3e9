//! Amounts as people read them.

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// `0.04 s`, `1.5 s`, `12 s`, `2 m 05 s`, `3 h 04 m`, `2 d 03 h`.
pub(crate) fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("0.{:02} s", ms / 10),
        1..10 => format!("{}.{} s", s, ms % 1000 / 100),
        10..60 => format!("{s} s"),
        60..3600 => format!("{} m {:02} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {:02} m", s / 3600, s / 60 % 60),
        _ => format!("{} d {:02} h", s / 86_400, s / 3600 % 24),
    }
}

/// `512 B`, `1.5 KiB`, `2.0 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if value < 1024.0 || units.peek().is_none() {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit takes any value")
}

/// `1,234,567`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A metric's value in about five digits: `0.71235`, `1234.6`, `1.2e-7`.
pub(crate) fn value(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { value.to_string() };
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..7.0).contains(&magnitude) {
        return format!("{value:.3e}");
    }
    let digits = (4.0 - magnitude).max(0.0) as usize;
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `2026-11-21T10:20:30Z`, for `<time>`.
pub(crate) fn rfc3339(ms: u64) -> String {
    moment(ms).replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH).format(&Rfc3339).unwrap_or_default()
}

/// `2026-11-21 10:20:30 UTC`, for those whose browser does not make it a local time.
pub(crate) fn utc(ms: u64) -> String {
    rfc3339(ms).replace('T', " ").replace('Z', " UTC")
}

/// `10:20:30.123`, in UTC.
pub(crate) fn clock(ms: u64) -> String {
    let time = moment(ms);
    format!("{:02}:{:02}:{:02}.{:03}", time.hour(), time.minute(), time.second(), time.millisecond())
}

fn moment(ms: u64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_readable() {
        for (ms, expected) in [
            (0, "0.00 s"),
            (999, "0.99 s"),
            (9_990, "9.9 s"),
            (59_999, "59 s"),
            (125_000, "2 m 05 s"),
            (11_040_000, "3 h 04 m"),
            (183_600_000, "2 d 03 h"),
        ] {
            assert_eq!(duration(ms), expected);
        }
        for (size, expected) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2 << 30, "2.0 GiB"), (5 << 50, "5120.0 TiB")]
        {
            assert_eq!(bytes(size), expected);
        }
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), expected);
        }
        for (number, expected) in [
            (0.0, "0"),
            (0.712_345_6, "0.71235"),
            (1234.56, "1234.6"),
            (12_345_678.0, "1.235e7"),
            (1.23e-7, "1.230e-7"),
            (-2.5, "-2.5"),
            (100.0, "100"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(value(number), expected);
        }
        assert_eq!(
            (rfc3339(1_500), clock(1_500), utc(0)),
            ("1970-01-01T00:00:01Z".to_owned(), "00:00:01.500".to_owned(), "1970-01-01 00:00:00 UTC".to_owned())
        );
    }
}
