//! The agents' side of the server: one connection per agent on a Unix socket in the data directory,
//! one thread per connection.
//!
//! Reports are handled in the order that [`Ingestion`] decides and acknowledged when durable: log
//! lines and metric points together with their number in one transaction; facts through the core
//! first (it drops repeats); artifact parts in their file first.

mod forward;
mod idle;
mod inputs;
mod remote;
mod strangers;

use std::{
    collections::HashMap,
    fs, io,
    os::unix::net::{UnixListener, UnixStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use shoal_console::JobChanges;
use shoal_launch::Launcher;
use shoal_link::{Artifact, Decoder, Endpoint, Frame, Hello, MirrorKind, PROTOCOL, ToAgent, ToServer};
use shoal_plane::{Command, Host, InstanceReport};
use shoal_runtime::{
    ConnId, Ingestion,
    host_link::Event,
    ingestion::{self, Batch, Io, Line},
    sign_interval, warm_pool,
};
use shoal_store::{DataDir, Ingest, LogLines, MetricPoint, Quota, StoreError, Telemetry};

use crate::{
    agent_stream::{AgentSender, read_some},
    attempts::{Attempt, Attempts},
    checkpoints::Mirrors,
    clock::now_ms,
    core::Core,
    error_chain::without_paths,
    exporter::Exporter,
    machines::Machines,
    parts::{self, PartsWriter},
    profile::Profiles,
    sampling::{self, Sampling},
    search::Indexes,
    visits::Visits,
};

use self::strangers::{HELLO_TIMEOUT, Stranger, first_message};
pub(crate) use self::{idle::Idle, inputs::Inputs, remote::RemoteListener};

/// What agents' connections need.
pub(crate) struct Agents {
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) machines: Machines,
    pub(crate) core: Core,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) profiles: Profiles,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) sampling: Sampling,
    pub(crate) job_changes: Arc<JobChanges>,
    pub(crate) search: Arc<Indexes>,
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) mirrors: Mirrors,
    pub(crate) inputs: Inputs,
    pub(crate) visits: Arc<Visits>,
    pub(crate) idle: Idle,
    pub(crate) server_address: String,
    pub(crate) launcher: Arc<dyn Launcher>,
    /// How long an agent may be silent.
    pub(crate) silence: Duration,
    /// Bytes of log lines, and of metric points, that a training job may store.
    pub(crate) log_quota: u64,
}

impl Agents {
    /// The endpoint of an attempt: derived, so that no secret stands in a file.
    fn endpoint(&self, attempt: &Attempt) -> Option<Endpoint> {
        let keys = attempt.keys.clone();
        (!attempt.plan.isolated).then(|| Endpoint {
            server_address: (!self.launcher.is_remote(&attempt.plan.nodes)).then(|| self.server_address.clone()),
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key,
            session_token: keys.session_token.unwrap_or_default(),
        })
    }
}

/// Those who connect, by whatever port.
#[derive(Default)]
pub(crate) struct Callers {
    connections: AtomicU64,
    strangers: Arc<AtomicUsize>,
}

impl Callers {
    /// Counts a caller without a name; none if there are too many.
    pub(crate) fn stranger(&self) -> Option<Stranger> {
        let stranger = Stranger::count(&self.strangers);
        if stranger.is_none() {
            tracing::warn!("agents: too many callers have sent no first message; the next one is closed");
        }
        stranger
    }

    /// Serves a connection in a thread of its own.
    pub(crate) fn serve(&self, agents: &Arc<Agents>, stream: UnixStream, stranger: Stranger) -> io::Result<()> {
        let conn = ConnId(1 + self.connections.fetch_add(1, Ordering::Relaxed));
        let agents = agents.clone();
        let serve = move || {
            if let Err(error) = converse(&agents, stream, conn, stranger) {
                tracing::debug!("agent connection {}: {error}", conn.0);
            }
        };
        thread::Builder::new().name(format!("agent {}", conn.0)).stack_size(256 << 10).spawn(serve).map(drop)
    }
}

