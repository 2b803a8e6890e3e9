//! What the profiler's rules have in common, and what they judge.

use std::fmt::Debug;

use shoal_contract::tensors::Mode;

use crate::finding::Finding;

/// Metrics of a host at one moment, in percent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Milliseconds since any moment.
    pub at_ms: u64,
    /// `algo-1` and so on.
    pub host: String,
    /// Utilisation of each core that the host counts on.
    pub cpu: Vec<f64>,
    /// Time that processes waited for disks, where it is known.
    pub io_wait: Option<f64>,
    /// Memory in use.
    pub memory: f64,
    /// Utilisation of each GPU.
    pub gpu: Vec<f64>,
    /// Memory in use of each GPU.
    pub gpu_memory: Vec<f64>,
    /// Processes that load data, where they are known.
    pub data_loaders: Option<u32>,
}

impl Reading {
    pub(crate) fn mean_cpu(&self) -> f64 {
        if self.cpu.is_empty() { 0.0 } else { self.cpu.iter().sum::<f64>() / self.cpu.len() as f64 }
    }

    pub(crate) fn mean_gpu(&self) -> Option<f64> {
        (!self.gpu.is_empty()).then(|| self.gpu.iter().sum::<f64>() / self.gpu.len() as f64)
    }
}

/// How long a step took.
#[derive(Debug, Clone, PartialEq)]
pub struct StepTime {
    /// `algo-1` and so on.
    pub host: String,
    /// Step within its mode.
    pub step: u64,
    /// Phase.
    pub mode: Mode,
    /// Milliseconds.
    pub duration_ms: f64,
    /// What it and the unreported steps before it spent their time on.
    pub spent: Spent,
}

/// What steps spent their time on.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// How many steps.
    pub steps: u64,
    /// Milliseconds, all in all.
    pub total_ms: f64,
    /// Of these, waiting for data.
    pub waiting_ms: f64,
    /// Of these, waiting for other ranks.
    pub communicating_ms: f64,
}

/// A rule over metrics of instances.
pub(crate) trait SystemRule: Debug + Send {
    /// Judges the next reading of a host.
    fn observe(&mut self, _reading: &Reading) -> Option<Finding> {
        None
    }

    /// Judges how long a step took.
    fn observe_step(&mut self, _step: &StepTime) -> Option<Finding> {
        None
    }

    /// Judges the time that passed.
    fn pass_time(&mut self, _now_ms: u64) -> Option<Finding> {
        None
    }

    /// The training job has ended without a finding: what there is to report all the same. An error
    /// is why the rule could not be evaluated.
    fn end(&mut self) -> Result<String, String> {
        Ok(String::new())
    }
}
