//! Fake agents: numbered reports from a spool until they are acknowledged, files until they are saved, a lease, stops, uploads, and instances
//! that serve several attempts, as the real ones do it.

use std::{collections::VecDeque, time::Duration};

use shoal_link::{Artifact, Frame, LogLine, MetricPoint, Order, Phase, RankEnd, RankOutcome, Report, ReportBody, ToServer};
use shoal_plane::Time;
use shoal_runtime::sign_interval;

use crate::{
    disk::Host,
    network::Purpose,
    processes::Process,
    scenario::{End, Program},
    tuning::Units,
    world::{SimEvent, Simulation, Step, broken},
};

/// An agent that sends nothing for so long is taken for lost.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);
/// Without a server for so long, an agent ends its program and leaves.
const LEASE_MS: u64 = 90_000;
/// From SIGTERM to SIGKILL.
const GRACE_MS: u64 = 20_000;
/// A program that never ends falls silent after so many lines.
const MAX_LINES: u32 = 40;
/// An agent that has sent a file not longer ago is not ended before it is answered, if it has been connected for as long as it takes until
/// what a release has learnt of it reaches the processes.
const SENT_MS: u64 = 5000;
const KNOWN_MS: u64 = 7000;

/// From an agent to the server.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    /// First on each connection, whatever its purpose.
    Hello,
    /// They arrive together.
    Frames(Vec<Frame<ToServer>>),
}

/// From the server to an agent.
#[derive(Debug, Clone)]
pub(crate) enum Down {
    Welcome {
        acked: u64,
    },
    Refused,
    Ack(u64),
    Order(Order),
    /// An idle agent is to serve this attempt.
    Serve {
        attempt: String,
    },
    /// Files may come.
    Ready,
    FileSaved(String),
    FileRefused,
    /// Nothing more comes.
    Closed,
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
    /// Released; its instance stays if it is parked.
    Leaving {
        parks: bool,
    },
    /// It serves no attempt.
    Idle,
    Gone,
}

/// A connection for files.
#[derive(Debug)]
struct Mirror {
    connection: u64,
    ready_at: Option<u64>,
    /// Of the files that are not answered, how many were sent on it.
    sent: usize,
    sent_at: u64,
}

#[derive(Debug)]
pub(crate) struct Agent {
    /// What it serves; none while it is idle.
    pub(crate) attempt: Option<String>,
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
    spool: VecDeque<(u64, Frame<ToServer>)>,
    next: u64,
    connection: Option<u64>,
    welcomed: bool,
    /// Highest number sent on this connection.
    sent: u64,
    /// When something was last sent on it.
    sent_at: u64,
    /// When it last had a connection.
    seen: u64,
    /// Files that are not answered.
    files: VecDeque<String>,
    mirror: Option<Mirror>,
    /// What happens to it while its process stands still.
    stalled: Option<Vec<SimEvent>>,
}

impl Agent {
    /// Its lease begins at its start, whether a server is there or not.
    fn new(attempt: String, program: Program, units: Option<Units>, now: u64) -> Self {
        Self {
            attempt: Some(attempt),
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
            sent_at: 0,
            seen: now,
            files: VecDeque::new(),
            mirror: None,
            stalled: None,
        }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.doing == Doing::Gone
    }

    /// Its program has ended.
    fn is_over(&self) -> bool {
        matches!(self.doing, Doing::Uploading(_) | Doing::Waiting | Doing::Leaving { .. })
    }

    fn report(&mut self, at: Time, body: ReportBody) {
        let report = Report { seq: self.next, at_ms: at.0, body };
        self.spool.push_back((self.next, Frame::Message(ToServer::Report(report))));
        self.next += 1;
    }

    fn acknowledged(&mut self, seq: u64) {
        self.spool.retain(|(number, _)| *number > seq);
        self.next = self.next.max(seq + 1);
    }

    fn next_step(&mut self, doing: Doing) -> u64 {
        self.doing = doing;
        self.step += 1;
        self.step
    }
}

impl Simulation {
    fn agent(&mut self, process: &Process) -> Option<&mut Agent> {
        self.agents.get_mut(process).filter(|agent| !agent.is_gone())
    }

