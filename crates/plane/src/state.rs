//! All that the core knows: live training jobs, in the queue or on instances. Ended jobs leave it
//! when their capacity is free.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    sync::Arc,
};

use crate::{
    AttemptId, Capacity, Catalog, Claim, JobName, SecondaryStatus, Time, TuningName,
    capacity::{Held, PerNode, Resources, by_node},
    gang::{Gang, instances::Attempt},
    jobs::Jobs,
    quotas::{Claimed, Usage},
    saved::{self, Restored, SnapshotError},
    training::TrainingJob,
    tuning::job::TuningJob,
};

/// The fold of all events so far, beside the capacity and the catalogue, which are
/// configuration: given at the start, not events.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub(crate) capacity: Capacity,
    pub(crate) catalog: Catalog,
    /// The latest event's time.
    pub(crate) clock: Time,
    /// For the next training job's place in the order of creation.
    pub(crate) created: u64,
    pub(crate) jobs: Jobs,
    /// Live tuning jobs by name; few.
    pub(crate) tunings: BTreeMap<TuningName, Arc<TuningJob>>,
    pub(crate) index: Index,
    pub(crate) measured: Measured,
    pub(crate) usage: Usage,
}

/// The most memory that each live attempt was measured to use, in bytes. Like the capacity it is an
/// observation of the machine and no fold of events: what is decided of it is an event. So states
/// that differ in it alone are equal.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured(BTreeMap<AttemptId, u64>);

impl Measured {
    /// An attempt has some of its instances left: it is taken to use as much less, until it is
    /// measured again.
    pub(crate) fn scale(&mut self, attempt: &AttemptId, left: usize, before: usize) {
        if let Some(used) = self.0.get_mut(attempt) {
            *used = *used / before.max(1) as u64 * left as u64;
        }
    }
}

impl PartialEq for Measured {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Waiting jobs by whom they are for and by tuning job, in order of creation.
pub(crate) type Lines = BTreeMap<(Claim, Option<TuningName>), BTreeSet<(u64, JobName)>>;

/// What follows from the jobs alone, kept so that no decision looks at all of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Index {
    /// Waiting jobs in order of creation; a sorted list, since a job's place in it is asked for
    /// more often than it changes.
    pub(crate) queue: VecDeque<(u64, JobName)>,
    /// The same by compute target, and there by whom they are for and by tuning job; those that
    /// are no trials have none. No list is empty.
    pub(crate) lines: BTreeMap<Option<String>, Lines>,
    /// Jobs that hold capacity, by attempt.
    pub(crate) attempts: BTreeMap<AttemptId, JobName>,
    /// What they hold together of each node.
    pub(crate) held: Held,
    /// The same by users and tags.
    pub(crate) claimed: Claimed,
    pub(crate) deadlines: BTreeSet<(Time, JobName)>,
    /// Jobs on instances that can lose and gain some, in order of creation.
    pub(crate) elastic: BTreeSet<(u64, JobName)>,
}

impl Index {
    pub(crate) fn of(jobs: &Jobs) -> Index {
        let mut in_order: Vec<_> = jobs.iter().collect();
        in_order.sort_unstable_by_key(|job| job.gang.order);
        let mut index = Index::default();
        in_order.into_iter().for_each(|job| index.add(job));
        index
    }

    /// How many waiting jobs were created before.
    pub(crate) fn before(&self, order: u64) -> usize {
        self.queue.partition_point(|(other, _)| *other < order)
    }

    pub(crate) fn add(&mut self, job: &TrainingJob) {
        let gang = &job.gang;
        if gang.waits() {
            self.queue.insert(self.before(gang.order), (gang.order, gang.name.clone()));
            let lines = self.lines.entry(gang.spec.target.clone()).or_default();
            lines
                .entry((gang.spec.claim.clone(), job.tuning().cloned()))
                .or_default()
                .insert((gang.order, gang.name.clone()));
        }
        if let Some(attempt) = &gang.attempt {
            self.attempts.insert(attempt.id.clone(), gang.name.clone());
            self.held.add(&gang.holds(attempt));
            self.claimed.add(&gang.spec.claim, gang.claims(attempt));
            if gang.spec.min_instances.is_some() {
                self.elastic.insert((gang.order, gang.name.clone()));
            }
        }
        if let Some(at) = gang.deadline() {
            self.deadlines.insert((at, gang.name.clone()));
        }
    }

