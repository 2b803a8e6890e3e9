//! What server and agent say to each other.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Assignment, Hello, ManifestEntry, MirrorKind, SampleTable, Sampling, Visit, VisitEnd};

/// Version of this protocol. A server refuses an agent that speaks another one.
pub const PROTOCOL: u32 = 1;

/// From an agent to the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToServer {
    /// The first message on every connection.
    Hello(Hello),
    /// A numbered fact, acknowledged when durable.
    Report(Report),
    /// There is nothing to say, and the agent lives. Said only to a server that asked for it
    /// ([`ToAgent::Welcome`]), when nothing else was sent for so long.
    Alive,
    /// Instead of `Hello`: this connection carries checkpoint files and nothing else.
    Checkpoints(Hello),
    /// The same for files of the intermediate output.
    Intermediate(Hello),
    /// The same for files of any kind. Agents before this existed say [`ToServer::Checkpoints`] or
    /// [`ToServer::Intermediate`].
    Mirror {
        /// Who calls.
        #[serde(flatten)]
        hello: Hello,
        /// Which files.
        kind: MirrorKind,
    },
    /// A file of the connection's kind follows, as [`crate::Frame::Chunk`]s.
    FileBegins {
        /// Below its directory, `/` between names.
        path: String,
        /// Its program has ended, and cannot write it again when there is more room.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_last: bool,
    },
    /// All of it was sent; answered by [`ToAgent::FileSaved`] or [`ToAgent::FileRefused`], in the
    /// order of the files.
    FileEnds {
        /// How much there was.
        bytes: u64,
    },
    /// What was sent of it is to be forgotten: it changed while it was read. Not answered.
    FileDropped,
    /// Instead of `Hello`, after [`Order::Park`]: the instance holds nothing of an attempt any more
    /// and is free for another one. The attempt and the token are those that the agent was started
    /// with. Answered by [`ToAgent::Serve`], in its own time; when the connection ends instead, so
    /// does the agent.
    Idle(Hello),
    /// Instead of `Hello`: this connection is for a visit and nothing else.
    Visit {
        /// Who calls.
        hello: Hello,
        /// As in [`ToAgent::Visit`].
        id: String,
    },
    /// The last message of a visit.
    VisitEnded(VisitEnd),
    /// Instead of `Hello`: this connection brings objects of the attempt's inputs. Answered by
    /// [`ToAgent::Ready`]; what is asked for then is answered in order.
    Objects(Hello),
    /// On such a connection: what is in a tree? Answered by [`ToAgent::Manifest`], several of them
    /// if it is long, or [`ToAgent::NoObject`].
    List {
        /// See [`crate::ObjectTree::tree`].
        tree: String,
    },
    /// On such a connection: an object of a tree. Answered by [`crate::Frame::Chunk`]s and
    /// [`ToAgent::ObjectEnds`], by [`ToAgent::ObjectAt`], or by [`ToAgent::NoObject`].
    Fetch {
        /// See [`crate::ObjectTree::tree`].
        tree: String,
        /// See [`crate::ManifestEntry::id`].
        id: String,
        /// The agent knows [`ToAgent::ObjectAt`], and has not failed to read from there; older
        /// agents send nothing here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        elsewhere: bool,
    },
    /// Likewise, a part; only to servers with a [`crate::Delivery`].
    FetchPart {
        /// See [`crate::ObjectTree::tree`].
        tree: String,
        /// See [`crate::ManifestEntry::id`].
        id: String,
        /// Of the first byte.
        offset: u64,
        /// Number of bytes; the object may end before.
        length: u64,
        /// No SHA-256 has to follow: TLS sees to what is between here and there. Older agents send
        /// nothing here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unsummed: bool,
    },
    /// The SHA-256 of such a part alone, answered by [`ToAgent::ObjectEnds`]; only to servers with
    /// [`crate::MachineNetwork::has_sums`].
    PartSum {
        /// See [`crate::ObjectTree::tree`].
        tree: String,
        /// See [`crate::ManifestEntry::id`].
        id: String,
        /// Of the first byte.
        offset: u64,
        /// Number of bytes; the object may end before.
        length: u64,
    },
    /// Instead of `Hello`: the program's connection to the server's port, after [`ToAgent::Ready`].
    Forward(Hello),
}

/// A numbered fact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// From 1, without gaps, per (attempt, host). Artifact parts (see [`crate::Frame::Part`]) take
    /// numbers from the same sequence.
    pub seq: u64,
    /// When it was so, in milliseconds since the epoch, by the agent's clock.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub body: ReportBody,
}

