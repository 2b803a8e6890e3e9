//! Which state the data of a metric put an alarm into, as CloudWatch documents it: M of the last N
//! periods breach a threshold, and periods without data are treated as the alarm requires.
//!
//! More periods are looked at than the alarm has (`EXTRA_PERIODS`), so that data that are late or
//! sparse are found: only if fewer of them than N have data, the rest of the N is filled up with
//! what missing data are taken for.

use serde::{Deserialize, Serialize};

/// Periods that are looked at beyond the alarm's own.
const EXTRA_PERIODS: u32 = 2;
/// How far windows move at once: with periods of at least a minute, and with shorter ones.
const STEP_MS: u64 = 60_000;
const SHORT_STEP_MS: u64 = 10_000;

/// What an alarm compares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AlarmRule {
    /// Seconds of a period.
    pub period_s: u32,
    /// N: periods that are judged together, at least 1.
    pub evaluation_periods: u32,
    /// M: how many of them must breach, at least 1 and at most N.
    pub datapoints_to_alarm: u32,
    /// With what values are compared.
    pub threshold: f64,
    /// Which values breach.
    pub comparison: Comparison,
    /// What periods without data are taken for.
    pub missing: MissingData,
    /// The percentile that values are, if few samples in a period are to change nothing.
    pub ignore_few_samples_of: Option<f64>,
}

/// Which values breach a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as CloudWatch names them")]
pub enum Comparison {
    GreaterThanOrEqualToThreshold,
    GreaterThanThreshold,
    LessThanThreshold,
    LessThanOrEqualToThreshold,
}

/// What periods without data are taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MissingData {
    /// For nothing: without any data there is too little to judge.
    Missing,
    /// For what the alarm is already.
    Ignore,
    /// For values that breach.
    Breaching,
    /// For values that do not.
    NotBreaching,
}

/// State of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AlarmState {
    /// Within the threshold.
    Ok,
    /// Beyond it.
    Alarm,
    /// Not known.
    InsufficientData,
}

/// The statistic of a period that has data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Datapoint {
    /// Its value.
    pub value: f64,
    /// Of how many samples.
    pub samples: f64,
}

/// Consecutive periods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Start of the first, in milliseconds since the epoch.
    pub start_ms: u64,
    /// End of the last.
    pub end_ms: u64,
}

/// What was decided, and of what.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The state that follows.
    pub state: AlarmState,
    /// Which of the data were judged, as places among those given, newest first.
    pub judged: Vec<usize>,
    /// How many of them breach.
    pub breaching: usize,
    /// How many periods were filled up.
    pub filled: usize,
}

impl Comparison {
    /// Whether a value breaches.
    #[must_use]
    pub fn breaches(self, value: f64, threshold: f64) -> bool {
        match self {
            Self::GreaterThanOrEqualToThreshold => value >= threshold,
            Self::GreaterThanThreshold => value > threshold,
            Self::LessThanThreshold => value < threshold,
            Self::LessThanOrEqualToThreshold => value <= threshold,
        }
    }
}

impl AlarmRule {
    /// The periods to read at a time: whole ones, the last of which is over.
    #[must_use]
    pub fn window(&self, now_ms: u64) -> Window {
        let step = if self.period_s < 60 { SHORT_STEP_MS } else { STEP_MS };
        let end_ms = now_ms / step * step;
        let periods = u64::from(self.evaluation_periods) + u64::from(EXTRA_PERIODS);
        Window { start_ms: end_ms.saturating_sub(periods * u64::from(self.period_s) * 1000), end_ms }
    }

