//! Who gets capacity when.
//!
//! Training jobs wait in order of creation; one that comes back for a retry, or after an
//! interruption, has its old place. A job gets all its instances at once or none. The first job
//! that does not fit is the *head*; it is never starved: from the latest ends of the running jobs
//! follows the time at which it will fit at the latest, and a later job may start before it only if
//! it is over by then, or uses only what the head leaves free at that time. (EASY back-filling: D.
//! Lifka, "The ANL/IBM SP scheduling system", 1995, section 3; with MaxRuntimeInSeconds as the
//! user's estimate, which is enforced here.)
//!
//! Training jobs of tuning jobs take turns: the next place goes to whoever holds least of the
//! machine (its dominant share: A. Ghodsi and others, "Dominant Resource Fairness", 2011, section
//! 4.1), where a training job of its own counts as one that holds nothing. So two tuning jobs share
//! what there is, however many trials one of them has queued first, and a training job waits for no
//! tuning job's whole queue.
//!
//! A job that can live with fewer instances gives some to the head of the queue, down to its least
//! number, the youngest such job first. It gets instances again when no job waits for what is free.
//!
//! A trial that rests frozen holds its memory until the head of the queue lacks it: then the ones
//! that rest for longest are ended.
//!
//! A job's latest end counts its launch, its MaxRuntimeInSeconds and its stop. Uploads have no
//! limit and are not counted; a job that has outlived its latest end is taken to end at any moment,
//! so nobody is started at the head's cost. What serves has no latest end: a head that needs its
//! capacity delays no job that ends, and one that would serve starts only beside the head.

use std::{collections::BTreeSet, iter::Peekable};

use crate::{
    Capacity, Event, Fact, JobName, PendingReason, Rejection, SecondaryStatus, State, Time, TuningName,
    capacity::{Cut, Resources, count, cut_after, parallel_notice},
    gang::{
        Gang,
        instances::{Attempt, Instance, Stage},
    },
    training::{TrainingJob, follow::failed, messages},
};

/// How many waiting jobs are tried per decision. More would cost time and start little.
const LOOK_AHEAD: usize = 200;

/// What a waiting gang needs beside what it holds already.
fn demand(gang: &Gang, cut: &Cut) -> Resources {
    match &gang.attempt {
        Some(attempt) => Resources { instances: attempt.placement.holds().instances, memory_bytes: 0, gpus: 0 },
        None => cut.demand(),
    }
}

/// The machine during one round of scheduling.
struct Round<'a> {
    state: &'a State,
    now: Time,
    free: Resources,
    /// Latest ends of those that were started in this round, and what each gives back then; none:
    /// it gives nothing back.
    ends: Vec<(Option<Time>, Resources)>,
    /// Set by the first job that does not fit.
    head: Option<Reservation>,
}

/// When the head will fit at the latest, and what it leaves free then.
struct Reservation {
    /// None: only when something that serves is stopped.
    at: Option<Time>,
    spare: Resources,
}

impl Round<'_> {
    /// Whether the gang may start; if so, what it needs is taken.
    fn admit(&mut self, gang: &Gang, demand: &Resources) -> bool {
        let end = gang.latest_end_if_started(self.now);
        if !self.free.covers(demand) {
            if self.head.is_none() {
                self.head = Some(self.reserve(demand));
            }
            return false;
        }
        if let Some(head) = &mut self.head
            && !head.is_after(end)
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

    fn reserve(&self, demand: &Resources) -> Reservation {
        let running = self
            .state
            .holders()
            .map(|(job, attempt)| (job.gang.latest_end(attempt), self.state.held(&job.gang, attempt)));
        let (mut ends, mut serving) = (Vec::new(), false);
        for (end, held) in running.chain(self.ends.iter().copied()) {
            match end {
                Some(end) => ends.push((end, held)),
                None => serving = true,
            }
        }
        ends.sort_unstable_by_key(|(end, _)| *end);
        let mut free = self.free;
        let mut at = self.now;
        for (end, held) in &ends {
            if free.covers(demand) {
                break;
            }
            free = free.plus(held);
            at = at.max(*end);
        }
        let is_blocked = serving && !free.covers(demand);
        Reservation { at: (!is_blocked).then_some(at), spare: free.minus(demand) }
    }
}

