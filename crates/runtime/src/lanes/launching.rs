//! The steps of a launch, which may be requested again after a crash at any of them: agents that
//! were started before are adopted, and no instance is started twice.

use shoal_plane::{Action, AttemptId};

use crate::{
    steps::{KnownPlan, Launch, Step},
    warm_pool::{AllocationId, Grant},
};

/// A full disk must not fail each training job of the queue in turn.
pub(super) fn first() -> Vec<Step> {
    vec![Step::CheckSpace, Step::FindPlan]
}

/// How a launch continues whose plan may be on disk.
pub(super) fn after_look(action: &Action, known: Option<&KnownPlan>) -> Vec<Step> {
    let Some(launch) = Launch::of(action) else { return Vec::new() };
    match known {
        Some(known) if is_replaced(&launch.attempt, known) => vec![
            Step::EndAllocation { allocation: known.plan.allocation.clone(), hosts: Some(known.plan.hosts) },
            Step::Withdraw,
            Step::Prepare(Box::new(launch)),
        ],
        None if !launch.joins => vec![Step::Prepare(Box::new(launch))],
        Some(known) if !known.plan.is_elastic => {
            // Agents that a crash in the middle of the first submission left unstarted are started.
            let submit = (!is_warm(&launch.attempt, known)).then_some(Step::Submit);
            [Step::Adopt].into_iter().chain(submit).collect()
        }
        _ => {
            let gpus = |host: &u32| launch.placement.gpus.get(*host as usize - 1).cloned().unwrap_or_default();
            let join = || Step::Join(launch.hosts.iter().map(|host| (*host, gpus(host))).collect());
            let joins = launch.joins.then(join);
            let add = [Step::Expect(launch.hosts.clone()), Step::Add(launch.hosts.clone())];
            [Step::Adopt].into_iter().chain(joins).chain(add).collect()
        }
    }
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
