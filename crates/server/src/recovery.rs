//! Restart recovery: adopts running attempts and removes orphaned directories.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use shoal_plane::{AttemptId, State};
use shoal_runtime::recovery::{Found, recover};

use crate::{attempts::Plan, world::World};

/// Attempts that the journal says are live.
pub(crate) fn attempts(state: &State) -> BTreeSet<AttemptId> {
    state.jobs().filter_map(|job| state.view(job)?.attempt).collect()
}

/// Adopts live attempts that have a plan, and removes the run directories and channel trees of all
/// others. Returns the adopted attempts whose instances may be retained, with their keys.
pub(crate) fn restore(world: &World, live: &BTreeSet<AttemptId>) -> Vec<(AttemptId, String)> {
    let entries = match fs::read_dir(&world.runs) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::error!("{}: {error}", world.runs.display());
            return Vec::new();
        }
    };
    let (mut found, mut plans) = (Vec::new(), BTreeMap::new());
    for entry in entries.flatten() {
        let attempt = AttemptId::from(&*entry.file_name().to_string_lossy());
        let plan = Plan::read(&entry.path()).unwrap_or_else(|error| {
            tracing::error!("{}: {error}", entry.path().display());
            None
        });
        let known = plan.as_ref().map(Plan::found);
        plans.extend(plan.map(|plan| (attempt.clone(), plan)));
        found.push(Found { attempt, plan: known });
    }
    let recovery = recover(live, found);
    recovery.adopt.iter().filter_map(|attempt| plans.remove(attempt)).for_each(|plan| world.adopt(plan));
    for (attempt, steps) in recovery.clear {
        world.perform(&attempt, steps);
    }
    world.trees.sweep();
    if let Err(error) = world.pools_of_before_end() {
        tracing::error!("the status of warm pools of the server before this one could not be ended: {error}");
    }
    recovery.keys
}
