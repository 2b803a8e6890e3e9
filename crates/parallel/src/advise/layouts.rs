//! Which layouts there are for a model on a machine.

use super::Question;
use crate::{mesh::Degrees, schedule::Pipeline, shard::Zero};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Layout {
    pub data: usize,
    pub shard: usize,
    pub pipeline: usize,
    pub tensor: usize,
    pub zero: Zero,
    pub schedule: Option<Pipeline>,
    pub micros: usize,
}

impl Layout {
    pub(super) fn degrees(&self) -> Degrees {
        Degrees { data: Some(self.data), shard: self.shard, context: 1, pipeline: self.pipeline, tensor: self.tensor }
    }

    /// Stages, of all ranks.
    pub(super) fn stages(&self) -> usize {
        self.pipeline * self.schedule.map_or(1, Pipeline::chunks)
    }
}

fn divisors(whole: usize) -> impl Iterator<Item = usize> {
    (1..=whole).filter(move |candidate| whole.is_multiple_of(*candidate))
}

/// All of them.
pub(super) fn all(question: &Question) -> Vec<Layout> {
    let ranks = question.machine.ranks;
    let shares = |tensor: &usize| {
        let mut shared = question.layers.iter().filter_map(|layer| layer.tensor.as_ref()).peekable();
        *tensor == 1 || (shared.peek().is_some() && shared.all(|share| share.divides.is_multiple_of(*tensor)))
    };
    let mut all = Vec::new();
    for tensor in divisors(ranks).filter(shares) {
        for pipeline in divisors(ranks / tensor).filter(|pipeline| *pipeline <= question.layers.len()) {
            let copies = ranks / tensor / pipeline;
            if !question.batch.is_multiple_of(copies) {
                continue;
            }
            for shard in divisors(copies) {
                let levels: &[Zero] =
                    if shard == 1 { &[Zero::None] } else { &[Zero::State, Zero::Gradients, Zero::Parameters] };
                for &zero in levels {
                    for micros in divisors(question.batch / copies) {
                        let layout =
                            |schedule| Layout { data: copies / shard, shard, pipeline, tensor, zero, schedule, micros };
                        all.extend(schedules(pipeline, micros, question.layers.len()).into_iter().map(layout));
                    }
                }
            }
        }
    }
    all
}

/// The schedules that a pipeline can have.
fn schedules(pipeline: usize, micros: usize, layers: usize) -> Vec<Option<Pipeline>> {
    if pipeline == 1 {
        return vec![None];
    }
    let mut all = vec![Some(Pipeline::Gpipe), Some(Pipeline::OneForwardOneBackward), Some(Pipeline::ZeroBubble)];
    if micros.is_multiple_of(pipeline) && 2 * pipeline <= layers {
        all.push(Some(Pipeline::Interleaved { chunks: 2 }));
    }
    all
}
