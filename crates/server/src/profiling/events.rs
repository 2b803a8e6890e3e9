//! Samples as AWS's profiler writes them: one JSON object a line. Pure.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::json;
use shoal_link::metric;
use shoal_store::{SystemColumn, SystemTable};

/// Metrics that are written as they are: ours, `Type`, `Name`, `Dimension`.
const EVENTS: [(&str, &str, &str, &str); 5] = [
    (metric::MEMORY, "memory", "memory", "MemoryUsedPercent"),
    (metric::DISK_READ, "i/o", "disk", metric::DISK_READ),
    (metric::DISK_WRITE, "i/o", "disk", metric::DISK_WRITE),
    (metric::NETWORK_RECEIVE, "network", "network", "ReceiveBytesPerSecond"),
    (metric::NETWORK_SEND, "network", "network", "TransmitBytesPerSecond"),
];

/// The file of a host's samples of a minute. Of the processors each core has the mean of all: an
/// instance has a share of the machine's, and none of its own.
pub(super) fn file(tables: &[SystemTable], host: &str) -> String {
    let mut text = String::new();
    for table in tables {
        let gpus = numbers_of_gpus(&table.columns);
        let cores = table.columns.iter().position(|column| is_of_instance(column, metric::CORES));
        for row in &table.rows {
            let mut put = |kind: &str, name: &str, dimension: &str, value: f64| {
                let event = json!({
                    "Type": kind, "Name": name, "Dimension": dimension, "Value": rounded(value), "NodeId": host,
                    "Timestamp": row.at_ms as f64 / 1000.0,
                });
                // A String takes everything.
                let _ = writeln!(text, "{event}");
            };
            for (column, value) in table.columns.iter().zip(&row.values) {
                let value = f64::from(*value);
                if let Some(gpu) = column.gpu.and_then(|gpu| gpus.get(&gpu)) {
                    put("gpu", &format!("gpu{gpu}"), &column.metric, value);
                } else if is_of_instance(column, metric::CPU) {
                    let cores = cores.map_or(1.0, |at| f64::from(row.values[at])).max(1.0);
                    for core in 0..cores as u32 {
                        put("cpu", &format!("cpu{core}"), metric::CPU, (value / cores).min(100.0));
                    }
                } else if let Some((_, kind, name, dimension)) =
                    EVENTS.iter().find(|(name, ..)| is_of_instance(column, name))
                {
                    put(kind, name, dimension, value);
                }
            }
        }
    }
    text
}

/// Key of that file below the profiler's output and the job's name.
pub(super) fn key(minute_ms: u64, host: &str) -> String {
    let seconds = minute_ms / 1000;
    let hour = time::OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).unwrap_or(i64::MAX));
    let hour = hour.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let folder = format!("{:04}{:02}{:02}{:02}", hour.year(), u8::from(hour.month()), hour.day(), hour.hour());
    format!("profiler-output/system/incremental/{folder}/{seconds}.{host}.json")
}

fn is_of_instance(column: &SystemColumn, name: &str) -> bool {
    column.metric == name && column.gpu.is_none() && column.rank.is_none()
}

/// GPUs of the machine as the instance counts them, from 0.
fn numbers_of_gpus(columns: &[SystemColumn]) -> BTreeMap<u32, usize> {
    let mut gpus: Vec<u32> = columns.iter().filter_map(|column| column.gpu).collect();
    gpus.sort_unstable();
    gpus.dedup();
    gpus.into_iter().enumerate().map(|(at, gpu)| (gpu, at)).collect()
}

/// With two decimals, as AWS's files have them.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use shoal_store::SystemRow;

    use super::*;

    fn column(metric: &str, gpu: Option<u32>, rank: Option<u32>) -> SystemColumn {
        SystemColumn { metric: metric.to_owned(), gpu, rank }
    }

    #[test]
    fn samples_become_lines_that_awss_readers_know() {
        let columns = vec![
            column(metric::CPU, None, None),
            column(metric::CORES, None, None),
            column(metric::MEMORY, None, None),
            column(metric::MEMORY_BYTES, None, None),
            column(metric::NETWORK_SEND, None, None),
            column(metric::GPU, Some(5), None),
            column(metric::GPU_MEMORY, Some(3), None),
            column(metric::CPU, None, Some(0)),
        ];
        let values = vec![150.5, 2.0, 12.345, 1e9, 42.0, 87.0, 50.0, 99.0];
        let rows = vec![SystemRow { at_ms: 1_591_748_169_232, is_profiled: true, values }];
        let text = file(&[SystemTable { columns, rows }], "algo-1");
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let shown: Vec<_> = lines
            .iter()
            .map(|it| {
                let word = |name: &str| it[name].as_str().unwrap();
                format!("{} {} {} {}", word("Type"), word("Name"), word("Dimension"), it["Value"])
            })
            .collect();
        assert_eq!(
            shown,
            [
                "cpu cpu0 CPUUtilization 75.25",
                "cpu cpu1 CPUUtilization 75.25",
                "memory memory MemoryUsedPercent 12.35",
                "network network TransmitBytesPerSecond 42.0",
                "gpu gpu1 GPUUtilization 87.0",
                "gpu gpu0 GPUMemoryUtilization 50.0",
            ]
        );
        assert!(lines.iter().all(|it| it["NodeId"] == "algo-1" && it["Timestamp"] == 1_591_748_169.232));
        assert!(text.ends_with('\n'));
    }

    #[test]
    fn a_file_is_found_by_its_hour_and_minute() {
        assert_eq!(
            key(1_591_748_160_000, "algo-12"),
            "profiler-output/system/incremental/2020061000/1591748160.algo-12.json"
        );
    }
}
