//! Pipeline schedules: which rank computes which stage of which micro-batch in which order, as
//! lists. `check` says what a list costs, or why it cannot run.
//!
//! `flush` has the schedules in which every stage is one rank's (GPipe, 1F1B), `interleaved`
//! Megatron's with several stages a rank, `zero_bubble` ZB-H1, `dynamic` that of SageMaker's model
//! parallel library.

mod check;
mod dynamic;
mod flush;
mod interleaved;
mod zero_bubble;

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one};

pub use check::{Durations, Fault, Timing};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// The forward pass.
    Forward,
    /// The whole backward pass: gradients of inputs and of weights.
    Backward,
    /// The gradient of the inputs only, for the stage before.
    Input,
    /// The gradient of the weights only, which nobody waits for.
    Weight,
}

/// One item of a rank's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Action {
    /// From 0; stage s is computed by rank s modulo the number of ranks.
    pub stage: usize,
    /// Micro-batch, from 0.
    pub micro: usize,
    /// What of it.
    pub work: Work,
}

/// What each rank computes, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Stages, of all ranks.
    pub stages: usize,
    /// Micro-batches.
    pub micros: usize,
    /// A list for each rank.
    pub ranks: Vec<Vec<Action>>,
}

/// A schedule's name and options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Pipeline {
    /// All forward passes, then all backward passes (Huang et al., "GPipe", 2019); smp's `simple`.
    Gpipe,
    /// One forward, one backward (Narayanan et al., "PipeDream", 2019, with flush): at most as many
    /// activations as stages.
    OneForwardOneBackward,
    /// 1F1B over several stages a rank (Narayanan et al., "Efficient Large-Scale Language Model
    /// Training on GPU Clusters", 2021, section 2.2).
    Interleaved {
        /// Stages of each rank.
        chunks: usize,
    },
    /// 1F1B with the gradients of weights put off (Qi et al., "Zero Bubble Pipeline Parallelism",
    /// 2024, ZB-H1).
    ZeroBubble,
    /// Backward passes first, as soon as they can run: smp's `interleaved`.
    Dynamic {
        /// Micro-batches that may be under way (`active_microbatches`); `None`: smp's default, the
        /// number of stages and 2.
        active: Option<usize>,
    },
}

impl Pipeline {
    /// How many stages each rank has.
    pub fn chunks(self) -> usize {
        if let Self::Interleaved { chunks } = self { chunks } else { 1 }
    }

    /// The schedule for `ranks` ranks and `micros` micro-batches.
    ///
    /// # Errors
    /// No ranks, micro-batches, chunks or active micro-batches; interleaving of a number of
    /// micro-batches that the ranks do not divide.
    pub fn schedule(self, ranks: usize, micros: usize) -> Result<Schedule, Invalid> {
        at_least_one("pipeline", ranks)?;
        at_least_one("microbatches", micros)?;
        let lists = match self {
            Self::Gpipe => flush::gpipe(ranks, micros),
            Self::OneForwardOneBackward => flush::one_forward_one_backward(ranks, micros),
            Self::Interleaved { chunks } => interleaved::interleaved(ranks, micros, chunks)?,
            Self::ZeroBubble => zero_bubble::h1(ranks, micros),
            Self::Dynamic { active } => dynamic::dynamic(ranks, micros, active.unwrap_or(ranks + 2))?,
        };
        Ok(Schedule { stages: ranks * self.chunks(), micros, ranks: lists })
    }
}

impl Action {
    pub(crate) fn new(stage: usize, micro: usize, work: Work) -> Self {
        Self { stage, micro, work }
    }

    /// The action of another stage whose result this one waits for; `None` if it needs nothing that
    /// is sent.
    pub fn awaits(self, stages: usize) -> Option<(usize, Work)> {
        match self.work {
            Work::Forward => self.stage.checked_sub(1).map(|before| (before, Work::Forward)),
            // Of the stage after: its gradient of the inputs, whether alone or not.
            Work::Backward | Work::Input => (self.stage + 1 < stages).then_some((self.stage + 1, Work::Input)),
            Work::Weight => None,
        }
    }
}