impl Reservation {
    /// A gang with this latest end gives its capacity back before the head needs it.
    fn is_after(&self, end: Option<Time>) -> bool {
        end.is_some_and(|end| self.at.is_none_or(|at| end <= at))
    }
}

/// Waiting jobs of one owner, in order of creation.
struct Line<'a> {
    /// None: jobs that are nobody's trials, each its own owner.
    tuning: Option<&'a str>,
    jobs: Peekable<Box<dyn Iterator<Item = &'a TrainingJob> + 'a>>,
    /// What the owner holds, in millionths of the machine.
    share: u64,
}

/// The larger of the shares of each resource, in millionths.
fn share(state: &State, held: &Resources) -> u64 {
    let part =
        |held: u64, all: u64| u64::try_from(u128::from(held) * 1_000_000 / u128::from(all.max(1))).unwrap_or(u64::MAX);
    let Capacity { memory_bytes, gpus, instances, .. } = state.capacity;
    let parts = [
        part(held.memory_bytes, memory_bytes),
        part(held.gpus.into(), gpus.into()),
        part(held.instances.into(), instances.into()),
    ];
    parts.into_iter().max().unwrap_or(0)
}

fn lines(state: &State) -> Vec<Line<'_>> {
    let line = |(tuning, waiting)| {
        let (tuning, waiting): (&Option<TuningName>, &BTreeSet<(u64, JobName)>) = (tuning, waiting);
        let jobs: Box<dyn Iterator<Item = &TrainingJob>> =
            Box::new(waiting.iter().filter_map(|(_, name)| state.jobs.get(name)));
        Line { tuning: tuning.as_deref(), jobs: jobs.peekable(), share: 0 }
    };
    state.index.lines.iter().map(line).collect()
}

/// Whose turn it is: who holds least, of equals who came first.
fn turn<'a>(lines: &mut [Line<'a>]) -> Option<(usize, &'a TrainingJob)> {
    let heads = lines.iter_mut().enumerate().filter_map(|(place, line)| {
        let job = *line.jobs.peek()?;
        Some((line.share, job.gang.order, place))
    });
    let (.., place) = heads.min()?;
    Some((place, lines[place].jobs.next()?))
}

/// Starts what may start.
pub(crate) fn schedule(state: &State, now: Time) -> Vec<Event> {
    let mut lines = lines(state);
    if lines.is_empty() && state.index.elastic.is_empty() {
        return Vec::new();
    }
    let mut free_gpus: Vec<u32> = (0..state.capacity.gpus).collect();
    // Where one owner waits it is its turn, whatever it holds; so a machine without GPUs is not
    // looked over for each trial of a lone tuning job.
    if lines.len() > 1 || !free_gpus.is_empty() {
        for (job, attempt) in state.holders() {
            free_gpus.retain(|gpu| !attempt.placement.gpus.iter().any(|gpus| gpus.contains(gpu)));
            let owner = job.tuning();
            if let Some(line) = owner.and_then(|owner| lines.iter_mut().find(|line| line.tuning == Some(owner))) {
                line.share += share(state, &state.held(&job.gang, attempt));
            }
        }
    }
    let mut round = Round { state, now, free: state.free(), ends: Vec::new(), head: None };
    let mut events = Vec::new();
    for _ in 0..LOOK_AHEAD {
        let Some((line, job)) = turn(&mut lines).filter(|_| round.free.instances > 0) else { break };
        let mut happens = |fact| events.push(Event { at: now, name: job.gang.name.clone().into(), fact });
        match cut_of(state, job) {
            Err(rejection) if job.gang.attempt.is_none() => {
                happens(failed(messages::no_longer_fits(&rejection)));
                happens(Fact::Released { attempt: None });
            }
            Err(_) => {}
            Ok(cut) => {
                let demand = demand(&job.gang, &cut);
                let has_head = round.head.is_some();
                if round.admit(&job.gang, &demand) {
                    happens(launch(state, job, cut, &mut free_gpus));
                    if lines[line].tuning.is_some() {
                        lines[line].share += share(state, &demand);
                    }
                } else if !has_head {
                    let room = make_room(state, &round.free, &demand, now);
                    events.extend(room.events);
                    if room.is_from_others {
                        // What is free now is a part of it.
                        break;
                    }
                }
            }
        }
    }
    if round.head.is_none() {
        events.append(&mut grow(state, &mut round.free, &mut free_gpus, now));
    }
    share_cores(state, &mut events);
    events
}

