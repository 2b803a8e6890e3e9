//! The history: what happens next, in the order of its own time, and what must hold after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe},
};

use shoal_plane::{Catalog, Event, Fact, State, StudyRecord, Time, apply};

use crate::{
    Bug, Coverage,
    agent::Agent,
    clients::Client,
    coverage::{Point, kind},
    disk::{Disk, Host},
    events::SimEvent,
    faults::{Fault, Faults, Severity},
    memory::Memory,
    network::Connection,
    outcome::{self, Outcome},
    places::Places,
    processes::{Process, Processes},
    scenario::{self, Job},
    server::Server,
    tuning::{self, Tuner, Tuning},
};

/// The epoch's start of all histories, in milliseconds.
const BEGINNING_MS: u64 = 1_700_000_000_000;
/// Deadlines of stops pass in so long.
const LONG_MS: u64 = 50_000;
/// Of this many turns that decide nothing, the state is compared after one: what is wrong stays
/// wrong.
const IDLE_TURNS: u64 = 16;
/// A history that goes on for longer does not end.
const MAX_EVENTS: u64 = 300_000;
const MAX_MS: u64 = 40 * 3_600_000;

/// A history that came to its end.
#[derive(Debug)]
pub struct SimRun {
    /// By job.
    pub(crate) outcomes: BTreeMap<String, Outcome>,
    /// Of the tuning job that runs its trials one after the other.
    pub(crate) sequence: Vec<StudyRecord>,
    /// Events in the journal.
    pub events: usize,
    /// Attempts of services that had served and were replaced.
    pub replaced: u32,
    /// Attempts that a warm instance has served.
    pub reused: u32,
    /// Where it was cut.
    pub coverage: Coverage,
}

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
    pub(crate) trials: BTreeSet<(String, u32)>,
    /// What the first launch of a trial's attempt said: units behind it, and where it pauses.
    pub(crate) launches: BTreeMap<String, (u32, Option<u32>)>,
    /// Jobs by attempt, of all that were ever launched.
    owners: BTreeMap<String, String>,
    /// Attempts that had served and were replaced.
    replaced: u32,
    /// Attempts that a warm instance has served.
    pub(crate) reused: u32,
    /// Attempts that were frozen and have not been thawed: they have given their places up, and may
    /// be stopped while others have them.
    pub(crate) frozen: BTreeSet<String>,
    /// By tuning job, how many of its trials may run.
    pub(crate) parallel: BTreeMap<String, u32>,
    pub(crate) disk: Disk,
    /// Checkpoint files that have a receipt in the journal.
    pub(crate) receipts: BTreeSet<(Host, String)>,
    pub(crate) processes: Processes,
    pub(crate) memory: Memory,
    /// By attempt, of those that can lose instances.
    pub(crate) places: BTreeMap<String, Places>,
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
    /// The fold of all that is in the journal.
    pub(crate) mirror: State,
    last_event: Time,
    /// The server and the number of its turns after which its state was last compared with the
    /// mirror: those that decided something, and some of the others.
    checked: (u64, u64),
    /// The server was away for long.
    pub(crate) away: bool,
    trace: Option<Vec<String>>,
}

/// The history of a seed, or the first invariant that does not hold in it; and what happened, if
/// that was asked for.
pub(crate) fn run(
    seed: u64,
    severity: Severity,
    bug: Option<Bug>,
    traced: bool,
) -> (Result<SimRun, String>, Vec<String>) {
    let mut world = Simulation::new(seed, severity, bug, traced);
    // The seed is reported with a panic, too.
    let lived =
        panic::catch_unwind(AssertUnwindSafe(|| world.live())).unwrap_or_else(|_| Err("it panicked".to_owned()));
    let trace = world.trace.take().unwrap_or_default();
    let history = match lived {
        Ok(()) => {
            let outcomes = world.jobs.iter().map(|job| (job.name.clone(), outcome::of(&world, job))).collect();
            let first = world.tunings.first().and_then(|tuning| world.disk.records.remove(&tuning.name));
            Ok(SimRun {
                sequence: first.unwrap_or_default(),
                outcomes,
                events: world.disk.events.len(),
                replaced: world.replaced,
                reused: world.reused,
                coverage: world.coverage,
            })
        }
        Err(what) => Err(format!("at {} ms: {what}", world.now)),
    };
    (history, trace)
}

