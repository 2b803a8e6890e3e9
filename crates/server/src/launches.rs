//! Launches from what the core orders to the start of their agents.

use shoal_plane::{AttemptId, JobName, Placement, TrialLaunch};

use crate::attempts::Plan;

/// `shoal_plane::Action::Launch`.
pub(crate) struct Launch {
    pub(crate) job: JobName,
    pub(crate) attempt: AttemptId,
    /// Its number among the job's, from 1.
    pub(crate) number: u32,
    pub(crate) placement: Placement,
    pub(crate) instances: u32,
    /// Those to start.
    pub(crate) hosts: Vec<u32>,
    /// They are added to others that run.
    pub(crate) joins: bool,
    pub(crate) lease_s: u64,
    pub(crate) trial: Option<TrialLaunch>,
}

/// A launch whose channels are ready.
pub(crate) struct Prepared {
    pub(crate) plan: Plan,
    /// For the job's log.
    pub(crate) notes: Vec<String>,
}