    pub(crate) fn remove(&mut self, job: &TrainingJob) {
        let gang = &job.gang;
        let place = self.before(gang.order);
        if self.queue.get(place).is_some_and(|(order, _)| *order == gang.order) {
            self.queue.remove(place);
            let (target, owner) = (gang.spec.target.clone(), (gang.spec.claim.clone(), job.tuning().cloned()));
            if let Entry::Occupied(mut lines) = self.lines.entry(target)
                && let Some(line) = lines.get_mut().get_mut(&owner)
            {
                line.remove(&(gang.order, gang.name.clone()));
                if line.is_empty() {
                    lines.get_mut().remove(&owner);
                }
                if lines.get().is_empty() {
                    lines.remove();
                }
            }
        }
        if let Some(attempt) = &gang.attempt {
            self.attempts.remove(&attempt.id);
            self.held.remove(&gang.holds(attempt));
            self.claimed.remove(&gang.spec.claim, gang.claims(attempt));
            self.elastic.remove(&(gang.order, gang.name.clone()));
        }
        if let Some(at) = gang.deadline() {
            self.deadlines.remove(&(at, gang.name.clone()));
        }
    }
}

/// A state as it was, without capacity and catalogue. Taking one costs microseconds and shares
/// memory with the state, which goes on; so it can be written elsewhere, however large it is.
#[derive(Debug, Clone)]
pub struct Frozen {
    clock: Time,
    created: u64,
    jobs: Jobs,
    tunings: BTreeMap<TuningName, Arc<TuningJob>>,
    usage: Usage,
}

impl Frozen {
    /// As bytes, for [`State::from_snapshot`].
    pub fn encode(&self) -> Vec<u8> {
        saved::encode(self.clock, self.created, &self.jobs, &self.tunings, &self.usage)
    }
}

impl State {
    /// Nothing has happened yet.
    pub fn new(capacity: Capacity, catalog: Catalog) -> State {
        let (jobs, tunings, index) = (Jobs::new(), BTreeMap::new(), Index::default());
        State {
            capacity,
            catalog,
            clock: Time::default(),
            created: 0,
            jobs,
            tunings,
            index,
            measured: Measured::default(),
            usage: Usage::default(),
        }
    }

    /// The state as it is now, to be encoded elsewhere.
    pub fn freeze(&self) -> Frozen {
        Frozen {
            clock: self.clock,
            created: self.created,
            jobs: self.jobs.clone(),
            tunings: self.tunings.clone(),
            usage: self.usage.clone(),
        }
    }

    /// The state as bytes, without capacity and catalogue.
    pub fn snapshot(&self) -> Vec<u8> {
        self.freeze().encode()
    }

    /// The state of [`State::snapshot`], on the present capacity.
    ///
    /// # Errors
    /// The bytes are from a newer version, or no snapshot at all.
    pub fn from_snapshot(bytes: &[u8], capacity: Capacity, catalog: Catalog) -> Result<State, SnapshotError> {
        let Restored { clock, created, jobs, mut tunings, usage } = saved::decode(bytes)?;
        let index = Index::of(&jobs);
        for tuning in jobs.iter().filter(|job| job.gang.waits()).filter_map(TrainingJob::tuning) {
            if let Some(tuning) = tunings.get_mut(tuning) {
                Arc::make_mut(tuning).waiting += 1;
            }
        }
        let measured = Measured::default();
        Ok(State { capacity, catalog, clock, created, jobs, tunings, index, measured, usage })
    }

    /// What there is to give from now on. What was given stays given.
    pub fn set_capacity(&mut self, capacity: Capacity) {
        self.capacity = capacity;
    }

    /// The instance types from now on. What was placed stays as it is.
    pub fn set_catalog(&mut self, catalog: Catalog) {
        self.catalog = catalog;
    }

    /// The latest event's time; zero before the first. No later event is before it.
    pub fn clock(&self) -> Time {
        self.clock
    }

    /// When a [`crate::Command::Tick`] is due, if any: the earliest of all jobs' deadlines. It may
    /// lie in the past.
    pub fn next_deadline(&self) -> Option<Time> {
        let of_jobs = self.index.deadlines.first().map(|(at, _)| *at);
        self.tunings.values().filter_map(|tuning| tuning.deadline()).chain(of_jobs).min()
    }

