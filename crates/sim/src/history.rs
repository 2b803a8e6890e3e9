//! The history: what happens next, in the order of its own time, who handles it, and what must hold
//! after each.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{self, AssertUnwindSafe},
};

use shoal_plane::{AttemptId, Event, Fact, StudyRecord, apply};
use shoal_tuner::{Ask, Record};

use crate::{
    Bug, SimRun,
    coverage::kind,
    faults::{Fault, Severity},
    outcome,
    state::events::SimEvent,
    world::{Halt, Simulation, Step, broken},
};

/// Deadlines of stops pass in so long.
const LONG_MS: u64 = 50_000;
/// Of this many turns that decide nothing, the state is compared after one: what is wrong stays
/// wrong.
const IDLE_TURNS: u64 = 16;
/// A history that goes on for longer does not end.
const MAX_EVENTS: u64 = 300_000;
const MAX_MS: u64 = 40 * 3_600_000;

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
    let trace = world.take_trace();
    let history = match lived {
        Ok(()) => {
            let outcomes = world.jobs.iter().map(|job| (job.name.clone(), outcome::of(&world, job))).collect();
            let first = world.tunings.first().and_then(|tuning| world.disk.records.remove(&tuning.name));
            // Whether the study is asked again depends on when the last trial that it stopped ends.
            let is_news = |it: &StudyRecord| !matches!(it.record, Record::Asked { answer: Ask::End, .. });
            Ok(SimRun {
                sequence: first.into_iter().flatten().filter(is_news).collect(),
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
    fn live(&mut self) -> Result<(), String> {
        let (mut happened, mut compared) = (0, (0, 0));
        while !self.is_over() {
            let Some((at, next)) = self.next_event() else {
                return Err(format!("nothing happens any more: {}", self.left()));
            };
            happened += 1;
            if happened > MAX_EVENTS || at > MAX_MS {
                return Err(format!("it does not end: {}", self.left()));
            }
            self.now = at;
            match self.handle(next).and_then(|()| self.check(&mut compared)) {
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

    fn fault(&mut self, fault: Fault) -> Step {
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
                self.jump_clock(ms);
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

    pub(crate) fn handle(&mut self, event: SimEvent) -> Step {
        let Some(event) = self.unless_stalled(event) else { return Ok(()) };
        match event {
            SimEvent::Create(index) => self.create_job(index),
            SimEvent::Stop(index) => self.stop_job(index),
            SimEvent::CreateTuning(index) => self.create_tuning(index),
            SimEvent::StopTuning(index) => self.stop_tuning(index),
            SimEvent::ChangeTuning(index, change) => self.change_tuning(index, change),
            SimEvent::Fault(fault) => self.fault(fault),
            SimEvent::ServerStart => self.start_server(),
            SimEvent::Timeout { epoch, timer } if self.serves(epoch) => self.time_out(timer),
            SimEvent::MachinesDue { epoch, at, number } if self.serves(epoch) => {
                self.machines_due(at, number);
                Ok(())
            }
            SimEvent::Perform { epoch, io } if self.serves(epoch) => self.perform(io),
            SimEvent::Continue { epoch, attempt, steps, of } if self.serves(epoch) => {
                self.perform_steps(attempt, steps, of)
            }
            SimEvent::Completed { epoch, event } if self.serves(epoch) => {
                self.happens(event);
                Ok(())
            }
            SimEvent::Answered { epoch, tuning, answers } if self.serves(epoch) => {
                self.submit_answers(tuning, &answers)
            }
            SimEvent::CheckAgents { epoch } if self.serves(epoch) => self.watch_agents(),
            SimEvent::ProcessEnded { epoch, allocation, host } if self.serves(epoch) => {
                self.process_ended(&allocation, host)
            }
            SimEvent::Served { epoch, connection } if self.serves(epoch) => self.serve(connection),
            SimEvent::Written { epoch, file } if self.serves(epoch) => {
                self.disk.objects.insert(file);
                Ok(())
            }
            SimEvent::SnapshotWritten { epoch, version, bytes } if self.serves(epoch) => {
                if self.disk.snapshot.as_ref().is_none_or(|(before, _)| *before <= version) {
                    self.disk.snapshot = Some((version, bytes));
                }
                Ok(())
            }
            // Of a server that has crashed since.
            SimEvent::Timeout { .. }
            | SimEvent::MachinesDue { .. }
            | SimEvent::Perform { .. }
            | SimEvent::Continue { .. }
            | SimEvent::Completed { .. }
            | SimEvent::Answered { .. }
            | SimEvent::CheckAgents { .. }
            | SimEvent::ProcessEnded { .. }
            | SimEvent::Served { .. }
            | SimEvent::Written { .. }
            | SimEvent::SnapshotWritten { .. } => Ok(()),
            SimEvent::Connect(process) => self.connects(&process),
            SimEvent::ConnectFiles(process) => {
                self.connects_files(&process);
                Ok(())
            }
            SimEvent::AgentStep { process, step } => self.step_agent(&process, step),
            SimEvent::NoticeOver { process, life } => {
                self.notice_over(&process, life);
                Ok(())
            }
            SimEvent::Sign { connection } => {
                self.signs(connection);
                Ok(())
            }
            SimEvent::Continued(process) => self.continues(&process),
            SimEvent::Up { connection, message } => self.up(connection, message),
            SimEvent::Down { connection, message } => self.down(connection, message),
        }
    }

    fn serves(&self, epoch: u64) -> bool {
        self.server.is_some() && self.epoch == epoch
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
            self.say(|| format!("  {} {} {:?}", event.name, kind(&event.fact), event.fact));
            if event.at < self.last_event {
                return broken(format!("{event:?} is before the event before it"));
            }
            self.last_event = event.at;
            if let Fact::AttemptLaunched { attempt, .. } = &event.fact {
                self.owners.insert(attempt.clone(), event.name.clone().into());
            }
            if let Fact::CheckpointSaved { attempt, host, path, .. } = &event.fact {
                let file = ((attempt.clone(), *host), path.clone());
                if !self.disk.objects.contains(&file) {
                    return broken(format!("{path} of {:?} has a receipt and is not an object", file.0));
                }
                self.receipts.insert(file);
            }
            if let Fact::RuleEvaluated { attempt, host, .. } = &event.fact {
                self.evaluated.insert((attempt.clone(), *host));
            }
            self.replaced += u32::from(matches!(event.fact, Fact::AttemptFailed { replaced: true, .. }));
            self.check_failed_job(event)?;
            apply(&mut self.mirror, event);
            self.check_places_event(event)?;
            self.mirror.sanity_check().or_else(|what| broken(format!("{what}, after {event:?}")))?;
            self.check_memory_event(event)?;
            self.check_tuning_event(event)?;
            self.check_nodes_event(event)?;
        }
        Ok(())
    }

    /// `compared`: the server and the number of its turns after which its state was last compared
    /// with the mirror: those that decided something, and some of the others.
    fn check(&self, compared: &mut (u64, u64)) -> Step {
        if let Some(server) = &self.server
            && *compared != (self.epoch, server.turns / IDLE_TURNS + server.decisions)
        {
            *compared = (self.epoch, server.turns / IDLE_TURNS + server.decisions);
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
        let mut attempts = BTreeMap::<&str, &AttemptId>::new();
        let mut hosts = BTreeSet::new();
        for ((allocation, host), agent) in &self.agents {
            if agent.twins > 0 {
                return Err(format!("{host} of {allocation} was started twice"));
            }
            let Some(attempt) = agent.attempt.as_ref().filter(|_| !agent.is_gone()) else { continue };
            if !hosts.insert((attempt, *host)) {
                return Err(format!("{host} of {attempt} runs twice"));
            }
            let Some(job) = self.owner(attempt) else { continue };
            if let Some(other) = attempts.insert(job, attempt)
                && other != attempt
            {
                return Err(format!("attempts {other} and {attempt} of one job run"));
            }
        }
        self.check_running()
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
