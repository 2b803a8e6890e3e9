//! PoorWeightInitialization: layers that begin with activations of very different size.

use shoal_contract::tensors::ReductionKind;

use super::{Rule, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{COUNT, Kind, POSITIVE, Parameter};
use crate::selection::Selection;
use crate::step::{Saved, Step};

/// Values of a tensor from which percentiles are computed.
const MAX_SAMPLED: usize = 1 << 16;

pub(crate) static POOR_WEIGHT_INITIALIZATION: Declaration = Declaration {
    name: "PoorWeightInitialization",
    summary: "In the first steps the variances of layers differ too much, gradients are all alike, or the loss does \
              not fall.",
    parameters: &[
        Parameter {
            name: "activation_inputs_regex",
            kind: Kind::Expressions,
            // AWS's default is `.*relu_input`; PyTorch's modules have numbers.
            default: Some("(?i)relu\\d*_input"),
            doc: "Expressions for the inputs of activations.",
        },
        Parameter {
            name: "threshold",
            kind: POSITIVE,
            default: Some("10.0"),
            doc: "Highest ratio of the variances of two layers' activation inputs.",
        },
        Parameter {
            name: "distribution_range",
            kind: POSITIVE,
            default: Some("0.001"),
            doc: "Least distance of the 5th and 95th percentile of gradients, where they are saved.",
        },
        Parameter {
            name: "patience",
            kind: COUNT,
            default: Some("5"),
            doc: "Steps without a lower loss after which it does not fall, where it is saved.",
        },
        Parameter { name: "steps", kind: COUNT, default: Some("10"), doc: "Saved steps that are judged." },
    ],
    collections: &["relu_input"],
    make: Make::Tensors(|parameters| {
        let expressions = parameters.list("activation_inputs_regex");
        Box::new(PoorInitialization {
            inputs: [Selection::new(vec!["relu_input".to_owned()], &expressions)],
            gradients: Selection::of_collection("gradients"),
            losses: Selection::of_collection("losses"),
            threshold: parameters.number("threshold"),
            range: parameters.number("distribution_range"),
            allowed: parameters.integer("patience"),
            remaining: parameters.integer("steps"),
            lowest_loss: f64::INFINITY,
            since_lowest: 0,
        })
    }),
};

#[derive(Debug)]
struct PoorInitialization {
    inputs: [Selection; 1],
    gradients: Selection,
    losses: Selection,
    threshold: f64,
    range: f64,
    /// Steps without a lower loss.
    allowed: u64,
    remaining: u64,
    lowest_loss: f64,
    since_lowest: u64,
}

impl PoorInitialization {
    fn variances(&self, step: &Step<'_>) -> Option<Finding> {
        let variance = |saved: &Saved<'_>| saved.reduction(ReductionKind::Variance, false);
        let mut layers =
            Vec::from_iter(selected(step, &self.inputs[0]).filter_map(|saved| Some((variance(saved)?, saved))));
        layers.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let ((low, lowest), (high, highest)) = (layers.first()?, layers.last()?);
        let ratio = if *high > 0.0 { high / low } else { 1.0 };
        (ratio > self.threshold).then(|| {
            let text = format!(
                "the variance of {} is {} and that of {} is {}: a ratio of {}, above the threshold {}. Try Xavier's \
                 initialisation with tanh or sigmoid, He's with ReLU.",
                step.describe(highest),
                Short(*high),
                step.describe(lowest),
                Short(*low),
                Short(ratio),
                Short(self.threshold)
            );
            finding(step, highest, ratio, text)
        })
    }

    fn gradients(&self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.gradients).find_map(|saved| {
            let spread = spread(saved).filter(|spread| *spread < self.range)?;
            let text = format!(
                "the 5th and 95th percentile of {} are {} apart, less than distribution_range {}. Try Xavier's \
                 initialisation with tanh or sigmoid, He's with ReLU.",
                step.describe(saved),
                Short(spread),
                Short(self.range)
            );
            Some(finding(step, saved, spread, text))
        })
    }

    fn loss(&mut self, step: &Step<'_>) -> Option<Finding> {
        let (saved, loss) = selected(step, &self.losses).find_map(|saved| Some((saved, saved.mean(false)?)))?;
        if loss < self.lowest_loss {
            (self.lowest_loss, self.since_lowest) = (loss, 0);
            return None;
        }
        self.since_lowest += 1;
        (self.since_lowest >= self.allowed).then(|| {
            let text = format!(
                "{} was not below {} for {} steps, and is {} now. Try another initialisation of weights or another \
                 learning rate.",
                step.describe(saved),
                Short(self.lowest_loss),
                self.since_lowest,
                Short(loss)
            );
            finding(step, saved, loss, text)
        })
    }
}

impl Rule for PoorInitialization {
    fn needs(&self) -> &[Selection] {
        &self.inputs
    }

    fn also_reads(&self) -> Vec<&Selection> {
        vec![&self.gradients, &self.losses]
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.variances(step).or_else(|| self.gradients(step)).or_else(|| self.loss(step))
    }
}

/// Distance of the 5th and the 95th percentile; of large tensors, of values at equal distances.
fn spread(saved: &Saved<'_>) -> Option<f64> {
    let tensor = saved.tensor.as_ref()?;
    let (every, mut index) = (tensor.len().div_ceil(MAX_SAMPLED).max(1), 0_usize);
    let mut values = Vec::new();
    tensor
        .for_each(|value| {
            if index.is_multiple_of(every) && value.is_finite() {
                values.push(value);
            }
            index += 1;
        })
        .ok()?;
    // Of a few values percentiles say nothing.
    if values.len() < 20 {
        return None;
    }
    values.sort_by(f64::total_cmp);
    Some(values[values.len() * 95 / 100] - values[values.len() * 5 / 100])
}

#[cfg(test)]
mod tests {
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn layers_that_begin_too_small_are_found() {
        let network = |scale| Network::new(&[4, 16, 16, 16, 2], Activation::Relu, scale, 21);
        let found = train(network(0.2), 0.05, 10, &mut evaluation("PoorWeightInitialization", &[])).unwrap();
        assert_eq!((found.step, found.subject.as_str()), (0, "Net_relu0_input_0"));
        assert!(found.value > 10.0 && found.text.contains("above the threshold 10. Try Xavier"), "{found:?}");
        assert_eq!(train(network(1.3), 0.05, 10, &mut evaluation("PoorWeightInitialization", &[])), None);
    }

    #[test]
    fn gradients_that_are_all_alike_and_a_loss_that_stays_are_found() {
        let alike: &[(&str, &[f32])] = &[("relu_input", &[1.0, -1.0]), ("gradient/w", &[1e-4; 64])];
        let found = findings("PoorWeightInitialization", &[], &[alike]).unwrap();
        assert_eq!((found.subject.as_str(), found.value), ("gradient/w", 0.0));
        let stays: &[(&str, &[f32])] = &[("relu_input", &[1.0, -1.0]), ("loss", &[0.7])];
        let found = findings("PoorWeightInitialization", &[], &[stays; 7]).unwrap();
        assert_eq!((found.step, found.text.starts_with("loss was not below 0.7 for 5 steps")), (5, true), "{found:?}");
        assert_eq!(findings("PoorWeightInitialization", &[("steps", "5")], &[stays; 7]), None);
    }
}
