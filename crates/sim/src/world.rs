//! The world at a moment of its history, and what is to happen in it.

use std::collections::{BTreeMap, BTreeSet};

use shoal_plane::{AttemptId, Capacity, Catalog, JobName, State, Time, TuningName};

use crate::{
    Bug, Coverage,
    coverage::Point,
    faults::{Faults, Severity},
    scenario::{
        self, Job,
        tunings::{self, Tuning},
    },
    state::{
        agent::Agent,
        clients::{Client, Tuner},
        disk::{AttemptHost, Disk},
        events::SimEvent,
        memory::Memory,
        network::Connection,
        nodes::Nodes,
        places::Places,
        processes::{Process, Processes},
        server::Server,
    },
};

/// The epoch's start of all histories, in milliseconds.
const BEGINNING_MS: u64 = 1_700_000_000_000;

/// Why a handler did not come to its end.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The server has crashed in it.
    Crash,
    /// An invariant does not hold.
    Broken(String),
}

pub(crate) type Step<T = ()> = Result<T, Halt>;

pub(crate) fn broken<T>(what: impl Into<String>) -> Step<T> {
    Err(Halt::Broken(what.into()))
}

pub(crate) struct Simulation {
    pub(crate) now: u64,
    skew: i64,
    queue: BTreeMap<(u64, u64), SimEvent>,
    number: u64,
    pub(crate) faults: Faults,
    pub(crate) coverage: Coverage,
    pub(crate) bug: Option<Bug>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) clients: Vec<Client>,
    pub(crate) tunings: Vec<Tuning>,
    /// Their clients.
    pub(crate) tuners: Vec<Tuner>,
    /// By tuning job, all that were ever started.
    pub(crate) trials: BTreeSet<(TuningName, u32)>,
    /// What the first launch of a trial's attempt said: units behind it, and where it pauses.
    pub(crate) launches: BTreeMap<AttemptId, (u32, Option<u32>)>,
    /// Jobs by attempt, of all that were ever launched.
    pub(crate) owners: BTreeMap<AttemptId, JobName>,
    /// Attempts that had served and were replaced.
    pub(crate) replaced: u32,
    /// Attempts that a warm instance has served.
    pub(crate) reused: u32,
    /// Attempts that were frozen and have not been thawed: they have given their places up, and may
    /// be stopped while others have them.
    pub(crate) frozen: BTreeSet<AttemptId>,
    /// By tuning job, how many of its trials may run.
    pub(crate) parallel: BTreeMap<TuningName, u32>,
    pub(crate) disk: Disk,
    /// Checkpoint files that have a receipt in the journal.
    pub(crate) receipts: BTreeSet<(AttemptHost, String)>,
    /// Hosts whose evaluation of a rule is in the journal.
    pub(crate) evaluated: BTreeSet<AttemptHost>,
    pub(crate) processes: Processes,
    pub(crate) capacity: Capacity,
    pub(crate) nodes: Nodes,
    pub(crate) memory: Memory,
    /// By attempt, of those that can lose instances.
    pub(crate) places: BTreeMap<AttemptId, Places>,
    /// When the server was started.
    pub(crate) served_since: u64,
    pub(crate) agents: BTreeMap<Process, Agent>,
    pub(crate) connections: BTreeMap<u64, Connection>,
    /// Counts connections.
    pub(crate) called: u64,
    pub(crate) server: Option<Server>,
    /// Counts servers.
    pub(crate) epoch: u64,
    /// The journal refuses until then.
    pub(crate) full_until: u64,
    seed: u64,
    /// The fold of all that is in the journal.
    pub(crate) mirror: State,
    pub(crate) last_event: Time,
    /// The server was away for long.
    pub(crate) away: bool,
    trace: Option<Vec<String>>,
}

/// What the core takes the nodes to have.
fn known_capacity(seed: u64, bug: Option<Bug>) -> Capacity {
    let mut capacity = scenario::capacity(seed);
    if bug == Some(Bug::NodeMemoryIgnored) {
        let all = capacity.nodes.iter().map(|node| node.memory_bytes).sum();
        capacity.nodes.iter_mut().for_each(|node| node.memory_bytes = all);
    }
    capacity
}

