//! A job's metrics for its charts, thinned so that a chart's width is not exceeded, with every peak
//! kept. A metric that several hosts report is a line for each of them. A page that has the series
//! gets what has come since then.

use std::collections::BTreeMap;

use http::Response;
use serde::Serialize;
use shoal_store::{HostSeries, Sample, SeriesGrowth, SeriesPosition, StoreError, Stretch, Telemetry};

use super::{
    Console, Visit, blocking,
    frame::PageError,
    responses::{Body, answer},
    series_position,
};

/// Most points of a series that a chart gets.
pub(crate) const MOST_POINTS: usize = 2_000;
/// Of many hosts, each gets so many at least.
pub(crate) const LEAST_POINTS: usize = 200;
/// Points and stretches that are read in a second while a chart is open: series with more are asked
/// for less often.
const POINTS_A_SECOND: u64 = 50_000;

/// A series in columns; a value that is not a number is `null`.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Series {
    /// For the legend: the metric, and where several hosts report it, which.
    pub(crate) name: String,
    pub(crate) metric: String,
    /// These points follow those that the page has. Otherwise this and the other series of the
    /// metric replace what it has.
    appended: bool,
    /// How many points there are in all.
    total: u64,
    /// Milliseconds since the epoch.
    at: Vec<u64>,
    /// Number in the series, from 1.
    step: Vec<u64>,
    value: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
struct Charts {
    series: Vec<Series>,
    /// What the next request shows to get only what is new; none for a part of the steps.
    position: Option<String>,
    /// Milliseconds until it is worth asking again.
    every_ms: u64,
}

impl Console {
    /// All metrics; with `from` and `to` (steps), only those points, at a finer grain; with `after`
    /// (a position), what has come since.
    pub(super) async fn series(&self, visit: &Visit, name: &str) -> Result<Response<Body>, PageError> {
        let part = visit.query.number("from").map(|from| (from.max(1), visit.query.number("to").unwrap_or(u64::MAX)));
        let known = visit.query.get("after").map(series_position::read).unwrap_or_default();
        let (sources, name) = (self.sources.clone(), name.to_owned());
        let charts = blocking(move || {
            Ok(match part {
                Some((from, to)) => part_of_charts(&sources.telemetry, &name, from, to)?,
                None => charts(&sources.telemetry, &name, &known)?,
            })
        })
        .await?;
        Ok(answer("application/json", serde_json::to_vec(&charts).map_err(|error| PageError::ours(&error))?))
    }
}

/// What a page with these positions lacks.
fn charts(telemetry: &Telemetry, job: &str, known: &[SeriesPosition]) -> Result<Charts, StoreError> {
    let (mut series, mut positions, mut read) = (Vec::new(), Vec::new(), 0);
    for (metric, growth) in telemetry.series_growth(job, known)? {
        match growth {
            SeriesGrowth::Points { hosts, position } => {
                read += hosts.values().map(Vec::len).sum::<usize>();
                series.extend(appended(&metric, &hosts, &position));
                positions.push(position);
            }
            SeriesGrowth::Changed => {
                let whole = telemetry.read_stretches(job, &metric, 1, u64::MAX)?;
                read += thinned(&metric, &whole.hosts, &mut series);
                positions.push(whole.position);
            }
        }
    }
    Ok(Charts { series, position: Some(series_position::text(&positions)), every_ms: pause_ms(read) })
}

/// Some steps of all series.
fn part_of_charts(telemetry: &Telemetry, job: &str, from: u64, to: u64) -> Result<Charts, StoreError> {
    let (mut series, mut read) = (Vec::new(), 0);
    for metric in telemetry.metrics(job)? {
        read += thinned(&metric, &telemetry.read_stretches(job, &metric, from, to)?.hosts, &mut series);
    }
    Ok(Charts { series, position: None, every_ms: pause_ms(read) })
}

fn pause_ms(read: usize) -> u64 {
    (1000 * read as u64 / POINTS_A_SECOND).clamp(500, 30_000)
}

/// Adds a metric's lines; returns how many stretches they were made of.
fn thinned(metric: &str, hosts: &BTreeMap<Option<u32>, HostSeries>, series: &mut Vec<Series>) -> usize {
    let most = (MOST_POINTS / hosts.len().max(1)).max(LEAST_POINTS);
    let is_only = hosts.len() == 1;
    series.extend(hosts.iter().map(|(host, points)| thin(metric, host.filter(|_| !is_only), points, most)));
    hosts.values().map(|host| host.stretches.len()).sum()
}

