//! Times are milliseconds since the epoch inside, and have three spellings on the wire.

use serde_json::{Number, Value};
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time, format_description::well_known::Rfc3339};

fn date(ms: u64) -> OffsetDateTime {
    // Beyond the year 9999 there is nothing to write; a clock that far off is shown as the epoch.
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// awsJson: seconds with a fraction.
pub fn seconds(ms: u64) -> Value {
    Number::from_f64(ms as f64 / 1000.0).map_or(Value::Null, Value::Number)
}

/// Seconds of awsJson as milliseconds; negative times are before anything that we know.
pub fn from_seconds(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

/// XML: `2026-11-21T07:24:28Z`.
pub fn iso8601(ms: u64) -> String {
    let date = date(ms);
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = date.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

/// With milliseconds: `2026-11-21T07:24:28.250Z`.
pub fn iso8601_ms(ms: u64) -> String {
    format!("{}.{:03}Z", iso8601(ms).trim_end_matches('Z'), ms % 1000)
}

/// Reads what forms have: an ISO 8601 date and time with an offset, or seconds since the epoch;
/// milliseconds, rounded down.
pub fn parse(text: &str) -> Option<u64> {
    if let Ok(date) = OffsetDateTime::parse(text, &Rfc3339) {
        return u64::try_from(date.unix_timestamp_nanos() / 1_000_000).ok();
    }
    text.parse().ok().filter(|seconds: &f64| seconds.is_finite() && *seconds >= 0.0).map(from_seconds)
}

/// Signatures: `20261121T072428Z`.
pub(crate) fn basic(ms: u64) -> String {
    iso8601(ms).replace(['-', ':'], "")
}

/// Reads [`basic`]; milliseconds.
pub(crate) fn parse_basic(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() != 16 || bytes[8] != b'T' || bytes[15] != b'Z' || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| {
        text[from..to].bytes().all(|byte| byte.is_ascii_digit()).then(|| text[from..to].parse::<u16>().ok())?
    };
    let small = |from: usize| number(from, from + 2).and_then(|number| u8::try_from(number).ok());
    let date = Date::from_calendar_date(i32::from(number(0, 4)?), Month::try_from(small(4)?).ok()?, small(6)?).ok()?;
    let time = Time::from_hms(small(9)?, small(11)?, small(13)?).ok()?;
    let seconds = PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp();
    u64::try_from(seconds).ok()?.checked_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_agree() {
        let check = |ms: u64, xml: &str, signature: &str| {
            assert_eq!((iso8601(ms).as_str(), basic(ms).as_str()), (xml, signature));
            assert_eq!(parse_basic(signature), Some(ms / 1000 * 1000), "{signature}");
            assert_eq!(seconds(ms).as_f64().map(from_seconds), Some(ms), "{ms}");
        };
        check(0, "1970-01-01T00:00:00Z", "19700101T000000Z");
        check(951_782_399_999, "2000-02-28T23:59:59Z", "20000228T235959Z");
        check(951_782_400_001, "2000-02-29T00:00:00Z", "20000229T000000Z");
        check(1_795_245_868_250, "2026-11-21T07:24:28Z", "20261121T072428Z");
    }

    #[test]
    fn forms_spell_times_in_several_ways() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(parse(text), expected, "{text:?}");
        check("2026-11-21T07:24:28Z", Some(1_795_245_868_000));
        check("2026-11-21T07:24:28.2509Z", Some(1_795_245_868_250));
        check("2026-11-21T08:24:28+01:00", Some(1_795_245_868_000));
        check("1795245868.25", Some(1_795_245_868_250));
        for text in ["", "soon", "2026-11-21", "2026-13-21T07:24:28Z", "1960-01-01T00:00:00Z", "-1", "inf", "NaN"] {
            check(text, None);
        }
    }

    #[test]
    fn what_is_no_date_is_not_read() {
        let texts = [
            "",
            "20261121",
            "20261121T072428",
            "2026-11-21T07:24:28Z",
            "20261321T072428Z",
            "20260230T072428Z",
            "20261121T242428Z",
        ];
        let more = ["+0261121T072428Z", "20261121t072428Z", "20261121T07242éZ", "19690101T000000Z"];
        for text in texts.into_iter().chain(more) {
            assert_eq!(parse_basic(text), None, "{text:?}");
        }
    }
}
