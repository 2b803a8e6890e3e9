//! SaturatedActivation and DeadRelu: layers of which most units no longer react to their inputs.

use shoal_contract::tensors::Tensor;

use super::{COLLECTION_NAMES, Rule, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{Kind, NUMBER, PERCENT, Parameter, Parameters};
use crate::selection::Selection;
use crate::step::{Saved, Step};

/// Units of a layer that are judged.
const MAX_UNITS: usize = 1 << 20;

const INACTIVITY: Parameter = Parameter {
    name: "threshold_inactivity",
    kind: PERCENT,
    default: Some("1.0"),
    doc: "Percentage of samples below which a unit counts as inactive.",
};

const LAYER: Parameter = Parameter {
    name: "threshold_layer",
    kind: PERCENT,
    default: Some("50.0"),
    doc: "Percentage of inactive units of a layer above which the condition is met.",
};

pub(crate) static SATURATED_ACTIVATION: Declaration = Declaration {
    name: "SaturatedActivation",
    summary: "Most units of a tanh or sigmoid layer have inputs at which its slope is nearly zero.",
    parameters: &[
        COLLECTION_NAMES,
        Parameter {
            name: "tensor_regex",
            kind: Kind::Expressions,
            // AWS's default is `.*tanh_input|.*sigmoid_input`; PyTorch's modules have numbers.
            default: Some("(?i)(tanh|sigmoid)\\d*_input"),
            doc: "Expressions for the inputs of activations; `tanh` or `sigmoid` in a name decides the thresholds.",
        },
        Parameter {
            name: "threshold_tanh_min",
            kind: NUMBER,
            default: Some("-9.4999"),
            doc: "Input of tanh below which it is saturated.",
        },
        Parameter {
            name: "threshold_tanh_max",
            kind: NUMBER,
            default: Some("9.4999"),
            doc: "Input of tanh above which it is saturated.",
        },
        Parameter {
            name: "threshold_sigmoid_min",
            kind: NUMBER,
            default: Some("-23"),
            doc: "Input of sigmoid below which it is saturated.",
        },
        Parameter {
            name: "threshold_sigmoid_max",
            kind: NUMBER,
            default: Some("16.99999"),
            doc: "Input of sigmoid above which it is saturated.",
        },
        INACTIVITY,
        LAYER,
    ],
    collections: &[],
    make: Make::Tensors(|parameters| {
        let range = |function: &str| {
            let bound = |side: &str| parameters.number(&format!("threshold_{function}_{side}"));
            (bound("min"), bound("max"))
        };
        let kind = Active::Within { tanh: range("tanh"), sigmoid: range("sigmoid") };
        Box::new(InactiveUnits::new(parameters, kind))
    }),
};

pub(crate) static DEAD_RELU: Declaration = Declaration {
    name: "DeadRelu",
    summary: "Most units of a ReLU layer give zero for all samples.",
    parameters: &[
        Parameter {
            name: "tensor_regex",
            kind: Kind::Expressions,
            // AWS's default is `.*relu_output`; PyTorch's modules have numbers.
            default: Some("(?i)relu\\d*_output"),
            doc: "Expressions for the outputs of activations.",
        },
        INACTIVITY,
        LAYER,
    ],
    collections: &["relu_output"],
    make: Make::Tensors(|parameters| Box::new(InactiveUnits::new(parameters, Active::Positive))),
};

/// What counts as a reaction.
#[derive(Debug, Clone, Copy)]
enum Active {
    /// Inputs within a range.
    Within { tanh: (f64, f64), sigmoid: (f64, f64) },
    /// Outputs above zero.
    Positive,
}

#[derive(Debug)]
struct InactiveUnits {
    tensors: [Selection; 1],
    active: Active,
    unit_percent: f64,
    layer_percent: f64,
}

impl InactiveUnits {
    fn new(parameters: &Parameters, active: Active) -> Self {
        let mut collections = parameters.list("collection_names");
        if matches!(active, Active::Positive) {
            collections.push("relu_output".to_owned());
        }
        Self {
            tensors: [Selection::new(collections, &parameters.list("tensor_regex"))],
            active,
            unit_percent: parameters.number("threshold_inactivity"),
            layer_percent: parameters.number("threshold_layer"),
        }
    }

    /// Values between which a unit reacts.
    fn range(&self, name: &str) -> (f64, f64) {
        match self.active {
            Active::Positive => (f64::MIN_POSITIVE, f64::INFINITY),
            Active::Within { sigmoid, .. } if name.to_ascii_lowercase().contains("sigmoid") => sigmoid,
            Active::Within { tanh, .. } => tanh,
        }
    }

    fn sentence(&self, step: &Step<'_>, saved: &Saved<'_>, inactive: usize, units: usize) -> String {
        let tensor = step.describe(saved);
        let percent = Short(100.0 * inactive as f64 / units as f64);
        let limit = Short(self.layer_percent);
        match self.active {
            Active::Positive => format!(
                "{inactive} of {units} units of {tensor} ({percent} %) are zero for nearly all samples, more than \
                 {limit} %. Try a lower learning rate, leaky ReLU, or another initialisation of biases."
            ),
            Active::Within { .. } => {
                let (low, high) = self.range(&saved.name);
                format!(
                    "{inactive} of {units} units of {tensor} ({percent} %) have nearly all inputs outside of {} to \
                     {}, where the slope is close to zero; more than {limit} %. Try a lower learning rate, smaller \
                     initial weights or normalisation layers.",
                    Short(low),
                    Short(high)
                )
            }
        }
    }
}

impl Rule for InactiveUnits {
    fn needs(&self) -> &[Selection] {
        &self.tensors
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.tensors[0]).find_map(|saved| {
            let (low, high) = self.range(&saved.name);
            let (inactive, units) =
                inactive_units(saved.tensor.as_ref()?, self.unit_percent, |value| (low..=high).contains(&value))?;
            let percent = 100.0 * inactive as f64 / units as f64;
            (percent > self.layer_percent)
                .then(|| finding(step, saved, percent, self.sentence(step, saved, inactive, units)))
        })
    }
}

