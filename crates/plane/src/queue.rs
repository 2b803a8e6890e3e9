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
//! Before all of this, jobs of higher priority go first ([`crate::Claim`]), and of equal priority
//! those of the user who has used less; quotas hold back what would exceed
//! them ([`crate::quotas`]).
//!
//! Each compute target has a queue of its own: the head of one reserves nothing of another.
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

mod reasons;
mod turns;

use std::collections::BTreeMap;

pub(crate) use self::reasons::{pending, reason, reasons};
use self::turns::{Uses, lines, share, turn};
use crate::{
    Event, Fact, Host, Node, Rejection, State, Time,
    capacity::{Cut, Demand, Fit, PerNode, Resources, by_node, cut_after, parallel_notice},
    gang::{
        Gang,
        instances::{Attempt, Instance, Stage},
    },
    quotas::{self, Amounts},
    state::Lines,
    training::{TrainingJob, follow::failed, messages},
};

/// How many waiting jobs are tried per decision. More would cost time and start little.
const LOOK_AHEAD: usize = 200;

/// What a waiting gang needs beside what it holds already.
fn demand(state: &State, gang: &Gang, cut: &Cut<'_>) -> Demand {
    match &gang.attempt {
        Some(Attempt { placement, .. }) => {
            let place = Resources { instances: 1, memory_bytes: 0, gpus: 0 };
            let places = by_node(placement.hosts().map(|host| (placement.node(host), place)));
            Demand::There(state.capacity.per_node(&places))
        }
        None => cut.demand(),
    }
}

/// The nodes during one round of scheduling.
struct Round<'a> {
    state: &'a State,
    now: Time,
    free: PerNode,
    all: PerNode,
    /// Latest ends of those that were started in this round, and what each gives back then; none:
    /// it gives nothing back.
    ends: Vec<(Option<Time>, PerNode)>,
    /// Set by the first job that does not fit.
    head: Option<Reservation>,
}

/// When the head will fit at the latest, and what it leaves free then.
struct Reservation {
    /// None: only when something that serves is stopped.
    at: Option<Time>,
    spare: PerNode,
}

impl Round<'_> {
    /// Where the gang may start; if it may, what it needs is taken.
    fn admit(&mut self, gang: &Gang, demand: &Demand) -> Option<Fit> {
        let end = gang.latest_end_if_started(self.now);
        let Some(mut fit) = demand.fit(&self.free, &self.all) else {
            if self.head.is_none() {
                self.head = Some(self.reserve(demand));
            }
            return None;
        };
        if let Some(head) = &mut self.head
            && !head.is_after(end)
        {
            fit = demand.fit(&self.free.least(&head.spare), &self.all)?;
            head.spare = head.spare.minus(&fit.taken);
        }
        self.free = self.free.minus(&fit.taken);
        self.ends.push((end, fit.taken.clone()));
        Some(fit)
    }

    fn reserve(&self, demand: &Demand) -> Reservation {
        let running = self
            .state
            .holders()
            .map(|(job, attempt)| (job.gang.latest_end(attempt), self.state.held(&job.gang, attempt)));
        let (mut ends, mut serving) = (Vec::new(), Vec::new());
        for (end, held) in running.chain(self.ends.iter().cloned()) {
            match end {
                Some(end) => ends.push((end, held)),
                None => serving.push(held),
            }
        }
        ends.sort_by_key(|(end, _)| *end);
        let mut free = self.free.clone();
        let mut at = self.now;
        let mut fit = demand.fit(&free, &self.all);
        for (end, held) in &ends {
            if fit.is_some() {
                break;
            }
            free = free.plus(held);
            at = at.max(*end);
            fit = demand.fit(&free, &self.all);
        }
        let is_blocked = !serving.is_empty() && fit.is_none();
        // Where it will be when what serves is stopped.
        let later = || demand.fit(&serving.iter().fold(free.clone(), |free, held| free.plus(held)), &self.all);
        let fit = fit.or_else(later).or_else(|| demand.fit(&self.all, &self.all));
        let spare = fit.map_or_else(|| free.minus(&free), |fit| free.minus(&fit.taken));
        Reservation { at: (!is_blocked).then_some(at), spare }
    }
}