impl Simulation {
    fn new(seed: u64, severity: Severity, bug: Option<Bug>, trace: bool) -> Self {
        let jobs = scenario::jobs(seed);
        let tunings = tuning::tunings(seed);
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
            processes: Processes::default(),
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
            mirror: State::new(scenario::capacity(), Catalog::default()),
            last_event: Time(0),
            checked: (0, 0),
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

    fn live(&mut self) -> Result<(), String> {
        let mut happened = 0;
        while !self.is_over() {
            let Some(((at, _), next)) = self.queue.pop_first() else {
                return Err(format!("nothing happens any more: {}", self.left()));
            };
            happened += 1;
            if happened > MAX_EVENTS || at > MAX_MS {
                return Err(format!("it does not end: {}", self.left()));
            }
            self.now = at;
            match self.handle(next).and_then(|()| self.check()) {
                Ok(()) => {}
                Err(Halt::Crash) => match self.crash() {
                    Ok(()) => self.check_agents()?,
                    Err(Halt::Broken(what)) => return Err(what),
                    Err(Halt::Crash) => return Err("the server has crashed twice".to_owned()),
                },
                Err(Halt::Broken(what)) => return Err(what),
            }
        }
        if self.server.as_ref().is_some_and(|server| server.control.state().jobs().next().is_some()) {
            return Err("capacity is still held".to_owned());
        }
        self.check_clients()?;
        self.check_tunings()
    }

    pub(crate) fn fault(&mut self, fault: Fault) -> Step {
        match fault {
            Fault::KillServer if self.server.is_some() => return Err(Halt::Crash),
            Fault::KillServer => {}
            Fault::Cut => {
                let open: Vec<u64> = self.connections.keys().copied().collect();
                if !open.is_empty() {
                    let connection = self.faults.random.pick(&open);
                    self.say(|| format!("connection {connection} breaks"));
                    return self.cut(connection);
                }
            }
            Fault::KillAgent => {
                if let Some(process) = self.any_agent() {
                    self.say(|| format!("agent {process:?} is killed"));
                    return self.agent_ends(&process);
                }
            }
            Fault::Stall(ms) => {
                if let Some(process) = self.any_agent() {
                    self.say(|| format!("agent {process:?} is stopped for {ms} ms"));
                    self.stall(&process, ms);
                }
            }
            Fault::KillSome => return self.kill_elastic(),
            Fault::Interrupt => return self.interrupt_job(false),
            Fault::InterruptSome => return self.interrupt_job(true),
            Fault::Jump(ms) => {
                self.say(|| format!("the clock jumps by {ms} ms"));
                self.skew += ms;
                if ms.abs() > 5000 {
                    self.clients.iter_mut().for_each(|client| client.touched = true);
                }
            }
            Fault::Full(ms) => {
                self.say(|| format!("the journal refuses for {ms} ms"));
                self.full_until = self.now + ms;
            }
        }
        Ok(())
    }

    /// One of those that run; whatever follows is something that its job's outcome may depend on.
    fn any_agent(&mut self) -> Option<Process> {
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
    pub(crate) fn touch(&mut self, attempt: &str) {
        if let Some(index) = self.jobs.iter().position(|job| self.owner(attempt) == Some(&job.name)) {
            self.clients[index].touched = true;
        }
    }

    /// The job whose attempt it is, or was.
    pub(crate) fn owner(&self, attempt: &str) -> Option<&str> {
        self.owners.get(attempt).map(String::as_str)
    }

    pub(crate) fn after(&mut self, ms: u64, event: SimEvent) {
        self.at(self.now + ms, event);
    }

    pub(crate) fn at(&mut self, at: u64, event: SimEvent) {
        self.number += 1;
        self.queue.insert((at, self.number), event);
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

    fn crash(&mut self) -> Step {
        self.say(|| "the server is gone".to_owned());
        self.server = None;
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            self.cut(connection)?;
        }
        let downtime = self.faults.downtime();
        self.away |= downtime >= LONG_MS;
        self.after(downtime, SimEvent::ServerStart);
        Ok(())
    }

    /// The journal has these events now: they are folded one by one, and the state is checked after
    /// each.
    pub(crate) fn journalled(&mut self, events: &[Event]) -> Step {
        for event in events {
            self.say(|| format!("  {} {} {:?}", event.job, kind(&event.fact), event.fact));
            if event.at < self.last_event {
                return broken(format!("{event:?} is before the event before it"));
            }
            self.last_event = event.at;
            if let Fact::AttemptLaunched { attempt, .. } = &event.fact {
                self.owners.insert(attempt.clone(), event.job.clone());
            }
            if let Fact::CheckpointSaved { attempt, host, path, .. } = &event.fact {
                let file = ((attempt.clone(), *host), path.clone());
                if !self.disk.objects.contains(&file) {
                    return broken(format!("{path} of {:?} has a receipt and is not an object", file.0));
                }
                self.receipts.insert(file);
            }
            self.replaced += u32::from(matches!(event.fact, Fact::AttemptFailed { replaced: true, .. }));
            self.check_failed_job(event)?;
            apply(&mut self.mirror, event);
            self.check_places_event(event)?;
            self.mirror.sanity_check().or_else(|what| broken(format!("{what}, after {event:?}")))?;
            self.check_memory_event(event)?;
            self.check_tuning_event(event)?;
        }
        Ok(())
    }

    fn check(&mut self) -> Step {
        if let Some(server) = &self.server
            && self.checked != (self.epoch, server.turns / IDLE_TURNS + server.decisions)
        {
            self.checked = (self.epoch, server.turns / IDLE_TURNS + server.decisions);
            if *server.control.state() != self.mirror {
                return broken("the server's state is not the fold of its journal");
            }
            self.check_clients().map_err(Halt::Broken)?;
        }
        self.check_agents().map_err(Halt::Broken)
    }

    fn check_clients(&self) -> Result<(), String> {
        for (client, job) in self.clients.iter().zip(&self.jobs) {
            let is_lost = match self.disk.rows.get(&job.name) {
                None => client.created.then_some("creation"),
                Some(row) => (client.stopped && row.status == shoal_plane::JobStatus::InProgress).then_some("stop"),
            };
            if let Some(what) = is_lost {
                return Err(format!("the {what} of {} was acknowledged and is lost", job.name));
            }
        }
        Ok(())
    }

    fn check_agents(&self) -> Result<(), String> {
        let mut attempts = BTreeMap::<&str, &str>::new();
        let (mut hosts, mut running) = (BTreeSet::new(), 0);
        for ((allocation, host), agent) in &self.agents {
            if agent.twins > 0 {
                return Err(format!("host {host} of {allocation} was started twice"));
            }
            let Some(attempt) = agent.attempt.as_deref().filter(|_| !agent.is_gone()) else { continue };
            running += usize::from(!self.frozen.contains(attempt));
            if !hosts.insert((attempt, *host)) {
                return Err(format!("host {host} of {attempt} runs twice"));
            }
            let Some(job) = self.owner(attempt) else { continue };
            if let Some(other) = attempts.insert(job, attempt)
                && other != attempt
            {
                return Err(format!("attempts {other} and {attempt} of one job run"));
            }
        }
        let room = scenario::capacity().instances as usize;
        if running > room { Err(format!("{running} instances run, and there is room for {room}")) } else { Ok(()) }
    }

    fn is_over(&self) -> bool {
        let asked = self.clients.iter().zip(&self.jobs).all(|(client, job)| client.is_done(job));
        let tuned = self.tuners.iter().zip(&self.tunings).all(|(tuner, tuning)| tuner.is_done(tuning));
        asked
            && tuned
            && self.mirror.tunings().next().is_none()
            && self.mirror.jobs().next().is_none()
            && self.processes.alive().next().is_none()
            && self.disk.dirs.is_empty()
            && self.disk.plans.is_empty()
            && self.server.is_some()
    }

    fn left(&self) -> String {
        let live: Vec<_> =
            self.mirror.jobs().filter_map(|job| Some((job, self.mirror.view(job)?.transitions.pop()?))).collect();
        let unanswered: BTreeSet<_> = self
            .clients
            .iter()
            .zip(&self.jobs)
            .filter(|(client, job)| !client.is_done(job))
            .map(|(_, job)| &job.name)
            .collect();
        let (alive, plans): (Vec<_>, _) = (self.processes.alive().collect(), (&self.disk.dirs, &self.disk.plans));
        let tunings: Vec<_> = self.mirror.tunings().map(|name| (name, self.mirror.tuning(name))).collect();
        format!("tuning jobs {tunings:?}, jobs {live:?}, clients of {unanswered:?}, agents {alive:?}, plans {plans:?}")
    }
}
