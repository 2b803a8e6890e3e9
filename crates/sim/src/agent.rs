//! Fake agents: numbered reports from a spool until they are acknowledged, files until they are
//! saved, a lease, stops, uploads, and instances that serve several attempts, as the real ones do
//! it.

use shoal_link::{Frame, Order, Phase, ReportBody, ToServer};
use shoal_plane::{AttemptId, Host};
use shoal_runtime::sign_interval;

use crate::{
    scenario::Program,
    state::{
        agent::{Agent, Doing, SILENCE, Units},
        events::SimEvent,
        network::{Down, Purpose, Up},
        processes::Process,
    },
    world::{Simulation, Step, broken},
};

mod elastic;
mod files;
mod program;

/// Without a server for so long, an agent ends its program and leaves.
const LEASE_MS: u64 = 90_000;

impl Simulation {
    fn agent(&mut self, process: &Process) -> Option<&mut Agent> {
        self.agents.get_mut(process).filter(|agent| !agent.is_gone())
    }

    /// A process of an allocation is started for an attempt.
    pub(crate) fn agent_starts(&mut self, process: Process, attempt: &AttemptId) -> Step {
        if let Some(twin) = self.agent(&process) {
            twin.twins += 1;
            return Ok(());
        }
        let Some((program, units)) = self.program_of(attempt, process.1) else {
            return broken(format!("no program of {attempt}"));
        };
        self.check_place(attempt, process.1)?;
        let life = self.processes.lives(&process);
        self.agents.insert(process.clone(), Agent { life, ..Agent::new(attempt.clone(), program, units, self.now) });
        let ms = self.faults.random.between(1, 60);
        self.after(ms, SimEvent::Connect(process));
        Ok(())
    }

    /// What runs on a host of an attempt.
    pub(crate) fn program_of(&self, attempt: &AttemptId, host: Host) -> Option<(Program, Option<Units>)> {
        match self.jobs.iter().find(|job| self.owner(attempt) == Some(&job.name)) {
            Some(job) => Some((job.hosts.get(host.index()?)?.clone(), None)),
            None => self.trial_program(attempt).map(|(program, units)| (program, Some(units))),
        }
    }

    /// The process is gone, with its program.
    pub(crate) fn agent_ends(&mut self, process: &Process) -> Step {
        self.watch_end(process);
        self.end_process(process)
    }

    /// The server has ended it.
    pub(crate) fn agent_is_killed(&mut self, process: &Process) -> Step {
        let now = self.now;
        if let Some(agent) = self.agent(process) {
            let is_leaving = matches!(agent.doing, Doing::Leaving { .. }) && agent.stalled.is_none();
            if is_leaving
                && !agent.files.is_empty()
                && agent.mirror.as_ref().is_some_and(|mirror| mirror.is_sending(now))
            {
                return broken(format!("{process:?} is killed while it sends {:?}", agent.files));
            }
        }
        self.end_process(process)
    }

    fn end_process(&mut self, process: &Process) -> Step {
        self.processes.ended(process);
        let Some(agent) = self.agent(process) else { return Ok(()) };
        agent.next_step(Doing::Gone);
        let connections = [agent.connection.take(), agent.mirror.take().map(|mirror| mirror.connection)];
        connections.into_iter().flatten().try_for_each(|connection| self.cut(connection))
    }

    /// The connection is gone; if the agent had it, it calls again or exits.
    pub(crate) fn agent_loses(&mut self, process: &Process, connection: u64) -> Step {
        let now = self.now;
        let Some(agent) = self.agent(process) else { return Ok(()) };
        if agent.mirror.as_ref().is_some_and(|mirror| mirror.connection == connection) {
            agent.mirror = None;
            if !agent.files.is_empty() {
                let pause = self.faults.random.between(50, 1000);
                self.after(pause, SimEvent::ConnectFiles(process.clone()));
            }
            return Ok(());
        }
        if agent.connection != Some(connection) {
            return Ok(());
        }
        agent.connection = None;
        agent.welcomed = false;
        agent.seen = now;
        if agent.doing == Doing::Idle {
            return self.agent_ends(process);
        }
        let pause = self.faults.random.between(50, 1000);
        self.after(pause, SimEvent::Connect(process.clone()));
        Ok(())
    }

