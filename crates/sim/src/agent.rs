//! Fake agents: numbered reports from a spool until they are acknowledged, a lease, stops, uploads, as the real ones do it.

use std::collections::VecDeque;

use shoal_plane::{InstanceReport, MetricValue, RankEnd, Time};

use crate::{
    launcher::Key,
    scenario::{End, Program},
    tuning::Units,
    world::{SimEvent, Simulation, Step, broken},
};

/// Without a server for so long, an agent ends its program and leaves.
const LEASE_MS: u64 = 90_000;
/// From SIGTERM to SIGKILL.
const GRACE_MS: u64 = 20_000;
/// A program that never ends falls silent after so many lines.
const MAX_LINES: u32 = 40;

/// A numbered report.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) seq: u64,
    pub(crate) body: ReportBody,
}

#[derive(Debug, Clone)]
pub(crate) enum ReportBody {
    /// A log line, by number.
    Line(u32),
    /// A part of the model.
    Part(u32),
    Uploading,
    /// What the core wants to know.
    Fact(InstanceReport),
}

/// From an agent to the server.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    Hello,
    Reports(Vec<Report>),
}

/// From the server to an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Down {
    Welcome { acked: u64 },
    Refused,
    Ack(u64),
    Order(Order),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Stop,
    /// Its program stands still.
    Freeze,
    /// It runs up to so many units of resource.
    Resume(Option<u32>),
    Release,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// Not welcomed yet.
    Nothing,
    Downloading,
    /// So many steps are done.
    Training(u32),
    /// Ordered to end.
    Ending,
    /// So many parts are sent.
    Uploading(u32),
    /// Only the release is awaited.
    Waiting,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) program: Program,
    /// For a trial.
    pub(crate) units: Option<Units>,
    /// It waits at the end of a step for the leave to go on.
    stands: bool,
    /// How often it was started though it ran: never.
    pub(crate) twins: u32,
    doing: Doing,
    /// Numbers what it does, so that a step of something else is known to be stale.
    step: u64,
    stop: bool,
    lines: u32,
    has_uploaded: bool,
    spool: VecDeque<Report>,
    next: u64,
    connection: Option<u64>,
    welcomed: bool,
    /// Highest number sent on this connection.
    sent: u64,
    /// When it last had a connection.
    seen: u64,
}

impl Agent {
    /// Its lease begins at its start, whether a server is there or not.
    pub(crate) fn new(program: Program, units: Option<Units>, now: u64) -> Self {
        Self {
            program,
            units,
            stands: false,
            twins: 0,
            doing: Doing::Nothing,
            step: 0,
            stop: false,
            lines: 0,
            has_uploaded: false,
            spool: VecDeque::new(),
            next: 1,
            connection: None,
            welcomed: false,
            sent: 0,
            seen: now,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.doing == Doing::Gone
    }

    fn report(&mut self, body: ReportBody) {
        self.spool.push_back(Report { seq: self.next, body });
        self.next += 1;
    }

    fn fact(&mut self, report: InstanceReport) {
        self.report(ReportBody::Fact(report));
    }

    fn acknowledged(&mut self, seq: u64) {
        self.spool.retain(|report| report.seq > seq);
        self.next = self.next.max(seq + 1);
    }

    fn next_step(&mut self, doing: Doing) -> u64 {
        self.doing = doing;
        self.step += 1;
        self.step
    }
}

impl Simulation {
    fn agent(&mut self, key: &Key) -> Option<&mut Agent> {
        self.agents.get_mut(key).filter(|agent| !agent.is_gone())
    }

    /// The process is gone, with its program.
    pub(crate) fn agent_ends(&mut self, key: &Key) {
        self.launcher.ended(key);
        if let Some(agent) = self.agent(key) {
            agent.next_step(Doing::Gone);
            if let Some(connection) = agent.connection.take() {
                self.cut(connection);
            }
        }
    }

    /// The connection is gone; whether the agent had it, and calls again.
    pub(crate) fn agent_loses(&mut self, key: &Key, connection: u64) -> bool {
        let now = self.now;
        let Some(agent) = self.agent(key).filter(|agent| agent.connection == Some(connection)) else { return false };
        agent.connection = None;
        agent.welcomed = false;
        agent.seen = now;
        true
    }

