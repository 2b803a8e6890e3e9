//! Restart recovery: adopts running attempts and removes orphaned directories.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, thread,
};

use shoal_plane::{AttemptId, State};
use shoal_runtime::recovery::{Found, recover};

use crate::{attempts::Plan, effects::Performer, error_chain::describe};

/// Attempts that the journal says are live.
pub(crate) fn attempts(state: &State) -> BTreeSet<AttemptId> {
    state.jobs().filter_map(|job| state.view(job)?.attempt).collect()
}

/// Ends what schedulers of compute targets have of this data directory and no attempt has: they are
/// asked beside, as one that does not answer delays no start.
fn end_others(performer: &Performer) {
    let (launcher, attempts) = (performer.launcher.clone(), performer.attempts.clone());
    let prefix = format!("{}-", performer.data_dir.id());
    let end = move || {
        // An attempt is admitted before its agents are submitted.
        let is_known = |id: &str| attempts.all().iter().any(|attempt| attempt.allocation.id == id);
        if let Err(error) = launcher.end_others(&prefix, &is_known) {
            tracing::warn!("what may be left on compute targets was not ended: {}", describe(&error));
        }
    };
    if let Err(error) = thread::Builder::new().name("leftovers".to_owned()).spawn(end) {
        tracing::warn!("what may be left on compute targets was not looked for: {error}");
    }
}

/// Adopts live attempts that have a plan, and removes the run directories and channel trees of all
/// others. `launching`: those whose launch is requested again. Returns the adopted attempts whose
/// instances may be retained, with their keys.
pub(crate) fn restore(
    performer: &Performer,
    live: &BTreeSet<AttemptId>,
    launching: &BTreeSet<AttemptId>,
) -> Vec<(AttemptId, String)> {
    let entries = match fs::read_dir(&performer.runs) {
        Ok(entries) => entries,
        Err(error) => {
            tracing::error!("{}: {error}", performer.runs.display());
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
    let recovery = recover(live, launching, found);
    for plan in recovery.adopt.iter().filter_map(|attempt| plans.remove(attempt)) {
        let is_decided = !recovery.undecided.contains(&plan.attempt);
        performer.adopt(plan, is_decided);
    }
    for (attempt, steps) in recovery.clear {
        performer.perform(&attempt, steps);
    }
    performer.trees.sweep();
    end_others(performer);
    if let Err(error) = performer.pools.end_those_of_before() {
        tracing::error!("the status of warm pools of the server before this one could not be ended: {error}");
    }
    recovery.keys
}
