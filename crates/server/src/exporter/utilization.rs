//! What running instances use, as gauges. An instance is named by its attempt and host: names of
//! jobs are not on the page.

use shoal_link::metric;
use shoal_store::{StoreError, SystemNow, Telemetry};

use super::format::{Kind, Text};
use crate::attempts::Attempts;

/// A family: ours, the metric, what a value is multiplied by, and its help.
type Family = (&'static str, &'static str, f64, &'static str);

/// Of instances and their ranks, then of GPUs.
const FAMILIES: [Family; 9] = [
    ("shoal_instance_cpu_cores", metric::CPU, 0.01, "Processor cores that a running instance uses."),
    ("shoal_instance_memory_bytes", metric::MEMORY_BYTES, 1.0, "Memory that a running instance uses."),
    ("shoal_instance_memory_ratio", metric::MEMORY, 0.01, "The same as a part of what it may use."),
    ("shoal_instance_disk_ratio", metric::DISK, 0.01, "Part of its volume that a running instance has written."),
    ("shoal_instance_disk_read_bytes_per_second", metric::DISK_READ, 1.0, "Bytes that it reads from disks."),
    ("shoal_instance_disk_written_bytes_per_second", metric::DISK_WRITE, 1.0, "Bytes that it writes to disks."),
    ("shoal_instance_received_bytes_per_second", metric::NETWORK_RECEIVE, 1.0, "Bytes that its network receives."),
    ("shoal_instance_gpu_ratio", metric::GPU, 0.01, "Part of the time in which a GPU of it is busy."),
    ("shoal_instance_gpu_memory_ratio", metric::GPU_MEMORY, 0.01, "Part of that GPU's memory that is used."),
];

/// The newest values of instances of attempts that run; ones that were not sampled are left out.
#[derive(Default)]
pub(crate) struct Utilization(Vec<(String, SystemNow)>);

impl Utilization {
    /// Reads them.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn read(attempts: &Attempts, telemetry: &Telemetry) -> Result<Self, StoreError> {
        let mut found = Vec::new();
        for attempt in attempts.all() {
            let hosts = telemetry.system_now(&attempt.plan.job)?;
            found.extend(hosts.into_iter().map(|host| (attempt.plan.attempt.to_string(), host)));
        }
        Ok(Self(found))
    }

    pub(super) fn write(&self, text: &mut Text) {
        if self.0.is_empty() {
            return;
        }
        for (name, metric, factor, help) in FAMILIES {
            text.family(name, Kind::Gauge, help);
            for (attempt, now) in &self.0 {
                let host = format!("algo-{}", now.host);
                for (column, value) in now.values.iter().filter(|(column, _)| column.metric == metric) {
                    if column.rank.is_some() {
                        continue;
                    }
                    let gpu = column.gpu.map(|gpu| gpu.to_string());
                    let mut labels = vec![("attempt", attempt.as_str()), ("host", &host)];
                    labels.extend(gpu.as_ref().map(|gpu| ("gpu", gpu.as_str())));
                    text.sample(name, &labels, f64::from(*value) * factor);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_store::SystemColumn;

    use super::*;

    #[test]
    fn instances_are_named_by_attempt_and_host() {
        let column = |metric: &str, gpu, rank| SystemColumn { metric: metric.to_owned(), gpu, rank };
        let values = vec![
            (column(metric::CPU, None, None), 150.0),
            (column(metric::CPU, None, Some(3)), 99.0),
            (column(metric::GPU, Some(1), None), 50.0),
        ];
        let mut text = Text::default();
        Utilization(vec![("a-1".to_owned(), SystemNow { host: 2, at_ms: 1, values })]).write(&mut text);
        let text = text.into_string();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "shoal_instance_cpu_cores{attempt=\"a-1\",host=\"algo-2\"} 1.5",
                "shoal_instance_gpu_ratio{attempt=\"a-1\",host=\"algo-2\",gpu=\"1\"} 0.5",
            ]
        );
        let mut none = Text::default();
        Utilization(Vec::new()).write(&mut none);
        assert_eq!(none.into_string(), "");
    }
}
