//! Overfit and Overtraining: the loss of evaluation next to that of training.

use shoal_contract::tensors::Mode;

use super::{Rule, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, POSITIVE, Parameter, Parameters};
use crate::selection::Selection;
use crate::step::Step;

const LOSS_REGEX: Parameter = Parameter {
    name: "tensor_regex",
    kind: Kind::Expressions,
    default: None,
    doc: "Expressions for the names of losses; without it the losses collection.",
};

pub(crate) static OVERFIT: Declaration = Declaration {
    name: "Overfit",
    summary: "The loss of evaluation is above that of training.",
    parameters: &[
        LOSS_REGEX,
        Parameter {
            name: "patience",
            kind: COUNT,
            default: Some("1"),
            doc: "Evaluations in a row in which the ratio is above the threshold.",
        },
        Parameter {
            name: "ratio_threshold",
            kind: POSITIVE,
            default: Some("0.1"),
            doc: "Highest ratio of the difference of the two losses to that of training.",
        },
    ],
    collections: &["losses"],
    make: Make::Tensors(|parameters| {
        Box::new(Overfit {
            losses: Losses::new(parameters),
            allowed: parameters.integer("patience"),
            threshold: parameters.number("ratio_threshold"),
            above: 0,
            training: Mean::default(),
            validation: Mean::default(),
            step: None,
        })
    }),
};

pub(crate) static OVERTRAINING: Declaration = Declaration {
    name: "Overtraining",
    summary: "The loss of training or of evaluation has stopped falling.",
    parameters: &[
        LOSS_REGEX,
        Parameter {
            name: "patience_train",
            kind: COUNT,
            default: Some("5"),
            doc: "Saved steps of training without a lower loss.",
        },
        Parameter {
            name: "patience_validation",
            kind: COUNT,
            default: Some("10"),
            doc: "Saved steps of evaluation without a lower loss.",
        },
        Parameter {
            name: "delta",
            kind: POSITIVE,
            default: Some("0.01"),
            doc: "By how much a loss is below the lowest, to count as lower.",
        },
    ],
    collections: &["losses"],
    make: Make::Tensors(|parameters| {
        let series = |name| Falling { allowed: parameters.integer(name), lowest: f64::INFINITY, since: 0, at: 0 };
        Box::new(Overtraining {
            losses: Losses::new(parameters),
            delta: parameters.number("delta"),
            training: series("patience_train"),
            validation: series("patience_validation"),
        })
    }),
};

/// Where losses are found.
#[derive(Debug)]
struct Losses([Selection; 1]);

/// The mean of losses, and the name of the last one.
#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: u64,
    name: String,
}

