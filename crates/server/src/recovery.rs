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
    let (mut kept, mut others) = (BTreeSet::new(), Vec::new());
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let plan = Plan::read(&entry.path());
        match plan {
            Ok(Some(plan)) if live.contains(&name) => {
                kept.insert(plan.origin().to_owned());
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
    others.iter().filter(|name| !kept.contains(*name)).for_each(|name| world.clear(name));
    world.trees.sweep();
    if let Err(error) = world.pools_of_before_end() {
        tracing::error!("warm pools of before: {error}");
    }
}
