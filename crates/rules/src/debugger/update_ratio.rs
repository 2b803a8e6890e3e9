//! WeightUpdateRatio: updates that are large or small next to the weights.

use std::collections::VecDeque;

use super::{Rule, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::snapshots::{HeapBytes, Snapshots};
use crate::step::Step;

/// Values of a tensor that are compared: enough for a mean, and little enough to remember them of
/// every layer.
const MAX_SAMPLED: usize = 4096;

/// Saved steps of a tensor that are remembered.
const MAX_STEPS: usize = 64;

pub(crate) static WEIGHT_UPDATE_RATIO: Declaration = Declaration {
    name: "WeightUpdateRatio",
    summary: "The ratio of a weight's update to the weight is too large or too small.",
    parameters: &[
        Parameter {
            name: "num_steps",
            kind: COUNT,
            default: None,
            doc: "Compare with the earliest step saved within this number of steps; without it, with the one saved before.",
        },
        Parameter { name: "large_threshold", kind: POSITIVE, default: Some("10.0"), doc: "Highest ratio." },
        Parameter { name: "small_threshold", kind: POSITIVE, default: Some("0.00000001"), doc: "Lowest ratio." },
        Parameter {
            name: "epsilon",
            kind: POSITIVE,
            default: Some("0.000000001"),
            doc: "Added to the weight, so that nothing is divided by zero.",
        },
    ],
    collections: &["weights"],
    make: Make::Tensors(|parameters| {
        Box::new(WeightUpdateRatio {
            weights: [Selection::of_collection("weights")],
            steps: parameters.optional_integer("num_steps"),
            large: parameters.number("large_threshold"),
            small: parameters.number("small_threshold"),
            epsilon: parameters.number("epsilon"),
            seen: Snapshots::default(),
        })
    }),
};

#[derive(Debug)]
struct WeightUpdateRatio {
    weights: [Selection; 1],
    steps: Option<u64>,
    large: f64,
    small: f64,
    epsilon: f64,
    seen: Snapshots<Recent>,
}

/// Sampled values of a tensor in its last saved steps.
#[derive(Debug, Default)]
struct Recent(VecDeque<(u64, Vec<f32>)>);

impl HeapBytes for Recent {
    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, values)| 32 + values.bytes()).sum()
    }
}

impl WeightUpdateRatio {
    fn ratio(&self, before: &[f32], now: &[f32]) -> Option<f64> {
        if before.len() != now.len() || before.is_empty() {
            return None;
        }
        let (mut update, mut weight) = (0.0, 0.0);
        for (before, now) in before.iter().zip(now) {
            update += (f64::from(*now) - f64::from(*before)).abs();
            weight += f64::from(*before).abs();
        }
        let count = before.len() as f64;
        Some(update / count / (weight / count + self.epsilon))
    }
}

impl Rule for WeightUpdateRatio {
    fn needs(&self) -> &[Selection] {
        &self.weights
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        // Weights change in training only.
        if !matches!(step.mode, shoal_contract::tensors::Mode::Train | shoal_contract::tensors::Mode::Global) {
            return None;
        }
        let mut seen = std::mem::take(&mut self.seen);
        let found = selected(step, &self.weights[0]).find_map(|saved| {
            let tensor = saved.tensor.as_ref()?;
            let (every, mut index) = (tensor.len().div_ceil(MAX_SAMPLED).max(1), 0_usize);
            let mut now = Vec::with_capacity(tensor.len().min(MAX_SAMPLED));
            tensor
                .for_each(|value| {
                    if index.is_multiple_of(every) {
                        now.push(value as f32);
                    }
                    index += 1;
                })
                .ok()?;
            let key = saved.key();
            let mut recent = seen.take(&key).unwrap_or_default();
            let oldest = self.steps.map_or(0, |steps| step.step.saturating_sub(steps));
            while recent.0.front().is_some_and(|(number, _)| *number < oldest) || recent.0.len() >= MAX_STEPS {
                recent.0.pop_front();
            }
            let before = recent.0.front().and_then(|(number, before)| Some((*number, self.ratio(before, &now)?)));
            if self.steps.is_none() {
                recent.0.clear();
            }
            recent.0.push_back((step.step, now));
            seen.put(key, recent);
            let (since, ratio) = before?;
            let (side, threshold, advice) = match ratio {
                _ if ratio > self.large => ("above large_threshold", self.large, "a lower learning rate"),
                _ if ratio < self.small => {
                    let advice = "a higher learning rate, and check that the layer is trained";
                    ("below small_threshold", self.small, advice)
                }
                _ => return None,
            };
            let text = format!(
                "the update of {} since step {since} is {} times the weight, {side} {}. Try {advice}.",
                step.describe(saved),
                Short(ratio),
                Short(threshold)
            );
            Some(finding(step, saved, ratio, text))
        });
        self.seen = seen;
        found
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn learning_rates_that_are_too_high_and_too_low_are_found() {
        let network = || Network::new(&[4, 16, 2], Activation::Relu, 1.0, 9);
        let judge = |rate| train(network(), rate, 20, &mut evaluation("WeightUpdateRatio", &[]));
        let high = judge(5000.0).unwrap();
        assert!(high.step == 1 && high.value > 10.0 && high.text.contains("Try a lower learning rate"), "{high:?}");
        let low = judge(0.0).unwrap();
        assert!(low.step == 1 && low.value == 0.0 && low.text.contains("Try a higher"), "{low:?}");
        assert_eq!(judge(0.05), None);
    }

    #[test]
    fn the_earliest_step_of_the_window_is_compared() {
        let steps: &[&[(&str, &[f32])]] =
            &[&[("weight", &[1.0])], &[("weight", &[3.0])], &[("weight", &[9.0])], &[("weight", &[27.0])]];
        let limit = ("large_threshold", "7.9");
        assert_eq!(findings("WeightUpdateRatio", &[limit], steps), None);
        let found = findings("WeightUpdateRatio", &[limit, ("num_steps", "2")], steps).unwrap();
        assert_eq!((found.step, found.value.round()), (2, 8.0));
        assert!(found.text.contains("since step 0 is 8 times the weight"), "{}", found.text);
        assert_eq!(findings("WeightUpdateRatio", &[limit, ("num_steps", "1")], steps), None);
    }
}
