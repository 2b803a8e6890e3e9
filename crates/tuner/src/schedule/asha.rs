//! Asynchronous successive halving: one bracket of the ladder. See `ladder` for the rule.

use serde::{Deserialize, Serialize};

use super::ladder::{Form, Ladder, Steps};
use crate::{History, Next, Record, Rng, Scheduler, SpecError, Stage, TrialId, Verdict};

/// Options of asynchronous successive halving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AshaOptions {
    /// Whether trials are stopped at rungs or pause there.
    #[serde(default)]
    pub form: Form,
    /// Of each rung `1 / eta` goes on.
    #[serde(default = "three")]
    pub eta: u32,
    /// Where the first rung lies: no trial is stopped before.
    #[serde(default = "one")]
    pub min_resource: u32,
    /// Where a trial is over.
    pub max_resource: u32,
    /// Promotion form: hold the number of promotions at `1 / eta` of a rung, too.
    #[serde(default)]
    pub delayed: bool,
}

pub(super) fn one() -> u32 {
    1
}

pub(super) fn three() -> u32 {
    3
}

impl AshaOptions {
    /// The defaults, up to a greatest resource.
    pub fn up_to(max_resource: u32) -> Self {
        Self { form: Form::Promotion, eta: 3, min_resource: 1, max_resource, delayed: false }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Asha(Ladder);

impl Asha {
    /// The scheduler.
    ///
    /// # Errors
    /// `eta` is below 2, `min_resource` is 0 or above `max_resource`.
    pub fn new(options: &AshaOptions) -> Result<Self, SpecError> {
        let AshaOptions { form, eta, min_resource: min, max_resource: max, delayed } = *options;
        Ladder::new(Steps { form, eta, min, max, delayed }, "asha").map(Self)
    }
}

impl Scheduler for Asha {
    fn next(&self, stage: &Stage<'_>, _rng: &mut Rng) -> Next {
        let or_new = || if stage.may_start { self.0.start(0) } else { self.0.rest(stage) };
        self.0.promotion().unwrap_or_else(or_new)
    }

    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        self.0.judge(stage, trial)
    }

    fn follow(&mut self, history: &History, record: &Record) {
        self.0.follow(history, record);
    }

    fn max_resource(&self) -> Option<u32> {
        Some(self.0.max())
    }
}
