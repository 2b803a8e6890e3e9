//! Performs what `shoal_runtime::warm_pool` requests of instances that are retained.

use std::sync::Arc;

use shoal_link::ToAgent;
use shoal_runtime::{
    steps::Outcome,
    warm_pool::{Event, Io},
};
use shoal_store::Rows;

use crate::{
    allocations::Allocations, attempts::Attempts, effects::Performer, idle_agents::IdleAgents, requests, warm,
    warm_status::WarmPools,
};

/// What performs the pool's outputs.
pub(crate) struct PoolPerformer {
    pub(crate) performer: Arc<Performer>,
    pub(crate) allocations: Arc<Allocations>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) idle_agents: Arc<IdleAgents>,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) pools: WarmPools,
}

impl PoolPerformer {
    /// Performs an output of the pool; returns its answer, if it has one.
    pub(crate) fn perform(&self, io: Io) -> Option<Event> {
        if let Some((attempt, steps)) = io.steps() {
            return match self.performer.perform(&attempt, steps) {
                Outcome::Failed(reason) => {
                    tracing::warn!("attempt {attempt} cannot be assigned a warm instance: {reason}");
                    io.failed()
                }
                _ => io.done(),
            };
        }
        match io {
            Io::ReadKeepAlive { job } => {
                let seconds = requests::of_training_job(&*self.rows, &job).ok()?.resources.keep_alive_s;
                Some(Event::KeepAlive { job, seconds })
            }
            Io::CheckOwner { owner } => {
                (!warm::has_more_trials(&*self.rows, &owner)).then_some(Event::OwnerEnded { owner })
            }
            Io::Check { allocation, attempt } => {
                let running = self.attempts.get(&attempt);
                let is_running =
                    running.as_ref().is_some_and(|running| self.allocations.is_complete(&running.allocation));
                let is_mirroring = running.is_some_and(|running| running.is_mirroring());
                Some(Event::Checked { allocation, is_running, is_mirroring })
            }
            Io::Serve { attempt, conns } => {
                let running = self.attempts.get(&attempt)?;
                let serve = || ToAgent::Serve { attempt: attempt.to_string(), token: running.token.clone() };
                let sent = conns
                    .into_iter()
                    .all(|conn| self.idle_agents.get(conn).is_some_and(|agent| agent.send(serve()).is_ok()));
                (!sent).then_some(Event::ServeFailed { attempt })
            }
            Io::Refuse(conn) => {
                if let Some(agent) = self.idle_agents.get(conn) {
                    // One that is not reached exits all the same.
                    let _ = agent.send(ToAgent::Refused { reason: "this instance is not retained".to_owned() });
                    agent.close();
                }
                None
            }
            Io::Retire { conns, retired } => {
                conns.into_iter().filter_map(|conn| self.idle_agents.get(conn)).for_each(|agent| agent.close());
                self.pools.ends(Some(&retired.retention.policy), &retired.retention.job, retired.idle);
                None
            }
            Io::End(instances) => {
                let all: Vec<_> = instances.into_iter().map(|it| (it.allocation.0, it.hosts)).collect();
                // What may be left is found by its directory when the server starts again.
                let _ = self.allocations.end_allocations(&all);
                None
            }
            // They have steps, or the driver carries it to its machine.
            Io::Park { .. } | Io::Clear { .. } | Io::Assign { .. } | Io::Unassign { .. } | Io::Lane(_) => None,
        }
    }
}