/// New points of a metric's lines.
fn appended(metric: &str, hosts: &BTreeMap<Option<u32>, Vec<Sample>>, position: &SeriesPosition) -> Vec<Series> {
    let is_only = position.hosts.len() == 1;
    let line = |(host, samples): (&Option<u32>, &Vec<Sample>)| {
        let total = samples.last().map_or(0, |last| last.step);
        Series { appended: true, total, ..columns(metric, host.filter(|_| !is_only), samples) }
    };
    hosts.iter().map(line).collect()
}

fn columns(metric: &str, host: Option<u32>, samples: &[Sample]) -> Series {
    let finite = |value: f64| value.is_finite().then_some(value);
    Series {
        name: host.map_or_else(|| metric.to_owned(), |host| format!("{metric} algo-{host}")),
        metric: metric.to_owned(),
        at: samples.iter().map(|it| it.at_ms).collect(),
        step: samples.iter().map(|it| it.step).collect(),
        value: samples.iter().map(|it| finite(it.value)).collect(),
        ..Series::default()
    }
}

/// A host's stretches in at most `most` points: the least and the greatest value of each, or of
/// some together, so that no peak is lost, and always the last point.
pub(crate) fn thin(metric: &str, host: Option<u32>, series: &HostSeries, most: usize) -> Series {
    let (first, end) =
        (series.stretches.first().map_or(1, |it| it.first_step), series.stretches.last().map_or(0, |it| it.last.step));
    let mut chosen: Vec<Sample> = Vec::new();
    if series.stretches.iter().map(|it| samples(it).count()).sum::<usize>() <= most {
        chosen.extend(series.stretches.iter().flat_map(samples));
    } else {
        let groups = (most / 2 - 1) as u64;
        let group = |step: u64| (step - first) * groups / (end + 1 - first);
        let mut joined: Option<Stretch> = None;
        for stretch in &series.stretches {
            match &mut joined {
                Some(before) if group(before.first_step) == group(stretch.first_step) => before.join(stretch),
                _ => chosen.extend(joined.replace(*stretch).iter().flat_map(samples)),
            }
        }
        chosen.extend(joined.iter().flat_map(samples));
    }
    let last = series.stretches.last().map(|stretch| stretch.last);
    chosen.extend(last.filter(|last| chosen.last().is_some_and(|it| it.step < last.step)));
    Series { total: series.total, ..columns(metric, host, &chosen) }
}

