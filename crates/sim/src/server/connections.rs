//! The server's end of its connections with agents: feeds `shoal_runtime`'s links, ingestions and
//! file receivers, and performs what they request.

use shoal_link::{Artifact, Frame, MirrorKind, Order, ToAgent, ToServer};
use shoal_plane::{AttemptId, Command, Host, InstanceReport};
use shoal_runtime::{
    ConnId, FileReceiver, Ingestion, Loss, file_receiver,
    host_link::{Event, Io},
    ingestion::{self, Batch},
    losses, warm_pool,
};

use super::Refusal;
use crate::{
    Bug,
    coverage::Point,
    state::{
        agent::SILENCE,
        disk::AttemptHost,
        events::SimEvent,
        network::{Down, Purpose, Up},
        server::ServerEnd,
    },
    world::{Simulation, Step, broken},
};

/// Between two looks at whether agents live.
pub(crate) const WATCH_MS: u64 = 500;

impl Simulation {
    pub(crate) fn up(&mut self, number: u64, message: Up) -> Step {
        let Some(connection) = self.connections.get(&number) else { return Ok(()) };
        let (purpose, process) = (connection.purpose.clone(), connection.process.clone());
        match message {
            Up::Hello => {
                if let Purpose::Reports((attempt, host)) | Purpose::Files((attempt, host)) = &purpose
                    && self.server().attempts.get_mut(attempt).and_then(|running| running.host(*host)).is_none()
                {
                    self.send_down(number, Down::Refused);
                    self.close_when_sent(number);
                    return Ok(());
                }
                let (conn, end) = (ConnId(number), ServerEnd::new(purpose.clone(), process.0.clone()));
                self.server().ends.insert(number, end);
                match purpose {
                    Purpose::Reports((attempt, host)) => {
                        self.happens(warm_pool::Event::AgentConnected { attempt: attempt.clone(), host, conn });
                        let key = (attempt, host);
                        if self.bug == Some(Bug::HastyInstance) {
                            self.link(&key, Event::InstanceConnected)?;
                        }
                        self.link(&key, Event::Hello(conn))
                    }
                    Purpose::Files(host) => self.link(&host, Event::MirrorHello(MirrorKind::Checkpoints, conn)),
                    Purpose::Idle => {
                        let (allocation, host) = (warm_pool::AllocationId(process.0), process.1);
                        self.happens(warm_pool::Event::AgentIdle { allocation, host, conn });
                        Ok(())
                    }
                }
            }
            Up::Frames(frames) => {
                let Some(end) = self.server().ends.get_mut(&number) else { return Ok(()) };
                end.inbox.push_back(frames);
                self.wake(number)
            }
        }
    }

    /// An event of a host's link, and what follows from it.
    pub(crate) fn link(&mut self, (attempt, host): &AttemptHost, event: Event) -> Step {
        let now = self.clocks();
        let Some(link) = self.server().attempts.get_mut(attempt).and_then(|running| running.host(*host)) else {
            return Ok(());
        };
        for io in link.handle(event, now) {
            match io {
                Io::Admit(ConnId(number)) => self.admit(number)?,
                Io::Send(ConnId(number), ToAgent::Order(order)) => self.send_down(number, Down::Order(order)),
                Io::Send(..) => return broken("a link sends orders only"),
                Io::Close(ConnId(number)) => self.hang_up(number)?,
            }
        }
        Ok(())
    }

    /// Gives an order that stands until the attempt is released.
    pub(crate) fn order(&mut self, attempt: &AttemptId, host: Host, order: Order) -> Step {
        let is_lost = match self.bug {
            Some(Bug::LostStop) => true,
            Some(Bug::LostResume) => matches!(order, Order::Thaw { .. }),
            _ => false,
        };
        if is_lost {
            let link = self.server().attempts.get_mut(attempt).and_then(|running| running.host(host));
            if let Some(ConnId(number)) = link.and_then(|link| link.connected()) {
                self.send_down(number, Down::Order(order));
            }
            return Ok(());
        }
        self.link(&(attempt.clone(), host), Event::Order(order))
    }

