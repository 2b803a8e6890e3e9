//! What one layout costs.
//!
//! Ranks are placed as by `cluster`: tensor ranks next to each other, then stages, then shards,
//! then copies. A group uses the slower links as soon as it spans hosts.

use super::{Advice, Cost, Question, layouts::Layout};
use crate::{
    error::Invalid,
    network::Link,
    partition::{Layer, chain},
    schedule::{Durations, Fault, Pipeline},
    shard::Zero,
};

/// A layer on one tensor rank, for one micro-batch.
struct Part {
    forward: f64,
    backward: f64,
    /// Of each of the two, how long the rank waits for all-reduces and gathered parameters.
    wire: f64,
    parameters: f64,
    activations: f64,
}

/// Layers of one stage together.
#[derive(Default)]
struct Stage {
    forward: f64,
    backward: f64,
    wire: f64,
    parameters: f64,
    /// Of the layer with the most.
    largest: f64,
    activations: f64,
}

impl Stage {
    fn passes(&self) -> (f64, f64) {
        (self.forward, self.backward)
    }

    fn computation(&self) -> (f64, f64) {
        (self.forward - self.wire, self.backward - self.wire)
    }
}

fn faulty(fault: Fault) -> Invalid {
    Invalid::new("schedule", fault.to_string())
}

pub(super) fn predict(question: &Question, layout: &Layout) -> Result<Advice, Invalid> {
    let machine = &question.machine;
    let copies = layout.data * layout.shard;
    let samples = (question.batch / copies / layout.micros) as f64;
    let tensor_link = link(question, layout.tensor);
    let stage_link = link(question, layout.tensor * layout.pipeline);
    let shard_link = link(question, layout.tensor * layout.pipeline * layout.shard);
    let data_link = link(question, machine.ranks);

    // Parameters that nobody has whole are gathered for each pass, there and back.
    let gathered = |parameters: f64| {
        let bytes = parameters * question.precision.parameter as f64;
        if layout.zero == Zero::Parameters { shard_link.gather(layout.shard, bytes) } else { 0.0 }
    };
    let part = |layer: &Cost| {
        let mut part = part(layer, layout.tensor, samples, &tensor_link);
        let gathered = gathered(part.parameters);
        part.forward += gathered;
        part.backward += gathered;
        part.wire += gathered;
        part
    };
    let parts: Vec<Part> = question.layers.iter().map(part).collect();
    let first = cut(question, layout, &parts)?;
    let ends = first.iter().skip(1).copied().chain([parts.len()]);
    let mut stages: Vec<Stage> = first.iter().zip(ends).map(|(&from, to)| joined(&parts[from..to])).collect();
    // Each boundary is crossed once in either direction.
    let last = stages.len() - 1;
    for (at, stage) in stages.iter_mut().enumerate() {
        let crossings = usize::from(at > 0) + usize::from(at < last);
        let handover = if layout.pipeline > 1 { crossings as f64 * question.handover } else { 0.0 };
        stage.forward += handover;
        stage.backward += handover;
    }

    let output = first.iter().skip(1).map(|&at| question.layers[at - 1].output as f64 * samples).fold(0.0, f64::max);
    let transfer = if layout.pipeline > 1 { stage_link.send(output) } else { 0.0 };
    let durations = |of: fn(&Stage) -> (f64, f64)| {
        let (forward, backward): (Vec<f64>, Vec<f64>) = stages.iter().map(of).unzip();
        let halves: Vec<f64> = backward.iter().map(|backward| backward / 2.0).collect();
        Durations { forward, input: halves.clone(), weight: halves, transfer }
    };
    let schedule =
        layout.schedule.unwrap_or(Pipeline::OneForwardOneBackward).schedule(layout.pipeline, layout.micros)?;
    let timing = schedule.check(&durations(Stage::passes)).map_err(faulty)?;

    let (mut exchange, mut memory) = (0.0_f64, 0_u64);
    // Of the rank with the most; `updates`: of all ranks of a pipeline.
    let (mut busy, mut update, mut waiting, mut updates) = (0.0_f64, 0.0_f64, 0.0_f64, 0.0_f64);
    for rank in 0..layout.pipeline {
        let own = || stages.iter().skip(rank).step_by(layout.pipeline);
        let parameters: f64 = own().map(|stage| stage.parameters).sum();
        let backward: f64 = own().map(|stage| stage.backward).sum();
        let bytes = parameters * question.precision.gradient as f64;
        // Within the shards: reduced and scattered, and gathered again as parameters unless the
        // passes gather them. Sharded gradients cannot wait for the last pass.
        let passes = if layout.zero >= Zero::Gradients { layout.micros } else { 1 } as f64;
        let mut wire = passes * shard_link.gather(layout.shard, bytes);
        if layout.shard > 1 && layout.zero != Zero::Parameters {
            wire += shard_link.gather(layout.shard, parameters * question.precision.parameter as f64);
        }
        wire += data_link.all_reduce(layout.data, bytes / layout.shard as f64);
        exchange = exchange.max((wire - question.overlap * backward).max(0.0));
        let of_rank =
            question.update * if layout.zero == Zero::None { parameters } else { parameters / layout.shard as f64 };
        update = update.max(of_rank);
        updates += of_rank;
        busy = busy.max(timing.busy[rank] + of_rank);
        waiting = waiting.max(2.0 * layout.micros as f64 * own().map(|stage| stage.wire).sum::<f64>());
        let activations = own().map(|stage| stage.activations).fold(0.0, f64::max) * timing.activations[rank] as f64;
        let state = layout.zero.bytes(parameters.ceil() as u64, question.precision, layout.shard);
        // A layer is whole while it computes, and so is its gradient until it is scattered.
        let [whole_parameters, whole_gradients, _] = layout.zero.shards();
        let sizes = [(whole_parameters, question.precision.parameter), (whole_gradients, question.precision.gradient)];
        let for_a_while: u64 = sizes.into_iter().filter(|(is_sharded, _)| *is_sharded).map(|(_, size)| size).sum();
        let largest = own().map(|stage| stage.largest).fold(0.0, f64::max) * for_a_while as f64;
        let working = (activations + largest).ceil() as u64;
        memory = memory.max(state.saturating_add(working).saturating_add(machine.reserved));
    }
    // Ranks that share cores are not faster together than the cores are; none needs one while it
    // waits for others.
    let mut computed = timing.total + update;
    if let Some(at_once) = machine.at_once {
        let per_host = machine.ranks_per_host.unwrap_or(machine.ranks).min(machine.ranks) as f64;
        let cores = at_once * layout.pipeline as f64 / per_host;
        let shared = schedule.total_on(cores, &durations(Stage::computation)).map_err(faulty)?;
        computed = computed.max(shared + waiting + update.max(updates / cores));
    }
    Ok(Advice {
        degrees: layout.degrees(),
        zero: layout.zero,
        pipeline: layout.schedule,
        microbatches: layout.micros,
        stages: first,
        step: computed + exchange,
        busy,
        exchange,
        idle: timing.idle,
        memory,
        fits: memory <= machine.memory,
    })
}

