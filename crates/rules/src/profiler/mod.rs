//! The profiler's rules over system metrics and step times, by families.

mod balance;
mod bottlenecks;
mod framework;
mod memory;
mod overall;
mod steps;
mod utilization;
mod window;

use crate::declaration::{Declaration, Make};
use crate::finding::Finding;
use crate::parameters::{COUNT, Kind, Parameter};
use crate::system_rule::{Reading, StepTime, SystemRule};

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
    &framework::OVERALL_FRAMEWORK_METRICS,
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

/// GPUs and hosts that are distinguished.
const MAX_DEVICES: usize = 4096;

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
    use crate::evaluation::Status;
    use crate::finding::Finding;
    use crate::system_evaluation::SystemEvaluation;
    use crate::testing::given;

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
