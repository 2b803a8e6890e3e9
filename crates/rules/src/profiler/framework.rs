//! OverallFrameworkMetrics: what steps spend their time on, for the report.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::steps::NO_STEPS;
use super::{MAX_DEVICES, SCAN_INTERVAL, StepTime, SystemRule};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::system_rule::Spent;

pub(crate) static OVERALL_FRAMEWORK_METRICS: Declaration = Declaration {
    name: "OverallFrameworkMetrics",
    summary: "Steps of each instance, and shares of their time; it finds no issues.",
    parameters: &[SCAN_INTERVAL],
    collections: &[],
    make: Make::System(|_| Box::new(OverallFramework::default())),
};

#[derive(Debug, Default)]
struct OverallFramework {
    spent: BTreeMap<String, Spent>,
}

impl SystemRule for OverallFramework {
    fn observe_step(&mut self, step: &StepTime) -> Option<Finding> {
        if self.spent.len() < MAX_DEVICES || self.spent.contains_key(&step.host) {
            let all = self.spent.entry(step.host.clone()).or_default();
            all.steps = all.steps.saturating_add(step.spent.steps);
            all.total_ms += step.spent.total_ms;
            all.waiting_ms += step.spent.waiting_ms;
            all.communicating_ms += step.spent.communicating_ms;
        }
        None
    }

    fn end(&mut self) -> Result<String, String> {
        if self.spent.is_empty() {
            return Err(NO_STEPS.to_owned());
        }
        Ok(self.spent.iter().fold(String::new(), |mut text, (host, spent)| {
            let share = |part: f64| Short(if spent.total_ms > 0.0 { 100.0 * part / spent.total_ms } else { 0.0 });
            let mean = spent.total_ms / spent.steps.max(1) as f64;
            let _ = write!(
                text,
                "{host}: {} steps of {} ms on average; waiting for data {} %, communication {} %, computing {} %. ",
                spent.steps,
                Short(mean),
                share(spent.waiting_ms),
                share(spent.communicating_ms),
                share((spent.total_ms - spent.waiting_ms - spent.communicating_ms).max(0.0)),
            );
            text
        }))
    }
}

#[cfg(test)]
mod tests {
    use shoal_contract::tensors::Mode;

    use super::super::testing::{evaluation, judge};
    use super::*;
    use crate::Reading;

    #[test]
    fn shares_of_each_host() {
        let mut evaluation = evaluation("OverallFrameworkMetrics", &[]);
        for step in 0..10 {
            let spent = Spent { steps: 2, total_ms: 20.0, waiting_ms: 5.0, communicating_ms: 1.0 };
            let step = StepTime { host: "algo-1".into(), step, mode: Mode::Train, duration_ms: 10.0, spent };
            assert_eq!(evaluation.observe_step(&step), None);
        }
        let ended = evaluation.end().unwrap();
        let expected =
            "algo-1: 20 steps of 10 ms on average; waiting for data 25 %, communication 5 %, computing 70 %.";
        assert_eq!(ended.details, expected);
    }

    #[test]
    fn without_steps_there_is_nothing_to_sum_up() {
        let error = judge("OverallFrameworkMetrics", &[], 5, |_| Reading::default()).unwrap_err();
        assert!(error.contains("no step times came"), "{error}");
    }
}
