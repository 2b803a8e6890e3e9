//! A job's metrics for its charts, thinned so that a chart's width is not exceeded, with every peak kept. A metric that several hosts say
//! is a line for each of them.

use std::collections::BTreeMap;

use http::Response;
use serde::Serialize;
use shoal_store::Point;

use super::{Console, Visit, answer, blocking, frame::Trouble};
use crate::http::Body;

/// Most points of a series that a chart gets.
const MOST_POINTS: usize = 2_000;
/// Of many hosts, each gets so many at least.
const LEAST_POINTS: usize = 200;
/// Points that are read while a chart is looked at, in a second: longer series are asked for less often.
const POINTS_A_SECOND: u64 = 50_000;

/// A series in columns; a value that is not a number is `null`.
#[derive(Debug, PartialEq, Serialize)]
struct Series {
    /// For the legend: the metric, and where several hosts say it, which.
    name: String,
    metric: String,
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
                let hosts = by_host(points);
                let most = (MOST_POINTS / hosts.len().max(1)).max(LEAST_POINTS);
                series.extend(hosts.into_iter().map(|(host, points)| thin(&metric, host, &points, from, to, most)));
            }
            let total: usize = series.iter().map(|one| one.total).sum();
            Ok(Charts { series, every_ms: (1000 * total as u64 / POINTS_A_SECOND).clamp(500, 30_000) })
        })
        .await?;
        Ok(answer("application/json", serde_json::to_vec(&charts).map_err(|error| Trouble::ours(&error))?))
    }
}

/// Points of each host; those of all as one where it is said to be the only one, or is not known.
fn by_host(points: Vec<Point>) -> Vec<(Option<u32>, Vec<Point>)> {
    let mut hosts: BTreeMap<Option<u32>, Vec<Point>> = BTreeMap::new();
    for point in points {
        hosts.entry(point.host).or_default().push(point);
    }
    match hosts.len() {
        1 => hosts.into_values().map(|points| (None, points)).collect(),
        _ => hosts.into_iter().collect(),
    }
}

/// Steps `from` to `to` of a series in at most `most` points: of each stretch the least and the greatest value, so that no peak is lost,
/// and always the last point.
fn thin(metric: &str, host: Option<u32>, points: &[Point], from: usize, to: usize, most: usize) -> Series {
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
        name: host.map_or_else(|| metric.to_owned(), |host| format!("{metric} algo-{host}")),
        metric: metric.to_owned(),
        total: points.len(),
        at: chosen.iter().map(|at| points[*at].at_ms).collect(),
        step: chosen.iter().map(|at| at + 1).collect(),
        value: chosen.iter().map(|at| finite(points[*at].value)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at_ms: u64, value: f64, host: Option<u32>) -> Point {
        Point { at_ms, value, host }
    }

    fn points(count: usize) -> Vec<Point> {
        (0..count).map(|n| point(n as u64, if n == count / 3 { 1e6 } else { (n % 7) as f64 }, None)).collect()
    }

    #[test]
    fn short_series_come_whole_and_long_ones_with_their_peaks() {
        for (count, from, to, most, expected) in
            [(0, 1, usize::MAX, 10, 0), (5, 1, usize::MAX, 10, 5), (5, 2, 3, 10, 2), (5, 9, 12, 10, 0), (10, 1, 10, 10, 10)]
        {
            assert_eq!(thin("m", None, &points(count), from, to, most).step.len(), expected, "{count} {from} {to}");
        }
        let long = thin("m", None, &points(100_000), 1, usize::MAX, 2_000);
        assert!(long.step.len() <= 2_000 && long.step.is_sorted() && long.total == 100_000);
        assert!(long.value.contains(&Some(1e6)), "the peak is there");
        assert_eq!((long.step[0], *long.step.last().unwrap()), (1, 100_000));
        let part = thin("m", None, &points(100_000), 1_001, 1_500, 2_000);
        assert_eq!((part.step[0], part.step.len()), (1_001, 500));
    }

    #[test]
    fn what_is_no_number_is_null() {
        let series = thin("m", None, &[point(1, f64::NAN, None), point(2, 0.5, None)], 1, 9, 9);
        assert_eq!(
            serde_json::to_string(&series).unwrap(),
            r#"{"name":"m","metric":"m","total":2,"at":[1,2],"step":[1,2],"value":[null,0.5]}"#
        );
    }
    #[test]
    fn each_of_several_hosts_has_a_line() {
        let all = [(1, Some(1)), (2, Some(2)), (3, Some(1)), (4, Some(2))];
        let lines = |hosts: &[(u64, Option<u32>)]| {
            let points = hosts.iter().map(|(at_ms, host)| point(*at_ms, 0.5, *host)).collect();
            let lines = by_host(points).into_iter().map(|(host, points)| thin("loss", host, &points, 1, 9, 9));
            lines.map(|line| (line.name, line.step.len())).collect::<Vec<_>>()
        };
        assert_eq!(lines(&all), [("loss algo-1".to_owned(), 2), ("loss algo-2".to_owned(), 2)]);
        assert_eq!(lines(&all[..1]), [("loss".to_owned(), 1)]);
        assert_eq!(lines(&[(1, None), (2, Some(2))]), [("loss".to_owned(), 1), ("loss algo-2".to_owned(), 1)]);
    }
}
