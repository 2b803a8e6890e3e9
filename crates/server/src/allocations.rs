//! The processes that serve an attempt: how its agents are started, whether they run, and how they
//! are ended.

use shoal_launch::{AllocationSpec, AllocationStatus, LauncherExt};
use shoal_link::Endpoint;
use shoal_plane::AttemptId;
use shoal_runtime::warm_pool::AllocationId;

use crate::{
    attempts::{Attempt, Plan, run_dir},
    error_chain::describe,
    world::World,
};

impl World {
    /// The agents that serve an attempt.
    pub(crate) fn allocation_of(&self, plan: &Plan) -> AllocationSpec {
        self.allocation(plan.allocation_id(), u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX))
    }

    /// The same for the same attempt, whenever it is asked for.
    pub(crate) fn allocation(&self, attempt: &AttemptId, instances: u32) -> AllocationSpec {
        let dir = run_dir(&self.runs, attempt);
        let arg = |text: &str| text.to_owned();
        // An agent that shares no files with this machine has directories of its own.
        let mut args = match &self.route {
            Some(route) if self.is_remote() => {
                vec![
                    arg("agent"),
                    arg("--server"),
                    route.address.clone(),
                    arg("--fingerprint"),
                    route.fingerprint.clone(),
                ]
            }
            _ => vec![
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
            env: self.agent_env.clone(),
            nodes: Vec::new(),
            dir,
        }
    }

    /// The same with the secret by which its agents are known.
    pub(crate) fn with_token(&self, plan: &Plan) -> AllocationSpec {
        let mut spec = AllocationSpec { nodes: plan.nodes.clone(), ..self.allocation_of(plan) };
        spec.env.push(("SHOAL_AGENT_TOKEN".to_owned(), self.keys.agent_token(&plan.attempt)));
        spec
    }

    /// The endpoint of an attempt: derived, so that no secret stands in a file.
    pub(crate) fn endpoint(&self, attempt: &Attempt) -> Option<Endpoint> {
        let keys = attempt.keys.clone();
        (!attempt.plan.isolated).then(|| Endpoint {
            server_address: (!self.is_remote()).then(|| self.server_address.clone()),
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key,
            session_token: keys.session_token.unwrap_or_default(),
        })
    }

    /// Whether all instances of an allocation run.
    pub(crate) fn is_complete(&self, allocation: &AllocationSpec) -> bool {
        matches!(self.launcher.status_of(allocation), Ok(AllocationStatus::Running { lost }) if lost.is_empty())
    }

    /// Ends and removes what there is of these allocations, with this number of agents.
    pub(crate) fn end_allocations(&self, all: &[(AttemptId, u32)]) {
        for (id, hosts) in all {
            if let Err(error) = self.launcher.stop(&self.allocation(id, *hosts)) {
                tracing::error!("{}", describe(&error));
            }
        }
        self.sweeps.clear(all.iter().map(|(id, _)| format!("{}-{id}-", self.data_id)));
        for (id, _) in all {
            let dir = run_dir(&self.runs, id);
            if let Err(error) = (self.remove_tree)(&dir) {
                tracing::error!("{}: {error}", dir.display());
            }
            self.release_claims(&AllocationId(id.clone()));
        }
    }
}