impl Mean {
    fn add(&mut self, name: String, loss: f64) {
        (self.sum, self.count, self.name) = (self.sum + loss, self.count + 1, name);
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

impl Losses {
    fn new(parameters: &Parameters) -> Self {
        let expressions = parameters.list("tensor_regex");
        let collections = if expressions.is_empty() { vec!["losses".to_owned()] } else { Vec::new() };
        Self([Selection::new(collections, &expressions)])
    }

    /// Losses of training and of evaluation in a step. Programs without modes name the latter so.
    fn of(&self, step: &Step<'_>) -> (Mean, Mean) {
        let (mut training, mut validation) = (Mean::default(), Mean::default());
        for saved in selected(step, &self.0[0]) {
            let Some(loss) = saved.mean(false) else { continue };
            let is_validation = match step.mode {
                Mode::Eval => true,
                Mode::Predict => continue,
                Mode::Train | Mode::Global => {
                    ["val", "eval", "test"].iter().any(|start| saved.name.to_ascii_lowercase().starts_with(start))
                }
            };
            (if is_validation { &mut validation } else { &mut training }).add(step.describe(saved), loss);
        }
        (training, validation)
    }
}

#[derive(Debug)]
struct Overfit {
    losses: Losses,
    allowed: u64,
    threshold: f64,
    /// Evaluations in a row above the threshold.
    above: u64,
    /// Of the phases that are under way.
    training: Mean,
    validation: Mean,
    /// The last step of evaluation.
    step: Option<u64>,
}

impl Overfit {
    /// Compares the phases that have ended.
    fn compare(&mut self) -> Option<Finding> {
        let validation = std::mem::take(&mut self.validation);
        let (of_validation, of_training) = (validation.value()?, self.training.value()?);
        self.training = Mean::default();
        let ratio = (of_validation - of_training) / of_training.abs().max(f64::MIN_POSITIVE);
        self.above = if ratio > self.threshold { self.above + 1 } else { 0 };
        (self.above >= self.allowed).then(|| {
            let text = format!(
                "the mean loss of evaluation ({}) is {}, that of training {}: the ratio of their difference is {}, \
                 above {} in {} evaluations. Try more data, weight decay, dropout or an earlier end.",
                validation.name,
                Short(of_validation),
                Short(of_training),
                Short(ratio),
                Short(self.threshold),
                self.above
            );
            Finding { step: self.step.unwrap_or(0), subject: validation.name.clone(), value: ratio, text }
        })
    }
}

impl Rule for Overfit {
    fn needs(&self) -> &[Selection] {
        &self.losses.0
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        let (training, validation) = self.losses.of(step);
        // The first step of training after an evaluation ends it.
        let has_resumed = training.count > 0 && self.validation.count > 0;
        let found = if has_resumed { self.compare() } else { None };
        for (phase, more) in [(&mut self.training, &training), (&mut self.validation, &validation)] {
            if more.count > 0 {
                *phase = Mean { sum: phase.sum + more.sum, count: phase.count + more.count, name: more.name.clone() };
            }
        }
        if validation.count > 0 {
            self.step = Some(step.step);
        }
        let is_both = training.count > 0 && validation.count > 0;
        found.or_else(|| if is_both { self.compare() } else { None })
    }

    fn end(&mut self) -> Result<Option<Finding>, String> {
        if self.step.is_none() {
            return Err(NO_EVALUATION.to_owned());
        }
        Ok(self.compare())
    }
}

/// Why losses of training are not enough.
const NO_EVALUATION: &str = "the training job saved losses of training only; set the hook's mode to EVAL in \
                             evaluation, or give tensor_regex for a loss whose name begins with val.";

#[derive(Debug)]
struct Overtraining {
    losses: Losses,
    delta: f64,
    training: Falling,
    validation: Falling,
}

/// A loss that is expected to fall.
#[derive(Debug)]
struct Falling {
    allowed: u64,
    lowest: f64,
    /// Saved steps since then.
    since: u64,
    at: u64,
}

impl Falling {
    fn add(&mut self, step: &Step<'_>, mean: &Mean, delta: f64) -> Option<Finding> {
        let loss = mean.value()?;
        if loss < self.lowest - delta {
            (self.lowest, self.since, self.at) = (loss, 0, step.step);
            return None;
        }
        self.since += 1;
        (self.since >= self.allowed).then(|| {
            let text = format!(
                "{} of {} is {}, and for {} saved steps it was not more than {} below {} at step {}. Stop the \
                 training earlier, or try a lower learning rate.",
                mean.name,
                step.mode.name(),
                Short(loss),
                self.since,
                Short(delta),
                Short(self.lowest),
                self.at
            );
            Finding { step: step.step, subject: mean.name.clone(), value: loss, text }
        })
    }
}

impl Rule for Overtraining {
    fn needs(&self) -> &[Selection] {
        &self.losses.0
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        let (training, validation) = self.losses.of(step);
        let found = self.training.add(step, &training, self.delta);
        found.or_else(|| self.validation.add(step, &validation, self.delta))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Groups;
    use crate::testing::{evaluation, mode_step};
    use crate::{Catalogue, Status};

    /// What a rule finds in losses: `T` of training, `E` of evaluation.
    fn judge(rule: &str, given: &[(&str, &str)], losses: &[(char, f32)]) -> Result<Option<Finding>, String> {
        let groups = Groups::default();
        let mut evaluation = evaluation(rule, given);
        let observed = losses.iter().enumerate().find_map(|(number, (mode, loss))| {
            let mode = if *mode == 'T' { Mode::Train } else { Mode::Eval };
            evaluation.observe(&mode_step(&groups, mode, number as u64, &[("CrossEntropyLoss_output_0", &[*loss])]))
        });
        let conclusion = observed.or_else(|| evaluation.end(&groups, &Catalogue::default())).unwrap();
        if conclusion.status == Status::Error { Err(conclusion.details) } else { Ok(conclusion.finding) }
    }

    /// Epochs of two batches and their evaluation.
    fn epochs(pairs: &[(f32, f32)]) -> Vec<(char, f32)> {
        pairs.iter().flat_map(|(t, e)| [('T', *t), ('T', *t), ('E', *e), ('E', *e)]).collect()
    }

    #[test]
    fn a_loss_of_evaluation_that_rises_is_overfit() {
        let bad = epochs(&[(1.0, 1.0), (0.5, 0.9), (0.25, 1.0), (0.1, 1.2)]);
        let found = judge("Overfit", &[], &bad).unwrap().unwrap();
        assert_eq!((found.step, Short(found.value).to_string()), (7, "0.8".to_owned()));
        assert!(found.text.contains("is 0.9, that of training 0.5"), "{}", found.text);
        let patient = [("patience", "3")];
        assert_eq!(
            judge("Overfit", &patient, &bad).unwrap().unwrap().step,
            15,
            "the last evaluation ends with the job"
        );
        assert_eq!(judge("Overfit", &[("ratio_threshold", "20")], &bad), Ok(None));
        assert_eq!(judge("Overfit", &[], &epochs(&[(1.0, 1.0), (0.5, 0.52), (0.25, 0.26)])), Ok(None));
        let error = judge("Overfit", &[], &[('T', 1.0)]).unwrap_err();
        assert!(error.contains("losses of training only; set the hook's mode to EVAL"), "{error}");
    }

    #[test]
    fn losses_without_modes_are_known_by_their_names() {
        let groups = Groups::default();
        let mut evaluation = evaluation("Overfit", &[("tensor_regex", "logloss")]);
        let mut observe = |number, validation: f32| {
            let tensors: &[(&str, &[f32])] = &[("train-logloss", &[0.5]), ("validation-logloss", &[validation])];
            evaluation.observe(&mode_step(&groups, Mode::Global, number, tensors))
        };
        assert_eq!(observe(0, 0.5), None);
        assert_eq!(observe(1, 0.7).unwrap().finding.unwrap().step, 1);
    }

    #[test]
    fn a_loss_that_stops_falling_is_overtraining() {
        let still =
            Vec::from_iter((0..8).map(|number| ('T', if number < 3 { 1.0 - number as f32 / 10.0 } else { 0.795 })));
        let found = judge("Overtraining", &[], &still).unwrap().unwrap();
        assert_eq!(found.step, 7, "five steps after the lowest");
        assert!(found.text.contains("it was not more than 0.01 below 0.8 at step 2"), "{}", found.text);
        assert_eq!(judge("Overtraining", &[("delta", "0.001")], &still).unwrap(), None);
        let falling = Vec::from_iter((0..40).map(|number| ('T', 1.0 - number as f32 / 50.0)));
        assert_eq!(judge("Overtraining", &[], &falling), Ok(None));
        let evaluations = Vec::from_iter((0..12).map(|_| ('E', 0.3)));
        assert_eq!(judge("Overtraining", &[], &evaluations).unwrap().unwrap().step, 10);
    }
}