impl Simulation {
    pub(crate) fn new(seed: u64, severity: Severity, bug: Option<Bug>, trace: bool) -> Self {
        let jobs = scenario::jobs(seed);
        let tunings = tunings::tunings(seed);
        let mut world = Simulation {
            now: 0,
            skew: 0,
            queue: BTreeMap::new(),
            number: 0,
            faults: Faults::new(seed, severity),
            coverage: Coverage::default(),
            bug,
            clients: vec![Client::default(); jobs.len()],
            tuners: vec![Tuner::default(); tunings.len()],
            tunings,
            trials: BTreeSet::new(),
            launches: BTreeMap::new(),
            owners: BTreeMap::new(),
            replaced: 0,
            frozen: BTreeSet::new(),
            parallel: BTreeMap::new(),
            jobs,
            disk: Disk::default(),
            receipts: BTreeSet::new(),
            evaluated: BTreeSet::new(),
            processes: Processes::default(),
            capacity: scenario::capacity(seed),
            nodes: Nodes::default(),
            reused: 0,
            memory: Memory::default(),
            places: BTreeMap::new(),
            served_since: 0,
            agents: BTreeMap::new(),
            connections: BTreeMap::new(),
            called: 0,
            server: None,
            epoch: 0,
            full_until: 0,
            seed,
            mirror: State::new(known_capacity(seed, bug), Catalog::default()),
            last_event: Time(0),
            away: false,
            trace: trace.then(Vec::new),
        };
        world.after(0, SimEvent::ServerStart);
        for index in 0..world.jobs.len() {
            if world.jobs[index].follows.is_none() {
                world.after(world.jobs[index].at_ms, SimEvent::Create(index));
            }
        }
        for index in 0..world.tunings.len() {
            world.after(world.tunings[index].at_ms, SimEvent::CreateTuning(index));
        }
        for (at, fault) in world.faults.timed() {
            world.after(at, SimEvent::Fault(fault));
        }
        world
    }

    /// What the core takes the nodes to have.
    pub(crate) fn known_capacity(&self) -> Capacity {
        known_capacity(self.seed, self.bug)
    }

    /// One of those that run; whatever follows is something that its job's outcome may depend on.
    pub(crate) fn any_agent(&mut self) -> Option<Process> {
        let alive: Vec<_> = self.processes.alive().cloned().collect();
        let process =
            alive.get(usize::try_from(self.faults.random.below(alive.len().max(1) as u64)).expect("an index"))?.clone();
        self.touch_agent(&process);
        Some(process)
    }

    pub(crate) fn touch_agent(&mut self, process: &Process) {
        if let Some(attempt) = self.agents.get(process).and_then(|agent| agent.attempt.clone()) {
            self.touch(&attempt);
        }
    }

    /// Something has happened to an attempt that its job's outcome may depend on.
    pub(crate) fn touch(&mut self, attempt: &AttemptId) {
        if let Some(index) = self.jobs.iter().position(|job| self.owner(attempt) == Some(&job.name)) {
            self.clients[index].touched = true;
        }
    }

    /// The job whose attempt it is, or was.
    pub(crate) fn owner(&self, attempt: &AttemptId) -> Option<&JobName> {
        self.owners.get(attempt)
    }

    pub(crate) fn after(&mut self, ms: u64, event: SimEvent) {
        self.at(self.now + ms, event);
    }

    pub(crate) fn at(&mut self, at: u64, event: SimEvent) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
    }

    /// Takes what happens next, with its time.
    pub(crate) fn next_event(&mut self) -> Option<(u64, SimEvent)> {
        self.queue.pop_first().map(|((at, _), event)| (at, event))
    }

    pub(crate) fn jump_clock(&mut self, ms: i64) {
        self.skew += ms;
    }

    /// What happened, if that was asked for.
    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// What the machine's clock shows.
    pub(crate) fn wall(&self) -> Time {
        Time((BEGINNING_MS + self.now).saturating_add_signed(self.skew))
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9} {}", self.now, what()));
        }
    }

    /// Counts and tells whether a fault strikes one of these kinds here.
    pub(crate) fn strikes(&mut self, kinds: &[&'static str], point: Point) -> bool {
        // All are asked: each passes this point.
        let struck: Vec<_> = kinds.iter().filter(|kind| self.faults.strikes(kind, point)).copied().collect();
        for kind in &struck {
            self.coverage.hit(kind, point);
            self.say(|| format!("fault at {kind} {point:?}"));
        }
        !struck.is_empty()
    }

    /// A crash, if one strikes here.
    pub(crate) fn passes(&mut self, kinds: &[&'static str], point: Point) -> Step {
        if self.strikes(kinds, point) { Err(Halt::Crash) } else { Ok(()) }
    }
}
