//! Who gets capacity when.
//!
//! Training jobs wait in order of creation; one that comes back for a retry has its old place. A job gets all its instances at once or none. The first job that does not fit is the *head*; it is never
//! starved: from the latest ends of the running jobs follows the time at which it will fit at the latest, and a later job may start before
//! it only if it is over by then, or uses only what the head leaves free at that time. (EASY back-filling: D. Lifka, "The ANL/IBM SP
//! scheduling system", 1995, section 3; with MaxRuntimeInSeconds as the user's estimate, which is enforced here.)
//!
//! A job's latest end counts its launch, its MaxRuntimeInSeconds and its stop. Uploads have no limit and are not counted; a job
//! that has outlived its latest end is taken to end at any moment, so nobody is started at the head's cost.

use std::collections::BTreeSet;

use crate::{
    Event, Fact, PendingReason, Rejection, SecondaryStatus, State, Time,
    capacity::{Cut, Resources, cut},
    lifecycle::{LAUNCH_LIMIT_S, UNANSWERED_S, failed},
    training_job::{Attempt, Stage, TrainingJob},
};

/// How many waiting jobs are tried per decision. More would cost time and start little.
const LOOK_AHEAD: usize = 200;

/// The agents' lease beyond MaxRuntimeInSeconds.
const LEASE_MARGIN_S: u64 = 3600;

/// What a decision has changed already, though the state does not show it yet.
#[derive(Default)]
pub(crate) struct Change {
    /// Jobs that left the queue or gave back what they held.
    pub(crate) gone: BTreeSet<String>,
    /// The job that came into the queue: new, or for another attempt.
    pub(crate) joined: Option<TrainingJob>,
}

/// Until when a job may hold its capacity; in the past if it should be over already.
fn latest_end(job: &TrainingJob, attempt: &Attempt) -> Time {
    let stop_s = u64::from(job.spec.grace_s) + UNANSWERED_S;
    if let Some(stop) = &job.stop {
        return stop.at.plus_s(stop_s);
    }
    let is_ending = job.ended.is_some() || attempt.failed.is_some() || attempt.stage != Stage::Running;
    if is_ending || job.secondary() == SecondaryStatus::Uploading {
        return Time::default();
    }
    let start = job.attempt_start().unwrap_or_else(|| attempt.launched.plus_s(LAUNCH_LIMIT_S));
    Time(start.0.saturating_add(job.runtime_left_ms())).plus_s(stop_s)
}

/// The latest end of a job that would start now.
fn latest_end_if_started(job: &TrainingJob, now: Time) -> Time {
    let latest_start = now.plus_s(LAUNCH_LIMIT_S);
    Time(latest_start.0.saturating_add(job.runtime_left_ms())).plus_s(u64::from(job.spec.grace_s) + UNANSWERED_S)
}

/// The machine during one round of scheduling.
struct Round {
    now: Time,
    free: Resources,
    /// Latest ends of those that run, and what each gives back then.
    ends: Vec<(Time, Resources)>,
    /// Set by the first job that does not fit.
    head: Option<Reservation>,
}

/// When the head will fit at the latest, and what it leaves free then.
struct Reservation {
    at: Time,
    spare: Resources,
}

impl Round {
    /// Whether the job may start; if so, what it needs is taken.
    fn admit(&mut self, job: &TrainingJob, demand: &Resources) -> bool {
        let end = latest_end_if_started(job, self.now);
        if !self.free.covers(demand) {
            if self.head.is_none() {
                self.head = Some(self.reserve(demand));
            }
            return false;
        }
        if let Some(head) = &mut self.head
            && end > head.at
        {
            if !head.spare.covers(demand) {
                return false;
            }
            head.spare = head.spare.minus(demand);
        }
        self.free = self.free.minus(demand);
        self.ends.push((end, *demand));
        true
    }

    fn reserve(&mut self, demand: &Resources) -> Reservation {
        self.ends.sort_unstable_by_key(|(end, _)| *end);
        let mut free = self.free;
        let mut at = self.now;
        for (end, held) in &self.ends {
            if free.covers(demand) {
                break;
            }
            free = free.plus(held);
            at = at.max(*end);
        }
        Reservation { at, spare: free.minus(demand) }
    }
}

