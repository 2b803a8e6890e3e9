//! What a call does: typed inputs to commands and reads, and back. `routes` has the operations.

pub(crate) mod best_model;
mod checkpoints;
mod filter_logs;
mod hold;
mod identity;
mod listing;
mod log_changes;
mod logs;
mod metrics;
mod near;
mod resource_types;
mod resources;
mod routes;
mod search;
mod study;
mod tags;
mod token;
mod training;
mod trial_metrics;
mod tuning;
mod visits;

use std::sync::Arc;

use shoal_wire::{Error, ErrorCode, Operation, Reply};

use crate::{admission::internal, key_ring::Holder, search::Indexes, world::World};

pub(crate) use routes::{Answer, read};
pub(crate) use study::spec_kind;

/// Operations that a training program may call with its job's keys: who it is, and metrics of its
/// own.
const OPEN_TO_JOBS: [&str; 2] = ["GetCallerIdentity", "BatchPutMetrics"];

/// Who calls, as far as it matters for the answer.
pub(crate) struct Caller {
    /// The request's `User-Agent`.
    pub(crate) user_agent: String,
    /// Whose keys the request is signed with.
    pub(crate) holder: Holder,
}

/// Settings that answers show.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) region: String,
    pub(crate) account: String,
}

/// The API over everything it touches.
pub(crate) struct Api {
    world: Arc<World>,
    search: Arc<Indexes>,
    plain: resource_types::Registry,
    identity: Identity,
    holds: hold::Holds,
    /// One deletion at a time: what goes by a job's name must not be a successor's.
    deletion: tokio::sync::Mutex<()>,
}

impl Api {
    /// A text for clients: see [`World::without_paths`].
    pub(crate) fn without_paths(&self, text: &str) -> String {
        self.world.without_paths(text)
    }

    /// The API over this world.
    pub(crate) fn new(world: Arc<World>, search: Arc<Indexes>, identity: Identity) -> Self {
        let plain = resource_types::Registry::new(world.core.clone(), world.rows.clone(), identity.clone());
        Self { world, search, plain, identity, holds: hold::Holds::default(), deletion: tokio::sync::Mutex::default() }
    }

    /// Answers a call.
    ///
    /// # Errors
    /// With the error code that AWS has for it.
    pub(crate) async fn answer(&self, operation: &Operation, answer: Answer, caller: &Caller) -> Result<Reply, Error> {
        if matches!(caller.holder, Holder::Attempt { .. }) && !OPEN_TO_JOBS.contains(&operation.name) {
            return Err(Error::new(
                ErrorCode::AccessDenied,
                "a training job's keys open its channels and outputs only",
            ));
        }
        answer(self, caller).await
    }
}

/// Runs what may wait for the disk off the async threads.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(internal(&error)))
}

#[cfg(test)]
mod tests;
