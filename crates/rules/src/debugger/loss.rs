//! LossNotDecreasing: a loss that falls too slowly or rises.

use std::collections::{BTreeMap, VecDeque};

use shoal_contract::tensors::Mode;

use super::{COLLECTION_NAMES, Rule, TENSOR_REGEX, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, PERCENT, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::step::{Saved, Step};

/// Losses of a series that are remembered; with more, every other one is forgotten.
const MAX_POINTS: usize = 4096;
/// Series that are judged.
const MAX_SERIES: usize = 1024;

pub(crate) static LOSS_NOT_DECREASING: Declaration = Declaration {
    name: "LossNotDecreasing",
    summary: "A loss does not fall, or rises.",
    parameters: &[
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter {
            name: "use_losses_collection",
            kind: Kind::Flag,
            default: Some("True"),
            doc: "Whether the losses collection is judged, beside the others.",
        },
        Parameter {
            name: "num_steps",
            kind: COUNT,
            default: Some("10"),
            doc: "Least number of steps between two losses that are compared, and between two comparisons.",
        },
        Parameter {
            name: "diff_percent",
            kind: PERCENT,
            default: Some("0.1"),
            doc: "Percentage by which the loss falls at least.",
        },
        Parameter {
            name: "increase_threshold_percent",
            kind: POSITIVE,
            default: Some("5"),
            doc: "Percentage by which the loss may rise at most.",
        },
        Parameter {
            name: "mode",
            kind: Kind::Choice(&["EVAL", "TRAIN", "PREDICT", "GLOBAL"]),
            default: None,
            doc: "Phase whose losses are judged; without it evaluation, if there was one, else training, else any.",
        },
    ],
    collections: &["losses"],
    make: Make::Tensors(|parameters| {
        let mut collections = parameters.list("collection_names");
        let expressions = parameters.list("tensor_regex");
        if parameters.flag("use_losses_collection") || collections.is_empty() && expressions.is_empty() {
            collections.push("losses".to_owned());
        }
        Box::new(LossNotDecreasing {
            losses: [Selection::new(collections, &expressions)],
            apart: parameters.integer("num_steps"),
            fall_percent: parameters.number("diff_percent"),
            rise_percent: parameters.number("increase_threshold_percent"),
            mode: Mode::parse(parameters.text("mode")),
            best_mode: None,
            series: BTreeMap::new(),
        })
    }),
};

#[derive(Debug)]
struct LossNotDecreasing {
    losses: [Selection; 1],
    apart: u64,
    fall_percent: f64,
    rise_percent: f64,
    mode: Option<Mode>,
    /// Of those that were seen, where none was asked for.
    best_mode: Option<Mode>,
    series: BTreeMap<String, Series>,
}

#[derive(Debug, Default)]
struct Series {
    /// Steps of the mode, with their losses.
    points: VecDeque<(u64, f64)>,
    compared: Option<u64>,
}

/// The order in which AWS's rule looks for losses.
fn rank(mode: Mode) -> u8 {
    match mode {
        Mode::Eval => 3,
        Mode::Train => 2,
        Mode::Global => 1,
        Mode::Predict => 0,
    }
}

impl Series {
    /// Adds a loss; the one to compare it with, if a comparison is due.
    fn add(&mut self, step: u64, loss: f64, apart: u64) -> Option<(u64, f64)> {
        let is_due = self.compared.is_none_or(|compared| step >= compared.saturating_add(apart));
        let latest = step.checked_sub(apart);
        // Of the points that are far enough back only the latest is of use.
        let is_far =
            |point: Option<&(u64, f64)>| point.is_some_and(|(at, _)| latest.is_some_and(|latest| *at <= latest));
        while is_far(self.points.get(1)) {
            self.points.pop_front();
        }
        let before = self.points.front().copied().filter(|point| is_due && is_far(Some(point)));
        if self.points.len() >= MAX_POINTS {
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
        self.points.push_back((step, loss));
        if before.is_some() {
            self.compared = Some(step);
        }
        before
    }
}

impl LossNotDecreasing {
    fn judge(&self, step: &Step<'_>, saved: &Saved<'_>, (since, old): (u64, f64), loss: f64) -> Option<Finding> {
        let fall = 100.0 * (old - loss) / old.abs().max(f64::MIN_POSITIVE);
        let what = if -fall > self.rise_percent {
            format!("rose by {} %, more than {} %", Short(-fall), Short(self.rise_percent))
        } else if fall < 0.0 && fall < self.fall_percent {
            format!("rose by {} %, and is to fall by at least {} %", Short(-fall), Short(self.fall_percent))
        } else if fall < self.fall_percent {
            format!("fell by {} %, less than {} %", Short(fall), Short(self.fall_percent))
        } else {
            return None;
        };
        let text = format!(
            "{} {what}, from {} at step {since} to {} at step {} of {}. Try another learning rate, and check that \
             inputs and labels belong together.",
            step.describe(saved),
            Short(old),
            Short(loss),
            step.mode_step,
            step.mode.name()
        );
        Some(finding(step, saved, loss, text))
    }
}

impl Rule for LossNotDecreasing {
    fn needs(&self) -> &[Selection] {
        &self.losses
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        let losses =
            Vec::from_iter(selected(step, &self.losses[0]).filter_map(|saved| Some((saved, saved.mean(false)?))));
        if losses.is_empty() {
            return None;
        }
        match (self.mode, self.best_mode) {
            (Some(mode), _) if mode != step.mode => return None,
            (None, Some(best)) if rank(best) > rank(step.mode) => return None,
            (None, _) => self.best_mode = Some(step.mode),
            _ => {}
        }
        for (saved, loss) in losses {
            let key = format!("{}\n{}", step.mode.name(), saved.key());
            if self.series.len() >= MAX_SERIES && !self.series.contains_key(&key) {
                continue;
            }
            let before = self.series.entry(key).or_default().add(step.mode_step, loss, self.apart);
            let found = before.and_then(|before| self.judge(step, saved, before, loss));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn end(&mut self) -> Result<Option<Finding>, String> {
        match self.mode {
            Some(mode) if self.series.is_empty() => {
                Err(format!("the training job saved losses, but none in mode {}.", mode.name()))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::Groups;
    use crate::testing::{evaluation, findings, mode_step, train};
    use crate::training::{Activation, Network};

    #[test]
    fn a_learning_rate_of_zero_is_found_and_a_good_one_is_not() {
        let network = || Network::new(&[4, 16, 2], Activation::Tanh, 1.0, 14);
        let apart = [("num_steps", "25"), ("increase_threshold_percent", "200")];
        let found = train(network(), 0.0, 60, &mut evaluation("LossNotDecreasing", &apart)).unwrap();
        assert!(found.step >= 25 && found.subject == "CrossEntropyLoss_output_0", "{found:?}");
        assert_eq!(train(network(), 0.05, 60, &mut evaluation("LossNotDecreasing", &apart)), None);
    }

    #[test]
    fn losses_are_compared_at_least_so_many_steps_apart() {
        let mut series = Series::default();
        let compared = Vec::from_iter((0..40).step_by(3).filter_map(|step| {
            let (before, _) = series.add(step, 1.0, 10)?;
            Some((step, before))
        }));
        assert_eq!(compared, [(12, 0), (24, 12), (36, 24)]);
        let mut series = Series::default();
        for step in 0..1_000_000 {
            series.add(step, 1.0, 500_000);
            assert!(series.points.len() <= MAX_POINTS);
        }
    }

    #[test]
    fn what_is_found_says_how_much_it_changed() {
        for (losses, expected) in [
            ([1.0, 1.2], "loss rose by 20 %, more than 5 %, from 1 at step 0 to 1.2 at step 1 of TRAIN. Try"),
            ([1.0, 1.01625], "loss rose by 1.625 %, and is to fall by at least 0.1 %, from 1 at step 0"),
            ([1.0, 0.9995], "loss fell by 0.05 %, less than 0.1 %"),
            ([1.0, 1.0], "loss fell by 0 %, less than 0.1 %"),
            ([1.0, 0.99], ""),
        ] {
            let values = losses.map(|loss| [loss as f32]);
            let steps: &[&[(&str, &[f32])]] = &[&[("loss", &values[0])], &[("loss", &values[1])]];
            let found = findings("LossNotDecreasing", &[("num_steps", "1")], steps);
            assert_eq!(found.is_some(), !expected.is_empty(), "{losses:?}");
            assert!(found.is_none_or(|found| found.text.contains(expected)), "{losses:?}");
        }
    }

    #[test]
    fn evaluation_is_judged_where_there_is_one() {
        let groups = Groups::default();
        let judge = |given: &[(&str, &str)]| {
            let mut evaluation = evaluation("LossNotDecreasing", &[&[("num_steps", "1")], given].concat());
            [(Mode::Train, 2.0), (Mode::Eval, 1.0), (Mode::Train, 3.0), (Mode::Eval, 0.5), (Mode::Train, 4.0)]
                .into_iter()
                .enumerate()
                .find_map(|(number, (mode, loss))| {
                    let loss = [loss];
                    evaluation.observe(&mode_step(&groups, mode, number as u64, &[("loss", &loss)]))
                })
                .map(|conclusion| conclusion.finding.unwrap().step)
        };
        assert_eq!(judge(&[]), None);
        assert_eq!(judge(&[("mode", "TRAIN")]), Some(2));
        assert_eq!(judge(&[("mode", "GLOBAL")]), None);
    }
}