/// What an agent has to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum ReportBody {
    /// The instance entered a phase.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// Lines that the training program wrote, already escaped as the log shows them.
    Logs {
        /// In order.
        lines: Vec<LogLine>,
    },
    /// Values that the metric definitions found.
    Metrics {
        /// In order of appearance.
        points: Vec<MetricPoint>,
    },
    /// System metrics of the instance, only where [`crate::Assignment::sampling`] requests them.
    Samples {
        /// In order of time. Another table begins when a column appears or disappears.
        tables: Vec<SampleTable>,
    },
    /// A value of the objective metric ([`crate::Assignment::objective`]), beside its point in
    /// [`ReportBody::Metrics`]: on its own and at once, since a scheduler waits for it. The
    /// report's time is when the line was read.
    Objective {
        /// Which value of this instance it is, from 1.
        ordinal: u32,
        /// NaN if the program printed something that is no finite number; `null` on the wire.
        #[serde(deserialize_with = "number_or_nan")]
        value: f64,
    },
    /// The first host's agent has made the job's network.
    Network {
        /// What the agents of the other hosts join it by.
        handle: String,
    },
    /// Something a person should know, for the log (a fallback, a capped size).
    Note {
        /// One sentence.
        text: String,
    },
    /// The training program on this instance is over (uploads may follow).
    RankEnded {
        /// How.
        end: RankEnd,
        /// The last value of every metric that appeared.
        final_metrics: Vec<MetricPoint>,
    },
    /// The evaluation of a rule is over on this instance ([`crate::Assignment::rules`]).
    RuleEvaluated {
        /// [`crate::Rule::name`].
        rule: String,
        /// What it found.
        verdict: RuleVerdict,
        /// For people: which tensor, step and value; at most 1024 characters.
        details: String,
        /// As in [`crate::Rule::stops`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        stops: bool,
    },
    /// A page that the evaluation of a rule made, before the report of its end.
    RuleFile {
        /// [`crate::Rule::name`].
        rule: String,
        /// Its name in the rule's folder.
        name: String,
        /// What it contains; at most 1 MiB.
        text: String,
    },
    /// All parts of an artifact have been sent. The parts, joined, are a run of gzip members
    /// holding tar entries *without* the end-of-archive blocks, so that the hosts' artifacts can be
    /// joined into one `.tar.gz` by concatenation.
    ArtifactSent {
        /// Which.
        artifact: Artifact,
        /// Bytes sent.
        bytes: u64,
        /// Files and symbolic links inside; 0 means that there is nothing to keep.
        files: u64,
    },
    /// Everything is sent; only [`Order::Release`] is awaited.
    Uploaded,
    /// The instance could not be made or went wrong on our side (not the program's fault).
    InstanceFailed {
        /// What is wrong, where, and what to do.
        reason: String,
    },
}

/// How the evaluation of a rule has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleVerdict {
    /// The condition was met.
    IssuesFound,
    /// To the end of the program the condition was not met.
    NoIssuesFound,
    /// This instance saw none of what the rule is about.
    Unobserved,
    /// The rule cannot be evaluated.
    Error,
}

/// Where an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Channels are being mounted or fetched.
    Downloading,
    /// The training program runs.
    Training,
    /// Artifacts are being sent.
    Uploading,
}

/// One line of a host's log stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// Without its line end; a tab is `#011`.
    pub text: String,
}

/// One value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricPoint {
    /// The metric definition's name.
    pub name: String,
    /// Finite.
    pub value: f64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
}

/// How the training program on an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEnd {
    /// Exit status.
    pub outcome: RankOutcome,
    /// The kernel killed a process of the instance for memory (read from the cgroup, never
    /// guessed).
    pub out_of_memory: bool,
    /// The kernel did so though the instance was below its own limit, since all instances together
    /// had reached theirs, or the machine had no memory left: bytes that the instance held at most.
    /// Agents before this existed say [`Self::out_of_memory`] then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crowded_out: Option<u64>,
    /// First 1024 characters of `/opt/ml/output/failure`, if the program left one.
    pub failure_file: Option<String>,
    /// End of what the program wrote to stderr, at most 1024 characters.
    pub stderr_tail: String,
}

/// Exit status of the training program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankOutcome {
    /// `exit(code)`.
    Exited(i32),
    /// Killed by a signal.
    Signaled(i32),
}

/// What an instance leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Artifact {
    /// `/opt/ml/model` -> `model.tar.gz`.
    Model,
    /// `/opt/ml/output/data` -> `output.tar.gz`.
    Output,
}

