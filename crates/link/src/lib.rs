//! Messages between server and agent: typed, versioned, with golden files. Pure: bytes in, messages
//! out; who moves the bytes is the caller's affair.
//!
//! One connection per agent, opened by the agent. The agent says [`ToServer::Hello`] and gets
//! [`ToAgent::Welcome`] (or [`ToAgent::Refused`]); from then on it sends numbered reports and the
//! server acknowledges each *after* its durable write. Reports carry (attempt, host, seq): a report
//! that comes twice is acknowledged and dropped. Orders come down the same connection and are
//! repeated after every `Welcome` while they stand, so an agent treats them as idempotent. An agent
//! that is asked for it says now and then that it lives; the first such word tells the server that
//! it may take silence for death.
//!
//! Checkpoint files have a connection of their own, and so has the intermediate output, so that
//! gigabytes stand in no log line's way, and no numbers: what was not answered with
//! [`ToAgent::FileSaved`] when it broke is read from the disk and sent again. So has each
//! [`Visit`].
//!
//! Agents of a job on several machines speak to each other, too ([`ToPeer`]): they pass parts of
//! their inputs on.
//!
//! Nothing in here names a file of the server to an agent that does not share the server's: its
//! [`Input`]s are objects, which it fetches.

mod assignment;
mod delivery;
mod egress;
mod frame;
mod hello;
mod input;
mod message;
mod mirror_kind;
mod one_or_many;
mod peer;
mod samples;
mod visit;

pub use assignment::{
    Assignment, Channel, Checkpoint, DebugHook, Elastic, Endpoint, InstanceGroup, Limits, MachineNetwork,
    MetricDefinition, Mirrored, OutputCompression, PROFILER, ProfilerFile, Program, PythonEnvironment, Resource, Root,
    Rule, TensorBoard,
};
pub use delivery::{Delivery, Pipe, Shard, order};
pub use egress::{AllowedHost, BadEntry, Denied, Destination, Egress, EgressPolicy, NetworkMode};
pub use frame::{Decoder, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, MAX_FRAME_BYTES, encode};
pub use hello::Hello;
pub use input::{Input, ManifestEntry, ObjectTree, PRIVATE_ID};
pub use message::{
    Artifact, LogLine, MetricPoint, Order, PROTOCOL, Phase, RankEnd, RankOutcome, Report, ReportBody, RuleVerdict,
    ToAgent, ToServer,
};
pub use mirror_kind::MirrorKind;
pub use peer::{FromPeer, ToPeer};
pub use samples::{SampleColumn, SampleRow, SampleTable, Sampling, metric};
pub use visit::{Stream, Terminal, Visit, VisitEnd};
