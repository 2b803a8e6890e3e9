//! What is ended when the machine's memory runs short: attempts together use more than there is, as
//! admission counts what they use and not what they may come to use.
//!
//! Trials that rest frozen go first, the longest rest before all others: they go on from their
//! checkpoints anyway. Then the attempt that started last, and the one before it, until what they
//! use is as much as the machine lacks. The oldest attempt is never ended: it always gets on, and
//! no job alone may use more than the machine has. An attempt that stores its artifacts already is
//! not ended either, as it is about to give its memory back.
//!
//! Whoever grows faster than that is looked at, the kernel ends, in the same order as far as it can
//! be told ([`State::memory_order`]).

use std::{cmp::Reverse, collections::BTreeMap};

use crate::{
    AttemptId, Fact, InstanceReport, State,
    decision::Decision,
    gang::{Gang, instances::Attempt},
    reports::{can_be_interrupted, reported},
    training::{TrainingJob, messages},
};

impl Decision<'_> {
    /// Ends attempts until `lacking` bytes come free.
    pub(crate) fn relieve(&mut self, used: &BTreeMap<AttemptId, u64>, lacking: u64) {
        if lacking == 0 {
            return;
        }
        let state = self.state;
        let uses = |attempt: &Attempt| used.get(&attempt.id).copied().unwrap_or(0);
        let order = Order::of(state);
        let oldest = order.oldest().map(|attempt| attempt.id.clone());
        let Order { frozen, others } = order;
        let leaving = frozen.iter().chain(&others).filter(|(_, attempt)| attempt.is_leaving());
        let mut left = leaving.fold(lacking, |left, (_, attempt)| left.saturating_sub(uses(attempt)));
        for (job, attempt) in frozen.iter().filter(|(_, attempt)| !attempt.is_leaving()) {
            if left == 0 {
                return;
            }
            left = left.saturating_sub(uses(attempt));
            let message = messages::PARKED_FOR_MEMORY.to_owned();
            self.happens(job, Fact::TrialParked { attempt: attempt.id.clone(), message, stores: true, rested: true });
        }
        let can_go = |(job, attempt): &&(&TrainingJob, &Attempt)| {
            !attempt.is_leaving()
                && can_be_interrupted(&job.gang, attempt)
                && job.gang.stop.is_none()
                && Some(&attempt.id) != oldest.as_ref()
        };
        for (job, attempt) in others.iter().filter(can_go) {
            if left == 0 {
                return;
            }
            let used_bytes = uses(attempt);
            left = left.saturating_sub(used_bytes);
            self.happens(job, evicted(attempt, used_bytes, "this training job, which started after others that run,"));
        }
    }

    /// A program was killed for memory before anybody could be ended in order: all instances
    /// together had none left. Its attempt is ended as if the core had done it, but for one that
    /// was alone or held nearly all there is before others came: it needs more than the machine
    /// has.
    pub(crate) fn crowded_out(&mut self, attempt: &AttemptId, host: u32, report: &InstanceReport) {
        let state = self.state;
        let Some(job) = state.job_of(attempt).and_then(|name| state.jobs.get(name)) else { return };
        let Some(current) = job.gang.running() else { return };
        let is_alone = state.holders().all(|(_, other)| other.id == *attempt);
        let is_oldest = Order::of(state).oldest().is_some_and(|oldest| oldest.id == *attempt);
        let (attempt, host, mut end, final_metrics) = match reported(state, job, attempt, host, report) {
            Some(Fact::RankEnded { attempt, host, end, final_metrics }) => (attempt, host, end, final_metrics),
            other => return other.into_iter().for_each(|fact| self.happens(job, fact)),
        };
        let killed = end.crowded_out;
        let needs_all = is_alone || (is_oldest && killed.unwrap_or(0) >= state.capacity.memory_bytes / 8 * 7);
        if needs_all {
            (end.out_of_memory, end.crowded_out) = (true, None);
        }
        let mut job = job.clone();
        let is_ended =
            !needs_all && !current.is_leaving() && can_be_interrupted(&job.gang, current) && job.gang.stop.is_none();
        // First, so that nobody is told to end who has ended.
        self.record(&mut job, Fact::RankEnded { attempt: attempt.clone(), host, end, final_metrics });
        if is_ended {
            let used_bytes = killed.max(state.measured(&attempt)).unwrap_or(0);
            let whose = if is_oldest { "is the oldest" } else { "started after others that run" };
            let who = format!(
                "this training job, which {whose} and was ended by the kernel (algo-{host}) before the server could \
                 end any,"
            );
            self.record(&mut job, evicted(current, used_bytes, &who));
        }
        self.follow(job);
    }
}

/// Who holds memory, the first to be ended first.
struct Order<'a> {
    /// Trials that rest frozen, the longest rest first.
    frozen: Vec<(&'a TrainingJob, &'a Attempt)>,
    /// The last to start first.
    others: Vec<(&'a TrainingJob, &'a Attempt)>,
}

impl<'a> Order<'a> {
    fn of(state: &'a State) -> Self {
        let (mut frozen, mut others): (Vec<_>, Vec<_>) = state.holders().partition(|(job, _)| job.gang.is_frozen());
        frozen.sort_by_key(|(job, _)| (job.gang.rests_since(), job.gang.order));
        others.sort_by_key(|(job, attempt)| Reverse((attempt.launched, job.gang.order)));
        Self { frozen, others }
    }

    /// The one that is never ended so that others have memory.
    fn oldest(&self) -> Option<&'a Attempt> {
        self.others.iter().rev().find(|(job, attempt)| computes(&job.gang, attempt)).map(|(_, attempt)| *attempt)
    }
}

impl State {
    /// The attempts that hold memory, those first that are to be ended first if there is none left:
    /// for a kernel that cannot wait to be told.
    pub fn memory_order(&self) -> Vec<AttemptId> {
        let Order { frozen, others } = Order::of(self);
        frozen.into_iter().chain(others).map(|(_, attempt)| attempt.id.clone()).collect()
    }
}

fn evicted(attempt: &Attempt, used_bytes: u64, who: &str) -> Fact {
    Fact::AttemptEvicted { attempt: attempt.id.clone(), used_bytes, message: messages::evicted(used_bytes, who) }
}

/// A program of it may still need memory. One that is being stopped is about to give its own back,
/// so the next one is the oldest.
fn computes(gang: &Gang, attempt: &Attempt) -> bool {
    !gang.is_frozen() && gang.stop.is_none() && attempt.failed.is_none() && !attempt.all_over()
}
