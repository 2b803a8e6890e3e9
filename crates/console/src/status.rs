//! A job's status as the console shows it.

use shoal_plane::{JobStatus, JobView, SecondaryStatus};

/// A shape and a colour (`kind` names both), and a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Badge {
    /// `running`, `waiting`, `stopping`, `completed`, `failed` or `stopped`.
    pub(crate) kind: &'static str,
    pub(crate) word: &'static str,
}

/// What a view's status looks like.
pub(crate) fn badge(view: &JobView) -> Badge {
    let (kind, word) = match (view.status, view.secondary) {
        (JobStatus::InProgress, SecondaryStatus::Pending) => ("waiting", "Waiting"),
        (JobStatus::InProgress, SecondaryStatus::Interrupted) => ("waiting", "Interrupted"),
        (JobStatus::InProgress, secondary) => ("running", secondary.name()),
        (JobStatus::Stopping, _) => ("stopping", "Stopping"),
        (JobStatus::Completed, _) => ("completed", "Completed"),
        (JobStatus::Failed, _) => ("failed", "Failed"),
        (JobStatus::Stopped, SecondaryStatus::MaxRuntimeExceeded) => ("stopped", "Time was up"),
        (JobStatus::Stopped, SecondaryStatus::MaxWaitTimeExceeded) => ("stopped", "Waited too long"),
        (JobStatus::Stopped, _) => ("stopped", "Stopped"),
    };
    Badge { kind, word }
}

/// What a run's `PrimaryStatus` looks like.
pub(crate) fn run_badge(status: &str) -> Badge {
    let (kind, word) = match status {
        "InProgress" => ("running", "Running"),
        "Stopping" => ("stopping", "Stopping"),
        "Completed" => ("completed", "Completed"),
        "Failed" => ("failed", "Failed"),
        "Stopped" => ("stopped", "Stopped"),
        _ => ("stopped", "Unknown"),
    };
    Badge { kind, word }
}

/// A group of jobs that the list can be narrowed to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// In addresses.
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) status: &'static str,
    /// Whether its jobs wait for capacity (`SecondaryStatus` is `Pending`), where the status does
    /// not say it.
    pub(crate) waits: Option<bool>,
    /// Shown even when no job is in it.
    pub(crate) always: bool,
}

const fn group(key: &'static str, label: &'static str, status: &'static str) -> Group {
    Group { key, label, status, waits: None, always: true }
}

/// All groups; each job is in exactly one.
pub(crate) const GROUPS: [Group; 6] = [
    Group { waits: Some(false), ..group("running", "Running", "InProgress") },
    Group { waits: Some(true), ..group("waiting", "Waiting", "InProgress") },
    Group { always: false, ..group("stopping", "Stopping", "Stopping") },
    group("completed", "Completed", "Completed"),
    group("failed", "Failed", "Failed"),
    group("stopped", "Stopped", "Stopped"),
];
