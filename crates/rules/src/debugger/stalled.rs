//! StalledTrainingRule: no step for a long time.

use super::Rule;
use crate::declaration::{Declaration, Make};
use crate::finding::Finding;
use crate::parameters::{COUNT, Kind, Parameter};
use crate::selection::Selection;
use crate::step::Step;

pub(crate) static STALLED_TRAINING: Declaration = Declaration {
    name: "StalledTrainingRule",
    summary: "No tensor was saved for a time.",
    parameters: &[
        Parameter { name: "threshold", kind: COUNT, default: Some("1800"), doc: "Seconds without a saved step." },
        Parameter {
            name: "stop_training_on_fire",
            kind: Kind::Flag,
            default: Some("False"),
            doc: "Whether the training job is stopped then.",
        },
        Parameter {
            name: "training_job_name_prefix",
            kind: Kind::Text,
            default: None,
            doc: "Accepted as AWS has it; the training job that is stopped is the rule's own.",
        },
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        Box::new(Stalled {
            threshold_ms: parameters.integer("threshold").saturating_mul(1000),
            step: None,
            has_new_step: true,
            since_ms: 0,
        })
    }),
};

#[derive(Debug)]
struct Stalled {
    threshold_ms: u64,
    step: Option<u64>,
    /// A step came after the last time that is known.
    has_new_step: bool,
    since_ms: u64,
}

impl Rule for Stalled {
    fn needs(&self) -> &[Selection] {
        &[]
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        (self.step, self.has_new_step) = (Some(step.step), true);
        None
    }

    fn pass_time(&mut self, now_ms: u64) -> Option<Finding> {
        if std::mem::take(&mut self.has_new_step) {
            self.since_ms = now_ms;
        }
        let seconds = now_ms.saturating_sub(self.since_ms) / 1000;
        (seconds * 1000 >= self.threshold_ms).then(|| {
            let last =
                self.step.map_or("no step was saved".to_owned(), |step| format!("no step after {step} was saved"));
            let text = format!(
                "{last} for {seconds} s. Check what the program waits for (`shoal jobs stacks`), and that steps are \
                 saved more often than every {} s.",
                self.threshold_ms / 1000
            );
            Finding { step: self.step.unwrap_or(0), subject: "steps".to_owned(), value: seconds as f64, text }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::selection::Groups;
    use crate::testing::{evaluation, step};

    #[test]
    fn a_pause_is_found_and_steady_steps_are_not() {
        let groups = Groups::default();
        let mut evaluation =
            evaluation("StalledTrainingRule", &[("threshold", "10"), ("stop_training_on_fire", "True")]);
        assert!(evaluation.stops_training());
        for second in 0..100 {
            if second % 9 == 0 {
                assert_eq!(evaluation.observe(&step(&groups, second, &[])), None);
            }
            assert_eq!(evaluation.pass_time(5_000_000 + 1000 * second), None, "second {second}");
        }
        let found = (100..).find_map(|second| evaluation.pass_time(5_000_000 + 1000 * second)).unwrap();
        assert_eq!(found.finding.as_ref().unwrap().step, 99);
        assert!(found.details.contains("no step after 99 was saved for 10 s"), "{}", found.details);
        assert!(evaluation.is_concluded());
    }
}