    /// A process of an allocation is started for an attempt.
    pub(crate) fn agent_starts(&mut self, process: Process, attempt: &str) -> Step {
        if let Some(twin) = self.agent(&process) {
            twin.twins += 1;
            return Ok(());
        }
        let Some((program, units)) = self.program_of(attempt, process.1) else { return broken(format!("no program of {attempt}")) };
        self.agents.insert(process.clone(), Agent::new(attempt.to_owned(), program, units, self.now));
        let ms = self.faults.random.between(1, 60);
        self.after(ms, SimEvent::Connect(process));
        Ok(())
    }

    /// What runs on a host of an attempt.
    pub(crate) fn program_of(&self, attempt: &str, host: u32) -> Option<(Program, Option<Units>)> {
        match self.jobs.iter().find(|job| self.owner(attempt) == Some(&job.name)) {
            Some(job) => Some((job.hosts.get((host as usize).checked_sub(1)?)?.clone(), None)),
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
            let is_sending = |mirror: &Mirror| {
                mirror.ready_at.is_some_and(|at| now.saturating_sub(at) > KNOWN_MS) && now.saturating_sub(mirror.sent_at) < SENT_MS
            };
            if is_leaving && !agent.files.is_empty() && agent.mirror.as_ref().is_some_and(is_sending) {
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
            // Nobody has a use for it.
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

    /// Its process stands still from now on.
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

    /// An event, unless it is that of an agent whose process stands still.
    pub(crate) fn unless_stalled(&mut self, event: SimEvent) -> Option<SimEvent> {
        let process = match &event {
            SimEvent::Connect(process) | SimEvent::ConnectFiles(process) | SimEvent::AgentStep { process, .. } => process,
            SimEvent::Sign { connection } | SimEvent::Down { connection, .. } => &self.connections.get(connection)?.process,
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
        let Some(process) = self.connections.get(&connection).map(|connection| connection.process.clone()) else { return Ok(()) };
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
                agent.acknowledged(seq);
                let stored = agent.attempt.clone().and_then(|attempt| self.disk.acked.get(&(attempt, process.1)).copied());
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
            Down::Order(Order::Freeze) => {
                if let Some(units) = &mut agent.units {
                    units.frozen = true;
                }
            }
            Down::Order(Order::Thaw { until }) => self.receive_resume(&process, until.and_then(|until| u32::try_from(until).ok())),
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
        let Some(process) = self.connections.get(&connection).map(|connection| connection.process.clone()) else { return };
        let now = self.now;
        let Some(agent) = self.agent(&process).filter(|agent| agent.connection == Some(connection)) else { return };
        if now.saturating_sub(agent.sent_at) >= sign_ms() {
            agent.sent_at = now;
            self.send_up(connection, Up::Frames(vec![Frame::Message(ToServer::Alive)]));
        }
        self.after(sign_ms(), SimEvent::Sign { connection });
    }

    /// An idle agent has an attempt again: it calls for it.
    fn takes_attempt(&mut self, process: &Process, connection: u64, attempt: String) -> Step {
        let Some((program, units)) = self.program_of(&attempt, process.1) else { return self.agent_ends(process) };
        if let Some(agent) = self.agents.get_mut(process) {
            *agent = Agent::new(attempt, program, units, self.now);
        }
        self.cut(connection)?;
        let ms = self.faults.random.between(1, 60);
        self.after(ms, SimEvent::Connect(process.clone()));
        Ok(())
    }

    fn receive_resume(&mut self, process: &Process, to: Option<u32>) {
        let Some(agent) = self.agent(process) else { return };
        let Some(units) = &mut agent.units else { return };
        units.to = to;
        units.frozen = false;
        if let (Doing::Training(done), true) = (agent.doing, agent.stands)
            && units.may_step(done)
        {
            agent.stands = false;
            let (ms, step) = (agent.program.step_ms, agent.next_step(Doing::Training(done)));
            self.after(ms, SimEvent::AgentStep { process: process.clone(), step });
        }
    }

    fn receive_stop(&mut self, process: &Process) {
        let Some(agent) = self.agent(process) else { return };
        let is_first = !std::mem::replace(&mut agent.stop, true);
        match agent.doing {
            Doing::Downloading | Doing::Training(_) => {
                let is_started = matches!(agent.doing, Doing::Training(_));
                let ms = if is_started { agent.program.term_ms.min(GRACE_MS) } else { 1 };
                let step = agent.next_step(Doing::Ending);
                self.after(ms, SimEvent::AgentStep { process: process.clone(), step });
            }
            // The order crossed the report of a failure; who gave it waits for what there is.
            Doing::Waiting if is_first && !agent.has_uploaded => {
                self.uploads(process);
                self.flush(process);
            }
            _ => {}
        }
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
            // The last answer goes on from here.
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

    /// The next step of what an agent does.
    pub(crate) fn step_agent(&mut self, process: &Process, step: u64) -> Step {
        let wall = self.wall();
        let Some(doing) = self.agent(process).filter(|agent| agent.step == step).map(|agent| agent.doing) else { return Ok(()) };
        let has_trouble = doing == Doing::Downloading && self.faults.lethal_one_in(30);
        if has_trouble {
            self.touch_agent(process);
        }
        let Some(agent) = self.agent(process) else { return Ok(()) };
        let program = agent.program.clone();
        match doing {
            Doing::Leaving { parks } => return self.clears(process, parks),
            Doing::Downloading if has_trouble => {
                agent.report(wall, ReportBody::InstanceFailed { reason: "the sandbox could not be made".to_owned() });
                agent.has_uploaded = true;
                agent.next_step(Doing::Waiting);
            }
            Doing::Downloading => {
                agent.report(wall, ReportBody::Phase { phase: Phase::Training });
                let step = agent.next_step(Doing::Training(0));
                self.after(program.step_ms, SimEvent::AgentStep { process: process.clone(), step });
            }
            Doing::Training(done) if agent.units.as_ref().is_some_and(|units| !units.may_step(done)) => agent.stands = true,
            Doing::Training(done) if done < program.steps || program.end == End::Never => {
                if done < MAX_LINES {
                    agent.lines += 1;
                    let line = agent.lines;
                    agent.report(wall, ReportBody::Logs { lines: vec![LogLine { at_ms: wall.0, text: line.to_string() }] });
                    if let Some(value) = agent.units.as_ref().map(|units| units.value_after(line)) {
                        agent.report(wall, ReportBody::Objective { ordinal: line, value });
                    }
                    let step = agent.next_step(Doing::Training(done + 1));
                    self.after(program.step_ms, SimEvent::AgentStep { process: process.clone(), step });
                    if line % program.saves_every == 0 {
                        self.saves(process, format!("step-{line}"));
                    }
                }
            }
            Doing::Training(_) => self.program_ends(process, program.end, wall),
            Doing::Ending => self.program_ends(process, End::Signal(15), wall),
            Doing::Uploading(sent) if sent < program.parts => {
                let part = Frame::Part { seq: agent.next, artifact: Artifact::Model, bytes: vec![u8::try_from(sent).expect("few parts")] };
                agent.spool.push_back((agent.next, part));
                agent.next += 1;
                let step = agent.next_step(Doing::Uploading(sent + 1));
                self.after(30, SimEvent::AgentStep { process: process.clone(), step });
            }
            Doing::Uploading(_) => {
                agent.report(wall, ReportBody::Uploaded);
                agent.next_step(Doing::Waiting);
            }
            Doing::Nothing | Doing::Waiting | Doing::Idle | Doing::Gone => {}
        }
        self.flush(process);
        self.settle_files(process)
    }

    fn program_ends(&mut self, process: &Process, end: End, wall: Time) {
        let Some(agent) = self.agent(process) else { return };
        let outcome = match end {
            End::Exit(code) => RankOutcome::Exited(code),
            End::Signal(signal) => RankOutcome::Signaled(signal),
            End::OutOfMemory | End::Never => RankOutcome::Signaled(9),
        };
        let before = agent.units.as_ref().map_or(0, |units| units.from);
        let value = f64::from(before + agent.lines);
        let metrics = (agent.lines > 0).then(|| MetricPoint { name: format!("loss-{}", process.1), value, at_ms: wall.0 });
        let end = RankEnd {
            outcome,
            out_of_memory: end == End::OutOfMemory,
            crowded_out: None,
            failure_file: None,
            stderr_tail: format!("last words of host {}", process.1),
        };
        agent.report(wall, ReportBody::RankEnded { end, final_metrics: metrics.into_iter().collect() });
        if outcome == RankOutcome::Exited(0) || agent.stop {
            self.uploads(process);
        } else {
            agent.next_step(Doing::Waiting);
        }
    }

    fn uploads(&mut self, process: &Process) {
        let wall = self.wall();
        let Some(agent) = self.agent(process) else { return };
        agent.has_uploaded = true;
        agent.report(wall, ReportBody::Phase { phase: Phase::Uploading });
        let step = agent.next_step(Doing::Uploading(0));
        self.after(30, SimEvent::AgentStep { process: process.clone(), step });
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

    /// A program has written a checkpoint.
    fn saves(&mut self, process: &Process, path: String) {
        let Some(agent) = self.agent(process) else { return };
        agent.files.push_back(path);
        if agent.mirror.is_some() {
            self.send_files(process);
        } else if agent.files.len() == 1 {
            self.after(1, SimEvent::ConnectFiles(process.clone()));
        }
    }

    pub(crate) fn connects_files(&mut self, process: &Process) {
        let is_served = self.server.is_some();
        let Some(agent) = self.agent(process).filter(|agent| agent.mirror.is_none() && !agent.files.is_empty()) else { return };
        let Some(attempt) = agent.attempt.clone() else { return };
        if !is_served {
            let pause = self.faults.random.between(50, 1000);
            return self.after(pause, SimEvent::ConnectFiles(process.clone()));
        }
        let connection = self.open(process, Purpose::Files((attempt, process.1)));
        if let Some(agent) = self.agent(process) {
            agent.mirror = Some(Mirror { connection, ready_at: None, sent: 0, sent_at: 0 });
        }
    }

    /// Sends files that were not sent on this connection.
    fn send_files(&mut self, process: &Process) {
        let now = self.now;
        let Some(agent) = self.agent(process) else { return };
        let Some(mirror) = agent.mirror.as_mut().filter(|mirror| mirror.ready_at.is_some()) else { return };
        let new: Vec<_> = agent.files.iter().skip(mirror.sent).cloned().collect();
        mirror.sent = agent.files.len();
        mirror.sent_at = now;
        let connection = mirror.connection;
        for path in new {
            let begins = Frame::Message(ToServer::FileBegins { path, is_last: false });
            let ends = Frame::Message(ToServer::FileEnds { bytes: 1 });
            self.send_up(connection, Up::Frames(vec![begins, Frame::Chunk(vec![0])]));
            self.send_up(connection, Up::Frames(vec![ends]));
        }
    }

    fn receive_answer(&mut self, process: &Process, answer: Down) -> Step {
        let now = self.now;
        let Some(agent) = self.agent(process) else { return Ok(()) };
        let (Some(attempt), Some(mirror)) = (agent.attempt.clone(), &mut agent.mirror) else { return Ok(()) };
        if let Down::Ready = answer {
            mirror.ready_at = Some(now);
            self.send_files(process);
            return Ok(());
        }
        let file = agent.files.pop_front();
        mirror.sent = mirror.sent.saturating_sub(1);
        if let Down::FileSaved(path) = answer {
            if file.as_ref() != Some(&path) {
                return broken(format!("{process:?} is answered about {path} instead of {file:?}"));
            }
            let receipt: (Host, String) = ((attempt, process.1), path);
            if !self.receipts.contains(&receipt) {
                return broken(format!("{process:?} is told that {} is saved, and there is no receipt", receipt.1));
            }
        }
        self.settle_files(process)
    }

    /// Once all files of a program that has ended are answered, their connection is closed, and an agent that waits for that leaves.
    fn settle_files(&mut self, process: &Process) -> Step {
        let Some(agent) = self.agent(process) else { return Ok(()) };
        if !agent.files.is_empty() || !agent.is_over() {
            return Ok(());
        }
        let doing = agent.doing;
        if let Some(mirror) = agent.mirror.take() {
            self.cut(mirror.connection)?;
            if let (Doing::Leaving { parks }, Some(agent)) = (doing, self.agent(process)) {
                let step = agent.next_step(Doing::Leaving { parks });
                self.after(1, SimEvent::AgentStep { process: process.clone(), step });
            }
        }
        Ok(())
    }
}

fn sign_ms() -> u64 {
    u64::try_from(sign_interval(SILENCE).as_millis()).expect("short")
}