/// The least and the greatest of a stretch, in their order.
fn samples(stretch: &Stretch) -> impl Iterator<Item = Sample> + use<> {
    let Stretch { low, high, .. } = *stretch;
    let (first, second) = if low.step <= high.step { (low, high) } else { (high, low) };
    [Some(first), (second.step != first.step).then_some(second)].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(step: u64, value: f64) -> Sample {
        Sample { step, at_ms: 10 * step, value }
    }

    /// Points `from` to `to` of a series.
    fn points(from: u64, to: u64, value: impl Fn(u64) -> f64) -> HostSeries {
        let stretch = |step| {
            let it = sample(step, value(step));
            Stretch { first_step: step, low: it, high: it, last: it }
        };
        HostSeries { total: to, stretches: (from..=to).map(stretch).collect() }
    }

    #[test]
    fn short_series_come_whole_and_long_ones_with_their_peaks() {
        let saw = |step: u64| if step == 33_333 { 1e6 } else { (step % 7) as f64 };
        for (from, to, most, expected) in [(1, 0, 10, 0), (1, 5, 10, 5), (2, 3, 10, 2), (1, 10, 10, 10)] {
            assert_eq!(thin("m", None, &points(from, to, saw), most).step.len(), expected, "{from} {to}");
        }
        let long = thin("m", None, &points(1, 100_000, saw), 2_000);
        assert!(long.step.len() <= 2_000 && long.step.len() > 1_900 && long.step.is_sorted() && long.total == 100_000);
        assert!(long.value.contains(&Some(1e6)), "the peak is there");
        assert!(long.step[0] < 10 && long.step.last() == Some(&100_000));
        let part = thin("m", None, &points(1_001, 1_500, saw), 2_000);
        assert_eq!((part.step[0], part.step.len()), (1_001, 500));
    }

    #[test]
    fn stretches_show_their_extremes_and_the_last_point() {
        let stretches = (0..1_000).map(|n| Stretch {
            first_step: 10 * n + 1,
            low: sample(10 * n + 7, -1.0),
            high: sample(10 * n + 3, if n == 77 { 9.0 } else { 1.0 }),
            last: sample(10 * n + 10, 0.5),
        });
        let series = HostSeries { total: 10_000, stretches: stretches.collect() };
        for (most, expected) in [(2_000, 2_001), (50, 49)] {
            let chart = thin("m", None, &series, most);
            assert_eq!(chart.step.len(), expected);
            assert!(chart.value.contains(&Some(9.0)) && chart.step.is_sorted());
            assert_eq!((chart.step.last(), chart.value.last()), (Some(&10_000), Some(&Some(0.5))));
        }
    }

    /// What a page has after an answer: the same as `charts.js` makes of it.
    fn merged(page: Vec<Series>, answer: Charts) -> Vec<Series> {
        let replaced = |metric: &str| answer.series.iter().any(|it| !it.appended && it.metric == metric);
        let mut page: Vec<Series> = page.into_iter().filter(|it| !replaced(&it.metric)).collect();
        for mut series in answer.series {
            match page.iter_mut().find(|it| it.name == series.name) {
                Some(known) if series.appended => {
                    known.total = series.total;
                    known.at.append(&mut series.at);
                    known.step.append(&mut series.step);
                    known.value.append(&mut series.value);
                }
                _ => page.push(series),
            }
        }
        page.sort_by(|a, b| (&a.metric, &a.name).cmp(&(&b.metric, &b.name)));
        page
    }

    #[test]
    fn a_page_that_gets_new_points_alone_has_what_a_new_page_gets() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let report = |seq: u64, host: u32, metric: &str, times: std::ops::Range<u64>| {
            let points = times
                .map(|at_ms| shoal_store::MetricPoint { metric: metric.to_owned(), at_ms, value: (at_ms % 7) as f64 })
                .collect();
            let ingest = shoal_store::Ingest {
                attempt: "a".to_owned(),
                host,
                seq,
                job: "j".to_owned(),
                points,
                ..Default::default()
            };
            telemetry.ingest(&ingest).unwrap();
        };
        let (mut page, mut position) = (Vec::new(), String::new());
        let mut refresh = || {
            let answer = charts(&telemetry, "j", &series_position::read(&position)).unwrap();
            position = answer.position.clone().unwrap();
            let (points, new) =
                (answer.series.iter().map(|it| it.at.len()).sum::<usize>(), answer.series.iter().all(|it| it.appended));
            page = merged(std::mem::take(&mut page), answer);
            assert_eq!(page, merged(Vec::new(), charts(&telemetry, "j", &[]).unwrap()));
            (points, new)
        };
        report(1, 1, "loss", 0..500);
        report(2, 1, "rate", 0..10);
        assert_eq!(refresh(), (510, false));
        assert_eq!(refresh(), (0, true), "nothing is new");
        report(3, 1, "loss", 500..503);
        assert_eq!(refresh(), (3, true));
        report(4, 1, "loss", 503..504);
        report(5, 1, "rate", 10..12);
        assert_eq!(refresh(), (3, true));
        report(1, 2, "rate", 10..11);
        assert_eq!(refresh(), (13, false), "the lines of this metric have other names now");
        report(2, 2, "rate", 11..12);
        report(6, 1, "rate", 12..14);
        assert_eq!(refresh(), (3, true));
        report(7, 1, "loss", 250..251);
        assert_eq!(refresh(), (505, false), "a point that came late has its place");
    }

    #[test]
    fn what_is_no_number_is_null_and_hosts_are_named() {
        let series = thin("m", Some(2), &points(1, 2, |step| if step == 1 { f64::NAN } else { 0.5 }), 9);
        assert_eq!(
            serde_json::to_string(&series).unwrap(),
            r#"{"name":"m algo-2","metric":"m","appended":false,"total":2,"at":[10,20],"step":[1,2],"value":[null,0.5]}"#
        );
    }
}