    /// Serves a connection from now on.
    fn admit(&mut self, number: u64) -> Step {
        let Some(end) = self.server().ends.get_mut(&number) else { return Ok(()) };
        end.is_admitted = true;
        match end.purpose.clone() {
            Purpose::Reports(key) => {
                let acked = self.disk.acked.get(&key).copied().unwrap_or(0);
                if let Some(end) = self.server().ends.get_mut(&number) {
                    end.ingestion = Some(Ingestion::new(key.0.clone(), key.1, acked));
                    end.last = acked;
                }
                self.send_down(number, Down::Welcome { acked });
                self.link(
                    &key,
                    Event::Welcomed { conn: ConnId(number), has_visits: false, has_sampling: false, has_rules: false },
                )?;
            }
            Purpose::Files(_) => {
                end.files = Some(FileReceiver::new(true));
                self.send_down(number, Down::Ready);
            }
            Purpose::Idle => {}
        }
        self.wake(number)
    }

    /// The server closes a connection; what it has delivered is handled all the same.
    pub(crate) fn hang_up(&mut self, number: u64) -> Step {
        if let Some(connection) = self.connections.remove(&number) {
            self.agent_loses(&connection.process, number)?;
        }
        self.end_of_stream(number)
    }

    pub(crate) fn end_of_stream(&mut self, number: u64) -> Step {
        let Some(end) = self.server().ends.get_mut(&number) else { return Ok(()) };
        end.has_ended = true;
        self.wake(number)
    }

    /// A connection's thread continues, at once or after a while.
    fn wake(&mut self, number: u64) -> Step {
        let is_slow = self.faults.one_in(40);
        let Some(end) = self.server().ends.get_mut(&number).filter(|end| !end.is_busy) else { return Ok(()) };
        end.is_busy = true;
        if is_slow {
            // The disk is, too.
            let (pause, epoch) = (self.faults.random.between(1, 1500), self.epoch);
            self.after(pause, SimEvent::Served { epoch, connection: number });
            return Ok(());
        }
        self.serve(number)
    }

    pub(crate) fn serve(&mut self, number: u64) -> Step {
        let Some(end) = self.server().ends.get_mut(&number) else { return Ok(()) };
        end.is_busy = false;
        let batches: Vec<_> = if end.is_admitted { end.inbox.drain(..).collect() } else { Vec::new() };
        let frames: Vec<_> = batches.into_iter().flatten().collect();
        let has_all = match end.purpose.clone() {
            _ if frames.is_empty() => true,
            Purpose::Reports(key) => {
                self.link(&key, Event::Received(ConnId(number)))?;
                let has_all = self.ingest(number, &key, frames)?;
                self.link(&key, Event::Processed(ConnId(number)))?;
                has_all
            }
            Purpose::Files(key) => {
                self.link(&key, Event::MirrorReceived(MirrorKind::Checkpoints, ConnId(number)))?;
                self.receive(number, &key, frames)?
            }
            Purpose::Idle => return broken("an idle agent sends something"),
        };
        if !has_all {
            // The agent sends it again on a new connection.
            if let Some(connection) = self.connections.remove(&number) {
                self.agent_loses(&connection.process, number)?;
            }
            return self.closed(number);
        }
        if self.server().ends.get(&number).is_some_and(|end| end.has_ended) { self.closed(number) } else { Ok(()) }
    }

    /// The connection has ended, and what it delivered is stored.
    fn closed(&mut self, number: u64) -> Step {
        let Some(end) = self.server().ends.remove(&number) else { return Ok(()) };
        let conn = ConnId(number);
        match end.purpose {
            Purpose::Reports(key) => {
                self.link(&key, Event::Closed(conn))?;
                let (attempt, host) = key;
                self.happens(warm_pool::Event::AgentDisconnected { attempt, host, conn });
            }
            Purpose::Files(key) => self.link(&key, Event::MirrorClosed(MirrorKind::Checkpoints, conn))?,
            Purpose::Idle => {
                let allocation = warm_pool::AllocationId(end.allocation);
                self.happens(warm_pool::Event::AgentClosed { allocation, conn });
            }
        }
        Ok(())
    }

