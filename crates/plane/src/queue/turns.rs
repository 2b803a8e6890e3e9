//! In which order waiting jobs are looked at.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

use super::LOOK_AHEAD;
use crate::{
    Claim, JobName, State, Time, TuningName,
    capacity::{PerNode, Resources},
    quotas::Counted,
    state::Lines,
    training::TrainingJob,
};

/// Waiting jobs of one claim and tuning job, in order of creation.
pub(super) struct Line<'a> {
    pub(super) claim: &'a Claim,
    /// None: jobs that are nobody's trials, each its own owner.
    pub(super) tuning: Option<&'a str>,
    jobs: Peekable<Box<dyn Iterator<Item = &'a TrainingJob> + 'a>>,
    /// What the owner holds, in millionths of the machine.
    pub(super) share: u64,
    /// How many of its jobs a quota of GPUs held back in this round.
    passed_over: usize,
    /// Nothing of it starts in this round.
    is_closed: bool,
}

impl Line<'_> {
    /// A quota holds back its first job. What waits for GPUs lets those pass that need none.
    pub(super) fn pass_over(&mut self, counted: Counted) {
        self.passed_over += 1;
        self.is_closed = counted != Counted::Gpus || self.passed_over >= LOOK_AHEAD;
    }
}

/// What counts before anything else: the higher priority, then the lesser use.
pub(super) type Rank = (Reverse<i32>, u64);

/// What users have used, while a round starts jobs of theirs.
pub(super) struct Uses<'a>(BTreeMap<&'a str, u64>);

/// What a start counts within its round, in milliseconds: enough to have equals take turns.
const START_MS: u64 = 1000;

impl<'a> Uses<'a> {
    /// Of the users of these claims, as of `now`.
    pub(super) fn of(state: &State, claims: impl Iterator<Item = &'a Claim>, now: Time) -> Self {
        let users: BTreeSet<_> = claims.filter_map(|claim| claim.user.as_deref()).collect();
        Self(users.into_iter().map(|user| (user, state.used_by(user, now) as u64)).collect())
    }

    pub(super) fn rank(&self, claim: &Claim) -> Rank {
        let used = claim.user.as_deref().and_then(|user| self.0.get(user)).copied();
        (Reverse(claim.priority), used.unwrap_or(0))
    }

    pub(super) fn start(&mut self, state: &State, claim: &Claim, instances: u32) {
        if state.capacity.quotas.half_life_s.is_some()
            && let Some(used) = claim.user.as_deref().and_then(|user| self.0.get_mut(user))
        {
            *used = used.saturating_add(START_MS * u64::from(instances));
        }
    }
}

/// The larger of the shares of each resource of all that there is, in millionths.
pub(super) fn share(held: &PerNode, all: &PerNode) -> u64 {
    let held = held.total();
    let part =
        |held: u64, all: u64| u64::try_from(u128::from(held) * 1_000_000 / u128::from(all.max(1))).unwrap_or(u64::MAX);
    let Resources { memory_bytes, gpus, instances } = all.total();
    let parts = [
        part(held.memory_bytes, memory_bytes),
        part(held.gpus.into(), gpus.into()),
        part(held.instances.into(), instances.into()),
    ];
    parts.into_iter().max().unwrap_or(0)
}

pub(super) fn lines<'a>(state: &'a State, lines: &'a Lines) -> Vec<Line<'a>> {
    type Entry<'a> = (&'a (Claim, Option<TuningName>), &'a BTreeSet<(u64, JobName)>);
    let line = |((claim, tuning), waiting): Entry<'a>| {
        let jobs: Box<dyn Iterator<Item = &TrainingJob>> =
            Box::new(waiting.iter().filter_map(|(_, name)| state.jobs.get(name)));
        Line { claim, tuning: tuning.as_deref(), jobs: jobs.peekable(), share: 0, passed_over: 0, is_closed: false }
    };
    lines.iter().map(line).collect()
}

/// Whose turn it is: by rank, then who holds least, of equals who came first.
pub(super) fn turn<'a>(lines: &mut [Line<'a>], uses: &Uses<'_>) -> Option<(usize, &'a TrainingJob)> {
    let open = lines.iter_mut().enumerate().filter(|(_, line)| !line.is_closed);
    let heads = open.filter_map(|(place, line)| {
        let job = *line.jobs.peek()?;
        Some((uses.rank(line.claim), line.share, job.gang.order, place))
    });
    let (.., place) = heads.min()?;
    Some((place, lines[place].jobs.next()?))
}