/// Starts what may start. The job that came into the queue and may not gets its reason.
pub(crate) fn schedule(state: &State, change: &Change, now: Time) -> Vec<Event> {
    let holders: Vec<_> = state.holders().filter(|(job, _)| !change.gone.contains(&job.name)).collect();
    let free = holders.iter().fold(state.capacity.resources(), |free, (_, attempt)| free.minus(&attempt.placement.holds()));
    let used: BTreeSet<u32> = holders.iter().flat_map(|(_, attempt)| attempt.placement.gpus.iter().flatten().copied()).collect();
    let mut free_gpus: Vec<u32> = (0..state.capacity.gpus).filter(|gpu| !used.contains(gpu)).collect();
    let ends = holders.iter().map(|(job, attempt)| (latest_end(job, attempt), attempt.placement.holds())).collect();
    let mut round = Round { now, free, ends, head: None };

    let mut queued: Vec<_> = waiting(state).filter(|job| !change.gone.contains(&job.name)).take(LOOK_AHEAD).collect();
    if let Some(joined) = &change.joined {
        queued.insert(queued.partition_point(|job| job.order < joined.order), joined);
    }
    let mut events = Vec::new();
    for job in queued {
        if round.free.instances == 0 {
            break;
        }
        let mut happens = |fact| events.push(Event { at: now, job: job.name.clone(), fact });
        match cut(&job.spec, &state.capacity, &state.catalog) {
            Err(rejection) => {
                happens(failed(no_longer_fits(&rejection)));
                happens(Fact::Released { attempt: None });
            }
            Ok(cut) => {
                if round.admit(job, &cut.demand()) {
                    happens(launch(job, cut, &mut free_gpus));
                }
            }
        }
    }
    if let Some(job) = &change.joined
        && !events.iter().any(|event| event.job == job.name)
        && let Ok(cut) = cut(&job.spec, &state.capacity, &state.catalog)
    {
        let is_before = |name: &str| state.jobs.get(name).is_some_and(|other| other.waits() && other.order < job.order);
        let gone: BTreeSet<&str> = change.gone.iter().chain(events.iter().map(|event| &event.job)).map(String::as_str).collect();
        let before = state.index.before(job.order) - gone.into_iter().filter(|name| is_before(name)).count();
        let message = why(&round.free, &cut.demand(), place(before)).to_string();
        let fact = Fact::JobMoved { secondary: SecondaryStatus::Pending, message };
        events.push(Event { at: now, job: job.name.clone(), fact });
    }
    events
}

fn waiting(state: &State) -> impl Iterator<Item = &TrainingJob> {
    state.index.queue.iter().filter_map(|(_, name)| state.jobs.get(name))
}

fn no_longer_fits(rejection: &Rejection) -> String {
    format!("CapacityError: the server's capacity or catalogue has changed since the training job was created: {rejection}")
}

fn launch(job: &TrainingJob, cut: Cut, free_gpus: &mut Vec<u32>) -> Fact {
    let placement = cut.place(free_gpus);
    let mut message = "Preparing the instances for training".to_owned();
    if let Some(retry) = &job.retry {
        message = format!("{message}, retry {} of {} after {}", retry.failed, job.spec.retries, retry.reason);
    }
    if let Some(capped) = &placement.capped {
        message = format!("{message} ({capped})");
    }
    let lease_s = job.runtime_left_ms().div_ceil(1000).saturating_add(LEASE_MARGIN_S);
    let attempt = format!("{}-{}", job.uid, job.failed_attempts() + 1);
    Fact::AttemptLaunched { attempt, placement, lease_s, message }
}

fn place(before: usize) -> u32 {
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

fn why(free: &Resources, demand: &Resources, place: u32) -> PendingReason {
    let (lacking, needs, free) = free.lacking(demand).unwrap_or(("turn", demand.memory_bytes, free.memory_bytes));
    PendingReason { place, lacking: lacking.to_owned(), needs, free }
}

/// Why a job waits, if it does.
pub(crate) fn reason(state: &State, job: &TrainingJob) -> Option<PendingReason> {
    if !job.waits() {
        return None;
    }
    let cut = cut(&job.spec, &state.capacity, &state.catalog).ok()?;
    Some(why(&state.free(), &cut.demand(), place(state.index.before(job.order))))
}

/// Why each waiting job waits, from the head on.
pub(crate) fn reasons(state: &State) -> impl Iterator<Item = (&str, PendingReason)> {
    let free = state.free();
    waiting(state).enumerate().filter_map(move |(before, job)| {
        let cut = cut(&job.spec, &state.capacity, &state.catalog).ok()?;
        Some((job.name.as_str(), why(&free, &cut.demand(), place(before))))
    })
}