/// The slowest link in a group of ranks, if it and what lies within it are so many consecutive
/// ones.
fn link(question: &Question, span: usize) -> Link {
    let machine = &question.machine;
    let per_host = machine.ranks_per_host.unwrap_or(machine.ranks);
    let is_inside = per_host.is_multiple_of(span) || machine.ranks <= per_host;
    machine.between.filter(|_| !is_inside).unwrap_or(machine.inside)
}

fn part(layer: &Cost, tensor: usize, samples: f64, link: &Link) -> Part {
    let share = layer.tensor.as_ref().filter(|_| tensor > 1);
    let left = share.map_or(1.0, |share| 1.0 - share.part + share.part / tensor as f64);
    let reduced = share.map_or(0.0, |share| link.all_reduce(tensor, share.reduced as f64 * samples));
    Part {
        forward: layer.overhead + layer.forward * samples * left + reduced,
        backward: 2.0 * layer.overhead + layer.backward * samples * left + reduced,
        wire: reduced,
        parameters: layer.parameters as f64 * left,
        activations: layer.activations as f64 * samples * left,
    }
}

/// The first layer of each stage: by time, within the memory where that is possible.
fn cut(question: &Question, layout: &Layout, parts: &[Part]) -> Result<Vec<usize>, Invalid> {
    let chunks = layout.schedule.map_or(1, Pipeline::chunks) as u64;
    let held = match layout.schedule {
        Some(Pipeline::Gpipe) => layout.micros,
        _ => layout.micros.min(layout.pipeline),
    };
    let layer = |part: &Part| Layer {
        cost: part.forward + part.backward,
        memory: layout.zero.bytes(part.parameters.ceil() as u64, question.precision, layout.shard)
            + (part.activations * held as f64) as u64,
    };
    let layers: Vec<Layer> = parts.iter().map(layer).collect();
    // A rank's memory is for all its chunks.
    let memory = question.machine.memory.saturating_sub(question.machine.reserved) / chunks;
    chain(&layers, layout.stages(), Some(memory)).or_else(|_| chain(&layers, layout.stages(), None))
}

fn joined(parts: &[Part]) -> Stage {
    let mut stage = Stage::default();
    for part in parts {
        stage.forward += part.forward;
        stage.backward += part.backward;
        stage.wire += part.wire;
        stage.parameters += part.parameters;
        stage.largest = stage.largest.max(part.parameters);
        stage.activations += part.activations;
    }
    stage
}
