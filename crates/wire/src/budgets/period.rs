//! Periods of budgets, in UTC as at AWS.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use time::{Date, Duration, Month, OffsetDateTime};

/// Length of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TimeUnit {
    /// A day.
    Daily,
    /// A month of the calendar.
    Monthly,
    /// Three of them, from January.
    Quarterly,
    /// A year of the calendar.
    Annually,
}

/// Milliseconds since the epoch.
pub type Period = Range<u64>;

impl TimeUnit {
    /// The period in which a time is.
    pub fn period(self, at_ms: u64) -> Period {
        let at = OffsetDateTime::from_unix_timestamp(i64::try_from(at_ms / 1000).unwrap_or(0));
        let date = at.unwrap_or(OffsetDateTime::UNIX_EPOCH).date();
        let month =
            |first: u8| Date::from_calendar_date(date.year(), Month::try_from(first).unwrap_or(Month::January), 1);
        let (first, months) = match self {
            Self::Daily => return ms(date)..ms(date + Duration::days(1)),
            Self::Monthly => (u8::from(date.month()), 1),
            Self::Quarterly => ((u8::from(date.month()) - 1) / 3 * 3 + 1, 3),
            Self::Annually => (1, 12),
        };
        let start = month(first).unwrap_or(date);
        // No month has more than 31 days, and 28 fit into each.
        let end = (0..months).fold(start, |start, _| (start + Duration::days(31)).replace_day(1).unwrap_or(start));
        ms(start)..ms(end)
    }

    /// For sentences: `10 USD per month`.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Daily => "day",
            Self::Monthly => "month",
            Self::Quarterly => "quarter",
            Self::Annually => "year",
        }
    }
}

fn ms(date: Date) -> u64 {
    u64::try_from(date.midnight().assume_utc().unix_timestamp()).unwrap_or(0) * 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timestamp::iso8601;

    #[test]
    fn periods_are_those_of_the_calendar() {
        let period = |unit: TimeUnit, at: &str| {
            let period = unit.period(crate::timestamp::parse(at).unwrap());
            assert_eq!(unit.period(period.start), period);
            assert_eq!(unit.period(period.end - 1), period);
            assert_ne!(unit.period(period.end), period);
            format!("{} {}", &iso8601(period.start)[..10], &iso8601(period.end)[..10])
        };
        assert_eq!(period(TimeUnit::Daily, "2024-02-28T23:59:59Z"), "2024-02-28 2024-02-29");
        assert_eq!(period(TimeUnit::Monthly, "2024-02-29T00:00:00Z"), "2024-02-01 2024-03-01");
        assert_eq!(period(TimeUnit::Monthly, "2026-12-31T12:00:00Z"), "2026-12-01 2027-01-01");
        assert_eq!(period(TimeUnit::Quarterly, "2026-11-27T12:00:00Z"), "2026-10-01 2027-01-01");
        assert_eq!(period(TimeUnit::Quarterly, "2026-01-01T00:00:00Z"), "2026-01-01 2026-04-01");
        assert_eq!(period(TimeUnit::Annually, "2026-11-27T12:00:00Z"), "2026-01-01 2027-01-01");
    }
}
