//! The control core: what a training job is, which states it goes through, who gets capacity when. Pure: no clock, no I/O, no
//! async, no randomness.
//!
//! State is a fold of events: [`decide`] turns a [`Command`] into [`Event`]s (or a [`Rejection`]) and changes nothing;
//! [`apply`] is total and deterministic, changes the [`State`] and returns the [`Action`]s to be done. The caller journals the events before
//! it does any action or answers anybody. After a restart it folds the journal again and does [`State::pending_actions`]:
//! actions are idempotent.

mod action;
mod apply;
mod capacity;
mod catalog;
mod command;
mod decide;
mod event;
mod failure;
mod job;
mod lifecycle;
mod queue;
mod sanity;
mod state;
mod training_job;
mod view;

pub use action::Action;
pub use apply::apply;
pub use capacity::{Capacity, Placement};
pub use catalog::{Catalog, CatalogError, InstanceType};
pub use command::{Command, InstanceReport, Rejection};
pub use decide::decide;
pub use event::{EVENT_FORMAT, Event, EventError, Fact, InstancePhase, StopCause};
pub use job::{JobStatus, MetricValue, RankEnd, SecondaryStatus, TrainingSpec, Transition};
pub use state::{SnapshotError, State};
pub use view::{JobView, PendingReason};

/// Milliseconds since the epoch; always an argument, never read from a clock here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);
