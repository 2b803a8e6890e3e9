//! The processes that serve an attempt: how its agents are started, whether they run, and how they
//! are ended.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc};

use shoal_launch::{AllocationSpec, AllocationStatus, LaunchError, Launcher, LauncherExt, Wants};
use shoal_link::{Delivery, Limits, Program, Root};
use shoal_plane::AttemptId;
use shoal_runtime::{steps::Outcome, warm_pool::AllocationId};

use crate::{
    AccessKeys, RemoveTree,
    attempts::{Attempt, Plan, run_dir},
    channels::Trees,
    error_chain::describe,
    options::Route,
    sweeps::Sweeps,
    warm,
};

/// What starts agents and ends them.
pub(crate) struct Allocations {
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) keys: AccessKeys,
    pub(crate) trees: Arc<Trees>,
    pub(crate) sweeps: Sweeps,
    pub(crate) remove_tree: RemoveTree,
    pub(crate) runs: PathBuf,
    pub(crate) data_id: String,
    pub(crate) program: PathBuf,
    pub(crate) agent_env: Vec<(String, String)>,
    pub(crate) remote_agent_env: Vec<(String, String)>,
    pub(crate) socket: PathBuf,
    /// How agents connect that share no files with this server.
    pub(crate) route: Option<Route>,
}

impl Allocations {
    /// The agents that serve an attempt.
    pub(crate) fn allocation_of(&self, plan: &Plan) -> AllocationSpec {
        let instances = u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX);
        self.on_nodes(plan.allocation_id(), instances, plan.nodes.clone())
    }

    /// The same where it is not known on which nodes they are: what was started is found by its
    /// directory.
    pub(crate) fn allocation(&self, attempt: &AttemptId, instances: u32) -> AllocationSpec {
        self.on_nodes(attempt, instances, Vec::new())
    }

    /// The same for the same attempt, whenever it is asked for.
    fn on_nodes(&self, attempt: &AttemptId, instances: u32, nodes: Vec<String>) -> AllocationSpec {
        let is_remote = self.launcher.is_remote(&nodes);
        let dir = run_dir(&self.runs, attempt);
        let arg = |text: &str| text.to_owned();
        // An agent that shares no files with this machine has directories of its own.
        let mut args = match self.route.as_ref().filter(|_| is_remote) {
            Some(route) => {
                vec![
                    arg("agent"),
                    arg("--server"),
                    route.address.clone(),
                    arg("--fingerprint"),
                    route.fingerprint.clone(),
                ]
            }
            None => vec![
                arg("agent"),
                arg("--socket"),
                self.socket.display().to_string(),
                arg("--run-dir"),
                dir.display().to_string(),
            ],
        };
        args.extend([arg("--attempt"), attempt.to_string(), arg("--data-id"), self.data_id.clone()]);
        AllocationSpec {
            id: format!("{}-{attempt}", self.data_id),
            instances,
            program: self.program.clone(),
            args,
            env: if is_remote { &self.remote_agent_env } else { &self.agent_env }.clone(),
            nodes,
            wants: Wants::default(),
            dir,
        }
    }

    /// The same with the secret by which its agents are known, and what they are to get.
    pub(crate) fn with_token(&self, plan: &Plan) -> AllocationSpec {
        let mut spec = AllocationSpec { wants: wants(plan), ..self.allocation_of(plan) };
        spec.env.push(("SHOAL_AGENT_TOKEN".to_owned(), self.keys.agent_token(&plan.attempt)));
        spec
    }

    /// Whether all instances of an allocation run.
    pub(crate) fn is_complete(&self, allocation: &AllocationSpec) -> bool {
        matches!(self.launcher.status_of(allocation), Ok(AllocationStatus::Running { lost }) if lost.is_empty())
    }

    /// Ends instances of an attempt whose others continue.
    pub(crate) fn end_instances(&self, running: &Attempt, hosts: &[u32]) -> Outcome {
        if let Err(error) = self.launcher.remove(&running.allocation, hosts) {
            return Outcome::Delayed { reason: describe(&error), has_written: false };
        }
        let id = |host: &u32| format!("{}-{}-{host}", self.data_id, running.plan.allocation_id());
        // By prefix: of 3 and 30 the sandbox of 30 would be found, too, and is left to the release.
        let is_alone = |host: &&u32| {
            (1..=running.allocation.instances).all(|it| it == **host || !it.to_string().starts_with(&host.to_string()))
        };
        self.sweeps.clear(hosts.iter().filter(is_alone).map(id));
        Outcome::Done
    }

    /// Ends and removes these allocations, each with its number of agents. Of one that may not have
    /// ended, as its scheduler does not answer, nothing is removed.
    ///
    /// # Errors
    /// Why the first such one may not have ended.
    pub(crate) fn end_allocations(&self, all: &[(AttemptId, u32)]) -> Result<(), String> {
        let mut delayed = None;
        let mut ended = Vec::with_capacity(all.len());
        for (id, hosts) in all {
            match self.launcher.stop(&self.allocation(id, *hosts)) {
                Ok(()) => ended.push((id, hosts)),
                Err(error @ LaunchError::Unavailable { .. }) => {
                    tracing::warn!("{}", describe(&error));
                    delayed.get_or_insert(describe(&error));
                }
                Err(error) => {
                    tracing::error!("{}", describe(&error));
                    ended.push((id, hosts));
                }
            }
        }
        let all = ended;
        self.sweeps.clear(all.iter().map(|(id, _)| format!("{}-{id}-", self.data_id)));
        for (id, _) in all {
            let dir = run_dir(&self.runs, id);
            if let Err(error) = (self.remove_tree)(&dir) {
                tracing::error!("{}: {error}", dir.display());
            }
            warm::release_claims(&self.trees, &AllocationId((*id).clone()));
        }
        delayed.map_or(Ok(()), Err)
    }
}