    /// Makes durable what has come, in the steps that the machine requests; whether it could.
    fn ingest(&mut self, number: u64, key: &AttemptHost, frames: Vec<Frame<ToServer>>) -> Step<bool> {
        let mut next = Some(ingestion::Event::Arrived(self.in_order(number, key, frames)?));
        while let Some(event) = next.take() {
            let repeats = self.bug == Some(Bug::RepeatedReport);
            let Some(end) = self.server().ends.get_mut(&number) else { return Ok(true) };
            if repeats && matches!(event, ingestion::Event::Arrived(_)) {
                end.ingestion = Some(Ingestion::new(key.0.clone(), key.1, 0));
            }
            let (Some(machine), last) = (&mut end.ingestion, end.last) else {
                return broken("a connection is not admitted");
            };
            for io in machine.handle(event) {
                match io {
                    ingestion::Io::Sign => self.link(key, Event::SignReceived(ConnId(number)))?,
                    ingestion::Io::Commit(facts) => {
                        if self.bug == Some(Bug::EarlyAcknowledgement) {
                            let acked = self.disk.ingest(key, last, Vec::new());
                            self.send_down(number, Down::Ack(acked));
                        }
                        if !self.submit_facts(&facts)? {
                            return Ok(false);
                        }
                        next = Some(ingestion::Event::Done);
                    }
                    ingestion::Io::Part { artifact: Artifact::Model, bytes, .. } => {
                        self.disk.parts.entry(key.clone()).or_default().extend(bytes.into_iter().map(u32::from));
                        next = Some(ingestion::Event::Done);
                    }
                    ingestion::Io::Store(Batch { seq, lines, .. }) => {
                        let lines: Vec<u32> = lines.iter().filter_map(|line| line.text.parse().ok()).collect();
                        let stored = match repeats {
                            true => {
                                self.disk.lines.entry(key.clone()).or_default().extend(lines);
                                self.disk.ingest(key, seq, Vec::new())
                            }
                            false => self.disk.ingest(key, seq, lines),
                        };
                        next = Some(ingestion::Event::Stored(stored));
                    }
                    ingestion::Io::Acknowledge(seq) => self.send_down(number, Down::Ack(seq)),
                    ingestion::Io::Read => {}
                    ingestion::Io::Part { .. }
                    | ingestion::Io::Network(_)
                    | ingestion::Io::RuleFile { .. }
                    | ingestion::Io::Refuse => {
                        return broken(format!("{key:?} sends what no agent sends"));
                    }
                }
            }
        }
        Ok(true)
    }

    /// Reports come without gaps.
    fn in_order(&mut self, number: u64, key: &AttemptHost, frames: Vec<Frame<ToServer>>) -> Step<Vec<Frame<ToServer>>> {
        let Some(end) = self.server().ends.get_mut(&number) else { return Ok(frames) };
        for frame in &frames {
            let (Frame::Part { seq, .. } | Frame::Message(ToServer::Report(shoal_link::Report { seq, .. }))) = frame
            else {
                continue;
            };
            if *seq > end.last + 1 {
                return broken(format!("report {seq} of {key:?} came after {}", end.last));
            }
            end.last = end.last.max(*seq);
        }
        Ok(frames)
    }

    /// Whether the core has taken them.
    fn submit_facts(&mut self, facts: &[Command]) -> Step<bool> {
        let result = self.execute_all(facts, true)?;
        if matches!(result.answer, Err(Refusal::Journal)) {
            return Ok(false);
        }
        self.passes(&result.kinds, Point::BeforeAck)?;
        Ok(true)
    }

