//! AllZero and TensorVariance: how the values of a tensor are distributed.

use shoal_contract::tensors::ReductionKind;

use super::{COLLECTION_NAMES, Rule, TENSOR_REGEX, finding, selected, selection};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{Kind, PERCENT, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::step::Step;

pub(crate) static ALL_ZERO: Declaration = Declaration {
    name: "AllZero",
    summary: "All values of a tensor, or a share of them, are zero.",
    parameters: &[
        COLLECTION_NAMES,
        Parameter {
            name: "tensor_regex",
            kind: Kind::Expressions,
            default: None,
            doc: "Expressions for the names of tensors; without these and collections all but biases, which begin at \
                  zero.",
        },
        Parameter {
            name: "threshold",
            kind: PERCENT,
            default: Some("100"),
            doc: "Percentage of zeros from which on the condition is met.",
        },
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        let (collections, mut expressions) = (parameters.list("collection_names"), parameters.list("tensor_regex"));
        if collections.is_empty() && expressions.is_empty() {
            expressions.push("^(?!.*[Bb]ias)".to_owned());
        }
        let tensors = [Selection::new(collections, &expressions)];
        Box::new(AllZero { tensors, threshold: parameters.number("threshold") })
    }),
};

pub(crate) static TENSOR_VARIANCE: Declaration = Declaration {
    name: "TensorVariance",
    summary: "The variance of a tensor is above or below a threshold.",
    parameters: &[
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter { name: "max_threshold", kind: POSITIVE, default: None, doc: "Highest variance." },
        Parameter { name: "min_threshold", kind: POSITIVE, default: None, doc: "Lowest variance." },
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        Box::new(TensorVariance {
            tensors: [selection(parameters)],
            highest: parameters.optional_number("max_threshold").unwrap_or(f64::INFINITY),
            lowest: parameters.optional_number("min_threshold").unwrap_or(0.0),
        })
    }),
};

#[derive(Debug)]
struct AllZero {
    tensors: [Selection; 1],
    threshold: f64,
}

impl Rule for AllZero {
    fn needs(&self) -> &[Selection] {
        &self.tensors
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.tensors[0]).find_map(|saved| {
            let statistics = saved.statistics().filter(|statistics| statistics.count > 0)?;
            let percent = 100.0 * statistics.zeros as f64 / statistics.count as f64;
            (percent >= self.threshold).then_some(())?;
            let text = format!(
                "{} % of the {} values of {} are zero (threshold {} %). Try another initialisation or a lower \
                 learning rate, and check that the layer is used.",
                Short(percent),
                statistics.count,
                step.describe(saved),
                Short(self.threshold)
            );
            Some(finding(step, saved, percent, text))
        })
    }
}

#[derive(Debug)]
struct TensorVariance {
    tensors: [Selection; 1],
    highest: f64,
    lowest: f64,
}

impl Rule for TensorVariance {
    fn needs(&self) -> &[Selection] {
        &self.tensors
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.tensors[0]).find_map(|saved| {
            let squared_std = || saved.reduction(ReductionKind::Std, false).map(|std| std * std);
            let variance = saved.reduction(ReductionKind::Variance, false).or_else(squared_std)?;
            let (side, threshold) = match variance {
                _ if variance > self.highest => ("above max_threshold", self.highest),
                _ if variance < self.lowest => ("below min_threshold", self.lowest),
                _ => return None,
            };
            let text = format!(
                "the variance of {} is {}, {side} {}. Try another initialisation or normalisation layers; with too \
                 high a variance also a lower learning rate.",
                step.describe(saved),
                Short(variance),
                Short(threshold)
            );
            Some(finding(step, saved, variance, text))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn a_network_that_begins_at_zero_has_gradients_of_zero() {
        let gradients = [("collection_names", "gradients")];
        let zero = Network::new(&[4, 8, 2], Activation::Relu, 0.0, 1);
        let found = train(zero, 0.1, 5, &mut evaluation("AllZero", &gradients)).unwrap();
        assert!(found.step == 0 && found.value == 100.0, "{found:?}");
        assert!(found.text.starts_with("100 % of the "), "{}", found.text);
        let usual = || Network::new(&[4, 8, 2], Activation::Tanh, 1.0, 1);
        assert_eq!(train(usual(), 0.1, 20, &mut evaluation("AllZero", &gradients)), None);
        assert_eq!(train(usual(), 0.1, 20, &mut evaluation("AllZero", &[])), None, "biases begin at zero");
    }

    #[test]
    fn a_share_of_zeros_is_enough_where_that_is_asked_for() {
        let steps: &[&[(&str, &[f32])]] = &[&[("w", &[0.0, 0.0, 1.0, 2.0])]];
        assert_eq!(findings("AllZero", &[("threshold", "51")], steps), None);
        assert_eq!(findings("AllZero", &[("threshold", "50")], steps).unwrap().value, 50.0);
    }

    #[test]
    fn variances_outside_of_their_range_are_found() {
        let usual = || Network::new(&[4, 32, 2], Activation::Tanh, 1.0, 5);
        let weights = |name, value| [("collection_names", "weights"), (name, value)];
        let mut low = evaluation("TensorVariance", &weights("min_threshold", "0.5"));
        let found = train(usual(), 0.01, 5, &mut low).unwrap();
        assert!(found.subject.starts_with("Net_fc") && found.value < 0.5, "{found:?}");
        let mut high = evaluation("TensorVariance", &weights("max_threshold", "1e-4"));
        assert!(train(usual(), 0.01, 5, &mut high).unwrap().text.contains("above max_threshold 1e-4. Try"));
        let mut neither = evaluation("TensorVariance", &weights("min_threshold", "1e-4"));
        assert_eq!(train(usual(), 0.01, 5, &mut neither), None);
        let reduced: &[(&str, &[f32])] = &[("smdebug/reductions/std/w", &[3.0])];
        assert_eq!(findings("TensorVariance", &[("max_threshold", "8")], &[reduced]).unwrap().value, 9.0);
    }
}
