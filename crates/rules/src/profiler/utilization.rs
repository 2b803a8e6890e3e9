//! LowGPUUtilization and BatchSize: GPUs that are used too little.

use super::window::Windows;
use super::{NO_GPU, Reading, SCAN_INTERVAL, START, SystemRule, finding, window};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{PERCENT, Parameter};

pub(crate) static LOW_GPU_UTILIZATION: Declaration = Declaration {
    name: "LowGPUUtilization",
    summary: "A GPU is used little, or with pauses.",
    parameters: &[
        Parameter {
            name: "threshold_p95",
            kind: PERCENT,
            default: Some("70"),
            doc: "Utilisation that the 95th percentile of a window has at least.",
        },
        Parameter {
            name: "threshold_p5",
            kind: PERCENT,
            default: Some("10"),
            doc: "Utilisation that the 5th percentile of a window has at least.",
        },
        window("500"),
        START,
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(LowUtilization {
            high: parameters.number("threshold_p95"),
            low: parameters.number("threshold_p5"),
            window: usize::try_from(parameters.integer("window")).unwrap_or(1),
            first: parameters.integer("patience"),
            gpus: Windows::default(),
        })
    }),
};

pub(crate) static BATCH_SIZE: Declaration = Declaration {
    name: "BatchSize",
    summary: "Cores, GPUs and their memory are all used little.",
    parameters: &[
        Parameter {
            name: "cpu_threshold_p95",
            kind: PERCENT,
            default: Some("70"),
            doc: "95th percentile of the cores below which they are used little.",
        },
        Parameter { name: "gpu_threshold_p95", kind: PERCENT, default: Some("70"), doc: "The same of a GPU." },
        Parameter {
            name: "gpu_memory_threshold_p95",
            kind: PERCENT,
            default: Some("70"),
            doc: "The same of a GPU's memory.",
        },
        START,
        window("500"),
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| {
        Box::new(BatchSize {
            thresholds: ["cpu", "gpu", "gpu_memory"].map(|name| parameters.number(&format!("{name}_threshold_p95"))),
            first: parameters.integer("patience"),
            window: usize::try_from(parameters.integer("window")).unwrap_or(1),
            used: Default::default(),
        })
    }),
};

/// Readings between two looks at percentiles, which sort the window.
const INTERVAL: u64 = 10;

#[derive(Debug)]
struct LowUtilization {
    high: f64,
    low: f64,
    window: usize,
    first: u64,
    gpus: Windows,
}

impl SystemRule for LowUtilization {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        reading.gpu.iter().enumerate().find_map(|(number, utilization)| {
            let device = format!("GPU {number} of {}", reading.host);
            let window = self.gpus.of(&device)?;
            window.push(*utilization, self.window);
            if window.seen < self.first || !(window.seen - self.first).is_multiple_of(INTERVAL) {
                return None;
            }
            let (low, high) = (window.percentile(5), window.percentile(95));
            let count = window.values.len();
            let (value, text) = if high < self.high {
                let text = format!(
                    "the 95th percentile of the utilisation of {device} is {} % in {count} readings, below {} %. Try \
                     larger batches, more processes that load data, or a smaller instance type.",
                    Short(high),
                    Short(self.high)
                );
                (high, text)
            } else if low < self.low {
                let text = format!(
                    "the utilisation of {device} fluctuates: its 5th percentile is {} % in {count} readings, below \
                     {} %, and its 95th {} %. Check what each step waits for (data, checkpoints, other ranks).",
                    Short(low),
                    Short(self.low),
                    Short(high)
                );
                (low, text)
            } else {
                return None;
            };
            Some(finding(device.clone(), value, text))
        })
    }

    fn end(&mut self) -> Result<String, String> {
        if self.gpus.is_empty() { Err(NO_GPU.to_owned()) } else { Ok(String::new()) }
    }
}

#[derive(Debug)]
struct BatchSize {
    /// Of cores, of a GPU and of its memory.
    thresholds: [f64; 3],
    first: u64,
    window: usize,
    used: [Windows; 3],
}

impl SystemRule for BatchSize {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        let cpu = reading.mean_cpu();
        reading.gpu.iter().zip(&reading.gpu_memory).enumerate().find_map(|(number, (gpu, memory))| {
            let device = format!("GPU {number} of {}", reading.host);
            let mut highest = [0.0; 3];
            let mut is_due = true;
            for (index, value) in [cpu, *gpu, *memory].into_iter().enumerate() {
                let window = self.used[index].of(&device)?;
                window.push(value, self.window);
                is_due = window.seen >= self.first && (window.seen - self.first).is_multiple_of(INTERVAL);
                if is_due {
                    highest[index] = window.percentile(95);
                }
            }
            let is_low = highest.iter().zip(&self.thresholds).all(|(value, threshold)| value < threshold);
            (is_due && is_low).then(|| {
                let [cpu, gpu, memory] = highest.map(Short);
                let text = format!(
                    "the 95th percentiles of {device} are {gpu} % of its time and {memory} % of its memory, with {cpu} \
                     % of the cores. Try a larger batch, or a smaller instance type."
                );
                finding(device.clone(), highest[1], text)
            })
        })
    }

    fn end(&mut self) -> Result<String, String> {
        if self.used[1].is_empty() { Err(NO_GPU.to_owned()) } else { Ok(String::new()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::judge;
    use super::*;

    const SOON: [(&str, &str); 2] = [("patience", "100"), ("window", "50")];

    fn reading(gpu: f64, memory: f64) -> Reading {
        Reading { gpu: vec![95.0, gpu], gpu_memory: vec![95.0, memory], cpu: vec![30.0; 8], ..Reading::default() }
    }

    #[test]
    fn low_and_fluctuating_utilisation_are_found() {
        let found = judge("LowGPUUtilization", &SOON, 200, |_| reading(40.0, 50.0)).unwrap().unwrap();
        assert_eq!((found.subject.as_str(), found.value), ("GPU 1 of algo-1", 40.0));
        let saw = |second: u64| reading(if second.is_multiple_of(4) { 1.0 } else { 98.0 }, 50.0);
        let found = judge("LowGPUUtilization", &SOON, 200, saw).unwrap().unwrap();
        assert!(found.text.contains("fluctuates: its 5th percentile is 1 %"), "{}", found.text);
        assert_eq!(judge("LowGPUUtilization", &SOON, 200, |_| reading(90.0, 50.0)), Ok(None));
        let warm_up = |second: u64| reading(if second < 45 { 0.0 } else { 90.0 }, 50.0);
        assert_eq!(judge("LowGPUUtilization", &SOON, 300, warm_up), Ok(None));
    }

    #[test]
    fn a_batch_is_too_small_if_nothing_is_used_much() {
        let found = judge("BatchSize", &SOON, 200, |_| reading(40.0, 20.0)).unwrap().unwrap();
        assert!(found.text.starts_with("the 95th percentiles of GPU 1 of algo-1 are 40 % of its time and 20 %"));
        assert_eq!(judge("BatchSize", &SOON, 200, |_| reading(40.0, 90.0)), Ok(None));
        assert_eq!(judge("BatchSize", &SOON, 200, |_| reading(80.0, 20.0)), Ok(None));
    }
}
