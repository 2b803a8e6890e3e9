//! VanishingGradient: gradients that are too small to train with.

use super::{Rule, finding, selected};
use crate::declaration::{Declaration, Make};
use crate::finding::{Finding, Short};
use crate::parameters::{POSITIVE, Parameter};
use crate::selection::Selection;
use crate::step::Step;

pub(crate) static VANISHING_GRADIENT: Declaration = Declaration {
    name: "VanishingGradient",
    summary: "The mean absolute value of a gradient is below a threshold.",
    parameters: &[Parameter {
        name: "threshold",
        kind: POSITIVE,
        default: Some("0.0000001"),
        doc: "Mean absolute gradient below which it has vanished.",
    }],
    collections: &["gradients"],
    make: Make::Tensors(|parameters| {
        Box::new(VanishingGradient {
            gradients: [Selection::of_collection("gradients")],
            threshold: parameters.number("threshold"),
        })
    }),
};

#[derive(Debug)]
struct VanishingGradient {
    gradients: [Selection; 1],
    threshold: f64,
}

impl Rule for VanishingGradient {
    fn needs(&self) -> &[Selection] {
        &self.gradients
    }

    fn observe(&mut self, step: &Step<'_>) -> Option<Finding> {
        selected(step, &self.gradients[0]).find_map(|saved| {
            let mean = saved.mean(true).filter(|mean| *mean < self.threshold)?;
            let text = format!(
                "the mean absolute value of {} is {}, below the threshold {}. Try ReLU in place of sigmoid or tanh, \
                 another weight initialisation, normalisation layers or residual connections.",
                step.describe(saved),
                Short(mean),
                Short(self.threshold)
            );
            Some(finding(step, saved, mean, text))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{evaluation, findings, train};
    use crate::training::{Activation, Network};

    #[test]
    fn deep_sigmoid_layers_vanish_and_relu_layers_do_not() {
        let sigmoid = Network::new(&[4, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2], Activation::Sigmoid, 0.3, 7);
        let found = train(sigmoid, 0.05, 5, &mut evaluation("VanishingGradient", &[])).unwrap();
        assert_eq!(found.step, 0);
        assert!(found.subject.starts_with("gradient/Net_fc0"), "the first layer: {found:?}");
        assert!(found.value > 0.0 && found.value < 1e-7, "{found:?}");
        assert!(found.text.contains("below the threshold 1e-7. Try ReLU"), "{}", found.text);
        let relu = Network::new(&[4, 16, 2], Activation::Relu, 1.0, 7);
        assert_eq!(train(relu, 0.05, 40, &mut evaluation("VanishingGradient", &[])), None);
    }

    #[test]
    fn a_saved_reduction_is_enough() {
        let steps: &[(&str, &[f32])] = &[("smdebug/reductions/abs_mean/gradient/w", &[1e-9])];
        let found = findings("VanishingGradient", &[], &[steps]);
        assert_eq!(found.unwrap().subject, "gradient/w");
        assert!(findings("VanishingGradient", &[("threshold", "1e-10")], &[steps]).is_none());
    }
}
