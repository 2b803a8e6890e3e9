//! The shell around the control core: HTTP, keys, timers and workers. Requests become commands,
//! actions become effects.
//!
//! Data's way: `http` tells a request's service apart and verifies it; `api` makes it a command or
//! a read; `core` is the one loop that decides, journals and applies; `effects` does what the core
//! asks for; `agents` is where the instances report. The fields of each are what it depends on;
//! `serve` makes them and knows them all. Left out on purpose: what runs on an instance, and which
//! algorithm an image name means (the caller gives [`Images`]).

mod admission;
mod agent_rules;
mod agent_stream;
mod agents;
mod alarms;
mod allocations;
mod api;
mod artifacts;
mod attempts;
mod audit;
mod auditor;
mod bodies;
mod budgets;
mod channels;
mod checkpoints;
mod clock;
mod connections;
mod console;
mod content_encoding;
mod core;
mod driver;
mod dry_run;
mod effects;
mod elsewhere;
mod error;
mod error_chain;
mod exporter;
mod file_systems;
mod gang_spec;
mod hex;
mod http;
mod identity;
mod idle_agents;
mod internal;
mod job_ports;
mod key_ring;
mod keys;
mod launches;
mod ledger;
mod lifecycle;
mod listeners;
mod machines;
mod memory;
mod network;
mod not_prepared;
mod notification_options;
mod notifications;
mod options;
mod outgoing;
mod parts;
mod passthrough;
mod places;
mod plain;
mod plans;
mod pool_effects;
mod ports;
mod profile;
mod profiling;
mod quotas;
#[cfg(test)]
#[path = "../../runtime/src/random.rs"]
mod random;
mod recovery;
mod request_id;
mod requests;
mod retention;
mod roles;
mod rule_reports;
mod sampling;
mod search;
mod serve;
mod sessions;
mod sso;
mod stale;
mod statistics;
mod storing;
mod sweeps;
mod targets;
mod team;
mod tls;
mod token;
mod tuning;
mod unread_bodies;
mod visits;
mod warm;
mod warm_status;
mod watching;

pub use audit::{AuditFault, AuditReport, verify as verify_audit};
pub use core::{SnapshotDelays, snapshot_delays};
pub use dry_run::check_tuning_request;
pub use elsewhere::ObjectsElsewhere;
pub use error::ServerError;
pub use file_systems::{FileSystems, SharedDirectory};
pub use keys::AccessKeys;
pub use network::NetworkOptions;
pub use notification_options::{MailServer, NotificationOptions};
pub use options::{
    Builtin, BuiltinObjective, Image, ImageError, Images, Options, RemoteAgents, RemoveTree, Sweep, TelemetryLimits,
};
pub use passthrough::{PassthroughBucket, PassthroughOptions};
pub use quotas::{QuotaOptions, TagQuota, UserQuota};
pub use roles::{PolicyError, Roles};
pub use serve::Server;
pub use sso::SsoOptions;
pub use targets::{ComputeTarget, ComputeTargets};
pub use tls::{TlsError, TlsOptions};
pub use tuning::near_misses;