    pub(crate) fn connects(&mut self, process: &Process) -> Step {
        let (now, is_served) = (self.now, self.server.is_some());
        let Some(agent) = self.agent(process).filter(|agent| agent.connection.is_none()) else { return Ok(()) };
        let purpose = match agent.attempt.clone() {
            // It is not used any more.
            None if !is_served => return self.agent_ends(process),
            None => Purpose::Idle,
            Some(attempt) if !is_served => {
                if now.saturating_sub(agent.seen) > LEASE_MS {
                    self.say(|| format!("{process:?}: the lease is over"));
                    self.touch(&attempt);
                    return self.agent_ends(process);
                }
                let pause = self.faults.random.between(50, 1000);
                self.after(pause, SimEvent::Connect(process.clone()));
                return Ok(());
            }
            Some(attempt) => Purpose::Reports((attempt, process.1)),
        };
        agent.seen = now;
        let connection = self.open(process, purpose);
        if let Some(agent) = self.agent(process) {
            agent.connection = Some(connection);
        }
        Ok(())
    }

    /// Its process is stopped from now on.
    pub(crate) fn stall(&mut self, process: &Process, ms: u64) {
        if let Some(agent) = self.agent(process).filter(|agent| agent.stalled.is_none()) {
            agent.stalled = Some(Vec::new());
            self.after(ms, SimEvent::Continued(process.clone()));
        }
    }

    /// What was to happen to it meanwhile happens now.
    pub(crate) fn continues(&mut self, process: &Process) -> Step {
        let events = self.agent(process).and_then(|agent| agent.stalled.take()).unwrap_or_default();
        events.into_iter().try_for_each(|event| self.handle(event))
    }

    /// An event, unless it is that of an agent whose process is stopped.
    pub(crate) fn unless_stalled(&mut self, event: SimEvent) -> Option<SimEvent> {
        let process = match &event {
            SimEvent::Connect(process) | SimEvent::ConnectFiles(process) => process,
            SimEvent::AgentStep { process, .. } | SimEvent::NoticeOver { process, .. } => process,
            SimEvent::Sign { connection } | SimEvent::Down { connection, .. } => {
                &self.connections.get(connection)?.process
            }
            _ => return Some(event),
        };
        match self.agents.get_mut(process).and_then(|agent| agent.stalled.as_mut()) {
            Some(later) => {
                later.push(event);
                None
            }
            None => Some(event),
        }
    }

    pub(crate) fn down(&mut self, connection: u64, message: Down) -> Step {
        let Some(process) = self.connections.get(&connection).map(|connection| connection.process.clone()) else {
            return Ok(());
        };
        let Some(agent) = self.agent(&process) else { return Ok(()) };
        let is_mirror = agent.mirror.as_ref().is_some_and(|mirror| mirror.connection == connection);
        if agent.connection != Some(connection) && !is_mirror {
            return Ok(());
        }
        match message {
            Down::Closed => return self.cut(connection),
            Down::Ready | Down::FileSaved(_) | Down::FileRefused => return self.receive_answer(&process, message),
            Down::Refused if is_mirror => {
                agent.files.clear();
                return self.settle_files(&process);
            }
            Down::Refused => {
                self.say(|| format!("{process:?} is refused"));
                return self.agent_ends(&process);
            }
            Down::Welcome { acked } => return self.welcomed(&process, connection, acked),
            Down::Ack(seq) => {
                let has_evaluation = agent.acknowledged(seq);
                let attempt = agent.attempt.clone();
                let stored = attempt.clone().and_then(|attempt| self.disk.acked.get(&(attempt, process.1)).copied());
                if let Some(attempt) = attempt.filter(|_| has_evaluation)
                    && self.mirror.job_of(&attempt).is_some()
                    && !self.evaluated.contains(&(attempt, process.1))
                {
                    return broken(format!("the evaluation of a rule by {process:?} was acknowledged and is no event"));
                }
                if stored.is_some_and(|stored| stored < seq) {
                    return broken(format!("{process:?} was acknowledged {seq}, and {stored:?} is stored"));
                }
            }
            Down::Order(order @ (Order::Release | Order::Park)) => {
                // One that cannot clear the attempt away exits.
                let parks = order == Order::Park && !self.faults.one_in(20);
                self.leaves(&process, parks);
            }
            Down::Order(Order::Stop { .. }) => self.receive_stop(&process),
            Down::Order(Order::Leave { notice_s, .. }) => self.receive_leave(&process, notice_s),
            Down::Order(Order::Members { hosts }) => {
                self.receive_members(&process, hosts.into_iter().map(Host).collect());
            }
            Down::Order(Order::Freeze) => {
                if let Some(units) = &mut agent.units {
                    units.frozen = true;
                }
            }
            Down::Order(Order::Thaw { until }) => {
                self.receive_resume(&process, until.and_then(|until| u32::try_from(until).ok()));
            }
            Down::Order(Order::Sample(_) | Order::ProfilerRules { .. }) => {
                return broken(format!("{process:?} does not know how to sample"));
            }
            Down::Serve { attempt } => return self.takes_attempt(&process, connection, attempt),
        }
        Ok(())
    }