    pub(crate) fn connects(&mut self, key: &Key) {
        let (now, is_served) = (self.now, self.server.is_some());
        let Some(agent) = self.agent(key).filter(|agent| agent.connection.is_none()) else { return };
        if !is_served {
            if now.saturating_sub(agent.seen) > LEASE_MS {
                self.say(|| format!("{key:?}: the lease is over"));
                self.touch(&key.0);
                return self.agent_ends(key);
            }
            let pause = self.faults.random.between(50, 1000);
            return self.after(pause, SimEvent::Connect(key.clone()));
        }
        agent.seen = now;
        let connection = self.open(key);
        if let Some(agent) = self.agent(key) {
            agent.connection = Some(connection);
        }
        self.send_up(connection, Up::Hello);
    }

    pub(crate) fn down(&mut self, connection: u64, message: Down) -> Step {
        let Some(key) = self.connections.get(&connection).map(|connection| connection.key.clone()) else { return Ok(()) };
        let stored = self.disk.acked.get(&key).copied();
        let Some(agent) = self.agent(&key).filter(|agent| agent.connection == Some(connection)) else { return Ok(()) };
        match message {
            Down::Welcome { acked } => {
                agent.welcomed = true;
                agent.acknowledged(acked);
                agent.sent = acked;
                if agent.doing == Doing::Nothing {
                    if acked > 0 {
                        return broken(format!("{key:?} was started again"));
                    }
                    agent.fact(InstanceReport::Downloading);
                    let (ms, step) = (agent.program.download_ms, agent.next_step(Doing::Downloading));
                    self.after(ms, SimEvent::AgentStep { key: key.clone(), step });
                }
                self.flush(&key);
            }
            Down::Refused => {
                self.say(|| format!("{key:?} is refused"));
                self.agent_ends(&key);
            }
            Down::Ack(seq) => {
                if stored.is_some_and(|stored| stored < seq) {
                    return broken(format!("{key:?} was acknowledged {seq}, and {stored:?} is stored"));
                }
                agent.acknowledged(seq);
            }
            Down::Order(Order::Release) => self.agent_ends(&key),
            Down::Order(Order::Stop) => self.receive_stop(&key),
            Down::Order(Order::Freeze) => {
                if let Some(units) = &mut agent.units {
                    units.frozen = true;
                }
            }
            Down::Order(Order::Resume(to)) => self.receive_resume(&key, to),
        }
        Ok(())
    }

    fn receive_resume(&mut self, key: &Key, to: Option<u32>) {
        let Some(agent) = self.agent(key) else { return };
        let Some(units) = &mut agent.units else { return };
        units.to = to;
        units.frozen = false;
        if let (Doing::Training(done), true) = (agent.doing, agent.stands)
            && units.may_step(done)
        {
            agent.stands = false;
            let (ms, step) = (agent.program.step_ms, agent.next_step(Doing::Training(done)));
            self.after(ms, SimEvent::AgentStep { key: key.clone(), step });
        }
    }

    fn receive_stop(&mut self, key: &Key) {
        let Some(agent) = self.agent(key) else { return };
        let is_first = !std::mem::replace(&mut agent.stop, true);
        match agent.doing {
            Doing::Downloading | Doing::Training(_) => {
                let is_started = matches!(agent.doing, Doing::Training(_));
                let ms = if is_started { agent.program.term_ms.min(GRACE_MS) } else { 1 };
                let step = agent.next_step(Doing::Ending);
                self.after(ms, SimEvent::AgentStep { key: key.clone(), step });
            }
            // The order crossed the report of a failure; who gave it waits for what there is.
            Doing::Waiting if is_first && !agent.has_uploaded => {
                self.uploads(key);
                self.flush(key);
            }
            Doing::Nothing | Doing::Ending | Doing::Uploading(_) | Doing::Waiting | Doing::Gone => {}
        }
    }

