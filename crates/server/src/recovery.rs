//! After a restart: what runs is taken back into the tables, what a crash left is removed.

use std::{collections::BTreeSet, fs};

use shoal_plane::State;

use crate::{attempts::Plan, effects::World};

/// Attempts that the journal says are live.
pub(crate) fn attempts(state: &State) -> BTreeSet<String> {
    state.jobs().filter_map(|job| state.view(job)?.attempt).collect()
}

/// Adopts live attempts that have a plan, and sweeps the run directories and channel trees of all others.
pub(crate) fn restore(world: &World, live: &BTreeSet<String>) {
    let entries = match fs::read_dir(&world.runs) {
        Ok(entries) => entries,
        Err(error) => return tracing::error!("{}: {error}", world.runs.display()),
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let plan = Plan::read(&entry.path());
        match plan {
            Ok(Some(plan)) if live.contains(&name) => {
                let instances = u32::try_from(plan.assignments.len()).unwrap_or(u32::MAX);
                world.adopt(plan, world.allocation(&name, instances));
            }
            Ok(None) if live.contains(&name) => {}
            Ok(_) => world.clear(&name),
            Err(error) => {
                tracing::error!("{}: {error}", entry.path().display());
                world.clear(&name);
            }
        }
    }
    world.trees.sweep();
}
