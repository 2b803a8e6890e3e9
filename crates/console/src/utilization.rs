//! What a job's instances use, for its charts: a chart for each metric with a line for each host,
//! GPU and rank, thinned to a chart's width.

use std::collections::BTreeMap;

use http::Response;
use serde::Serialize;
use shoal_store::{HostSystemMetrics, StoreError, SystemColumn, SystemPoint, Telemetry};

use super::{
    Console, amounts, blocking,
    frame::PageError,
    responses::{Body, answer},
};

/// Most points of a line.
const MAX_POINTS: usize = 600;

/// Metrics in the order of the page: name, title, unit.
const METRICS: [(&str, &str, &str); 10] = [
    ("CPUUtilization", "Processors (100 % is one core)", "%"),
    ("MemoryBytes", "Memory", "B"),
    ("MemoryUtilization", "Memory, share of the limit", "%"),
    ("GPUUtilization", "GPUs", "%"),
    ("GPUMemoryUtilization", "Memory of GPUs", "%"),
    ("DiskReadBytesPerSecond", "Disk, read", "B/s"),
    ("DiskWriteBytesPerSecond", "Disk, written", "B/s"),
    ("NetworkReceiveBytesPerSecond", "Network, received", "B/s"),
    ("NetworkSendBytesPerSecond", "Network, sent", "B/s"),
    ("DiskUtilization", "Volume", "%"),
];

#[derive(Debug, Serialize)]
struct Charts {
    charts: Vec<Chart>,
}

#[derive(Debug, Serialize)]
struct Chart {
    name: &'static str,
    unit: &'static str,
    lines: Vec<Line>,
}

/// A series in columns.
#[derive(Debug, PartialEq, Serialize)]
struct Line {
    /// `algo-1`, `algo-1 rank 3`
    name: String,
    /// Milliseconds since the epoch.
    at: Vec<u64>,
    value: Vec<f32>,
}

impl Console {
    /// All of a job's samples.
    pub(super) async fn utilization(&self, name: &str) -> Result<Response<Body>, PageError> {
        let (sources, name) = (self.sources.clone(), name.to_owned());
        let charts = blocking(move || Ok(charts(sources.telemetry.read_system(&name, None, 0, u64::MAX)?))).await?;
        Ok(answer("application/json", serde_json::to_vec(&charts).map_err(|error| PageError::ours(&error))?))
    }
}

fn charts(hosts: Vec<HostSystemMetrics>) -> Charts {
    let mut lines = BTreeMap::<usize, Vec<Line>>::new();
    for HostSystemMetrics { host, columns } in hosts {
        for (column, points) in columns {
            let Some(place) = METRICS.iter().position(|(name, ..)| *name == column.metric) else { continue };
            let points = thin(&points);
            lines.entry(place).or_default().push(Line {
                name: line_name(host, &column),
                at: points.iter().map(|point| point.at_ms).collect(),
                value: points.iter().map(|point| point.mean).collect(),
            });
        }
    }
    let chart = |(place, lines): (usize, Vec<Line>)| {
        let (_, name, unit) = METRICS[place];
        Chart { name, unit, lines }
    };
    Charts { charts: lines.into_iter().map(chart).collect() }
}

fn line_name(host: u32, column: &SystemColumn) -> String {
    match (column.gpu, column.rank) {
        (Some(gpu), _) => format!("algo-{host} GPU {gpu}"),
        (None, Some(rank)) => format!("algo-{host} rank {rank}"),
        (None, None) => format!("algo-{host}"),
    }
}

/// At most [`MAX_POINTS`]: consecutive ones are joined.
fn thin(points: &[SystemPoint]) -> Vec<SystemPoint> {
    let together = points.len().div_ceil(MAX_POINTS).max(1);
    points.chunks(together).filter_map(|chunk| chunk.iter().copied().reduce(SystemPoint::joined)).collect()
}

/// The last value of each of a job's lines, for readers without charts.
///
/// # Errors
/// The storage's.
pub(super) fn latest(telemetry: &Telemetry, job: &str) -> Result<Vec<(String, String)>, StoreError> {
    let mut rows = Vec::new();
    for host in telemetry.system_now(job)? {
        for (name, title, unit) in METRICS {
            for (column, value) in host.values.iter().filter(|(column, _)| column.metric == name) {
                rows.push((format!("{}: {title}", line_name(host.host, column)), amount(unit, *value)));
            }
        }
    }
    Ok(rows)
}

fn amount(unit: &str, value: f32) -> String {
    match unit {
        "%" => format!("{value:.1} %"),
        "B/s" => format!("{}/s", amounts::bytes(value as u64)),
        _ => amounts::bytes(value as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: u64) -> Vec<SystemPoint> {
        (0..count).map(|at_ms| SystemPoint { at_ms, count: 1, low: 1.0, mean: at_ms as f32, high: 9.0 }).collect()
    }

    #[test]
    fn a_metric_is_a_chart_with_a_line_for_each_host_gpu_and_rank() {
        let column = |metric: &str, gpu, rank| SystemColumn { metric: metric.to_owned(), gpu, rank };
        let host = |host| HostSystemMetrics {
            host,
            columns: BTreeMap::from([
                (column("CPUUtilization", None, None), points(3)),
                (column("CPUUtilization", None, Some(7)), points(2)),
                (column("GPUUtilization", Some(1), None), points(1)),
                (column("Cores", None, None), points(3)),
            ]),
        };
        let charts = charts(vec![host(1), host(2)]).charts;
        let names = |chart: &Chart| chart.lines.iter().map(|line| line.name.clone()).collect::<Vec<_>>().join(", ");
        let shown: Vec<_> =
            charts.iter().map(|chart| format!("{} [{}]: {}", chart.name, chart.unit, names(chart))).collect();
        assert_eq!(
            shown,
            [
                "Processors (100 % is one core) [%]: algo-1, algo-1 rank 7, algo-2, algo-2 rank 7",
                "GPUs [%]: algo-1 GPU 1, algo-2 GPU 1",
            ]
        );
        let line = &charts[0].lines[0];
        assert_eq!((line.at.as_slice(), line.value.as_slice()), (&[0, 1, 2][..], &[0.0, 1.0, 2.0][..]));
    }

    #[test]
    fn long_lines_are_thinned_to_their_means() {
        assert_eq!(thin(&points(600)).len(), 600);
        let long = thin(&points(1201));
        assert_eq!((long.len(), long[0].mean, long[0].count, long[0].at_ms), (401, 1.0, 3, 0));
        assert!(thin(&[]).is_empty());
    }
}
