//! Restart recovery: adopts running attempts and removes orphaned directories.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
    thread,
};

use shoal_launch::{AllocationStatus, Launcher};
use shoal_plane::{AttemptId, Command, Effects, Host, InstanceReport, State};
use shoal_runtime::recovery::{Found, launching, recover};

use crate::{
    attempts::{Attempts, Plan},
    core::Core,
    effects::Performer,
    error_chain::describe,
};

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
/// others. The launch of some is requested again: it is among `pending`. Returns the adopted
/// attempts whose instances may be retained, with their keys.
pub(crate) fn restore(
    performer: &Performer,
    live: &BTreeSet<AttemptId>,
    pending: &Effects,
) -> Vec<(AttemptId, String)> {
    let launching = launching(pending);
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
    let recovery = recover(live, &launching, found);
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

/// Reports attempts as lost that their launcher does not know, though the journal has them started:
/// the data directory was restored from a backup, and what ran with it did not come along. The work
/// of a thread, as a launcher may be slow.
pub(crate) fn lose_unknown(
    core: &Core,
    attempts: &Arc<Attempts>,
    launcher: &Arc<dyn Launcher>,
    live: &BTreeSet<AttemptId>,
    pending: &Effects,
) -> impl FnOnce() + Send + 'static {
    let started = live - &launching(pending);
    let (core, attempts, launcher) = (core.clone(), attempts.clone(), launcher.clone());
    move || {
        let adopted = attempts.all();
        for attempt in started {
            let adopted = adopted.iter().find(|adopted| adopted.plan.attempt == attempt);
            // Not even how it was started may be known.
            let hosts = adopted.map_or(1, |adopted| adopted.allocation.instances);
            let status = adopted.and_then(|adopted| launcher.status(&[&adopted.allocation]).pop());
            if adopted.is_none() || matches!(status, Some(Ok(AllocationStatus::Unknown))) {
                Host::all(hosts).for_each(|host| lose(&core, &attempt, host));
            }
        }
    }
}

fn lose(core: &Core, attempt: &AttemptId, host: Host) {
    let reason = format!(
        "the agent of {host} is not on this machine: the server was restored from a backup that was made while the \
         training job ran"
    );
    let report = InstanceReport::Lost { reason };
    if let Err(refusal) = core.tell(Command::InstanceReported { attempt: attempt.clone(), host, report }) {
        tracing::warn!("{refusal}");
    }
}