/// Fills empty places of jobs that lost instances, in order of creation.
fn grow(state: &State, free: &mut Resources, free_gpus: &mut Vec<u32>, now: Time) -> Vec<Event> {
    let mut events = Vec::new();
    for (gang, attempt) in elastic(state) {
        let each = attempt.of_each();
        let (mut hosts, mut gpus) = (Vec::new(), Vec::new());
        for host in gang.vacancies(attempt) {
            if !free.covers(&each) || free_gpus.len() < each.gpus as usize {
                break;
            }
            *free = free.minus(&each);
            hosts.push(host);
            gpus.push(free_gpus.drain(..each.gpus as usize).collect());
        }
        if !hosts.is_empty() {
            let message = messages::joined(attempt, &hosts);
            let fact = Fact::InstancesAdded { attempt: attempt.id.clone(), hosts, gpus, message };
            events.push(Event { at: now, name: gang.name.clone().into(), fact });
        }
    }
    events
}

/// Jobs on instances that can lose and gain some, in order of creation.
fn elastic(state: &State) -> impl DoubleEndedIterator<Item = (&Gang, &Attempt)> {
    let jobs = state.index.elastic.iter().filter_map(|(_, name)| state.jobs.get(name));
    jobs.filter_map(|job| Some((&job.gang, job.gang.attempt.as_ref()?)))
}

/// Tells each attempt that starts its share of the cores, beside those that run and those that
/// start with it.
fn share_cores(state: &State, events: &mut [Event]) {
    let mut placements: Vec<_> = events
        .iter_mut()
        .filter_map(|event| match &mut event.fact {
            Fact::AttemptLaunched { placement, .. } => Some(placement),
            _ => None,
        })
        .collect();
    if placements.is_empty() {
        return;
    }
    // Programs that have ended, or rest frozen, compute no more.
    let computes = |job: &TrainingJob, attempt: &Attempt| !job.gang.is_frozen() && !attempt.all_over();
    let running = state.holders().filter(|(job, attempt)| computes(job, attempt));
    let running: u64 = running.map(|(_, attempt)| attempt.placement.weight()).sum();
    let weight = running + placements.iter().map(|placement| placement.weight()).sum::<u64>();
    for placement in &mut placements {
        placement.share_cores(state.capacity.cpus, weight);
    }
}

/// Ends trials that rest frozen, then takes instances from jobs that can live with fewer, if that
/// makes room for the head of the queue and what is leaving already does not.
fn make_room(state: &State, free: &Resources, demand: &Resources, now: Time) -> Room {
    let is_leaving = |attempt: &Attempt| attempt.failed.is_some() || attempt.stage == Stage::Releasing;
    let leaving = state.holders().filter(|(_, attempt)| is_leaving(attempt));
    let mut room = leaving.fold(*free, |room, (job, attempt)| room.plus(&state.held(&job.gang, attempt)));
    let before = room;
    for (_, attempt) in elastic(state).filter(|(_, attempt)| !is_leaving(attempt)) {
        let leaves = |instance: &Instance| matches!(instance, Instance::Leaving { .. } | Instance::Clearing { .. });
        room = room.plus(&attempt.of_each().times(count(attempt.hosts(leaves).len())));
    }
    let mut frozen: Vec<_> = state.holders().filter(|(job, _)| job.gang.is_frozen()).collect();
    // Those that nobody wants go first; a wanted one waits in the queue behind the head, and would
    // keep from it what it waits for.
    frozen.sort_by_key(|(job, _)| (!job.gang.is_unwanted(), job.gang.rests_since(), job.gang.order));
    let (mut events, mut is_from_others) = (Vec::new(), room.instances > before.instances);
    for (job, attempt) in frozen {
        if room.covers(demand) {
            break;
        }
        room = room.plus(&state.held(&job.gang, attempt));
        let message = messages::PARKED_FOR_QUEUE.to_owned();
        let fact = Fact::TrialParked { attempt: attempt.id.clone(), message, stores: true, rested: true };
        events.push(Event { at: now, name: job.gang.name.clone().into(), fact });
    }
    for (gang, attempt) in elastic(state).rev() {
        let mut hosts = Vec::new();
        for host in gang.dispensable(attempt) {
            if room.covers(demand) {
                break;
            }
            room = room.plus(&attempt.of_each());
            hosts.insert(0, host);
        }
        if !hosts.is_empty() {
            is_from_others = true;
            let message = messages::continues_without(attempt, &hosts, messages::GIVEN_UP);
            let fact = Fact::InstancesInterrupted { attempt: attempt.id.clone(), hosts, message };
            events.push(Event { at: now, name: gang.name.clone().into(), fact });
        }
    }
    if room.covers(demand) { Room { events, is_from_others } } else { Room::default() }
}

