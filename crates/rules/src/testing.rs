//! What the tests of rules share.

use std::collections::BTreeMap;

use shoal_contract::tensors::{Mode, Tensor};

use crate::evaluation::Evaluation;
use crate::finding::Finding;
use crate::selection::Groups;
use crate::step::Step;
use crate::training::Network;

pub(crate) fn given(rule: &str, parameters: &[(&str, &str)]) -> BTreeMap<String, String> {
    let rule = [("rule_to_invoke", rule)];
    rule.iter().chain(parameters).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(crate) fn evaluation(rule: &str, parameters: &[(&str, &str)]) -> Evaluation {
    Evaluation::new(rule, &given(rule, parameters)).unwrap()
}

/// A step with vectors.
pub(crate) fn step<'a>(groups: &'a Groups, number: u64, tensors: &[(&'a str, &[f32])]) -> Step<'a> {
    mode_step(groups, Mode::Train, number, tensors)
}

/// The same in a mode.
pub(crate) fn mode_step<'a>(groups: &'a Groups, mode: Mode, number: u64, tensors: &[(&'a str, &[f32])]) -> Step<'a> {
    let tensors =
        tensors.iter().map(|(name, values)| ("worker_0", Tensor::of_f32(name, &[values.len() as u64], values)));
    Step::new(groups, (number, mode, number), tensors)
}

/// What a rule finds in steps with vectors.
pub(crate) fn findings(rule: &str, parameters: &[(&str, &str)], steps: &[&[(&str, &[f32])]]) -> Option<Finding> {
    let groups = Groups::default();
    let mut evaluation = evaluation(rule, parameters);
    let observed = steps
        .iter()
        .enumerate()
        .find_map(|(number, tensors)| evaluation.observe(&step(&groups, number as u64, tensors)));
    observed.or_else(|| evaluation.end(&groups, &crate::Catalogue::default()))?.finding
}

/// What a rule finds in a real training.
pub(crate) fn train(mut network: Network, rate: f32, steps: u64, evaluation: &mut Evaluation) -> Option<Finding> {
    let groups = Groups::default();
    let observed = (0..steps).find_map(|number| {
        let saved = network.step(rate);
        let tensors = saved.iter().map(|(name, shape, values)| ("worker_0", Tensor::of_f32(name, shape, values)));
        evaluation.observe(&Step::new(&groups, (number, Mode::Train, number), tensors))
    });
    let conclusion = observed.or_else(|| evaluation.end(&groups, &crate::Catalogue::default()))?;
    assert_ne!(conclusion.status, crate::Status::Error, "{}", conclusion.details);
    conclusion.finding
}
