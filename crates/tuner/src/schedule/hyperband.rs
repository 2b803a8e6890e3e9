//! Asynchronous Hyperband: brackets of successive halving that differ in where trials are judged
//! first (Li et al., "Hyperband", JMLR 2018; the asynchronous form is ASHA's, section 3.3 of its
//! paper). AWS's strategy of that name. See `ladder` for the rule within a bracket.
//!
//! Hyperband gives each bracket the same resource, so with five brackets one fifth goes to trials
//! that run to the end unseen. Here a bracket gets half of what the one below it gets: the lowest
//! begins with cheap looks at many trials, and the higher ones insure against first rungs that
//! mislead. The last bracket, which never looks, is left out unless it is asked for by `brackets`.
//! Shares are held by what was spent, not by chance: a new trial goes to the bracket that is
//! furthest below its share.

use serde::{Deserialize, Serialize};

use super::{
    asha::{one, three},
    ladder::{Form, Ladder, Steps},
};
use crate::{Ask, History, Next, Record, Rng, Scheduler, SpecError, Stage, Start, TrialId, Verdict};

/// Options of asynchronous Hyperband.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HyperbandOptions {
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
    /// How many brackets; none: one for each rung.
    #[serde(default)]
    pub brackets: Option<u32>,
    /// A bracket may spend the part `1 / share` of what the one below it may; 1: all the same.
    #[serde(default = "two")]
    pub share: u32,
    /// Delayed promotion (see `ladder`): of those that came to a rung never more than `1 / eta` go
    /// on, whatever order they came in.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub delayed: bool,
}

fn two() -> u32 {
    2
}

impl HyperbandOptions {
    /// The defaults, up to a greatest resource.
    pub fn up_to(max_resource: u32) -> Self {
        Self {
            form: Form::Promotion,
            eta: 3,
            min_resource: 1,
            max_resource,
            brackets: None,
            share: two(),
            delayed: false,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Hyperband {
    ladder: Ladder,
    share: u32,
    /// By bracket: units of resource that its trials used. What a new one will use up to its first
    /// rung is counted at its start.
    spent: Vec<u64>,
}

impl Hyperband {
    /// The scheduler.
    ///
    /// # Errors
    /// `eta` is below 2, `min_resource` is 0 or above `max_resource`, or there are no brackets or
    /// more than rungs.
    pub fn new(options: &HyperbandOptions) -> Result<Self, SpecError> {
        let HyperbandOptions { form, eta, min_resource: min, max_resource: max, brackets, share, delayed } = *options;
        let ladder = Ladder::new(Steps { form, eta, min, max, delayed }, "hyperband")?;
        let most = ladder.height() + 1;
        let brackets = brackets.map_or(ladder.height().max(1), |brackets| brackets as usize);
        if brackets == 0 || brackets > most {
            let problem =
                format!("brackets is {brackets}: from {min} to {max} with eta {eta} there may be 1 to {most}");
            return Err(SpecError::Scheduler { scheduler: "hyperband", problem });
        }
        if share == 0 {
            return Err(SpecError::Scheduler {
                scheduler: "hyperband",
                problem: "share is 0: it must be at least 1".to_owned(),
            });
        }
        Ok(Self { ladder, share, spent: vec![0; brackets] })
    }

    /// The bracket that is furthest below its share; of equals the lowest.
    fn bracket(&self) -> usize {
        // With the trial that would be started. Bracket b may spend one unit where the lowest
        // spends share^b.
        let with = |bracket: usize| u128::from(self.spent[bracket]) + u128::from(self.ladder.level(bracket));
        let price = |bracket: usize| u128::from(self.share).saturating_pow(u32::try_from(bracket).unwrap_or(u32::MAX));
        let weighed = |&bracket: &usize| with(bracket).saturating_mul(price(bracket));
        (0..self.spent.len()).min_by_key(weighed).unwrap_or(0)
    }
}

impl Scheduler for Hyperband {
    fn next(&self, stage: &Stage<'_>, _rng: &mut Rng) -> Next {
        let or_new = || if stage.may_start { self.ladder.start(self.bracket()) } else { self.ladder.rest(stage) };
        self.ladder.promotion().unwrap_or_else(or_new)
    }

    fn judge(&self, stage: &Stage<'_>, trial: TrialId) -> Vec<(TrialId, Verdict)> {
        self.ladder.judge(stage, trial)
    }

    fn follow(&mut self, history: &History, record: &Record) {
        self.ladder.follow(history, record);
        match record {
            Record::Asked { answer: Ask::Start(Start { bracket, .. }), .. } => {
                let first = self.ladder.level(*bracket as usize);
                if let Some(spent) = self.spent.get_mut(*bracket as usize) {
                    *spent += u64::from(first);
                }
            }
            Record::Reported { trial, .. } => {
                let Some(known) = history.trial(*trial) else { return };
                let [.., before, last] = known.reports[..] else { return };
                let counted = self.ladder.level(known.bracket as usize).max(before.resource);
                if let Some(spent) = self.spent.get_mut(known.bracket as usize) {
                    *spent += u64::from(last.resource.saturating_sub(counted));
                }
            }
            _ => {}
        }
    }

    fn max_resource(&self) -> Option<u32> {
        Some(self.ladder.max())
    }
}
