//! What is ended when a node's memory runs short: attempts together use more than there is, as
//! admission counts what they use and not what they may come to use. Each node is looked at by
//! itself: of an attempt on several nodes, each instance is taken to use a part in proportion to
//! its limit.
//!
//! Trials that rest frozen go first, the longest rest before all others: they go on from their
//! checkpoints anyway. Then the attempt that started last, and the one before it, until what they
//! use is as much as the machine lacks. The oldest attempt is never ended: it always gets on, and
//! no job alone may use more than the machine has. An attempt that stores its artifacts already is
//! not ended either, as it is about to give its memory back.
//!
//! Whoever grows faster than that is looked at, the kernel ends, in the same order as far as it can
//! be told ([`State::memory_order`]).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use crate::{
    AttemptId, Fact, Host, InstanceReport, State,
    decision::Decision,
    gang::{Gang, instances::Attempt},
    reports::{can_be_interrupted, reported},
    training::{TrainingJob, messages},
};

impl Decision<'_> {
    /// Ends attempts until nodes have what they lack.
    pub(crate) fn relieve(&mut self, used: &BTreeMap<AttemptId, u64>, lacking: &BTreeMap<String, u64>) {
        let mut ended = BTreeSet::new();
        for (node, bytes) in lacking {
            self.relieve_node(node, *bytes, used, &mut ended);
        }
    }

    /// Ends attempts on a node until `lacking` bytes come free there. `ended`: those that were for
    /// another node.
    fn relieve_node(
        &mut self,
        node: &str,
        lacking: u64,
        used: &BTreeMap<AttemptId, u64>,
        ended: &mut BTreeSet<AttemptId>,
    ) {
        if lacking == 0 {
            return;
        }
        let state = self.state;
        let name = Some(node).filter(|_| state.capacity.nodes.len() > 1);
        let uses = |attempt: &Attempt| {
            let by_node = attempt.memory_by_node(used.get(&attempt.id).copied().unwrap_or(0));
            by_node.iter().find(|(it, _)| *it == node).map_or(0, |(_, it)| it.memory_bytes)
        };
        let order = Order::of(state, Some(node));
        let oldest = order.oldest().map(|attempt| attempt.id.clone());
        let Order { frozen, others } = order;
        let is_leaving = |attempt: &Attempt, ended: &BTreeSet<_>| attempt.is_leaving() || ended.contains(&attempt.id);
        let leaving = frozen.iter().chain(&others).filter(|(_, attempt)| is_leaving(attempt, ended));
        let mut left = leaving.fold(lacking, |left, (_, attempt)| left.saturating_sub(uses(attempt)));
        for (job, attempt) in frozen {
            if left == 0 {
                return;
            }
            if is_leaving(attempt, ended) {
                continue;
            }
            left = left.saturating_sub(uses(attempt));
            let message = messages::parked_for_memory(name);
            ended.insert(attempt.id.clone());
            self.happens(job, Fact::TrialParked { attempt: attempt.id.clone(), message, stores: true, rested: true });
        }
        for (job, attempt) in others {
            if left == 0 {
                return;
            }
            let can_go = !is_leaving(attempt, ended)
                && can_be_interrupted(&job.gang, attempt)
                && job.gang.stop.is_none()
                && Some(&attempt.id) != oldest.as_ref();
            if can_go {
                let used_bytes = used.get(&attempt.id).copied().unwrap_or(0);
                left = left.saturating_sub(uses(attempt));
                ended.insert(attempt.id.clone());
                let who = "this training job, which started after others that run,";
                self.happens(job, evicted(attempt, used_bytes, who, name));
            }
        }
    }

    /// A program was killed for memory before anybody could be ended in order: all instances on its
    /// node together had none left. Its attempt is ended as if the core had done it, but for one
    /// that was alone or held nearly all there is before others came: it needs more than the node
    /// has.
    pub(crate) fn crowded_out(&mut self, attempt: &AttemptId, host: Host, report: &InstanceReport) {
        let state = self.state;
        let Some(job) = state.job_of(attempt).and_then(|name| state.jobs.get(name)) else { return };
        let Some(current) = job.gang.running() else { return };
        let node = current.placement.node(host);
        let order = Order::of(state, Some(node));
        let is_alone = order.frozen.iter().chain(&order.others).all(|(_, other)| other.id == *attempt);
        let is_oldest = order.oldest().is_some_and(|oldest| oldest.id == *attempt);
        let (attempt, host, mut end, final_metrics) = match reported(state, job, attempt, host, report) {
            Some(Fact::RankEnded { attempt, host, end, final_metrics }) => (attempt, host, end, final_metrics),
            other => return other.into_iter().for_each(|fact| self.happens(job, fact)),
        };
        let killed = end.crowded_out;
        let memory_bytes = state.capacity.node(node).map_or(u64::MAX, |node| node.memory_bytes);
        let needs_all = is_alone || (is_oldest && killed.unwrap_or(0) >= memory_bytes / 8 * 7);
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
                "this training job, which {whose} and was ended by the kernel ({host}) before the server could \
                 end any,"
            );
            let name = Some(node).filter(|_| state.capacity.nodes.len() > 1);
            self.record(&mut job, evicted(current, used_bytes, &who, name));
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
    /// Of the attempts on this node; none: of all.
    fn of(state: &'a State, node: Option<&str>) -> Self {
        let is_there = |attempt: &Attempt| node.is_none_or(|node| attempt.is_on(node));
        let holders = state.holders().filter(|(_, attempt)| is_there(attempt));
        let (mut frozen, mut others): (Vec<_>, Vec<_>) = holders.partition(|(job, _)| job.gang.is_frozen());
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
        let Order { frozen, others } = Order::of(self, None);
        frozen.into_iter().chain(others).map(|(_, attempt)| attempt.id.clone()).collect()
    }
}

/// `node`: its name, if there are several.
fn evicted(attempt: &Attempt, used_bytes: u64, who: &str, node: Option<&str>) -> Fact {
    Fact::AttemptEvicted { attempt: attempt.id.clone(), used_bytes, message: messages::evicted(used_bytes, who, node) }
}

/// A program of it may still need memory. One that is being stopped is about to give its own back,
/// so the next one is the oldest.
fn computes(gang: &Gang, attempt: &Attempt) -> bool {
    !gang.is_frozen() && gang.stop.is_none() && attempt.failed.is_none() && !attempt.all_over()
}
