//! Schedulers: which trials go on. One file each.
//!
//! What all of them hold to, whatever trials do:
//! - A report that is not a number counts as worse than all numbers. It never passes a rung, is
//!   behind every other, and is nobody's origin.
//! - A report for a resource that the trial has behind it already (out of order, repeated, or said
//!   again after it resumed from an older checkpoint) changes nothing and is not judged: the study
//!   drops it.
//! - A trial that skips resources is judged at what it reports. Of several rungs that it passed at
//!   once it enters the last.
//! - A trial that ends by itself before its rung enters no further rung; what it reported stays
//!   where it is. Its final value counts as its result, never as a value at a resource.
//! - A failed trial counts as the worst in every rung that it stood in, so that its place is
//!   somebody else's.
//! - A trial that is over is never resumed, and nobody waits for one: an ask answers to wait only
//!   while a trial runs.
//! - At the greatest resource, where a scheduler has one, a trial is over: the verdict is to stop,
//!   and the trial has completed with that report.

mod asha;
mod behind;
mod hyperband;
mod ladder;
mod median;
mod none;
mod pbt;
mod round_robin;
mod rung;

use serde::{Deserialize, Serialize};

use crate::{Config, History, Origin, Record, Rng, Space, SpecError, TrialId, Verdict};

pub use asha::{Asha, AshaOptions};
pub use behind::{Behind, BehindOptions};
pub use hyperband::{Hyperband, HyperbandOptions};
pub use ladder::Form;
pub use median::{Median, MedianOptions};
pub use none::Everyone;
pub use pbt::{Pbt, PbtOptions};
pub use round_robin::{RoundRobin, RoundRobinOptions};

/// What an idle worker is to do, as the scheduler sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Start a trial with a configuration of the searcher's.
    New {
        /// Which bracket it belongs to.
        bracket: u32,
        /// It pauses there; none: to its end.
        to: Option<u32>,
    },
    /// Start a trial with this configuration, from another's checkpoint (population based
    /// training).
    Copy {
        /// What to try.
        config: Config,
        /// Whose checkpoint.
        origin: Origin,
        /// It pauses there.
        to: Option<u32>,
    },
    /// A paused trial goes on.
    Resume {
        /// Which.
        trial: TrialId,
        /// Up to there.
        to: Option<u32>,
    },
    /// Nothing until something happens.
    Wait,
    /// Nothing more, ever.
    End,
}

/// What a scheduler may look at.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// What is known; values are minimised.
    pub history: &'a History,
    /// The study has not come to its last trial yet, and there is something left to try.
    pub may_start: bool,
}

/// Decides who goes on. What it answers follows from the records that it was shown, the stage and
/// the random numbers: a scheduler that has followed the same records answers the same.
pub trait Scheduler: std::fmt::Debug + Send {
    /// What an idle worker is to do. Changes nothing: the answer comes back by [`Self::follow`], if
    /// it is taken.
    fn next(&self, stage: &Stage<'_>, rng: &mut Rng) -> Next;

    /// What follows from a trial's last report, which is in the history already (before
    /// [`Self::follow`] of that record).
    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)>;

    /// What follows for others from a trial's end, which is in the history already (before
    /// [`Self::follow`] of that record).
    fn ended(&self, _stage: &Stage<'_>, _trial: TrialId) -> Vec<(TrialId, Verdict)> {
        Vec::new()
    }

    /// Something has happened, and is in the history already, with the verdicts that followed.
    fn follow(&mut self, history: &History, record: &Record);

    /// The resource at which a trial is over.
    fn max_resource(&self) -> Option<u32> {
        None
    }
}

/// Which scheduler, and how it is set. Options that are not given have the defaults of the
/// schedulers' own option types.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SchedulerSpec {
    /// Every trial runs to its end.
    #[default]
    None,
    /// Worse than the median of the others' running averages: stopped.
    Median(MedianOptions),
    /// Too far behind the best at the same resource: stopped.
    Behind(BehindOptions),
    /// Asynchronous successive halving.
    Asha(AshaOptions),
    /// Asynchronous Hyperband.
    Hyperband(HyperbandOptions),
    /// Trials of another scheduler take turns.
    RoundRobin(RoundRobinOptions),
    /// Population based training.
    Pbt(PbtOptions),
}

impl SchedulerSpec {
    /// Units of resource at which trials are compared, rising; the last is a whole trial. Empty for
    /// schedulers without rungs.
    pub fn levels(&self) -> Vec<u32> {
        let (min, max, eta) = match self {
            Self::Asha(it) => (it.min_resource, it.max_resource, it.eta),
            Self::Hyperband(it) => (it.min_resource, it.max_resource, it.eta),
            Self::RoundRobin(it) => return it.rule.levels(),
            Self::None | Self::Median(_) | Self::Behind(_) | Self::Pbt(_) => return Vec::new(),
        };
        let mut levels = ladder::levels(min, max, eta).unwrap_or_default();
        levels.push(max);
        levels
    }

    /// Units of resource after which a trial is whole; none: where its program ends.
    pub fn max_resource(&self, space: &Space) -> Option<u32> {
        self.build(space).ok()?.max_resource()
    }

    /// The scheduler of a study.
    ///
    /// # Errors
    /// It cannot work with these options.
    pub fn build(&self, space: &Space) -> Result<Box<dyn Scheduler>, SpecError> {
        Ok(match self {
            Self::None => Box::new(Everyone),
            Self::Median(options) => Box::new(Median::new(options)?),
            Self::Behind(options) => Box::new(Behind::new(options)?),
            Self::Asha(options) => Box::new(Asha::new(options)?),
            Self::Hyperband(options) => Box::new(Hyperband::new(options)?),
            Self::RoundRobin(options) => Box::new(RoundRobin::new(options, space)?),
            Self::Pbt(options) => Box::new(Pbt::new(options, space)?),
        })
    }
}

/// A number's place in an order that sets can keep: ascending, infinities at the ends, 0 and -0 in
/// one place.
fn key(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// The place of what is worse than all numbers.
fn worst() -> u64 {
    key(f64::INFINITY)
}
