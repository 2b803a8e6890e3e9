//! The steps of a launch, which may be requested again after a crash at any of them: agents that
//! were started before are adopted, and no instance is started twice.

use shoal_plane::{Action, AttemptId, Host};

use crate::{
    steps::{KnownPlan, Launch, Step},
    warm_pool::{AllocationId, Grant},
};

/// A launch whose plan is not on disk is new, unless it is to have been written.
pub(super) fn first(action: &Action) -> Vec<Step> {
    let prepare = Launch::of(action).map(|launch| match launch.joins {
        true => Step::Adopt,
        false => Step::Prepare(Box::new(launch)),
    });
    // A full disk must not fail each training job of the queue in turn.
    [Step::CheckSpace, Step::FindPlan].into_iter().chain(prepare).collect()
}

/// How a launch continues whose plan is on disk.
pub(super) fn after_found(action: &Action, known: &KnownPlan) -> Vec<Step> {
    let Some(launch) = Launch::of(action) else { return Vec::new() };
    if is_replaced(&launch.attempt, known) {
        return vec![
            Step::EndAllocation { allocation: known.plan.allocation.clone(), hosts: Some(known.plan.hosts) },
            Step::Withdraw,
            Step::Prepare(Box::new(launch)),
        ];
    }
    if !known.plan.is_elastic {
        // Agents that a crash in the middle of the first submission left unstarted are started.
        let submit = (!is_warm(&launch.attempt, known)).then_some(Step::Submit);
        return [Step::Adopt].into_iter().chain(submit).collect();
    }
    let gpus =
        |host: &Host| host.index().and_then(|index| launch.placement.gpus.get(index)).cloned().unwrap_or_default();
    let join = || Step::Join(launch.hosts.iter().map(|host| (*host, gpus(host))).collect());
    let joins = launch.joins.then(join);
    let add = [
        Step::Expect(launch.hosts.clone()),
        Step::Add { hosts: launch.hosts.clone(), nodes: launch.placement.nodes.clone() },
    ];
    [Step::Adopt].into_iter().chain(joins).chain(add).collect()
}

/// Starts the agents of a prepared launch, unless a warm instance serves it.
pub(super) fn start(grant: Option<Grant>) -> Vec<Step> {
    match grant {
        Some(grant) => vec![Step::Connect(grant), Step::WriteNotes],
        None => vec![Step::WritePlan(None), Step::Admit(None), Step::Submit, Step::WriteNotes],
    }
}

/// It was assigned a warm instance.
fn is_warm(attempt: &AttemptId, known: &KnownPlan) -> bool {
    let AllocationId(allocation) = &known.plan.allocation;
    allocation != attempt
}

/// Agents of a warm instance exit with a server that was killed before it could assign them the
/// attempt: what is left of that instance is ended, and the attempt gets another one.
fn is_replaced(attempt: &AttemptId, known: &KnownPlan) -> bool {
    is_warm(attempt, known) && !known.is_complete && !known.has_reports
}
