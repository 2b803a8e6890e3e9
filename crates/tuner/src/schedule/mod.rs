//! Schedulers: which trials go on. One file each.

mod none;

use serde::{Deserialize, Serialize};

use crate::{Config, History, Origin, Record, Rng, SpecError, TrialId, Verdict};

pub use none::Everyone;

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
    /// Start a trial with this configuration, from another's checkpoint (population based training).
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

/// Decides who goes on. What it answers follows from the records that it was shown, the history and the random numbers: a scheduler that has followed the same
/// records answers the same.
pub trait Scheduler: std::fmt::Debug + Send {
    /// What an idle worker is to do. Changes nothing: the answer comes back by [`Self::follow`], if it is taken. `may_start`: the study
    /// has not come to its last trial yet.
    fn next(&self, history: &History, may_start: bool, rng: &mut Rng) -> Next;

    /// What follows from a trial's last report, which is in the history already (before [`Self::follow`] of that record).
    fn judge(&self, history: &History, trial: TrialId) -> Vec<(TrialId, Verdict)>;

    /// What follows for others from a trial's end, which is in the history already (before [`Self::follow`] of that record).
    fn ended(&self, _history: &History, _trial: TrialId) -> Vec<(TrialId, Verdict)> {
        Vec::new()
    }

    /// Something has happened, and is in the history already.
    fn follow(&mut self, history: &History, record: &Record);

    /// The resource at which a trial is over.
    fn max_resource(&self) -> Option<u32> {
        None
    }
}

/// Which scheduler, and how it is set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SchedulerSpec {
    /// Every trial runs to its end.
    #[default]
    None,
}

impl SchedulerSpec {
    /// The scheduler of a study.
    ///
    /// # Errors
    /// It cannot work with these options.
    pub fn build(&self) -> Result<Box<dyn Scheduler>, SpecError> {
        match self {
            Self::None => Ok(Box::new(Everyone)),
        }
    }
}