/// How the head of the queue gets room.
#[derive(Default)]
struct Room {
    events: Vec<Event>,
    /// Jobs that can live with fewer instances give some to it.
    is_from_others: bool,
}

/// Those of these jobs that came into the queue and may not start get their reason.
pub(crate) fn pending(state: &State, joined: Vec<JobName>, now: Time) -> Vec<Event> {
    if joined.is_empty() {
        return Vec::new();
    }
    let free = state.free();
    let reason = |name: JobName| {
        let job = state.jobs.get(&name).filter(|job| job.gang.waits() && job.gang.attempt.is_none())?;
        let cut = cut_of(state, job).ok()?;
        let message = why(&free, &cut.demand(), place(state.index.before(job.gang.order))).to_string();
        Some(Event {
            at: now,
            name: name.into(),
            fact: Fact::JobMoved { secondary: SecondaryStatus::Pending, message },
        })
    };
    joined.into_iter().filter_map(reason).collect()
}

fn cut_of(state: &State, job: &TrainingJob) -> Result<Cut, Rejection> {
    let used_bytes = job.gang.retry.as_ref().map_or(0, |retry| retry.used_bytes);
    cut_after(&job.gang.spec, used_bytes, &state.capacity, &state.catalog)
}

fn waiting(state: &State) -> impl Iterator<Item = &TrainingJob> {
    state.index.queue.iter().filter_map(|(_, name)| state.jobs.get(name))
}

fn launch(state: &State, job: &TrainingJob, cut: Cut, free_gpus: &mut Vec<u32>) -> Fact {
    if let Some(attempt) = &job.gang.attempt {
        return Fact::AttemptThawed { attempt: attempt.id.clone(), message: messages::RESUMED.to_owned() };
    }
    let placement = cut.place(free_gpus);
    let tuning = job.tuning().and_then(|name| state.tunings.get(name));
    let notice = tuning.and_then(|tuning| {
        parallel_notice(&tuning.spec.definitions, tuning.max_parallel, &state.capacity, &state.catalog)
    });
    let notes = Vec::from_iter(placement.capped.clone().into_iter().chain(notice));
    let message = messages::launched(job, &notes);
    Fact::AttemptLaunched { attempt: job.gang.next_attempt(), placement, lease_s: job.gang.lease_s(), message }
}

fn place(before: usize) -> u32 {
    u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1)
}

fn why(free: &Resources, demand: &Resources, place: u32) -> PendingReason {
    let (lacking, needs, free) = free.lacking(demand).unwrap_or(("turn", demand.memory_bytes, free.memory_bytes));
    PendingReason { place, lacking: lacking.to_owned(), needs, free, queued: None }
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
            queued: Some(job.message().to_owned()),
        });
    }
    let cut = cut_of(state, job).ok()?;
    Some(why(&state.free(), &demand(&job.gang, &cut), place(state.index.before(job.gang.order))))
}

/// Why each waiting job waits, from the head on.
pub(crate) fn reasons(state: &State) -> impl Iterator<Item = (&JobName, PendingReason)> {
    let free = state.free();
    waiting(state).enumerate().filter_map(move |(before, job)| {
        let cut = cut_of(state, job).ok()?;
        Some((&job.gang.name, why(&free, &demand(&job.gang, &cut), place(before))))
    })
}