impl Reservation {
    /// A gang with this latest end gives its capacity back before the head needs it.
    fn is_after(&self, end: Option<Time>) -> bool {
        end.is_some_and(|end| self.at.is_none_or(|at| end <= at))
    }
}

/// Starts what may start.
pub(crate) fn schedule(state: &State, now: Time) -> Vec<Event> {
    let (nothing, all) = (Lines::new(), &state.index.lines);
    let on_nodes = (None, all.get(&None).unwrap_or(&nothing));
    let on_targets = all.iter().filter_map(|(target, lines)| Some((Some(target.as_deref()?), lines)));
    let mut quotas = quotas::Round::new(&state.capacity.quotas, &state.index.claimed);
    let on = |(target, lines)| schedule_on(state, target, lines, &mut quotas, now);
    let mut events = Vec::from_iter(std::iter::once(on_nodes).chain(on_targets).flat_map(on));
    share_cores(state, &mut events);
    events
}

/// Starts what waits for a compute target and may start.
fn schedule_on<'a>(
    state: &'a State,
    target: Option<&str>,
    waiting: &'a Lines,
    quotas: &mut quotas::Round<'a>,
    now: Time,
) -> Vec<Event> {
    let mut lines = lines(state, waiting);
    if lines.is_empty() && state.index.elastic.is_empty() {
        return Vec::new();
    }
    let [free, all] = [state.free(), state.capacity.all()].map(|amounts| state.capacity.only(target, amounts));
    let mut free_gpus = Vec::from_iter(state.capacity.nodes.iter().map(Node::gpu_indexes));
    // Where one owner waits it is its turn, whatever it holds; so nodes without GPUs are not looked
    // over for each trial of a lone tuning job.
    if lines.len() > 1 || free_gpus.iter().any(|gpus| !gpus.is_empty()) {
        for (job, attempt) in state.holders() {
            take_gpus(state, attempt, &mut free_gpus);
            let owner = job.tuning();
            if let Some(line) = owner.and_then(|owner| lines.iter_mut().find(|line| line.tuning == Some(owner))) {
                line.share += share(&state.held(&job.gang, attempt), &all);
            }
        }
    }
    let mut uses = Uses::of(state, waiting.keys().map(|(claim, _)| claim), now);
    let mut round = Round { state, now, free, all, ends: Vec::new(), head: None };
    let mut events = Vec::new();
    let mut tried = 0;
    while tried < LOOK_AHEAD {
        let Some((line, job)) = turn(&mut lines, &uses).filter(|_| round.free.total().instances > 0) else { break };
        let claim = &job.gang.spec.claim;
        let mut happens = |fact| events.push(Event { at: now, name: job.gang.name.clone().into(), fact });
        match cut_of(state, job) {
            Err(rejection) if job.gang.attempt.is_none() => {
                happens(failed(messages::no_longer_fits(&rejection)));
                happens(Fact::Released { attempt: None });
            }
            Err(_) => {}
            Ok(cut) => {
                let (demand, has_head) = (demand(state, &job.gang, &cut), round.head.is_some());
                let needs = Amounts::of(&demand.total(), 1);
                if let Some(counted) = quotas.holds_back(claim, needs) {
                    lines[line].pass_over(counted);
                    continue;
                }
                if let Some(fit) = round.admit(&job.gang, &demand) {
                    quotas.take(claim, needs);
                    uses.start(state, claim, demand.total().instances);
                    happens(launch(state, job, cut, &fit, &mut free_gpus));
                    if lines[line].tuning.is_some() {
                        lines[line].share += share(&fit.taken, &round.all);
                    }
                } else if !has_head {
                    let room = make_room(state, &round, &demand);
                    events.extend(room.events);
                    if room.is_from_others {
                        // What is free now is a part of it.
                        break;
                    }
                }
            }
        }
        tried += 1;
    }
    if round.head.is_none() {
        events.append(&mut grow(state, target, (&mut round.free, quotas), &mut free_gpus, now));
    }
    events
}

/// Takes the GPUs of an attempt from those that are free, by node.
fn take_gpus(state: &State, attempt: &Attempt, free_gpus: &mut [Vec<u32>]) {
    for (node, free) in state.capacity.nodes.iter().zip(free_gpus) {
        let is_there = |(host, _): &(Host, &Vec<u32>)| attempt.placement.node(*host) == node.name;
        free.retain(|gpu| {
            !Host::numbered().zip(&attempt.placement.gpus).filter(is_there).any(|(_, gpus)| gpus.contains(gpu))
        });
    }
}