    /// Stores files that have come, in the steps that the machine requests; whether it could.
    fn receive(&mut self, number: u64, key: &AttemptHost, frames: Vec<Frame<ToServer>>) -> Step<bool> {
        let events = frames.into_iter().map(file_receiver::Event::Arrived).chain([file_receiver::Event::Drained]);
        for event in events {
            let mut next = Some(event);
            while let Some(event) = next.take() {
                let Some(end) = self.server().ends.get_mut(&number) else { return Ok(true) };
                let Some(machine) = &mut end.files else { return broken("a connection is not admitted") };
                for io in machine.handle(event) {
                    match io {
                        file_receiver::Io::Begin { path, .. } => {
                            if let Some(end) = self.server().ends.get_mut(&number) {
                                end.incoming = path;
                            }
                        }
                        file_receiver::Io::Store => {
                            let path =
                                self.server().ends.get(&number).map(|end| end.incoming.clone()).unwrap_or_default();
                            next = Some(file_receiver::Event::Stored(self.store_file(key, path)));
                        }
                        file_receiver::Io::Commit(paths) => {
                            if !self.commit_receipts(number, key, paths)? {
                                return Ok(false);
                            }
                            next = Some(file_receiver::Event::Committed);
                        }
                        file_receiver::Io::Send(ToAgent::FileSaved { .. }) if self.bug == Some(Bug::EarlySaved) => {}
                        file_receiver::Io::Send(ToAgent::FileSaved { path }) => {
                            self.send_down(number, Down::FileSaved(path));
                        }
                        file_receiver::Io::Send(_) => self.send_down(number, Down::FileRefused),
                        file_receiver::Io::Append(_) | file_receiver::Io::Drop | file_receiver::Io::Read => {}
                        file_receiver::Io::Refuse => {
                            return broken(format!("{key:?} sends what is not part of a file"));
                        }
                    }
                }
            }
        }
        Ok(true)
    }

    fn store_file(&mut self, key: &AttemptHost, path: String) -> Result<(), String> {
        if self.faults.one_in(40) {
            return Err("no space left on device".to_owned());
        }
        let file = (key.clone(), path);
        if self.bug == Some(Bug::EarlyReceipt) {
            let (ms, epoch) = (1 + self.faults.latency(), self.epoch);
            self.after(ms, SimEvent::Written { epoch, file });
        } else {
            self.disk.objects.insert(file);
        }
        Ok(())
    }

    fn commit_receipts(&mut self, number: u64, key: &AttemptHost, paths: Vec<String>) -> Step<bool> {
        if self.bug == Some(Bug::EarlySaved) {
            // Nothing is as fast as this.
            paths.iter().try_for_each(|path| self.down(number, Down::FileSaved(path.clone())))?;
        }
        let receipt = |path| {
            let report = InstanceReport::CheckpointSaved { path, bytes: 1, sha256: "0".repeat(64) };
            Command::InstanceReported { attempt: key.0.clone(), host: key.1, report }
        };
        self.submit_facts(&paths.into_iter().map(receipt).collect::<Vec<_>>())
    }

    /// Reports the instances whose agent is gone, or silent.
    pub(crate) fn watch_agents(&mut self) -> Step {
        self.after(WATCH_MS, SimEvent::CheckAgents { epoch: self.epoch });
        let passed = std::time::Duration::from_millis(WATCH_MS);
        let watched = self.server().attempts.values().filter(|running| running.is_watched);
        let plans: Vec<_> = watched.map(|running| running.plan.clone()).collect();
        for plan in plans {
            let Some(ended) = self.processes.lost(&plan.allocation, plan.instances) else { continue };
            let Some(running) = self.server().attempts.get_mut(&plan.attempt) else { continue };
            let silences: Vec<_> =
                Host::numbered().zip(&mut running.hosts).map(|(host, link)| (host, link.elapse(passed))).collect();
            for (host, loss) in losses(&silences, &ended, SILENCE) {
                let what = match loss {
                    Loss::Ended => format!("the agent of {host} ended without a report"),
                    Loss::Silent(_) => format!("the agent of {host} was silent"),
                };
                self.lose(&plan.attempt, host, what)?;
            }
        }
        self.check_members()?;
        self.measure_memory(WATCH_MS)
    }

    pub(crate) fn lose(&mut self, attempt: &AttemptId, host: Host, reason: String) -> Step {
        let report = InstanceReport::Lost { reason };
        self.execute(&Command::InstanceReported { attempt: attempt.clone(), host, report }, true).map(drop)
    }
}
