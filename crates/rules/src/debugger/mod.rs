//! The Debugger's rules, by families.

mod activations;
mod classes;
mod exploding;
mod gradients;
mod initialization;
mod inputs;
mod loss;
mod similar;
mod stalled;
mod tree_report;
mod trees;
mod unchanged;
mod update_ratio;
mod validation_loss;
mod values;

use crate::declaration::Declaration;
use crate::finding::Finding;
use crate::parameters::{Kind, Parameter, Parameters};
use crate::rule::Rule;
use crate::selection::Selection;
use crate::step::{Saved, Step};

/// All of them.
pub(crate) const DECLARATIONS: &[&Declaration] = &[
    &gradients::VANISHING_GRADIENT,
    &exploding::EXPLODING_TENSOR,
    &initialization::POOR_WEIGHT_INITIALIZATION,
    &activations::SATURATED_ACTIVATION,
    &activations::DEAD_RELU,
    &update_ratio::WEIGHT_UPDATE_RATIO,
    &values::ALL_ZERO,
    &values::TENSOR_VARIANCE,
    &unchanged::UNCHANGED_TENSOR,
    &loss::LOSS_NOT_DECREASING,
    &validation_loss::OVERFIT,
    &validation_loss::OVERTRAINING,
    &stalled::STALLED_TRAINING,
    &classes::CLASS_IMBALANCE,
    &classes::CONFUSION,
    &trees::FEATURE_IMPORTANCE_OVERWEIGHT,
    &trees::TREE_DEPTH,
    &inputs::NLP_SEQUENCE_RATIO,
    &inputs::CHECK_INPUT_IMAGES,
    &similar::SIMILAR_ACROSS_RUNS,
    &tree_report::CREATE_TREE_REPORT,
];

/// `collection_names`, which many rules have.
const COLLECTION_NAMES: Parameter = Parameter {
    name: "collection_names",
    kind: Kind::Names,
    default: None,
    doc: "Collections whose tensors are judged.",
};

/// `tensor_regex`, which many rules have.
const TENSOR_REGEX: Parameter = Parameter {
    name: "tensor_regex",
    kind: Kind::Expressions,
    default: None,
    doc: "Expressions for the names of tensors that are judged, beside those of the collections.",
};

/// What these two select.
fn selection(parameters: &Parameters) -> Selection {
    Selection::new(parameters.list("collection_names"), &parameters.list("tensor_regex"))
}

/// The tensors of a step that a rule reads.
fn selected<'s, 'a>(step: &'s Step<'a>, selection: &'s Selection) -> impl Iterator<Item = &'s Saved<'a>> {
    step.saved().iter().filter(|saved| selection.includes(&saved.name, step.groups))
}

/// A finding about a tensor of a step.
fn finding(step: &Step<'_>, saved: &Saved<'_>, value: f64, text: String) -> Finding {
    Finding { step: step.step, subject: step.describe(saved), value, text }
}
