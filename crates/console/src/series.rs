//! A job's metrics for its charts, thinned so that a chart's width is not exceeded, with every peak kept. A metric that several hosts say
//! is a line for each of them.

use http::Response;
use serde::Serialize;
use shoal_store::{HostSeries, Sample, Stretch};

use super::{
    Console, Visit, blocking,
    frame::Trouble,
    responses::{Body, answer},
};

/// Most points of a series that a chart gets.
const MOST_POINTS: usize = 2_000;
/// Of many hosts, each gets so many at least.
const LEAST_POINTS: usize = 200;
/// Points and stretches that are read in a second while a chart is open: series with more are asked for less often.
const POINTS_A_SECOND: u64 = 50_000;

/// A series in columns; a value that is not a number is `null`.
#[derive(Debug, PartialEq, Serialize)]
struct Series {
    /// For the legend: the metric, and where several hosts say it, which.
    name: String,
    metric: String,
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
    /// Milliseconds until it is worth asking again.
    every_ms: u64,
}

impl Console {
    /// All metrics; with `from` and `to` (steps), only those points, at a finer grain.
    pub(super) async fn series(&self, visit: &Visit, name: &str) -> Result<Response<Body>, Trouble> {
        let (from, to) = (visit.query.number("from").unwrap_or(1).max(1), visit.query.number("to").unwrap_or(u64::MAX));
        let (sources, name) = (self.sources.clone(), name.to_owned());
        let charts = blocking(move || {
            let (mut series, mut read) = (Vec::new(), 0);
            for metric in sources.telemetry.metrics(&name)? {
                let hosts = sources.telemetry.read_stretches(&name, &metric, from, to)?;
                let most = (MOST_POINTS / hosts.len().max(1)).max(LEAST_POINTS);
                let is_only = hosts.len() == 1;
                read += hosts.values().map(|host| host.stretches.len()).sum::<usize>();
                series.extend(hosts.iter().map(|(host, points)| thin(&metric, host.filter(|_| !is_only), points, most)));
            }
            Ok(Charts { series, every_ms: (1000 * read as u64 / POINTS_A_SECOND).clamp(500, 30_000) })
        })
        .await?;
        Ok(answer("application/json", serde_json::to_vec(&charts).map_err(|error| Trouble::ours(&error))?))
    }
}

/// A host's stretches in at most `most` points: the least and the greatest value of each, or of some together, so that no peak is lost, and
/// always the last point.
fn thin(metric: &str, host: Option<u32>, series: &HostSeries, most: usize) -> Series {
    let (first, end) = (series.stretches.first().map_or(1, |it| it.first_step), series.stretches.last().map_or(0, |it| it.last.step));
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
    let finite = |value: f64| value.is_finite().then_some(value);
    Series {
        name: host.map_or_else(|| metric.to_owned(), |host| format!("{metric} algo-{host}")),
        metric: metric.to_owned(),
        total: series.total,
        at: chosen.iter().map(|it| it.at_ms).collect(),
        step: chosen.iter().map(|it| it.step).collect(),
        value: chosen.iter().map(|it| finite(it.value)).collect(),
    }
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

    #[test]
    fn what_is_no_number_is_null_and_hosts_are_named() {
        let series = thin("m", Some(2), &points(1, 2, |step| if step == 1 { f64::NAN } else { 0.5 }), 9);
        assert_eq!(
            serde_json::to_string(&series).unwrap(),
            r#"{"name":"m algo-2","metric":"m","total":2,"at":[10,20],"step":[1,2],"value":[null,0.5]}"#
        );
    }
}
