//! ExplodingTensor: values that are not finite.

use shoal_contract::tensors::ReductionKind;

use super::{COLLECTION_NAMES, Rule, TENSOR_REGEX, finding, selected, selection};
use crate::declaration::{Declaration, Make};
use crate::finding::Finding;
use crate::parameters::{Kind, Parameter};
use crate::selection::Selection;
use crate::step::{Saved, Step};

pub(crate) static EXPLODING_TENSOR: Declaration = Declaration {
    name: "ExplodingTensor",
    summary: "A tensor has values that are NaN or infinite.",
    parameters: &[
        COLLECTION_NAMES,
        TENSOR_REGEX,
        Parameter {
            name: "only_nan",
            kind: Kind::Flag,
            default: Some("False"),
            doc: "Whether infinite values are allowed.",
        },
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        Box::new(ExplodingTensor { tensors: [selection(parameters)], only_nan: parameters.flag("only_nan") })
    }),
};

#[derive(Debug)]
struct ExplodingTensor {
    tensors: [Selection; 1],
    only_nan: bool,
}

impl ExplodingTensor {
    /// What is wrong with a tensor, and the value.
    fn judge(&self, saved: &Saved<'_>) -> Option<(String, f64)> {
        if let Some(statistics) = saved.statistics() {
            let count = statistics.count;
            return if statistics.nans > 0 {
                Some((format!("{} of {count} values are NaN", statistics.nans), f64::NAN))
            } else if statistics.infinities > 0 && !self.only_nan {
                Some((format!("{} of {count} values are infinite", statistics.infinities), f64::INFINITY))
            } else {
                None
            };
        }
        // A product of many finite values may be infinite.
        let (reduction, value) = saved
            .reductions()
            .filter(|(reduction, _)| reduction.kind != ReductionKind::Prod)
            .find(|(_, value)| value.is_nan() || value.is_infinite() && !self.only_nan)?;
        Some((format!("its {} is {value}", reduction.kind.name()), value))
    }
}

impl Rule for ExplodingTensor {
    fn needs(&self) -> &[Selection] {
        &self.tensors
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.tensors[0]).find_map(|saved| {
            let (what, value) = self.judge(saved)?;
            let text = format!(
                "in {} {what}. Try a lower learning rate, gradient clipping, or loss scaling with 16-bit floats, and \
                 check the inputs for NaN.",
                step.describe(saved)
            );
            Some(finding(step, saved, value, text))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn a_learning_rate_that_is_too_high_explodes() {
        let network = || Network::new(&[4, 16, 16, 2], Activation::Relu, 3.0, 3);
        let found = train(network(), 1e12, 60, &mut evaluation("ExplodingTensor", &[])).unwrap();
        assert!(found.step > 0 && found.text.contains(" values are "), "{found:?}");
        assert_eq!(train(network(), 0.001, 60, &mut evaluation("ExplodingTensor", &[])), None);
    }

    #[test]
    fn infinite_values_may_be_allowed() {
        let steps: &[&[(&str, &[f32])]] = &[&[("w", &[f32::INFINITY, 1.0])], &[("w", &[1.0, f32::NAN])]];
        let found = findings("ExplodingTensor", &[], steps).unwrap();
        assert_eq!((found.step, found.value, found.subject.as_str()), (0, f64::INFINITY, "w"));
        assert!(found.text.starts_with("in w 1 of 2 values are infinite. Try"), "{}", found.text);
        assert_eq!(findings("ExplodingTensor", &[("only_nan", "True")], steps).unwrap().step, 1);
        let reduced: &[(&str, &[f32])] =
            &[("smdebug/reductions/prod/w", &[f32::INFINITY]), ("smdebug/reductions/max/x", &[f32::NAN])];
        let found = findings("ExplodingTensor", &[], &[reduced]).unwrap();
        assert!(found.text.starts_with("in x its max is NaN"), "{}", found.text);
        assert_eq!(findings("ExplodingTensor", &[("collection_names", "weights")], steps), None);
    }
}