    /// Names of the live tuning jobs.
    pub fn tunings(&self) -> impl Iterator<Item = &TuningName> {
        self.tunings.keys()
    }

    pub(crate) fn tuning_mut(&mut self, name: &str) -> Option<&mut TuningJob> {
        self.tunings.get_mut(name).map(Arc::make_mut)
    }

    /// The job of a live attempt.
    pub fn job_of(&self, attempt: &AttemptId) -> Option<&JobName> {
        self.index.attempts.get(attempt)
    }

    /// Names of the live jobs, in no order that means anything.
    pub fn jobs(&self) -> impl Iterator<Item = &JobName> {
        self.jobs.iter().map(|job| &job.gang.name)
    }

    /// The live jobs that are not over, with where they are and when they were created, in no order
    /// that means anything.
    pub fn in_progress(&self) -> impl Iterator<Item = (&JobName, SecondaryStatus, Time)> {
        self.jobs
            .iter()
            .filter(|job| job.gang.end.is_none())
            .map(|job| (&job.gang.name, job.secondary(), job.gang.created))
    }

    /// What a user has used and is not forgiven, in instance milliseconds, as of `now`.
    pub(crate) fn used_by(&self, user: &str, now: Time) -> f64 {
        self.usage.of(user, self.index.claimed.instances_of(user), now, self.capacity.quotas.half_life_s)
    }

    /// What no job holds.
    pub(crate) fn free(&self) -> PerNode {
        let used = self
            .measured
            .0
            .keys()
            .filter_map(|attempt| self.jobs.get(self.index.attempts.get(attempt)?)?.gang.attempt.as_ref());
        let used = by_node(used.flat_map(|attempt| self.used_beyond(attempt)));
        let held = self.capacity.nodes.iter().map(|node| self.index.held.of(&node.name)).collect();
        self.capacity.all().minus(&PerNode(held)).minus(&self.capacity.per_node(&used))
    }

    /// What a job on instances holds as of now.
    pub(crate) fn held(&self, gang: &Gang, attempt: &Attempt) -> PerNode {
        let of_attempt = gang.holds(attempt).into_iter().chain(self.used_beyond(attempt));
        self.capacity.per_node(&by_node(of_attempt))
    }

    /// Memory that an attempt holds besides its reserve, by node.
    fn used_beyond<'a>(&self, attempt: &'a Attempt) -> Vec<(&'a str, Resources)> {
        let placement = &attempt.placement;
        let used = || self.measured.0.get(&attempt.id).copied().unwrap_or(0);
        // What an earlier attempt used is in the reserve of this one, which so may be counted
        // twice, up to the limit.
        let beyond =
            placement.reserve_bytes.map_or(0, |reserve| used().min(placement.limit_bytes().saturating_sub(reserve)));
        if beyond == 0 { Vec::new() } else { attempt.memory_by_node(beyond) }
    }

    /// The most memory that an attempt was measured to use, in bytes.
    pub(crate) fn measured(&self, attempt: &AttemptId) -> Option<u64> {
        self.measured.0.get(attempt).copied()
    }

    /// Takes a measurement in.
    pub(crate) fn measure(&mut self, used: &BTreeMap<AttemptId, u64>) {
        self.measured.0.retain(|attempt, _| self.index.attempts.contains_key(attempt));
        for (attempt, bytes) in used.iter().filter(|(attempt, _)| self.index.attempts.contains_key(*attempt)) {
            let most = self.measured.0.entry(attempt.clone()).or_default();
            *most = (*most).max(*bytes);
        }
    }

    /// Jobs with instances on a node that the capacity does not have, and that node's name: nothing
    /// counts what they use there.
    pub fn elsewhere(&self) -> impl Iterator<Item = (&JobName, &str)> {
        let is_known = |name: &str| self.capacity.nodes.iter().any(|node| node.name == name);
        self.holders().filter_map(move |(job, attempt)| {
            let node = attempt.placement.hosts().map(|host| attempt.placement.node(host)).find(|node| !is_known(node));
            Some((&job.gang.name, node?))
        })
    }

    /// Jobs that hold capacity.
    pub(crate) fn holders(&self) -> impl Iterator<Item = (&TrainingJob, &Attempt)> {
        self.index
            .attempts
            .values()
            .filter_map(|name| self.jobs.get(name))
            .filter_map(|job| Some((job, job.gang.attempt.as_ref()?)))
    }
}
