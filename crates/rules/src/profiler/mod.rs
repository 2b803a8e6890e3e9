//! The profiler's rules over system metrics and step times, by families.

mod balance;
mod bottlenecks;
mod memory;
mod overall;
mod steps;
mod utilization;
mod window;

use std::fmt::Debug;

use shoal_contract::tensors::Mode;

use crate::declarations::{Declaration, Make};
use crate::finding::Finding;
use crate::parameters::{COUNT, Kind, Parameter};

/// All of them.
pub(crate) const DECLARATIONS: &[&Declaration] = &[
    &utilization::BATCH_SIZE,
    &bottlenecks::CPU_BOTTLENECK,
    &steps::DATALOADER,
    &memory::GPU_MEMORY_INCREASE,
    &bottlenecks::IO_BOTTLENECK,
    &balance::LOAD_BALANCING,
    &utilization::LOW_GPU_UTILIZATION,
    &steps::MAX_INITIALIZATION_TIME,
    &overall::OVERALL_SYSTEM_USAGE,
    &steps::STEP_OUTLIER,
    &PROFILER_REPORT,
];

static PROFILER_REPORT: Declaration = Declaration {
    name: "ProfilerReport",
    summary: "Runs all other rules of the profiler; their parameters are given as RULE_parameter.",
    parameters: &[],
    collections: &[],
    make: Make::Report,
};

/// GPUs and hosts that are told apart.
const MAX_DEVICES: usize = 4096;

/// Metrics of a host at one moment, in percent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Milliseconds since any moment.
    pub at_ms: u64,
    /// `algo-1` and so on.
    pub host: String,
    /// Utilisation of each core.
    pub cpu: Vec<f64>,
    /// Time that cores waited for disks and networks.
    pub io_wait: f64,
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
    fn mean_cpu(&self) -> f64 {
        if self.cpu.is_empty() { 0.0 } else { self.cpu.iter().sum::<f64>() / self.cpu.len() as f64 }
    }

    fn mean_gpu(&self) -> Option<f64> {
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

/// The rule and the parameter of a name of the report's parameters, as `CPUBottleneck_threshold`.
pub(crate) fn report_parameter(name: &str) -> Option<(&'static Declaration, &str)> {
    let (rule, parameter) = name.split_once('_')?;
    let is_it =
        |declared: &&&Declaration| !matches!(declared.make, Make::Report) && declared.name.eq_ignore_ascii_case(rule);
    let declared = *DECLARATIONS.iter().find(is_it)?;
    declared.parameters.iter().any(|known| known.name.eq_ignore_ascii_case(parameter)).then_some((declared, parameter))
}

/// How often AWS's rules look for new files; here metrics come when they are taken.
const SCAN_INTERVAL: Parameter = Parameter {
    name: "scan_interval_us",
    kind: COUNT,
    default: Some("60000000"),
    doc: "Accepted as AWS has it; every reading is judged when it comes.",
};

/// Readings of a host before anything is judged.
const fn readings_before(doc: &'static str) -> Parameter {
    Parameter { name: "patience", kind: COUNT, default: Some("1000"), doc }
}

/// Readings of which percentiles and averages are.
const fn window(default: &'static str) -> Parameter {
    Parameter { name: "window", kind: Kind::Integer(1, 100_000), default: Some(default), doc: "Readings of a window." }
}

const START: Parameter = readings_before("Readings of a host before anything is judged, as GPUs idle at the start.");

/// A finding about a host; system metrics know no step.
fn finding(subject: String, value: f64, text: String) -> Finding {
    Finding { step: 0, subject, value, text }
}

/// Why rules about GPUs may have nothing to judge.
const NO_GPU: &str = "no instance of the training job has a GPU.";

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;

    use super::Reading;
    use crate::debugger::testing::given;
    use crate::evaluation::Status;
    use crate::finding::Finding;
    use crate::system_evaluation::SystemEvaluation;

    pub(crate) fn evaluation(rule: &str, parameters: &[(&str, &str)]) -> SystemEvaluation {
        let given: BTreeMap<_, _> = given(rule, parameters);
        SystemEvaluation::new(rule, &given).unwrap()
    }

    /// What a rule finds in readings, one each second.
    pub(crate) fn judge(
        rule: &str,
        parameters: &[(&str, &str)],
        count: u64,
        reading: impl Fn(u64) -> Reading,
    ) -> Result<Option<Finding>, String> {
        let mut evaluation = evaluation(rule, parameters);
        let observed = (0..count).find_map(|second| {
            evaluation.observe(&Reading { at_ms: 1000 * second, host: "algo-1".into(), ..reading(second) })
        });
        let conclusion = observed.or_else(|| evaluation.end()).unwrap();
        if conclusion.status == Status::Error { Err(conclusion.details) } else { Ok(conclusion.finding) }
    }
}