/// Units that react to less than a percentage of the samples, and all units. The first dimension is
/// that of the samples; of images the units are channels, which TensorFlow has in the last
/// dimension and others in the second.
fn inactive_units(tensor: &Tensor<'_>, percent: f64, is_active: impl Fn(f64) -> bool) -> Option<(usize, usize)> {
    if tensor.is_empty() {
        return None;
    }
    let sizes = Vec::from_iter(tensor.shape.iter().map(|size| usize::try_from(*size).unwrap_or(usize::MAX)));
    let is_tensorflow = tensor.name.contains(':');
    let (units, inner) = match sizes[..] {
        [] => return None,
        [units] => (units, 1),
        [.., last] if sizes.len() == 2 || is_tensorflow => (last, 1),
        [_, channels, ref inner @ ..] => (channels, inner.iter().product()),
    };
    if units > MAX_UNITS {
        return None;
    }
    let mut active = vec![0_u32; units];
    let mut index = 0;
    tensor
        .for_each(|value| {
            active[index / inner % units] += u32::from(is_active(value));
            index += 1;
        })
        .ok()?;
    let samples = (tensor.len() / units) as f64;
    let inactive = active.iter().filter(|count| 100.0 * f64::from(**count) / samples < percent).count();
    Some((inactive, units))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{evaluation, train};
    use crate::training::{Activation, Network};

    #[test]
    fn a_layer_that_is_pushed_far_below_zero_is_dead() {
        let network = |push| Network::new(&[4, 16, 16, 2], Activation::Relu, 1.0, 11).pushed(push);
        let found = train(network(-100.0), 0.05, 10, &mut evaluation("DeadRelu", &[])).unwrap();
        assert_eq!((found.subject.as_str(), found.value, found.step), ("Net_relu0_output_0", 100.0, 0));
        assert!(found.text.starts_with("16 of 16 units of Net_relu0_output_0 (100 %) are zero"), "{}", found.text);
        assert_eq!(train(network(0.0), 0.05, 40, &mut evaluation("DeadRelu", &[])), None);
    }

    #[test]
    fn a_layer_with_huge_weights_is_saturated() {
        for (activation, scale, subject) in
            [(Activation::Tanh, 300.0, "Net_tanh0_input_0"), (Activation::Sigmoid, 900.0, "Net_sigmoid0_input_0")]
        {
            let network = |scale| Network::new(&[4, 16, 2], activation, scale, 2);
            let lenient = [("threshold_inactivity", "20")];
            let found = train(network(scale), 0.0, 5, &mut evaluation("SaturatedActivation", &lenient)).unwrap();
            assert_eq!(found.subject, subject);
            assert!(found.text.contains("where the slope is close to zero"), "{}", found.text);
            assert_eq!(train(network(1.0), 0.05, 40, &mut evaluation("SaturatedActivation", &[])), None);
        }
    }

    #[test]
    fn units_are_channels_of_images() {
        // Two samples, three channels, two by two pixels: the second channel never reacts.
        let values = Vec::from_iter((0..24).map(|index| if index / 4 % 3 == 1 { 0.0 } else { 1.0 }));
        let images = Tensor::of_f32("conv", &[2, 3, 2, 2], &values);
        assert_eq!(inactive_units(&images, 1.0, |value| value > 0.0), Some((1, 3)));
        let values = Vec::from_iter((0..24).map(|index| if index % 3 == 1 { 0.0 } else { 1.0 }));
        let images = Tensor::of_f32("conv:0", &[2, 2, 2, 3], &values);
        assert_eq!(inactive_units(&images, 1.0, |value| value > 0.0), Some((1, 3)));
        assert_eq!(inactive_units(&Tensor::of_f32("a", &[0, 3], &[]), 1.0, |_| true), None);
    }
}
