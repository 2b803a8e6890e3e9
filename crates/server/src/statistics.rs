//! What is computed of the values of a period.

use shoal_store::{Point, StatisticSet, Telemetry};
use shoal_wire::{Error, Metric, Span, Statistic};

/// What a request reads of a series.
pub(crate) struct Series {
    /// As CloudWatch names units: that of its first value, if it has values of several.
    pub(crate) unit: String,
    /// Periods by their starts, one for each unit; those without values are left out.
    pub(crate) periods: Vec<Period>,
    /// Some of it is coarser than it was put.
    pub(crate) is_thinned: bool,
}

/// The values of a period that have the same unit.
pub(crate) struct Period {
    pub(crate) start_ms: u64,
    pub(crate) unit: String,
    pub(crate) sets: Vec<StatisticSet>,
}

impl Series {
    /// Of single values.
    pub(crate) fn of(unit: &str, periods: Vec<(u64, Vec<f64>)>) -> Self {
        let period = |(start_ms, values): (u64, Vec<f64>)| Period {
            start_ms,
            unit: unit.to_owned(),
            sets: values.into_iter().map(StatisticSet::from).collect(),
        };
        Self { unit: unit.to_owned(), periods: periods.into_iter().map(period).collect(), is_thinned: false }
    }

    /// The statistic of each period that has it.
    pub(crate) fn values(&self, asked: Statistic) -> Vec<(u64, f64)> {
        self.periods.iter().filter_map(|it| Some((it.start_ms, of_sets(asked, &it.sets)?))).collect()
    }

    /// What is missing of values that are old.
    pub(crate) fn message(&self, asked: Statistic, span: Span) -> Option<&'static str> {
        let is_percentile = matches!(asked, Statistic::Percentile(_));
        (self.is_thinned && (is_percentile || span.period_ms < 3_600_000)).then_some(
            "Old values are kept as one statistic set a minute after 3 hours, in 5 minutes after 15 days, an hour after \
             63 days: they have no percentiles, and no finer periods.",
        )
    }
}

/// Reads a series; one that is not there has no periods.
pub(crate) type ReadSeries = fn(&Telemetry, &Metric, Option<&str>, Span) -> Result<Series, Error>;

/// Points by the period that they fall into, as (start, values); periods without any are left out.
/// Points are in the order of time.
pub(crate) fn periods(points: &[Point], span: Span) -> Vec<(u64, Vec<f64>)> {
    let mut periods: Vec<(u64, Vec<f64>)> = Vec::new();
    for point in points.iter().filter(|point| (span.start_ms..span.end_ms).contains(&point.at_ms)) {
        let start = point.at_ms - (point.at_ms - span.start_ms) % span.period_ms;
        match periods.last_mut() {
            Some((last, values)) if *last == start => values.push(point.value),
            _ => periods.push((start, vec![point.value])),
        }
    }
    periods
}

/// The statistic of at least one value.
pub(crate) fn statistic(statistic: Statistic, values: &[f64]) -> f64 {
    let count = values.len() as f64;
    match statistic {
        Statistic::SampleCount => count,
        Statistic::Sum => values.iter().sum(),
        Statistic::Average => values.iter().sum::<f64>() / count,
        Statistic::Minimum => values.iter().copied().fold(f64::INFINITY, f64::min),
        Statistic::Maximum => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        Statistic::Percentile(percent) => percentile(percent, values),
    }
}

/// The statistic of at least one set of values; no percentile if a set has different values, which
/// are not kept.
pub(crate) fn of_sets(asked: Statistic, sets: &[StatisticSet]) -> Option<f64> {
    let total = |part: fn(&StatisticSet) -> f64| sets.iter().map(part).sum::<f64>();
    Some(match asked {
        Statistic::SampleCount => total(|set| set.count),
        Statistic::Sum => total(|set| set.sum),
        Statistic::Average => total(|set| set.sum) / total(|set| set.count),
        Statistic::Minimum => sets.iter().map(|set| set.low).fold(f64::INFINITY, f64::min),
        Statistic::Maximum => sets.iter().map(|set| set.high).fold(f64::NEG_INFINITY, f64::max),
        Statistic::Percentile(percent) => percentile_of_sets(percent, sets)?,
    })
}

/// As [`percentile`] of each value as often as it came.
fn percentile_of_sets(percent: f64, sets: &[StatisticSet]) -> Option<f64> {
    let is_value = |set: &StatisticSet| set.low.total_cmp(&set.high).is_eq();
    if !sets.iter().all(is_value) {
        return None;
    }
    let mut sorted: Vec<(f64, f64)> = sets.iter().map(|set| (set.low, set.count)).collect();
    sorted.sort_by(|one, other| one.0.total_cmp(&other.0));
    let total: f64 = sorted.iter().map(|(_, count)| count).sum();
    let place = (percent / 100.0 * (total - 1.0)).max(0.0);
    let at = |place: f64| {
        let mut until = 0.0;
        let found = sorted.iter().find(|(_, count)| {
            until += count;
            place < until
        });
        found.or(sorted.last()).map(|(value, _)| *value)
    };
    let neighbours = [at(place.floor())?, at(place.ceil())?];
    Some(percentile(place.fract() * 100.0, &neighbours))
}

