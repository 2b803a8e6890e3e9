//! What Slurm would refuse whenever it is asked for: partitions, QOS, accounts, generic resources
//! and constraints that it does not have. `sbatch --test-only` finds it out without a job.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use super::Cluster;
use super::request::Request;
use crate::record::Submitted;
use crate::scheduled::job_name;
use crate::{AllocationSpec, LaunchError, Wants};

/// What only another configuration changes, of Slurm or of the target. "Requested node
/// configuration is not available" is not among them: Slurm prints it of nodes that are down, too.
const LASTING: [&str; 3] = ["invalid ", "is invalid", "unrecognized option"];

impl Cluster {
    /// Why nothing can be done as this user, if so.
    pub(super) fn refusal_of_user(&self, user: &str) -> Option<String> {
        let ask = || self.controller.try_user(user);
        self.verdicts_on_users.of(&[user.to_owned()], Instant::now(), ask)
    }

    /// Which of these creators have no user as whom jobs can be submitted, and why, in sentences.
    pub(super) fn missing_users(&self, creators: &[String]) -> Vec<String> {
        let Some(users) = &self.options.users else { return Vec::new() };
        let all: BTreeSet<&String> = creators.iter().chain(users.names.keys()).collect();
        let problem = |creator: &&String| users.of(creator).map_or_else(Some, |user| self.refusal_of_user(&user));
        all.iter().filter_map(|it| Some(format!("no jobs of {it} are taken: {}", problem(it)?))).collect()
    }

    /// Why such instances are refused whenever a user asks for them, if they are.
    pub(super) fn refusal(&self, wants: &Wants, user: Option<String>) -> Option<String> {
        // Names alone: how much there is room for changes with the nodes that are up.
        let wants = Wants { kind: wants.kind.clone(), gpus: wants.gpus, ..Wants::default() };
        let spec = AllocationSpec {
            id: "check".to_owned(),
            instances: 1,
            program: PathBuf::from("/bin/true"),
            args: Vec::new(),
            env: Vec::new(),
            nodes: Vec::new(),
            wants,
            dir: PathBuf::new(),
        };
        let job = Submitted { id: 0, name: job_name(&spec, 0), hosts: BTreeSet::from([1]), user };
        let request = Request::of(&self.options, &spec, &job);
        let key = Vec::from_iter(request.arguments().into_iter().chain(job.user));
        self.verdicts.of(&key, Instant::now(), || lasting(self.controller.test(&request)))
    }
}

/// Without a refusal that may pass.
fn lasting(tested: Result<(), LaunchError>) -> Result<(), LaunchError> {
    match tested {
        Err(LaunchError::Refused { what, .. }) if !is_lasting(&what) => Ok(()),
        tested => tested,
    }
}

fn is_lasting(what: &str) -> bool {
    let lower = what.to_lowercase();
    LASTING.iter().any(|lasting| lower.contains(lasting))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(what: &str) -> Result<(), LaunchError> {
        Err(LaunchError::Refused { scheduler: "Slurm", target: "lab".to_owned(), what: what.to_owned() })
    }

    #[test]
    fn names_that_do_not_exist_are_refused_and_nodes_that_are_down_are_not() {
        // As Slurm 22.05 prints them.
        for (what, is_refused) in [
            (
                "sbatch: error: invalid partition specified: x; allocation failure: Invalid partition name specified",
                true,
            ),
            ("sbatch: error: Invalid generic resource (gres) specification", true),
            ("allocation failure: Invalid feature specification", true),
            ("allocation failure: Requested reservation is invalid", true),
            ("allocation failure: Invalid account or account/partition combination specified", true),
            ("sbatch: unrecognized option '--bogus'; Try \"sbatch --help\" for more information", true),
            ("allocation failure: Requested node configuration is not available", false),
            ("allocation failure: Required node not available (down, drained or reserved)", false),
        ] {
            assert_eq!(lasting(refused(what)).is_err(), is_refused, "{what}");
        }
    }
}