/// What the instances of a plan are to get. A scheduler reserves the same for each of them, so of
/// several groups the most.
fn wants(plan: &Plan) -> Wants {
    let Some(first) = plan.assignments.first() else { return Wants::default() };
    let most = |of: fn(&Limits) -> u64| plan.assignments.iter().map(|it| of(&it.limits)).max().unwrap_or(0);
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Wants {
        kind: first.instance_type.clone(),
        cpus: small(most(|limits| limits.cpus.into())),
        memory_bytes: most(|limits| limits.memory_bytes),
        gpus: small(most(|limits| limits.gpus.len() as u64)),
        seconds: time_limit(plan),
        label: first.job_arn.clone(),
        creator: plan.creator.clone(),
        image: match &first.root {
            Some(Root::Container { image }) => Some(image.clone()),
            _ => None,
        },
        starts_image: matches!(first.program, Program::Image { .. }),
        directories: directories(plan),
    }
}

/// File systems that its programs read or write, by where they are on the nodes.
pub(crate) fn directories(plan: &Plan) -> BTreeSet<PathBuf> {
    let channels = plan.assignments.iter().flat_map(|it| &it.channels);
    let shared = channels.filter(|channel| matches!(channel.delivery, Delivery::Directory { .. }));
    shared.map(|channel| channel.tree.directory().to_owned()).collect()
}

/// The longest time that an attempt's allocation is needed; none: other attempts may follow in it.
fn time_limit(plan: &Plan) -> Option<u64> {
    plan.longest_s.filter(|_| plan.reuse.is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_runtime::warm_pool::ReusePolicy;

    use super::*;

    #[test]
    fn only_an_allocation_of_one_attempt_has_its_time_limit() {
        let plan = |reuse: Option<ReusePolicy>| -> Plan {
            let plan: Value = json!({"version": 1, "job": "job", "attempt": "job-1", "streams": [], "isolated": false,
                "reads": [], "writes": [], "assignments": [], "longest_s": 4200});
            Plan { reuse, ..serde_json::from_value(plan).expect("a plan") }
        };
        assert_eq!(time_limit(&plan(None)), Some(4200));
        let kept = ReusePolicy { owner: "t".to_owned().into(), idle_s: 1, key: String::new(), is_loaded: false };
        assert_eq!(time_limit(&plan(Some(kept))), None);
    }
}