/// Fills empty places of a target's jobs that lost instances, in order of creation.
fn grow<'a>(
    state: &'a State,
    target: Option<&str>,
    (free, quotas): (&mut PerNode, &mut quotas::Round<'a>),
    free_gpus: &mut [Vec<u32>],
    now: Time,
) -> Vec<Event> {
    let mut events = Vec::new();
    for (gang, attempt) in elastic(state).filter(|(gang, _)| gang.spec.target.as_deref() == target) {
        let each = attempt.of_each();
        let (mut hosts, mut gpus, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
        for host in gang.vacancies(attempt) {
            let has_room = |node: &usize| {
                let has_gpus = free_gpus[*node].len() >= each.gpus as usize;
                has_gpus && free.0[*node].covers(&each)
            };
            let Some(node) = candidates(state, attempt, host).into_iter().find(has_room) else { break };
            let needs = Amounts::of(&each, 0);
            if quotas.holds_back(&gang.spec.claim, needs).is_some() {
                break;
            }
            quotas.take(&gang.spec.claim, needs);
            free.0[node] = free.0[node].minus(&each);
            hosts.push(host);
            gpus.push(free_gpus[node].drain(..each.gpus as usize).collect());
            nodes.push(state.capacity.nodes[node].name.clone());
        }
        if attempt.placement.nodes.is_empty() {
            nodes.clear();
        }
        if !hosts.is_empty() {
            let message = messages::joined(attempt, &hosts);
            let fact = Fact::InstancesAdded { attempt: attempt.id.clone(), hosts, gpus, nodes, message };
            events.push(Event { at: now, name: gang.name.clone().into(), fact });
        }
    }
    events
}

/// Nodes for an instance in this place, the best first: where the one before it was, and if the
/// gang may span nodes, where others of it are, and all others.
fn candidates(state: &State, attempt: &Attempt, host: Host) -> Vec<usize> {
    let (placement, nodes) = (&attempt.placement, &state.capacity.nodes);
    let others = placement.hosts().map(|host| placement.node(host)).chain(nodes.iter().map(|node| node.name.as_str()));
    let names = std::iter::once(placement.node(host)).chain(others.filter(|_| state.capacity.spans));
    // A gang alone never needs more than its nodes have.
    let is_large_enough = |node: &Node| {
        let there = placement.hosts().filter(|it| *it == host || placement.node(*it) == node.name);
        let limits = there.map(|host| placement.share(host).memory_bytes).fold(0, u64::saturating_add);
        !state.capacity.spans || limits <= node.memory_bytes
    };
    let mut found = Vec::new();
    for name in names {
        let node = nodes.iter().position(|node| node.name == name && is_large_enough(node));
        found.extend(node.filter(|node| !found.contains(node)));
    }
    found
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
    let running = running.map(|(_, attempt)| &attempt.placement);
    let all = Vec::from_iter(running.chain(placements.iter().map(|placement| &**placement)));
    let of_node = |node: &Node| (node.cpus, all.iter().map(|placement| placement.weight_on(&node.name)).sum());
    let cores: BTreeMap<&str, (u32, u64)> =
        state.capacity.nodes.iter().map(|node| (node.name.as_str(), of_node(node))).collect();
    for placement in &mut placements {
        placement.share_cores(|node| cores.get(node).copied().unwrap_or((1, 1)));
    }
}

/// Ends trials that rest frozen, then takes instances from jobs that can live with fewer, if that
/// makes room for the head of the queue and what is leaving already does not; only on nodes where
/// the head then is.
fn make_room(state: &State, round: &Round<'_>, demand: &Demand) -> Room {
    let Round { now, free, all, .. } = round;
    let is_leaving = |attempt: &Attempt| attempt.failed.is_some() || attempt.stage == Stage::Releasing;
    let leaving = state.holders().filter(|(_, attempt)| is_leaving(attempt));
    let mut room = leaving.fold(free.clone(), |room, (job, attempt)| room.plus(&state.held(&job.gang, attempt)));
    let of_hosts = |attempt: &Attempt, hosts: &[Host]| state.capacity.per_node(&attempt.of_hosts(hosts));
    let before = room.clone();
    for (_, attempt) in elastic(state).filter(|(_, attempt)| !is_leaving(attempt)) {
        let leaves = |instance: &Instance| matches!(instance, Instance::Leaving { .. } | Instance::Clearing { .. });
        room = room.plus(&of_hosts(attempt, &attempt.hosts(leaves)));
    }
    let left = room.clone();
    let fit = |room: &PerNode| demand.fit(room, all);
    let mut frozen: Vec<_> = state.holders().filter(|(job, _)| job.gang.is_frozen()).collect();
    // Those that nobody wants go first; a wanted one waits in the queue behind the head, and would
    // keep from it what it waits for.
    frozen.sort_by_key(|(job, _)| (!job.gang.is_unwanted(), job.gang.rests_since(), job.gang.order));
    let mut parked = Vec::new();
    for (job, attempt) in frozen {
        if fit(&room).is_some() {
            break;
        }
        let held = state.held(&job.gang, attempt);
        room = room.plus(&held);
        parked.push((job, attempt, held));
    }
    let mut given_up = Vec::new();
    for (gang, attempt) in elastic(state).rev() {
        let mut hosts = Vec::new();
        for host in gang.dispensable(attempt) {
            if fit(&room).is_some() {
                break;
            }
            room = room.plus(&of_hosts(attempt, &[host]));
            hosts.insert(0, host);
        }
        given_up.push((gang, attempt, hosts));
    }
    let Some(fit) = fit(&room) else { return Room::default() };
    let nothing = Resources::default();
    let is_there = |amounts: &PerNode| {
        fit.taken.0.iter().zip(&amounts.0).any(|(taken, amount)| *taken != nothing && *amount != nothing)
    };
    let mut is_from_others = is_there(&left.minus(&before));
    let mut events = Vec::new();
    for (job, attempt, _) in parked.into_iter().filter(|(.., held)| is_there(held)) {
        let message = messages::PARKED_FOR_QUEUE.to_owned();
        let fact = Fact::TrialParked { attempt: attempt.id.clone(), message, stores: true, rested: true };
        events.push(Event { at: *now, name: job.gang.name.clone().into(), fact });
    }
    for (gang, attempt, mut hosts) in given_up {
        hosts.retain(|host| is_there(&of_hosts(attempt, &[*host])));
        if !hosts.is_empty() {
            is_from_others = true;
            let message = messages::continues_without(attempt, &hosts, messages::GIVEN_UP);
            let fact = Fact::InstancesInterrupted { attempt: attempt.id.clone(), hosts, message };
            events.push(Event { at: *now, name: gang.name.clone().into(), fact });
        }
    }
    Room { events, is_from_others }
}

/// How the head of the queue gets room.
#[derive(Default)]
struct Room {
    events: Vec<Event>,
    /// Jobs that can live with fewer instances give some to it.
    is_from_others: bool,
}

fn cut_of<'a>(state: &'a State, job: &TrainingJob) -> Result<Cut<'a>, Rejection> {
    let used_bytes = job.gang.retry.as_ref().map_or(0, |retry| retry.used_bytes);
    cut_after(&job.gang.spec, used_bytes, &state.capacity, &state.catalog)
}

fn launch(state: &State, job: &TrainingJob, cut: Cut<'_>, fit: &Fit, free_gpus: &mut [Vec<u32>]) -> Fact {
    if let Some(attempt) = &job.gang.attempt {
        return Fact::AttemptThawed { attempt: attempt.id.clone(), message: messages::RESUMED.to_owned() };
    }
    let placement = cut.place(fit, &state.capacity, free_gpus);
    let tuning = job.tuning().and_then(|name| state.tunings.get(name));
    let notice = tuning.and_then(|tuning| {
        parallel_notice(&tuning.spec.definitions, tuning.max_parallel, &state.capacity, &state.catalog)
    });
    let where_it_is = match &job.gang.spec.target {
        Some(target) => Some(format!("on compute target {target}")),
        None => state.capacity.has_several_nodes().then(|| placement.whereabouts()),
    };
    let notes = Vec::from_iter(where_it_is.into_iter().chain(placement.capped.clone()).chain(notice));
    let message = messages::launched(job, &notes);
    Fact::AttemptLaunched { attempt: job.gang.next_attempt(), placement, lease_s: job.gang.lease_s(), message }
}