    fn welcomed(&mut self, process: &Process, connection: u64, acked: u64) -> Step {
        let wall = self.wall();
        let Some(agent) = self.agent(process) else { return Ok(()) };
        agent.welcomed = true;
        agent.acknowledged(acked);
        agent.sent = acked;
        if agent.doing == Doing::Nothing {
            if acked > 0 {
                return broken(format!("{process:?} was started again"));
            }
            agent.report(wall, ReportBody::Phase { phase: Phase::Downloading });
            let (ms, step) = (agent.program.download_ms, agent.next_step(Doing::Downloading));
            self.after(ms, SimEvent::AgentStep { process: process.clone(), step });
        }
        self.after(sign_ms(), SimEvent::Sign { connection });
        self.flush(process);
        Ok(())
    }

    /// An agent with nothing to report shows that it lives.
    pub(crate) fn signs(&mut self, connection: u64) {
        let Some(process) = self.connections.get(&connection).map(|connection| connection.process.clone()) else {
            return;
        };
        let now = self.now;
        let Some(agent) = self.agent(&process).filter(|agent| agent.connection == Some(connection)) else { return };
        if now.saturating_sub(agent.sent_at) >= sign_ms() {
            agent.sent_at = now;
            self.send_up(connection, Up::Frames(vec![Frame::Message(ToServer::Alive)]));
        }
        self.after(sign_ms(), SimEvent::Sign { connection });
    }

    /// An idle agent has an attempt again: it calls for it.
    fn takes_attempt(&mut self, process: &Process, connection: u64, attempt: AttemptId) -> Step {
        let Some((program, units)) = self.program_of(&attempt, process.1) else { return self.agent_ends(process) };
        if let Some(agent) = self.agents.get_mut(process) {
            *agent = Agent::new(attempt, program, units, self.now);
        }
        self.cut(connection)?;
        let ms = self.faults.random.between(1, 60);
        self.after(ms, SimEvent::Connect(process.clone()));
        Ok(())
    }

    /// It clears away what it has, once its files are saved.
    fn leaves(&mut self, process: &Process, parks: bool) {
        let is_slow = self.faults.one_in(15);
        let ms = if is_slow { self.faults.random.between(1000, 6000) } else { self.faults.random.between(1, 40) };
        let Some(agent) = self.agent(process).filter(|agent| agent.attempt.is_some()) else { return };
        if agent.doing == (Doing::Leaving { parks }) {
            return;
        }
        let step = agent.next_step(Doing::Leaving { parks });
        self.after(ms, SimEvent::AgentStep { process: process.clone(), step });
    }

    fn clears(&mut self, process: &Process, parks: bool) -> Step {
        let Some(agent) = self.agent(process) else { return Ok(()) };
        if !agent.files.is_empty() {
            // The last answer continues from here.
            return Ok(());
        }
        if !parks {
            return self.agent_ends(process);
        }
        agent.attempt = None;
        agent.next_step(Doing::Idle);
        let connections = [agent.connection.take(), agent.mirror.take().map(|mirror| mirror.connection)];
        connections.into_iter().flatten().try_for_each(|connection| self.cut(connection))?;
        self.connects(process)
    }

    /// Sends what was not sent on this connection.
    fn flush(&mut self, process: &Process) {
        let now = self.now;
        let Some(agent) = self.agent(process) else { return };
        let (Some(connection), true) = (agent.connection, agent.welcomed) else { return };
        let sent = std::mem::replace(&mut agent.sent, agent.next - 1);
        let new: Vec<_> = agent.spool.iter().filter(|(seq, _)| *seq > sent).map(|(_, frame)| frame.clone()).collect();
        if !new.is_empty() {
            agent.sent_at = now;
        }
        let mut rest = new.as_slice();
        while !rest.is_empty() {
            let count = rest.len().min(usize::try_from(self.faults.random.between(1, 4)).expect("few"));
            self.send_up(connection, Up::Frames(rest[..count].to_vec()));
            rest = &rest[count..];
        }
    }
}

fn sign_ms() -> u64 {
    u64::try_from(sign_interval(SILENCE).as_millis()).expect("short")
}
