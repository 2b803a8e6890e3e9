//! What is ended when the machine's memory runs short: attempts together use more than there is, as admission counts what they use and not what they
//! may come to use.
//!
//! Trials that rest frozen go first, the longest rest before all others: they go on from their checkpoints anyway. Then the attempt that started
//! last, and the one before it, until what they use is as much as the machine lacks. The oldest attempt is never ended: it always gets on, and no
//! job alone may use more than the machine has. An attempt that stores its artifacts already is not ended either, as it is about to give its
//! memory back.

use std::collections::BTreeMap;

use crate::{
    Fact,
    capacity::gib,
    decide::{Decision, can_be_interrupted},
    training_job::{Attempt, Instance, Stage, TrainingJob},
};

impl Decision<'_> {
    /// Ends attempts until `lacking` bytes come free.
    pub(crate) fn relieve(&mut self, used: &BTreeMap<String, u64>, lacking: u64) {
        if lacking == 0 {
            return;
        }
        let state = self.state;
        let uses = |attempt: &Attempt| used.get(&attempt.id).copied().unwrap_or(0);
        let is_leaving = |attempt: &Attempt| attempt.failed.is_some() || attempt.stage != Stage::Running;
        let mut holders: Vec<(&TrainingJob, &Attempt)> = state.holders().collect();
        holders.sort_by_key(|(job, attempt)| (attempt.launched, job.order));
        let oldest = holders.iter().find(|(job, attempt)| computes(job, attempt)).map(|(_, attempt)| attempt.id.clone());
        let mut left =
            holders.iter().filter(|(_, attempt)| is_leaving(attempt)).fold(lacking, |left, (_, it)| left.saturating_sub(uses(it)));
        let rests = |job: &TrainingJob| job.trial.as_ref().and_then(|trial| Some(trial.rest.as_ref()?.since));
        let mut frozen: Vec<_> = holders.iter().filter(|(job, attempt)| job.is_frozen() && !is_leaving(attempt)).collect();
        frozen.sort_by_key(|(job, _)| (rests(job), job.order));
        for (job, attempt) in frozen {
            if left == 0 {
                return;
            }
            left = left.saturating_sub(uses(attempt));
            let message = "Paused; the memory of the machine ran short, and it will go on from its checkpoint".to_owned();
            self.happens(job, Fact::TrialParked { attempt: attempt.id.clone(), message, stores: true });
        }
        let can_go = |(job, attempt): &&(&TrainingJob, &Attempt)| {
            !is_leaving(attempt) && can_be_interrupted(job, attempt) && job.stop.is_none() && Some(&attempt.id) != oldest.as_ref()
        };
        for (job, attempt) in holders.iter().rev().filter(can_go) {
            if left == 0 {
                return;
            }
            let used_bytes = uses(attempt);
            left = left.saturating_sub(used_bytes);
            let message = format!(
                "Ended: the memory of the machine ran short while this training job, which started last, used {}. It is started again from its checkpoints \
                 when there is room; it can be told to use less memory, or to wait for its whole type (packing = \"promise\" in shoal.toml)",
                gib(used_bytes)
            );
            self.happens(job, Fact::AttemptEvicted { attempt: attempt.id.clone(), used_bytes, message });
        }
    }
}

/// A program of it may still need memory. One that is being stopped is about to give its own back, so the next one is the oldest.
fn computes(job: &TrainingJob, attempt: &Attempt) -> bool {
    !job.is_frozen() && job.stop.is_none() && attempt.failed.is_none() && !attempt.instances.iter().all(Instance::over)
}