/// Accepts agents until `stopping`, which [`crate::agent_stream::wake`] makes it see. The socket
/// lies in the data directory, which no other user may enter and no program in a sandbox sees;
/// programs that run as plain processes of the server's user reach it, and get no further than the
/// first message.
pub(crate) fn serve(agents: &Arc<Agents>, callers: &Callers, listener: &UnixListener, stopping: &AtomicBool) {
    for stream in listener.incoming() {
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        let Some(stranger) = callers.stranger() else { continue };
        if let Err(error) = stream.and_then(|stream| callers.serve(agents, stream, stranger)) {
            tracing::warn!("agent socket: {error}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Reads the hello, answers it, and handles reports until the connection ends.
fn converse(agents: &Agents, mut stream: UnixStream, conn: ConnId, stranger: Stranger) -> io::Result<()> {
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let sender = AgentSender::new(stream.try_clone()?);
    let (first, decoder) = first_message(&mut stream, HELLO_TIMEOUT)?;
    stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
    drop(stranger);
    let hello = match first {
        ToServer::Hello(hello) => hello,
        ToServer::Mirror { hello, kind } => return mirror(agents, &hello, kind, conn, stream, &sender, decoder),
        ToServer::Checkpoints(hello) => {
            return mirror(agents, &hello, MirrorKind::Checkpoints, conn, stream, &sender, decoder);
        }
        ToServer::Intermediate(hello) => {
            return mirror(agents, &hello, MirrorKind::Intermediate, conn, stream, &sender, decoder);
        }
        ToServer::Visit { hello, id } => {
            return match admit(&agents.attempts, &hello) {
                Ok(_) => agents.visits.receive(&hello, &id, conn, stream, &sender, decoder),
                Err(reason) => sender.send(ToAgent::Refused { reason }),
            };
        }
        ToServer::Objects(hello) => {
            return match admit(&agents.attempts, &hello) {
                Ok(attempt) => agents.inputs.serve(&attempt, Host(hello.host), stream, &sender, decoder),
                Err(reason) => sender.send(ToAgent::Refused { reason }),
            };
        }
        ToServer::Forward(hello) => {
            return match admit(&agents.attempts, &hello) {
                Ok(attempt) if attempt.plan.isolated => {
                    sender.send(ToAgent::Refused { reason: "the job is isolated (EnableNetworkIsolation)".to_owned() })
                }
                Ok(_) => forward::carry(&agents.server_address, stream, &sender),
                Err(reason) => sender.send(ToAgent::Refused { reason }),
            };
        }
        ToServer::Idle(hello) => return agents.idle.hold(&hello, conn, stream, &sender, decoder),
        _ => return Err(io::Error::other("the first message is not hello")),
    };
    let attempt = match admit(&agents.attempts, &hello) {
        Ok(attempt) => attempt,
        Err(reason) => return sender.send(ToAgent::Refused { reason }),
    };
    let link = Link { machines: agents.machines.clone(), attempt, host: Host(hello.host), conn };
    // An attempt that waits for a warm instance admits no agent before all are here.
    let id = link.attempt.plan.attempt.clone();
    agents.machines.send(warm_pool::Event::AgentConnected { attempt: id.clone(), host: Host(hello.host), conn });
    link.attempt.admit(Host(hello.host), conn, &sender, Event::Hello(conn))?;
    let acked = agents.telemetry.acked(&hello.attempt, hello.host).map_err(io::Error::other)?;
    let mut assignment = link.attempt.assignment(Host(hello.host));
    assignment.endpoint = agents.endpoint(&link.attempt);
    let orders = agents.sampling.assign(&link.attempt.plan.job, &mut assignment);
    let alive_ms = u64::try_from(sign_interval(agents.silence).as_millis()).ok();
    sender.send(ToAgent::Welcome { acked, assignment: Box::new(assignment), alive_ms, now_ms: Some(now_ms()) })?;
    link.handle(Event::Welcomed {
        conn,
        has_visits: hello.visits,
        has_sampling: hello.sampling,
        has_rules: hello.profiler_rules,
    });
    if acked > 0 {
        // It has an assignment already, which may have been another server's.
        orders.into_iter().for_each(|order| link.handle(Event::Order(order)));
    }
    if (hello.host > 1 || link.attempt.plan.has_machine_network())
        && let Some(handle) = link.attempt.network()?
    {
        sender.send(ToAgent::Network { handle })?;
    }
    stream.set_read_timeout(None)?;
    let ingestion = Ingestion::new(id, Host(hello.host), acked);
    Connection { agents, link, stream, sender, decoder, ingestion, acked, parts: HashMap::new(), no_space: false }.run()
}

fn mirror(
    agents: &Agents,
    hello: &Hello,
    kind: MirrorKind,
    conn: ConnId,
    stream: UnixStream,
    sender: &AgentSender,
    decoder: Decoder,
) -> io::Result<()> {
    match admit(&agents.attempts, hello) {
        Ok(attempt) => agents.mirrors.receive(&attempt, hello, kind, conn, stream, sender, decoder),
        Err(reason) => sender.send(ToAgent::Refused { reason }),
    }
}

/// A connection for reports, in the table of its host.
struct Link {
    machines: Machines,
    attempt: Arc<Attempt>,
    host: Host,
    conn: ConnId,
}

impl Link {
    fn handle(&self, event: Event) {
        self.attempt.handle(self.host, event);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.handle(Event::Closed(self.conn));
        let attempt = self.attempt.plan.attempt.clone();
        self.machines.send(warm_pool::Event::AgentDisconnected { attempt, host: self.host, conn: self.conn });
    }
}

/// An agent that is known.
struct Connection<'a> {
    agents: &'a Agents,
    link: Link,
    stream: UnixStream,
    sender: AgentSender,
    decoder: Decoder,
    ingestion: Ingestion,
    acked: u64,
    parts: HashMap<Artifact, PartsWriter>,
    /// Parts are no longer stored: the job is being stopped and there is no space for them.
    no_space: bool,
}

impl Connection<'_> {
    /// Handles reports until the connection ends.
    fn run(mut self) -> io::Result<()> {
        loop {
            let mut frames = Vec::new();
            while let Some(frame) = self.decoder.next::<ToServer>().map_err(io::Error::other)? {
                frames.push(frame);
            }
            self.take(frames)?;
            self.link.handle(Event::Processed(self.link.conn));
            match read_some(&mut self.stream, &mut self.decoder) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                read => read?,
            }
            self.link.handle(Event::Received(self.link.conn));
        }
    }

    /// Persists a batch of frames in the steps that [`Ingestion`] requests.
    fn take(&mut self, frames: Vec<Frame<ToServer>>) -> io::Result<()> {
        let mut event = Some(ingestion::Event::Arrived(frames));
        while let Some(next) = event.take() {
            for io in self.ingestion.handle(next) {
                event = match io {
                    Io::Sign => {
                        self.link.handle(Event::SignReceived(self.link.conn));
                        continue;
                    }
                    Io::Commit(facts) => {
                        self.tell(facts)?;
                        Some(ingestion::Event::Done)
                    }
                    Io::Part { seq, artifact, bytes } => {
                        self.part(artifact, seq, &bytes)?;
                        Some(ingestion::Event::Done)
                    }
                    Io::Network(handle) => {
                        self.link.attempt.set_network(self.link.host, &handle)?;
                        Some(ingestion::Event::Done)
                    }
                    Io::RuleFile { rule, name, text } => {
                        self.agents.profiles.store_page(&self.link.attempt.plan.job, &rule, &name, &text);
                        Some(ingestion::Event::Done)
                    }
                    Io::Store(batch) => Some(ingestion::Event::Stored(self.ingest(batch)?)),
                    Io::Acknowledge(seq) => {
                        self.sender.send(ToAgent::Ack { seq })?;
                        continue;
                    }
                    Io::Read => None,
                    Io::Refuse => return Err(io::Error::other("only reports and parts come on this connection")),
                };
            }
        }
        Ok(())
    }

    /// Tells the core, which answers when all of it is durable.
    fn tell(&self, mut facts: Vec<Command>) -> io::Result<()> {
        // What the next server is to know of the attempt comes before what it knows of it.
        self.link.attempt.sync_plan()?;
        for fact in &mut facts {
            if let Command::InstanceReported { report: InstanceReport::Lost { reason }, .. } = fact {
                *reason = without_paths(&self.agents.data_dir, reason);
            }
        }
        self.agents.core.tell_all(facts).map_err(io::Error::other)
    }

    /// Log lines, metric points and the number up to which all is durable, in one transaction;
    /// returns that number.
    fn ingest(&mut self, batch: Batch) -> io::Result<u64> {
        self.link.attempt.sync_plan()?;
        self.sync_parts()?;
        let seq = batch.seq;
        let stored = match self.store(batch) {
            Err(StoreError::Full(_)) if self.link.attempt.is_stopping(self.link.host) => self.store_without_lines(seq),
            stored => stored,
        };
        let (job, host) = (&self.link.attempt.plan.job, self.link.host);
        match (&stored, self.link.attempt.waits_for_disk(host, stored.is_err())) {
            // The connection ends, and the agent says it again; once told is enough.
            (Err(error), true) => {
                tracing::error!("training job {job}: what {host} says waits for the disk: {error}");
            }
            (Ok(_), true) => tracing::warn!("training job {job}: the disk takes what {host} says again"),
            (_, false) => {}
        }
        stored.map_err(io::Error::other)
    }

    /// The number alone: a job that is stopped on a full disk must end, and its end comes after its
    /// last lines.
    fn store_without_lines(&mut self, seq: u64) -> Result<u64, StoreError> {
        let (job, host) = (&self.link.attempt.plan.job, self.link.host);
        tracing::warn!(
            "training job {job}: the disk is full and the job is being stopped: the last lines of {host} are \
             dropped"
        );
        self.store(Batch { seq, ..Batch::default() })
    }

    fn store(&mut self, batch: Batch) -> Result<u64, StoreError> {
        let mut logs: Vec<LogLines> = Vec::new();
        for Line { is_own, at_ms, text } in batch.lines {
            match logs.last_mut() {
                Some(last) if last.is_own == is_own => last.lines.push((at_ms, text)),
                _ => logs.push(LogLines { stream: self.stream_name(), lines: vec![(at_ms, text)], is_own }),
            }
        }
        let points =
            batch.points.into_iter().map(|it| MetricPoint { metric: it.name, at_ms: it.at_ms, value: it.value });
        let ingest = Ingest {
            attempt: self.link.attempt.plan.attempt.to_string(),
            host: self.link.host.0,
            seq: batch.seq,
            job: self.link.attempt.plan.job.to_string(),
            logs,
            points: points.collect(),
            system: sampling::stored(batch.samples),
            quota: Some(self.quota()),
        };
        let (new_lines, new_points) = (ingest.logs.iter().map(|it| it.lines.len()).sum(), ingest.points.len());
        let new_samples = ingest.system.iter().map(|table| table.rows.len()).sum();
        self.acked = self.agents.telemetry.ingest(&ingest)?.max(self.acked);
        self.agents.exporter.ingested(new_lines, new_points, new_samples);
        self.agents.job_changes.grown(&ingest.job, new_lines, new_points + new_samples);
        if new_points > 0 {
            self.agents.search.note_metrics(&ingest.job);
        }
        Ok(self.acked)
    }

    /// Stores a part. On a full disk the agent sends it again until there is room or the core's
    /// limit for uploads is over; a job that is being stopped gives up its artifacts instead.
    fn part(&mut self, artifact: Artifact, seq: u64, bytes: &[u8]) -> io::Result<()> {
        if self.no_space {
            return Ok(());
        }
        match self.writer(artifact).and_then(|writer| writer.append(seq, bytes)) {
            Err(error) if is_full(&error) && !self.link.attempt.is_stopping(self.link.host) => {
                if self.link.attempt.waits_for_disk(self.link.host, true) {
                    tracing::error!(
                        "training job {}: the artifacts of {} wait for the disk: {error}",
                        self.link.attempt.plan.job,
                        self.link.host
                    );
                }
                Err(error)
            }
            Err(error) if is_full(&error) => {
                self.no_space = true;
                self.parts.clear();
                for artifact in [Artifact::Model, Artifact::Output] {
                    // One that was never begun is not there.
                    let _ = fs::remove_file(parts::path(&self.link.attempt.run_dir(), self.link.host, artifact));
                }
                let reason = format!(
                    "no space is left on the server's disk for the artifacts of {}, and the job is being stopped; \
                     free some and submit the job again",
                    self.link.host
                );
                tracing::error!("training job {}: {reason}", self.link.attempt.plan.job);
                let report = InstanceReport::Lost { reason };
                let command = Command::InstanceReported {
                    attempt: self.link.attempt.plan.attempt.clone(),
                    host: self.link.host,
                    report,
                };
                self.agents.core.tell(command).map_err(io::Error::other)
            }
            kept => kept,
        }
    }

    fn writer(&mut self, artifact: Artifact) -> io::Result<&mut PartsWriter> {
        match self.parts.entry(artifact) {
            std::collections::hash_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => {
                let path = parts::path(&self.link.attempt.run_dir(), self.link.host, artifact);
                Ok(place.insert(PartsWriter::open(&path, self.acked)?))
            }
        }
    }

    fn sync_parts(&mut self) -> io::Result<()> {
        self.parts.values_mut().try_for_each(PartsWriter::sync)
    }

    fn quota(&self) -> Quota {
        let bytes = self.agents.log_quota;
        let notice = |what: &str| {
            let limit = format!("the limit of {bytes} bytes for each training job (setting log_quota)");
            format!(
                "[shoal] this training job has reached {limit}: its further {what} are dropped; the program keeps \
                 running"
            )
        };
        Quota {
            bytes,
            stream: self.stream_name(),
            lines_notice: notice("log lines"),
            points_notice: notice("metric points"),
        }
    }

    fn stream_name(&self) -> String {
        self.link.attempt.plan.streams[self.link.host.0 as usize - 1].clone()
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether the caller may speak for this host.
fn admit(attempts: &Attempts, hello: &Hello) -> Result<Arc<Attempt>, String> {
    if hello.protocol != PROTOCOL {
        return Err(format!("this server speaks link protocol {PROTOCOL}, the agent {}", hello.protocol));
    }
    let attempt = attempts.get(&hello.attempt).ok_or_else(|| format!("attempt {} does not run", hello.attempt))?;
    if hello.host == 0 || hello.host as usize > attempt.plan.assignments.len() {
        return Err(format!("attempt {} has no host {}", hello.attempt, hello.host));
    }
    if !attempt.keys.equal(&hello.token, &attempt.token) {
        return Err("wrong token".to_owned());
    }
    Ok(attempt)
}

#[cfg(test)]
mod tests;
