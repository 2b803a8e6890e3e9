//! Which layout to train with: every valid one, with its predicted time for a step and memory, best
//! first.
//!
//! Predictions are made of what was measured once (the time of each layer for a sample on one rank,
//! latency and bandwidth between ranks), of the schedule's own timing (`schedule`), ring
//! collectives (`network`) and the formulas of ZeRO (`shard`). Times are in seconds, sizes in
//! bytes. How well the order agrees with measured ones is the measure of this file, not the
//! seconds.

mod layouts;
mod predict;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Invalid, at_least_one, within},
    mesh::Degrees,
    network::Link,
    schedule::Pipeline,
    shard::{Precision, Zero},
};

/// A layer as measured on one rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Forward pass of one sample.
    pub forward: f64,
    /// Backward pass of one sample, gradients of inputs and weights together.
    pub backward: f64,
    /// Of a forward pass of no samples: what each micro-batch costs whatever its size. A backward
    /// pass costs twice that.
    #[serde(default)]
    pub overhead: f64,
    /// How many parameters.
    pub parameters: u64,
    /// Kept of each sample from the forward pass to the backward pass.
    pub activations: u64,
    /// Sent for each sample to the layer behind it, where this one is on another stage.
    pub output: u64,
    /// How tensor ranks share it; `None`: each computes all of it.
    #[serde(default)]
    pub tensor: Option<Share>,
}

/// How tensor ranks share a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Which part of its time, parameters and activations is shared; the rest is on every rank.
    /// From 0 to 1.
    pub part: f64,
    /// What must be divisible by the degree: heads, vocabulary, ...
    pub divides: usize,
    /// Bytes that are all-reduced for each sample in the forward pass, and again in the backward
    /// pass.
    pub reduced: u64,
}

/// Where it is to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// How many, of all hosts.
    pub ranks: usize,
    /// Consecutive ranks on one host; `None`: all.
    #[serde(default)]
    pub ranks_per_host: Option<usize>,
    /// Of each rank.
    pub memory: u64,
    /// Of it, what is not for the model.
    #[serde(default)]
    pub reserved: u64,
    /// How many ranks of a host compute at once as fast as one alone does; `None`: all.
    #[serde(default)]
    pub at_once: Option<f64>,
    /// Between ranks of one host.
    pub inside: Link,
    /// Between hosts; `None`: as inside.
    #[serde(default)]
    pub between: Option<Link>,
}

/// What is to be trained, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with layers, machine, batch and what `shoal advise --help` names")]
pub struct Question {
    /// In the order of their use.
    pub layers: Vec<Cost>,
    /// The ranks.
    pub machine: Machine,
    /// Samples of a step, of all ranks together.
    pub batch: usize,
    /// What is kept for each parameter.
    pub precision: Precision,
    /// Seconds of the optimizer for each parameter.
    #[serde(default)]
    pub update: f64,
    /// Seconds that a rank computes to send a micro-batch to another stage, or to receive it.
    #[serde(default)]
    pub handover: f64,
    /// Which part of a stage's last backward pass the gradients' way can hide behind, from 0 to 1.
    #[serde(default)]
    pub overlap: f64,
}

/// A layout, and what it is predicted to cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Of the mesh.
    pub degrees: Degrees,
    /// What is sharded along the shard axis.
    pub zero: Zero,
    /// `None` without a pipeline.
    pub pipeline: Option<Pipeline>,
    /// Micro-batches of a step on each rank; without a pipeline, passes that are accumulated.
    pub microbatches: usize,
    /// The first layer of each stage.
    pub stages: Vec<usize>,
    /// Predicted time of a step.
    pub step: f64,
    /// Of it, how long the busiest rank computes, the optimizer and tensor ranks' all-reduces with
    /// it.
    pub busy: f64,
    /// Of it, the exchange of gradients and parameters that nothing hides.
    pub exchange: f64,
    /// The share of the ranks' time in which they wait for the pipeline.
    pub idle: f64,
    /// Predicted memory of the fullest rank.
    pub memory: u64,
    /// It is no more than there is.
    pub fits: bool,
}

/// Every valid layout: those that fit first, by time (the simplest of equals), then the others, by
/// memory. Layouts differ in degrees (context is 1), ZeRO's level, schedule and micro-batches.
///
/// # Errors
/// A number in the question that has no meaning, or a batch that no layout can share.
pub fn advise(question: &Question) -> Result<Vec<Advice>, Invalid> {
    question.check()?;
    let layouts = layouts::all(question);
    if layouts.is_empty() {
        let ranks = question.machine.ranks;
        let problem = format!(
            "{} samples, {} layers and what tensor ranks can share leave {ranks} ranks no way",
            question.batch,
            question.layers.len()
        );
        return Err(Invalid::new("batch", problem).nearest(crate::error::nearest_multiples(ranks, question.batch)));
    }
    let mut all: Vec<Advice> =
        layouts.iter().map(|layout| predict::predict(question, layout)).collect::<Result<_, _>>()?;
    // Times that differ by a rounding error are equal.
    let time = |advice: &Advice| libm::round(1e6 * libm::log(advice.step));
    let simplicity = |advice: &Advice| {
        let Degrees { data, shard, pipeline, tensor, .. } = advice.degrees;
        (advice.zero, pipeline, tensor, shard, data, advice.microbatches)
    };
    all.sort_by(|one, other| {
        let by_need = if one.fits { time(one).total_cmp(&time(other)) } else { one.memory.cmp(&other.memory) };
        other
            .fits
            .cmp(&one.fits)
            .then(by_need)
            .then(simplicity(one).cmp(&simplicity(other)))
            .then(one.memory.cmp(&other.memory))
    });
    Ok(all)
}

impl Question {
    fn check(&self) -> Result<(), Invalid> {
        let machine = &self.machine;
        at_least_one("layers", self.layers.len())?;
        at_least_one("ranks", machine.ranks)?;
        at_least_one("ranks_per_host", machine.ranks_per_host.unwrap_or(1))?;
        at_least_one("batch", self.batch)?;
        within("update", self.update, 0.0, f64::MAX)?;
        within("handover", self.handover, 0.0, f64::MAX)?;
        within("overlap", self.overlap, 0.0, 1.0)?;
        within("at_once", machine.at_once.unwrap_or(1.0), f64::MIN_POSITIVE, f64::MAX)?;
        for link in [Some(machine.inside), machine.between].into_iter().flatten() {
            within("latency", link.latency, 0.0, f64::MAX)?;
            within("bandwidth", link.bandwidth, f64::MIN_POSITIVE, f64::MAX)?;
        }
        self.layers.iter().enumerate().try_for_each(|(index, layer)| {
            layer.check().map_err(|error| Invalid {
                problem: format!("{} (of layer {index}, counted from 0)", error.problem),
                ..error
            })
        })
    }
}

impl Cost {
    fn check(&self) -> Result<(), Invalid> {
        within("forward", self.forward, 0.0, f64::MAX)?;
        within("backward", self.backward, 0.0, f64::MAX)?;
        within("overhead", self.overhead, 0.0, f64::MAX)?;
        self.tensor.as_ref().map_or(Ok(()), |share| {
            within("part", share.part, 0.0, 1.0)?;
            at_least_one("divides", share.divides)
        })
    }
}

#[cfg(test)]
mod tests;
