//! Restart recovery: adopts running attempts and removes orphaned directories.

use std::{collections::BTreeSet, fs};

use shoal_plane::State;

use crate::{attempts::Plan, effects::World};

/// Attempts that the journal says are live.
pub(crate) fn attempts(state: &State) -> BTreeSet<String> {
    state.jobs().filter_map(|job| state.view(job)?.attempt).collect()
}

/// Adopts live attempts that have a plan, and removes the run directories and channel trees of all others. Returns the adopted attempts
/// whose instances may be retained, with their keys.
pub(crate) fn restore(world: &World, live: &BTreeSet<String>) -> Vec<(String, String)> {
    let entries = match fs::read_dir(&world.runs) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::error!("{}: {error}", world.runs.display());
            return Vec::new();
        }
    };
    let (mut in_use, mut others, mut keys) = (BTreeSet::new(), Vec::new(), Vec::new());
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let plan = Plan::read(&entry.path());
        match plan {
            Ok(Some(plan)) if live.contains(&name) => {
                in_use.insert(plan.allocation_id().to_owned());
                keys.extend(plan.reuse.as_ref().map(|policy| (name, policy.key.clone())));
                world.adopt(plan);
            }
            Ok(None) if live.contains(&name) => {}
            Ok(_) => others.push(name),
            Err(error) => {
                tracing::error!("{}: {error}", entry.path().display());
                others.push(name);
            }
        }
    }
    // A directory whose attempt is over may be that of an instance that serves another one now.
    others.iter().filter(|name| !in_use.contains(*name)).for_each(|name| world.clear(name));
    world.trees.sweep();
    if let Err(error) = world.pools_of_before_end() {
        tracing::error!("the status of warm pools of the server before this one could not be ended: {error}");
    }
    keys
}
