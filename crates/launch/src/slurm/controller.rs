//! What is asked of a cluster, by Slurm's commands or by slurmrestd.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use super::partitions::Partition;
use super::queue::Job;
use super::request::Request;
use super::users::SlurmUsers;
use crate::LaunchError;

/// A way to its controller. Each call asks it, and may take seconds.
///
/// # Errors
/// Of all: [`LaunchError::Unavailable`] if the same may succeed later, [`LaunchError::Refused`] if
/// not.
pub(super) trait Controller: Debug + Send + Sync {
    /// All jobs that it has, by number.
    fn jobs(&self) -> Result<BTreeMap<u64, Job>, LaunchError>;

    /// Submits a job as its user; returns its number.
    fn submit(&self, request: &Request) -> Result<u64, LaunchError>;

    /// Whether it would take such a job, were there room; asked within seconds or not at all.
    fn test(&self, request: &Request) -> Result<(), LaunchError>;

    /// Kills jobs, those that wait too; jobs that are over already are fine. Returns before they
    /// have ended. `user`: whose jobs they are; none: the caller's.
    fn cancel(&self, jobs: &[u64], user: Option<&str>) -> Result<(), LaunchError>;

    /// Kills the steps of these names of a user's job; returns those that were still there.
    fn kill_steps(&self, job: u64, names: &BTreeSet<String>, user: Option<&str>) -> Result<Vec<String>, LaunchError>;

    /// Whether anything can be done as this user; asked within seconds or not at all.
    fn try_user(&self, user: &str) -> Result<(), LaunchError>;

    /// The number that a user has here (none: the caller), as [`Job::uid`] has it; none: it is not
    /// known.
    fn uid_of(&self, _user: Option<&str>) -> Option<u32> {
        None
    }

    /// The name of a user (none: the caller), as [`Job::user`] has it; none: it is not known.
    fn name_of(&self, user: Option<&str>) -> Option<String> {
        user.map(str::to_owned)
    }

    /// Its partitions, each once for each kind of node.
    fn partitions(&self) -> Result<Vec<Partition>, LaunchError>;

    /// Those of a list of nodes that are down; asked within seconds or not at all.
    fn nodes_down(&self, nodes: &str) -> Result<Vec<String>, LaunchError>;

    /// Whose a job is that is in no record; none: the caller's, or of no name that can stand in
    /// words of the settings.
    fn user_of(&self, job: &Job) -> Option<String> {
        let is_own = self.uid_of(None).is_none_or(|own| job.uid.is_none_or(|uid| uid == own));
        (!is_own && SlurmUsers::is_name(&job.user)).then(|| job.user.clone())
    }

    /// For how long a submission that was not answered may still become a job.
    fn grace(&self) -> Duration {
        Duration::ZERO
    }
}