    /// The state that follows from the periods of a [`Self::window`], oldest first, and from the
    /// present state.
    #[must_use]
    pub fn evaluate(&self, periods: &[Option<Datapoint>], present: AlarmState) -> Evaluation {
        let (most, needed) = (self.evaluation_periods as usize, self.datapoints_to_alarm as usize);
        let newest_first = periods.iter().enumerate().rev();
        let real: Vec<_> = newest_first.filter_map(|(at, it)| Some((at, (*it)?))).take(most).collect();
        let breaches = |(_, it): &&(usize, Datapoint)| self.comparison.breaches(it.value, self.threshold);
        let breaching = real.iter().filter(breaches).count();
        let filled = most - real.len();
        let evaluation =
            |state| Evaluation { state, judged: real.iter().map(|(at, _)| *at).collect(), breaching, filled };
        if real.iter().any(|(_, it)| self.has_few_samples(it.samples)) {
            return evaluation(present);
        }
        if breaching >= needed {
            return evaluation(AlarmState::Alarm);
        }
        let has_sound = breaching < real.len();
        evaluation(match self.missing {
            _ if filled == 0 => AlarmState::Ok,
            MissingData::Breaching if breaching + filled >= needed => AlarmState::Alarm,
            MissingData::Breaching | MissingData::NotBreaching => AlarmState::Ok,
            MissingData::Missing if real.is_empty() => AlarmState::InsufficientData,
            MissingData::Ignore | MissingData::Missing if has_sound => AlarmState::Ok,
            MissingData::Ignore => present,
            // All that is known breaches. It is an alarm if that is no news: the oldest of it is M
            // periods old. Else the next value may show that it was one outlier.
            MissingData::Missing => match real.last() {
                Some((oldest, _)) if periods.len() - oldest >= needed => AlarmState::Alarm,
                _ => present,
            },
        })
    }

