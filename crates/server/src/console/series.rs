//! A job's metrics for its charts, thinned so that a chart's width is not exceeded, with every peak kept.

use http::Response;
use serde::Serialize;
use shoal_store::Point;

use super::{Console, Visit, answer, blocking, frame::Trouble};
use crate::http::Body;

/// Most points of a series that a chart gets.
const MOST_POINTS: usize = 2_000;
/// Points that are read while a chart is looked at, in a second: longer series are asked for less often.
const POINTS_A_SECOND: u64 = 50_000;

/// A series in columns; a value that is not a number is `null`.
#[derive(Debug, PartialEq, Serialize)]
struct Series {
    name: String,
    /// How many points there are in all.
    total: usize,
    /// Milliseconds since the epoch.
    at: Vec<u64>,
    /// Number in the series, from 1.
    step: Vec<usize>,
    value: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
struct Charts {
    series: Vec<Series>,
    /// Milliseconds until it is worth asking again.
    every_ms: u64,
}

impl Console {
    /// All metrics; with `from` and `to` (steps), only those points, at a finer grain.
    pub(super) async fn series(&self, visit: &Visit, name: &str) -> Result<Response<Body>, Trouble> {
        let number = |name| visit.query.number(name).and_then(|number| usize::try_from(number).ok());
        let (from, to) = (number("from").unwrap_or(1).max(1), number("to").unwrap_or(usize::MAX));
        let (world, name) = (self.world.clone(), name.to_owned());
        let charts = blocking(move || {
            let mut series = Vec::new();
            for metric in world.telemetry.metrics(&name)? {
                let points = world.telemetry.read_points(&name, &metric, 0, u64::MAX)?;
                series.push(thin(metric, &points, from, to, MOST_POINTS));
            }
            let total: usize = series.iter().map(|one| one.total).sum();
            Ok(Charts { series, every_ms: (1000 * total as u64 / POINTS_A_SECOND).clamp(500, 30_000) })
        })
        .await?;
        Ok(answer("application/json", serde_json::to_vec(&charts).map_err(|error| Trouble::ours(&error))?))
    }
}

/// Steps `from` to `to` of a series in at most `most` points: of each stretch the least and the greatest value, so that no peak is lost,
/// and always the last point.
fn thin(name: String, points: &[Point], from: usize, to: usize, most: usize) -> Series {
    let (start, end) = ((from - 1).min(points.len()), to.min(points.len()));
    let chosen: Vec<usize> = if end.saturating_sub(start) <= most {
        (start..end).collect()
    } else {
        let stretches = most / 2 - 1;
        let edge = |n: usize| start + (end - 1 - start) * n / stretches;
        let mut chosen = Vec::with_capacity(most);
        for stretch in 0..stretches {
            let by_value = |a: &usize, b: &usize| points[*a].value.total_cmp(&points[*b].value);
            let range = edge(stretch)..edge(stretch + 1);
            let (low, high) = (range.clone().min_by(by_value), range.max_by(by_value));
            let (Some(low), Some(high)) = (low, high) else { continue };
            chosen.push(low.min(high));
            if low != high {
                chosen.push(low.max(high));
            }
        }
        chosen.push(end - 1);
        chosen
    };
    let finite = |value: f64| value.is_finite().then_some(value);
    Series {
        name,
        total: points.len(),
        at: chosen.iter().map(|at| points[*at].at_ms).collect(),
        step: chosen.iter().map(|at| at + 1).collect(),
        value: chosen.iter().map(|at| finite(points[*at].value)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: usize) -> Vec<Point> {
        (0..count).map(|n| Point { at_ms: n as u64, value: if n == count / 3 { 1e6 } else { (n % 7) as f64 } }).collect()
    }

    #[test]
    fn short_series_come_whole_and_long_ones_with_their_peaks() {
        for (count, from, to, most, expected) in
            [(0, 1, usize::MAX, 10, 0), (5, 1, usize::MAX, 10, 5), (5, 2, 3, 10, 2), (5, 9, 12, 10, 0), (10, 1, 10, 10, 10)]
        {
            assert_eq!(thin("m".to_owned(), &points(count), from, to, most).step.len(), expected, "{count} {from} {to}");
        }
        let long = thin("m".to_owned(), &points(100_000), 1, usize::MAX, 2_000);
        assert!(long.step.len() <= 2_000 && long.step.is_sorted() && long.total == 100_000);
        assert!(long.value.contains(&Some(1e6)), "the peak is there");
        assert_eq!((long.step[0], *long.step.last().unwrap()), (1, 100_000));
        let part = thin("m".to_owned(), &points(100_000), 1_001, 1_500, 2_000);
        assert_eq!((part.step[0], part.step.len()), (1_001, 500));
    }

    #[test]
    fn what_is_no_number_is_null() {
        let series = thin("m".to_owned(), &[Point { at_ms: 1, value: f64::NAN }, Point { at_ms: 2, value: 0.5 }], 1, 9, 9);
        assert_eq!(serde_json::to_string(&series).unwrap(), r#"{"name":"m","total":2,"at":[1,2],"step":[1,2],"value":[null,0.5]}"#);
    }
}