/// The standard deviation of at least one value: of all that there are, not of a sample.
pub(crate) fn deviation(values: &[f64]) -> f64 {
    let mean = statistic(Statistic::Average, values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Between the two nearest values in proportion (Hyndman and Fan's definition 7).
fn percentile(percent: f64, values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = percent / 100.0 * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    let (part, difference) = (place.fract(), above - below);
    if below == above {
        below
    } else if difference.is_finite() {
        below + difference * part
    } else {
        below * (1.0 - part) + above * part
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn points_fall_into_periods() {
        let points: Vec<Point> =
            [59, 60, 61, 119, 120, 299, 300].map(|s| Point { at_ms: s * 1000, value: s as f64, host: None }).to_vec();
        let span = Span { start_ms: 60_000, end_ms: 300_000, period_ms: 60_000 };
        let expected = [(60_000, vec![60.0, 61.0, 119.0]), (120_000, vec![120.0]), (240_000, vec![299.0])];
        assert_eq!(periods(&points, span), expected);
        assert_eq!(periods(&[], span), []);
    }

    #[test]
    fn statistics_of_values() {
        let check = |asked: Statistic, expected: f64| {
            assert_eq!(statistic(asked, &[4.0, 1.0, 3.0, 2.0]), expected, "{asked:?}");
        };
        check(Statistic::SampleCount, 4.0);
        check(Statistic::Sum, 10.0);
        check(Statistic::Average, 2.5);
        check(Statistic::Minimum, 1.0);
        check(Statistic::Maximum, 4.0);
        check(Statistic::Percentile(0.0), 1.0);
        check(Statistic::Percentile(50.0), 2.5);
        check(Statistic::Percentile(100.0), 4.0);
        assert_eq!(statistic(Statistic::Percentile(99.0), &[7.0]), 7.0);
        assert_eq!(deviation(&[1.0, 3.0]), 1.0);
    }

    #[test]
    fn statistics_of_sets_are_those_of_their_values() {
        let set = |value: f64, count: f64| StatisticSet { count, sum: value * count, low: value, high: value };
        let sets = [set(5.0, 1.0), set(1.0, 3.0), set(2.0, 2.0)];
        let values = [1.0, 1.0, 1.0, 2.0, 2.0, 5.0];
        let percentiles = (0..=20).map(|part| Statistic::Percentile(f64::from(part) * 5.0));
        let others =
            [Statistic::SampleCount, Statistic::Sum, Statistic::Average, Statistic::Minimum, Statistic::Maximum];
        for asked in others.into_iter().chain(percentiles) {
            let (found, expected) = (of_sets(asked, &sets).unwrap(), statistic(asked, &values));
            assert!((found - expected).abs() < 1e-9, "{asked:?}: {found}, not {expected}");
        }
        let joined = StatisticSet { count: 2.0, sum: 4.0, low: 1.0, high: 3.0 };
        assert_eq!(of_sets(Statistic::Average, &[joined]), Some(2.0));
        assert_eq!(of_sets(Statistic::Percentile(50.0), &[joined]), None);
        assert_eq!(of_sets(Statistic::Percentile(50.0), &[set(f64::NAN, 1.0)]).map(f64::is_nan), Some(true));
    }

    #[test]
    fn a_percentile_lies_between_its_neighbours_whatever_the_values_are() {
        let (infinite, most) = (f64::INFINITY, f64::MAX);
        for (values, percent, expected) in [
            (vec![infinite], 50.0, infinite),
            (vec![1.0, infinite, infinite], 75.0, infinite),
            (vec![-infinite, -infinite, 3.0], 25.0, -infinite),
            (vec![-infinite, 3.0], 50.0, -infinite),
            (vec![1.0, infinite], 0.0, 1.0),
            (vec![-most, most], 50.0, 0.0),
            (vec![-most, most], 100.0, most),
            (vec![5.0; 1000], 99.9, 5.0),
        ] {
            assert_eq!(percentile(percent, &values), expected, "p{percent} of {values:?}");
        }
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let mut values: Vec<f64> = (0..1 + random.below(9)).map(|_| random.below(1000) as f64 / 7.0).collect();
            let found: Vec<f64> = (0..=20).map(|part| percentile(f64::from(part) * 5.0, &values)).collect();
            assert!(found.is_sorted(), "seed {seed}: {found:?}");
            values.sort_by(f64::total_cmp);
            assert_eq!((found[0], found[20]), (values[0], values[values.len() - 1]), "seed {seed}");
        }
    }

    #[test]
    fn a_span_without_end_overflows_nothing() {
        let points = [0, 1, u64::MAX - 1, u64::MAX].map(|at_ms| Point { at_ms, value: 1.0, host: None });
        let span = Span { start_ms: 0, end_ms: u64::MAX, period_ms: u64::MAX };
        assert_eq!(periods(&points, span), [(0, vec![1.0; 3])], "the end is not in it");
        // Periods begin at the span's start.
        let span = Span { start_ms: 1, end_ms: 3, period_ms: 1000 };
        assert_eq!(periods(&points, span), [(1, vec![1.0])]);
    }
}
