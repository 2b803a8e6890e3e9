//! The control core: what a training job is, which states it goes through, who gets capacity when.
//! Pure: no clock, no I/O, no async, no randomness.
//!
//! State is a fold of events: [`decide()`] turns a [`Command`] into [`Event`]s (or a [`Rejection`])
//! and changes nothing; [`apply()`] is total and deterministic, changes the [`State`] and returns
//! the [`Effects`] to be done. The caller
//! - journals the events before it does anything or answers anybody;
//! - writes a job's row from [`State::view`] after *each* event, not after the last one of a
//!   decision: [`Fact::Released`] takes the job out of the hot state, and its row stays as it was
//!   then. Views of waiting jobs change with others' events ([`Event::moves_queue`]): ask for them,
//!   or for [`State::waiting`], when they are read;
//! - says [`Command::Tick`] when [`State::next_deadline`] has come.
//!
//! After a restart it folds the journal again and does [`State::pending`]: effects are idempotent.
//! Then it says one Tick, since capacity and catalogue may have changed; not before agents have had
//! a few seconds to say what they kept for it, since deadlines that passed meanwhile are due at
//! once.
//!
//! Where to look: `gang` has the state machine of instances that start and end together, `training`
//! gives it AWS's statuses, `queue` decides who starts next, `capacity` what an instance gets
//! and on which node,
//! `pressure` what is ended when the machine's memory runs short, `tuning` has tuning jobs.

mod action;
mod apply;
mod capacity;
mod catalog;
mod command;
mod cost;
mod decide;
mod decision;
mod event;
mod gang;
mod jobs;
mod limits;
mod nouns;
mod pressure;
mod queue;
mod quotas;
mod rejection;
mod reports;
mod sanity;
mod saved;
mod state;
mod text;
mod time;
mod training;
mod tuning;
mod turn;
mod views;

pub use action::{Action, Effects, Observation, TunerRequest};
pub use apply::apply;
pub use capacity::{Capacity, Node, Packing, Placement, Share, parallel_notice};
pub use catalog::{Catalog, CatalogError, InstanceType};
pub use command::{Child, Command, InstanceReport};
pub use cost::{Billed, Cost};
pub use decide::decide;
pub use event::{EVENT_FORMAT, Event, EventError, Fact};
pub use nouns::{
    AttemptId, BestTrial, Claim, DefinitionSpec, Form, GangSpec, Host, InstanceGroup, InstancePhase, JobName,
    JobStatus, JobView, MetricValue, Objective, ObjectiveCounters, Pause, PendingReason, QuotaLimit, RankEnd,
    RuleEvaluation, RuleVerdict, SecondaryStatus, StopCause, StudyRecord, TrainingCounters, Transition, TrialEnd,
    TrialLaunch, TrialStart, TrialState, TrialView, TuningEnd, TuningName, TuningSpec, TuningStatus, TuningView,
    trial_state,
};
pub use quotas::{Amounts, Limits, QuotaUse, Quotas};
pub use rejection::Rejection;
pub use saved::SnapshotError;
pub use state::{Frozen, State};
pub use time::Time;
pub use turn::{Stored, Turn, step};