    /// The next step of what an agent does.
    pub(crate) fn step_agent(&mut self, key: &Key, step: u64) {
        let wall = self.wall();
        let Some(doing) = self.agent(key).filter(|agent| agent.step == step).map(|agent| agent.doing) else { return };
        let has_trouble = doing == Doing::Downloading && self.faults.lethal_one_in(30);
        if has_trouble {
            self.touch(&key.0);
        }
        let Some(agent) = self.agent(key) else { return };
        let program = agent.program.clone();
        match doing {
            Doing::Downloading if has_trouble => {
                agent.fact(InstanceReport::Lost { reason: "the sandbox could not be made".to_owned() });
                agent.has_uploaded = true;
                agent.next_step(Doing::Waiting);
            }
            Doing::Downloading => {
                agent.fact(InstanceReport::Training);
                let step = agent.next_step(Doing::Training(0));
                self.after(program.step_ms, SimEvent::AgentStep { key: key.clone(), step });
            }
            Doing::Training(done) if agent.units.as_ref().is_some_and(|units| !units.may_step(done)) => agent.stands = true,
            Doing::Training(done) if done < program.steps || program.end == End::Never => {
                if done < MAX_LINES {
                    agent.lines += 1;
                    let line = agent.lines;
                    agent.report(ReportBody::Line(line));
                    if let Some(value) = agent.units.as_ref().map(|units| units.value_after(line)) {
                        agent.fact(InstanceReport::Objective { ordinal: line, value });
                    }
                    if line % program.saves_every == 0 {
                        let path = format!("step-{line}");
                        agent.fact(InstanceReport::CheckpointSaved { path, bytes: line.into(), sha256: "0".repeat(64) });
                    }
                    let step = agent.next_step(Doing::Training(done + 1));
                    self.after(program.step_ms, SimEvent::AgentStep { key: key.clone(), step });
                }
            }
            Doing::Training(_) => self.program_ends(key, program.end, wall),
            Doing::Ending => self.program_ends(key, End::Signal(15), wall),
            Doing::Uploading(sent) if sent < program.parts => {
                agent.report(ReportBody::Part(sent));
                let step = agent.next_step(Doing::Uploading(sent + 1));
                self.after(30, SimEvent::AgentStep { key: key.clone(), step });
            }
            Doing::Uploading(_) => {
                agent.fact(InstanceReport::Uploaded);
                agent.next_step(Doing::Waiting);
            }
            Doing::Nothing | Doing::Waiting | Doing::Gone => {}
        }
        self.flush(key);
    }

    fn program_ends(&mut self, key: &Key, end: End, wall: Time) {
        let Some(agent) = self.agent(key) else { return };
        let (code, signal) = match end {
            End::Exit(code) => (Some(code), None),
            End::Signal(signal) => (None, Some(signal)),
            End::OutOfMemory | End::Never => (None, Some(9)),
        };
        let before = agent.units.as_ref().map_or(0, |units| units.from);
        let value = f64::from(before + agent.lines);
        let metrics = (agent.lines > 0).then(|| MetricValue { name: format!("loss-{}", key.1), value, at: wall });
        agent.fact(InstanceReport::RankEnded {
            end: RankEnd {
                code,
                signal,
                out_of_memory: end == End::OutOfMemory,
                crowded_out: None,
                failure_file: None,
                stderr_tail: format!("last words of host {}", key.1),
                at: wall,
            },
            final_metrics: metrics.into_iter().collect(),
        });
        if code == Some(0) || agent.stop {
            self.uploads(key);
        } else {
            agent.next_step(Doing::Waiting);
        }
    }

    fn uploads(&mut self, key: &Key) {
        let Some(agent) = self.agent(key) else { return };
        agent.has_uploaded = true;
        agent.report(ReportBody::Uploading);
        let step = agent.next_step(Doing::Uploading(0));
        self.after(30, SimEvent::AgentStep { key: key.clone(), step });
    }

    /// Sends what was not sent on this connection.
    fn flush(&mut self, key: &Key) {
        let Some(agent) = self.agent(key) else { return };
        let (Some(connection), true) = (agent.connection, agent.welcomed) else { return };
        let new: Vec<Report> = agent.spool.iter().filter(|report| report.seq > agent.sent).cloned().collect();
        agent.sent = agent.next - 1;
        let mut rest = new.as_slice();
        while !rest.is_empty() {
            let count = rest.len().min(usize::try_from(self.faults.random.between(1, 4)).expect("few"));
            self.send_up(connection, Up::Reports(rest[..count].to_vec()));
            rest = &rest[count..];
        }
    }
}