/// From the server to an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToAgent {
    /// The agent is known.
    Welcome {
        /// Everything up to here is durable; send on from the next.
        acked: u64,
        /// What to do.
        assignment: Box<Assignment>,
        /// After so many milliseconds without a word the agent is to say [`ToServer::Alive`].
        /// Servers before this existed say nothing here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alive_ms: Option<u64>,
        /// The server's clock, in milliseconds since the epoch. Servers before this existed say
        /// nothing here.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        now_ms: Option<u64>,
    },
    /// The agent is not wanted: it stops its program and cleans up.
    Refused {
        /// Why.
        reason: String,
    },
    /// Everything up to `seq` is durable.
    Ack {
        /// The highest durable number.
        seq: u64,
    },
    /// Do something; idempotent.
    Order(Order),
    /// Answers [`ToServer::Mirror`]: files may come. Answers
    /// [`ToServer::Visit`]: output may come.
    Ready,
    /// The file is durable in the object store, and its receipt in the journal.
    FileSaved {
        /// As it was sent.
        path: String,
    },
    /// The file could not be stored; what the object store had before is untouched.
    FileRefused {
        /// As it was sent.
        path: String,
        /// For the log.
        reason: String,
    },
    /// Answers [`ToServer::Idle`]: there is another attempt for this instance. The agent calls
    /// anew, with `Hello`.
    Serve {
        /// The attempt.
        attempt: String,
        /// Its secret, hexadecimal.
        token: String,
    },
    /// Somebody wants to look after the instance; only to agents that know of it
    /// ([`Hello::visits`]).
    Visit {
        /// Names the visit on the connection that the agent opens for it.
        id: String,
        /// What for.
        visit: Visit,
    },
    /// Answers [`ToServer::List`]: files of the tree, in order.
    Manifest {
        /// The next of them.
        entries: Vec<ManifestEntry>,
        /// There are no more.
        is_last: bool,
    },
    /// The object is complete.
    ObjectEnds {
        /// Of what was sent, hexadecimal; empty where a [`ToServer::FetchPart`] needs none.
        sha256: String,
    },
    /// The object is to be read from another server. Only to a [`ToServer::Fetch`] that allows it.
    ObjectAt {
        /// Anyone may read from there, for an hour or so.
        url: String,
        /// Of the content, hexadecimal.
        sha256: String,
    },
    /// There is no such object or tree, or it cannot be read.
    NoObject {
        /// Why.
        reason: String,
    },
    /// The job's network is there; only to agents of the other hosts. Sent again on each new
    /// connection.
    Network {
        /// As the first host's agent has reported it.
        handle: String,
    },
    /// On a visit's connection: there is nothing more to read.
    InputEnds,
    /// On a visit's connection: the terminal has another size now.
    Resized {
        /// Lines.
        rows: u16,
        /// Characters of a line.
        columns: u16,
    },
}

/// What the server wants done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// SIGTERM now, SIGKILL after the grace.
    Stop {
        /// Seconds between the two.
        grace_s: u32,
        /// For the log.
        reason: String,
    },
    /// The instance is taken away from an attempt whose others continue: SIGTERM after a notice,
    /// SIGKILL after the grace.
    Leave {
        /// Seconds before SIGTERM, in which the program may end by itself.
        notice_s: u32,
        /// Seconds between SIGTERM and SIGKILL.
        grace_s: u32,
        /// For the log.
        reason: String,
    },
    /// These instances make up the attempt now: for the program's list of hosts. Only where
    /// [`crate::Assignment::elastic`] is set.
    Members {
        /// Host numbers, from 1.
        hosts: Vec<u32>,
    },
    /// From now on the instance is sampled so. Only to agents with [`Hello::sampling`].
    Sample(Sampling),
    /// The rules that judge its samples from now on, in place of those of the assignment: those
    /// that have not changed continue. Only to agents with [`Hello::profiler_rules`].
    ProfilerRules {
        /// All of them.
        rules: Vec<crate::Rule>,
    },
    /// All is stored; clean up and exit.
    Release,
    /// All is stored; clean up, but keep the instance and say [`ToServer::Idle`]. An agent that
    /// cannot exits as if released.
    Park,
    /// Nothing of the program is to run until [`Order::Thaw`]; its memory stays.
    Freeze,
    /// The program goes on.
    Thaw {
        /// After how many units of its resource (rounds, epochs) it is to pause again, counted from
        /// its first attempt's start; `None`: at its end.
        until: Option<u64>,
    },
}

/// JSON has no NaN: serde_json writes it as `null`.
fn number_or_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
