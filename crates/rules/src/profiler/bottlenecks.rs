//! CPUBottleneck and IOBottleneck: GPUs that idle while cores or disks are busy.

use std::collections::BTreeMap;

use super::{MAX_DEVICES, NO_GPU, Reading, SCAN_INTERVAL, START, SystemRule, finding};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{PERCENT, Parameter, Parameters};

const THRESHOLD: Parameter = Parameter {
    name: "threshold",
    kind: PERCENT,
    default: Some("50"),
    doc: "Percentage of the readings with a bottleneck above which the condition is met.",
};

const GPU_THRESHOLD: Parameter = Parameter {
    name: "gpu_threshold",
    kind: PERCENT,
    default: Some("10"),
    doc: "Utilisation of the GPUs below which they idle.",
};

pub(crate) static CPU_BOTTLENECK: Declaration = Declaration {
    name: "CPUBottleneck",
    summary: "GPUs idle while cores are busy.",
    parameters: &[
        THRESHOLD,
        GPU_THRESHOLD,
        Parameter {
            name: "cpu_threshold",
            kind: PERCENT,
            default: Some("90"),
            doc: "Utilisation of the cores above which they are busy.",
        },
        START,
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| Box::new(Bottleneck::new(parameters, Resource::Cpu, "cpu_threshold"))),
};

pub(crate) static IO_BOTTLENECK: Declaration = Declaration {
    name: "IOBottleneck",
    summary: "GPUs idle while processes wait for disks.",
    parameters: &[
        THRESHOLD,
        GPU_THRESHOLD,
        Parameter {
            name: "io_threshold",
            kind: PERCENT,
            default: Some("50"),
            doc: "Percentage of time that processes wait above which disks are busy.",
        },
        START,
        SCAN_INTERVAL,
    ],
    collections: &[],
    make: Make::System(|parameters| Box::new(Bottleneck::new(parameters, Resource::Io, "io_threshold"))),
};

#[derive(Debug, Clone, Copy)]
enum Resource {
    Cpu,
    Io,
}

#[derive(Debug)]
struct Bottleneck {
    resource: Resource,
    percent: f64,
    idle_gpu: f64,
    busy: f64,
    first: u64,
    /// By host: readings, and those with a bottleneck.
    hosts: BTreeMap<String, (u64, u64)>,
    has_gpu: bool,
}

/// Why IOBottleneck may have nothing to judge.
const NO_IO_WAIT: &str = "no instance knows how long it waits for disks; that needs control groups of version 2 and \
                          pressure stall information (/proc/pressure) on its machine.";

impl Bottleneck {
    fn new(parameters: &Parameters, resource: Resource, busy: &str) -> Self {
        Self {
            resource,
            percent: parameters.number("threshold"),
            idle_gpu: parameters.number("gpu_threshold"),
            busy: parameters.number(busy),
            first: parameters.integer("patience"),
            hosts: BTreeMap::new(),
            has_gpu: false,
        }
    }
}

impl SystemRule for Bottleneck {
    fn observe(&mut self, reading: &Reading) -> Option<Finding> {
        let gpu = reading.mean_gpu()?;
        self.has_gpu = true;
        let used = match self.resource {
            Resource::Cpu => reading.mean_cpu(),
            Resource::Io => reading.io_wait?,
        };
        if self.hosts.len() >= MAX_DEVICES && !self.hosts.contains_key(&reading.host) {
            return None;
        }
        let (readings, bottlenecks) = self.hosts.entry(reading.host.clone()).or_default();
        *readings += 1;
        *bottlenecks += u64::from(used > self.busy && gpu < self.idle_gpu);
        let percent = 100.0 * *bottlenecks as f64 / *readings as f64;
        if *readings < self.first || percent <= self.percent {
            return None;
        }
        let (what, advice) = match self.resource {
            Resource::Cpu => (
                "cores above",
                "more processes that load data (num_workers), augmentation on the GPU, or an instance type with more \
                 cores",
            ),
            Resource::Io => (
                "waiting for disks above",
                "fewer and larger files, FastFile mode, prefetching, or data that is cached in memory",
            ),
        };
        let text = format!(
            "{} % of {readings} readings of {} have {what} {} % and GPUs below {} %; the last one {} % and {} %. Try \
             {advice}.",
            Short(percent),
            reading.host,
            Short(self.busy),
            Short(self.idle_gpu),
            Short(used),
            Short(gpu)
        );
        Some(finding(reading.host.clone(), percent, text))
    }

    fn end(&mut self) -> Result<String, String> {
        match (self.hosts.is_empty(), self.has_gpu) {
            (false, _) => Ok(String::new()),
            (true, true) => Err(NO_IO_WAIT.to_owned()),
            (true, false) => Err(NO_GPU.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::judge;
    use super::*;

    /// Every other reading has a bottleneck, and two of the next.
    fn reading(second: u64, share: u64) -> Reading {
        let is_idle = second % 10 < share;
        let (gpu, cpu) = if is_idle { (2.0, 97.0) } else { (80.0, 40.0) };
        Reading { gpu: vec![gpu, gpu], cpu: vec![cpu; 4], io_wait: Some(cpu), ..Reading::default() }
    }

    #[test]
    fn idle_gpus_next_to_busy_cores_or_disks_are_found() {
        for (rule, what) in [("CPUBottleneck", "cores above 90 %"), ("IOBottleneck", "waiting for disks above 50 %")] {
            let found = judge(rule, &[], 2000, |second| reading(second, 6)).unwrap().unwrap();
            assert_eq!((found.subject.as_str(), found.value), ("algo-1", 60.0));
            assert!(found.text.starts_with("60 % of 1000 readings of algo-1 have"), "{}", found.text);
            assert!(found.text.contains(what), "{}", found.text);
            assert_eq!(judge(rule, &[], 2000, |second| reading(second, 4)), Ok(None));
            assert_eq!(judge(rule, &[], 900, |second| reading(second, 6)), Ok(None), "too early");
            let sooner = [("patience", "10"), ("threshold", "30")];
            assert!(judge(rule, &sooner, 20, |second| reading(second, 4)).unwrap().is_some());
            let error = judge(rule, &[], 10, |_| Reading::default()).unwrap_err();
            assert!(error.ends_with("no instance of the training job has a GPU."), "{error}");
        }
        let unknown = |second| Reading { io_wait: None, ..reading(second, 6) };
        assert!(judge("CPUBottleneck", &[], 2000, unknown).unwrap().is_some());
        let error = judge("IOBottleneck", &[], 2000, unknown).unwrap_err();
        assert!(error.contains("no instance knows how long it waits for disks"), "{error}");
    }
}
