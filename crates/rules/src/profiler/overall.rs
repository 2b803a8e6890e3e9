//! OverallSystemUsage: percentiles of each instance, for the report.

use std::fmt::Write;

use super::window::Windows;
use super::{Reading, SCAN_INTERVAL, SystemRule};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};

/// Readings of a host of which percentiles are.
const WINDOW: usize = 10_000;

pub(crate) static OVERALL_SYSTEM_USAGE: Declaration = Declaration {
    name: "OverallSystemUsage",
    summary: "Percentiles of the use of each instance; it finds no issues.",
    parameters: &[SCAN_INTERVAL],
    collections: &[],
    make: Make::System(|_| Box::new(OverallUsage::default())),
};

#[derive(Debug, Default)]
struct OverallUsage {
    used: Windows,
}

impl SystemRule for OverallUsage {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        let gpu = reading.mean_gpu();
        let values = [
            ("CPU", Some(reading.mean_cpu())),
            ("GPU", gpu),
            ("I/O wait", reading.io_wait),
            ("memory", Some(reading.memory)),
        ];
        for (name, value) in values {
            if let Some(value) = value
                && let Some(window) = self.used.of(&format!("{} {name}", reading.host))
            {
                window.push(value, WINDOW);
            }
        }
        None
    }

    fn end(&mut self) -> Result<String, String> {
        if self.used.is_empty() {
            return Err("no system metrics came.".to_owned());
        }
        Ok(self.used.iter().fold(String::new(), |mut text, (name, window)| {
            let [median, high, highest] = [50, 95, 100].map(|percent| Short(window.percentile(percent)));
            let _ = write!(text, "{name}: p50 {median} %, p95 {high} %, max {highest} %. ");
            text
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::evaluation;
    use super::*;

    #[test]
    fn percentiles_of_each_host() {
        let mut evaluation = evaluation("OverallSystemUsage", &[]);
        for second in 0..=100 {
            let cpu = second as f64;
            let reading = Reading { host: "algo-2".into(), cpu: vec![cpu, cpu], gpu: vec![7.0], ..Reading::default() };
            assert_eq!(evaluation.observe(&reading), None);
        }
        let ended = evaluation.end().unwrap();
        assert!(ended.details.contains("algo-2 CPU: p50 50 %, p95 95 %, max 100 %. "), "{}", ended.details);
        assert!(ended.details.contains("algo-2 GPU: p50 7 %"), "{}", ended.details);
    }
}