    /// Whether a percentile of so few samples means nothing: CloudWatch wants 10 / (1 - p) of them,
    /// or 10 / p below the median.
    fn has_few_samples(&self, samples: f64) -> bool {
        self.ignore_few_samples_of.is_some_and(|percentile| {
            let part = percentile / 100.0;
            let needed = if part >= 0.5 { 10.0 / (1.0 - part) } else { 10.0 / part };
            samples < needed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AlarmState::{Alarm, InsufficientData, Ok as Fine};

    const MISSING: [MissingData; 4] =
        [MissingData::Missing, MissingData::Ignore, MissingData::Breaching, MissingData::NotBreaching];

    fn rule(needed: u32, of: u32) -> AlarmRule {
        AlarmRule {
            period_s: 300,
            evaluation_periods: of,
            datapoints_to_alarm: needed,
            threshold: 10.0,
            comparison: Comparison::GreaterThanThreshold,
            missing: MissingData::Missing,
            ignore_few_samples_of: None,
        }
    }

    /// `X` breaches, `0` does not, `-` is missing; oldest first.
    fn data(text: &str) -> Vec<Option<Datapoint>> {
        let datapoint = |letter| match letter {
            'X' => Some(Datapoint { value: 11.0, samples: 1.0 }),
            '0' => Some(Datapoint { value: 10.0, samples: 1.0 }),
            _ => None,
        };
        text.split_whitespace().map(|it| datapoint(it.chars().next().unwrap())).collect()
    }

    /// CloudWatch's own tables (user guide, "Configuring how CloudWatch alarms treat missing
    /// data"):
    /// three evaluation periods, a range of five. `None` retains the state.
    #[test]
    fn the_documented_examples() {
        let (alarm, fine, unknown) = (Some(Alarm), Some(Fine), Some(InsufficientData));
        for (needed, text, filled, expected) in [
            (3, "0 - X - X", 0, [fine, fine, fine, fine]),
            (3, "- - - - 0", 2, [fine, fine, fine, fine]),
            (3, "- - - - -", 3, [unknown, None, alarm, fine]),
            (3, "0 X X - X", 0, [alarm, alarm, alarm, alarm]),
            (3, "- - X - -", 2, [alarm, None, alarm, fine]),
            (2, "0 - X - X", 0, [alarm, alarm, alarm, alarm]),
            (2, "0 0 X 0 X", 0, [alarm, alarm, alarm, alarm]),
            (2, "0 - X - -", 1, [fine, fine, alarm, fine]),
            (2, "- - - - 0", 2, [fine, fine, alarm, fine]),
            (2, "- - - X -", 2, [alarm, None, alarm, fine]),
            // In words there: these are no alarms yet.
            (3, "- - - - X", 2, [None, None, alarm, fine]),
            (3, "- - - X -", 2, [None, None, alarm, fine]),
        ] {
            for (missing, expected) in MISSING.into_iter().zip(expected) {
                for present in [Fine, Alarm, InsufficientData] {
                    let found = AlarmRule { missing, ..rule(needed, 3) }.evaluate(&data(text), present);
                    let expected = expected.unwrap_or(present);
                    assert_eq!(found.state, expected, "{needed} of 3, {text}, {missing:?}, was {present:?}");
                    assert_eq!(found.filled, filled, "{text}");
                }
            }
        }
    }

    #[test]
    fn the_newest_data_count() {
        for (needed, of, text, expected, judged) in [
            (1, 1, "X X 0", Fine, vec![2]),
            (1, 1, "0 0 X", Alarm, vec![2]),
            (1, 1, "X - -", Alarm, vec![0]),
            (2, 3, "X X 0 0 X", Fine, vec![4, 3, 2]),
            (2, 3, "X X 0 - X", Alarm, vec![4, 2, 1]),
            (3, 5, "- 0 X X 0 X -", Alarm, vec![5, 4, 3, 2, 1]),
        ] {
            let found = rule(needed, of).evaluate(&data(text), InsufficientData);
            assert_eq!((found.state, found.judged), (expected, judged), "{needed} of {of}: {text}");
        }
    }

    #[test]
    fn comparisons_say_what_breaches() {
        use Comparison::*;
        for (comparison, expected) in [
            (GreaterThanOrEqualToThreshold, [false, true, true]),
            (GreaterThanThreshold, [false, false, true]),
            (LessThanThreshold, [true, false, false]),
            (LessThanOrEqualToThreshold, [true, true, false]),
        ] {
            assert_eq!([1.0, 2.0, 3.0].map(|value| comparison.breaches(value, 2.0)), expected, "{comparison:?}");
            assert!(!comparison.breaches(f64::NAN, 2.0));
        }
    }

    #[test]
    fn windows_are_of_whole_periods_that_are_over() {
        let window = |period_s, periods, now_ms| {
            let Window { start_ms, end_ms } = AlarmRule { period_s, ..rule(1, periods) }.window(now_ms);
            (start_ms, end_ms)
        };
        assert_eq!(window(60, 1, 1_000_000), (780_000, 960_000));
        assert_eq!(window(300, 3, 6_059_999), (4_500_000, 6_000_000));
        assert_eq!(window(10, 1, 1_009_999), (970_000, 1_000_000));
        assert_eq!(window(30, 2, 1_019_999), (890_000, 1_010_000));
        assert_eq!(window(86_400, 1, 60_000), (0, 60_000));
    }

    #[test]
    fn percentiles_of_few_samples_change_nothing_where_the_alarm_says_so() {
        let one = |samples| [Some(Datapoint { value: 11.0, samples })];
        for (percentile, samples, expected) in [
            (Some(99.0), 999.0, Fine),
            (Some(99.0), 1001.0, Alarm),
            (Some(50.0), 19.0, Fine),
            (Some(50.0), 20.0, Alarm),
            (Some(10.0), 99.0, Fine),
            (Some(10.0), 100.0, Alarm),
            (None, 1.0, Alarm),
        ] {
            let rule = AlarmRule { ignore_few_samples_of: percentile, ..rule(1, 1) };
            assert_eq!(rule.evaluate(&one(samples), Fine).state, expected, "{percentile:?} {samples}");
        }
    }
}
