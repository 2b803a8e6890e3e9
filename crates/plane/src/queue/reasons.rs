//! Why jobs wait.

use std::cmp::Ordering;

use super::{
    cut_of, demand,
    turns::{Rank, Uses},
};
use crate::{
    Claim, Event, Fact, JobName, PendingReason, SecondaryStatus, State, Time,
    capacity::{Demand, Lacking, PerNode},
    quotas::Amounts,
    training::TrainingJob,
};

/// Places in the queue.
struct Places<'a> {
    state: &'a State,
    uses: Uses<'a>,
    /// Priority and use put no job before another.
    is_plain: bool,
}

impl<'a> Places<'a> {
    fn new(state: &'a State) -> Self {
        let claims = || state.index.lines.values().flat_map(|lines| lines.keys()).map(|(claim, _)| claim);
        let uses = Uses::of(state, claims(), state.clock);
        let is_plain = claims().zip(claims().skip(1)).all(|(one, next)| uses.rank(one) == uses.rank(next));
        Self { state, uses, is_plain }
    }

    fn rank(&self, claim: &Claim) -> Rank {
        self.uses.rank(claim)
    }

    /// Of a waiting job, from 1.
    fn of(&self, job: &TrainingJob) -> u32 {
        let order = job.gang.order;
        if self.is_plain {
            return place(self.state.index.before(order));
        }
        let rank = self.rank(&job.gang.spec.claim);
        let lines = self.state.index.lines.values().flatten();
        let before = lines.map(|((claim, _), waiting)| match self.rank(claim).cmp(&rank) {
            Ordering::Less => waiting.len(),
            Ordering::Equal => waiting.iter().take_while(|(other, _)| *other < order).count(),
            Ordering::Greater => 0,
        });
        place(before.sum())
    }
}

/// Those of these jobs that came into the queue and may not start get their reason.
pub(crate) fn pending(state: &State, joined: Vec<JobName>, now: Time) -> Vec<Event> {
    if joined.is_empty() {
        return Vec::new();
    }
    let (free, places) = (state.free(), Places::new(state));
    let reason = |name: JobName| {
        let job = state.jobs.get(&name).filter(|job| job.gang.waits() && job.gang.attempt.is_none())?;
        let cut = cut_of(state, job).ok()?;
        let message = why(state, &free, job, &cut.demand(), places.of(job)).to_string();
        Some(Event {
            at: now,
            name: name.into(),
            fact: Fact::JobMoved { secondary: SecondaryStatus::Pending, message },
        })
    };
    joined.into_iter().filter_map(reason).collect()
}

fn waiting(state: &State) -> impl Iterator<Item = &TrainingJob> {
    state.index.queue.iter().filter_map(|(_, name)| state.jobs.get(name))
}

fn place(before: usize) -> u32 {
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

fn why(state: &State, free: &PerNode, job: &TrainingJob, demand: &Demand, place: u32) -> PendingReason {
    let spec = &job.gang.spec;
    let needs = Amounts::of(&demand.total(), 1);
    if let Some(excess) = state.capacity.quotas.excess(&spec.claim, &state.index.claimed, needs) {
        let (lacking, quota) = (excess.counted.name().to_owned(), Some(excess.limit()));
        return PendingReason {
            place,
            lacking,
            needs: excess.needs,
            free: excess.free(),
            node: None,
            queued: None,
            quota,
        };
    }
    let target = spec.target.as_deref();
    let [free, all] = [free.clone(), state.capacity.all()].map(|amounts| state.capacity.only(target, amounts));
    let turn =
        || Lacking { what: "turn", needs: demand.total().memory_bytes, free: free.total().memory_bytes, node: None };
    let Lacking { what, needs, free, node } = demand.lacking(&free, &all).unwrap_or_else(turn);
    let node = node.and_then(|node| state.capacity.name_of(node)).map(str::to_owned);
    PendingReason { place, lacking: what.to_owned(), needs, free, node, queued: None, quota: None }
}

/// Why a job waits, if it does.
pub(crate) fn reason(state: &State, job: &TrainingJob) -> Option<PendingReason> {
    if !job.gang.waits() {
        let is_queued = job.gang.attempt.is_some() && job.secondary() == SecondaryStatus::Pending;
        return is_queued.then(|| PendingReason {
            place: 0,
            lacking: "launch".to_owned(),
            needs: job.gang.spec.instances.into(),
            free: 0,
            node: None,
            queued: Some(job.message().to_owned()),
            quota: None,
        });
    }
    let cut = cut_of(state, job).ok()?;
    let demand = demand(state, &job.gang, &cut);
    Some(why(state, &state.free(), job, &demand, Places::new(state).of(job)))
}

/// Why each waiting job waits, in order of creation.
pub(crate) fn reasons(state: &State) -> impl Iterator<Item = (&JobName, PendingReason)> {
    let (free, places) = (state.free(), Places::new(state));
    waiting(state).filter_map(move |job| {
        let cut = cut_of(state, job).ok()?;
        Some((&job.gang.name, why(state, &free, job, &demand(state, &job.gang, &cut), places.of(job))))
    })
}
