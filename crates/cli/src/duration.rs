//! Times as people write them.

use std::time::Duration;

/// The time of `30d`, `12h`, `90m` or `10s`.
///
/// # Errors
/// It is written otherwise, or too long.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let seconds = |unit| match unit {
        "d" => Some(86_400),
        "h" => Some(3_600),
        "m" => Some(60),
        "s" => Some(1),
        _ => None,
    };
    let at = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let parsed =
        text[..at].parse::<u64>().ok().zip(seconds(&text[at..])).and_then(|(number, unit)| number.checked_mul(unit));
    parsed.map(Duration::from_secs).ok_or_else(|| "write it as 30d, 12h, 90m or 10s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        for (text, expected) in [
            ("30d", Some(2_592_000)),
            ("12h", Some(43_200)),
            ("90m", Some(5_400)),
            ("0s", Some(0)),
            ("30", None),
            ("d", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(duration(text).ok().map(|time| time.as_secs()), expected, "{text}");
        }
    }
}
