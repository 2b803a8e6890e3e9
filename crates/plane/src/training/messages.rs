//! What users read about a training job as it goes through its statuses.

use super::TrainingJob;
use crate::{
    Host, Rejection, SecondaryStatus, StopCause,
    gang::{
        follow::Limit,
        instances::{Attempt, Instance},
        orders::StopReason,
        retry::Retry,
    },
    limits::MAX_TEXT,
    text::{first_characters, gib},
};

pub(crate) const CREATED: &str = "Starting the training job";
pub(crate) const COMPLETED: &str = "Training job completed";
pub(crate) const INTERRUPTED: &str =
    "The instances were taken away; training goes on from its checkpoints when there are others";
pub(crate) const RESUMING: &str = "Resuming the training job";
pub(crate) const RESUMED: &str = "Training resumed where it had paused";
pub(crate) const PARKED_FOR_QUEUE: &str = "Paused; its memory is wanted, and it will go on from its checkpoint";

pub(crate) const TAKEN_AWAY: &str = "the instance is taken away, and the others continue";
pub(crate) const INSTANCE_INTERRUPTED: &str = "interrupted";
pub(crate) const GIVEN_UP: &str = "needed by the training job at the head of the queue";

/// Of a training job that continues without these instances, with `why` they are gone.
pub(crate) fn continues_without(attempt: &Attempt, hosts: &[Host], why: &str) -> String {
    let left = attempt.members().into_iter().filter(|host| !hosts.contains(host)).count();
    let names = Vec::from_iter(hosts.iter().map(Host::to_string)).join(", ");
    let are = if hosts.len() == 1 { "was" } else { "were" };
    first_characters(
        &format!("Training on {left} of {} instances: {names} {are} {why}", attempt.instances.len()),
        MAX_TEXT,
    )
}

/// The same where instances were lost; none if none of these was.
pub(crate) fn lost_instances(attempt: &Attempt, hosts: &[Host]) -> Option<String> {
    let reason = hosts.iter().find_map(|host| match attempt.instance(*host) {
        Some(Instance::Lost { reason, .. }) => Some(reason.as_str()),
        Some(Instance::Ended { .. }) => Some("the program that joined the others failed"),
        _ => None,
    });
    reason.map(|reason| continues_without(attempt, hosts, &format!("lost ({reason})")))
}

/// Of a training job that gets these instances.
pub(crate) fn joined(attempt: &Attempt, hosts: &[Host]) -> String {
    let (members, all) = (attempt.members().len(), attempt.instances.len());
    let names = Vec::from_iter(hosts.iter().map(Host::to_string)).join(", ");
    format!(
        "Training on {members} of {all} instances: {names} {} being added",
        if hosts.len() == 1 { "is" } else { "are" }
    )
}

/// Of a secondary status that follows the instances.
pub(crate) fn moved(secondary: SecondaryStatus) -> &'static str {
    match secondary {
        SecondaryStatus::Starting => "Starting the instances",
        SecondaryStatus::Downloading => "Downloading input data",
        SecondaryStatus::Training => "Training image download completed. Training in progress.",
        _ => "Uploading generated training model",
    }
}

pub(crate) fn stopping(cause: StopCause) -> &'static str {
    match cause {
        StopCause::User => "Stopping the training job",
        StopCause::MaxRuntime => "Stopping the training job: it reached MaxRuntimeInSeconds",
        StopCause::MaxWait => "Stopping the training job: it reached MaxWaitTimeInSeconds",
        StopCause::Early => "Stopping the training job early: others of its tuning job are more promising",
        StopCause::MaxResource => "Stopping the training job: it reached MaxResource of its tuning job",
        StopCause::Tuning => "Stopping the training job: its tuning job ends",
        StopCause::Rule => "Stopping the training job: the condition of a rule was met, whose action stops it",
        StopCause::Budget => "Stopping the training job: a budget that it counts for is spent",
    }
}

/// Of a job that was stopped, with its last secondary status.
pub(crate) fn stopped(limit: Limit) -> (SecondaryStatus, &'static str) {
    match limit {
        Limit::Asked => (SecondaryStatus::Stopped, "Training job stopped"),
        Limit::MaxRuntime => {
            (SecondaryStatus::MaxRuntimeExceeded, "Training job runtime exceeded MaxRuntimeInSeconds provided")
        }
        Limit::MaxPending => {
            (SecondaryStatus::MaxWaitTimeExceeded, "Training job waited longer than MaxPendingTimeInSeconds provided")
        }
        // As AWS words it.
        Limit::MaxWait => {
            (SecondaryStatus::MaxWaitTimeExceeded, "Training job wait time exceeded MaxWaitTimeInSeconds provided")
        }
    }
}

/// For the logs of the instances.
pub(crate) fn stop_reason(job: &TrainingJob, reason: StopReason) -> &str {
    match reason {
        StopReason::Evicted => "the machine's memory ran short, and it started after others that run",
        StopReason::Interrupted => "managed spot training is interrupted",
        StopReason::Paused => "the trial is paused",
        StopReason::AttemptFailed => job.gang.retry.as_ref().map_or("the attempt failed", |retry| &retry.reason),
        StopReason::Failed => job.failure_reason.as_deref().unwrap_or("the training job failed"),
        StopReason::Cause(StopCause::MaxRuntime) => "the training job reached MaxRuntimeInSeconds",
        StopReason::Cause(StopCause::MaxWait) => "the training job reached MaxWaitTimeInSeconds",
        StopReason::Cause(StopCause::Early) => "others are more promising",
        StopReason::Cause(StopCause::MaxResource) => "the trial reached MaxResource",
        StopReason::Cause(StopCause::Tuning) => "the tuning job ends",
        StopReason::Cause(StopCause::Rule) => "the condition of a rule was met",
        StopReason::Cause(StopCause::Budget) => "a budget is spent",
        StopReason::Cause(StopCause::User) => "the training job is being stopped",
    }
}

pub(crate) fn paused(resource: u32) -> String {
    format!("Paused after {resource} units of resource, to make room for other training jobs")
}

pub(crate) fn lost_while_paused(reason: &str) -> String {
    first_characters(&format!("Paused, and no longer in memory: {reason}"), MAX_TEXT)
}

pub(crate) fn retried(retry: u32, retries: u32, reason: &str) -> String {
    format!("Starting the training job again, retry {retry} of {retries}: {reason}")
}

pub(crate) fn replaced(reason: &str) -> String {
    format!("Starting again in place of instances that had served: {reason}")
}

pub(crate) fn launch_delayed(job: &TrainingJob, reason: &str) -> String {
    first_characters(&format!("The launch waits: {reason}{}", attempts_before(job)), MAX_TEXT)
}

pub(crate) fn launch_queued(job: &TrainingJob, reason: &str) -> String {
    first_characters(&format!("The launch is queued: {reason}{}", attempts_before(job)), MAX_TEXT)
}

/// `notes`: what was capped, and the like.
pub(crate) fn launched(job: &TrainingJob, notes: &[String]) -> String {
    if job.secondary() == SecondaryStatus::Training {
        // As if it had been frozen.
        return RESUMED.to_owned();
    }
    let before = attempts_before(job);
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("Preparing the instances for training{before}{notes}")
}

/// What became of the attempts before, behind a message about the next one.
fn attempts_before(job: &TrainingJob) -> String {
    let mut text = String::new();
    let Some(Retry { failed, replaced, interrupted, evicted, reason, .. }) = job.gang.retry.as_deref() else {
        return text;
    };
    if *failed > 0 {
        text += &format!(", retry {failed} of {} after {reason}", job.gang.spec.retries);
    }
    if *replaced > 0 {
        text += &format!(", replacement {replaced} after {reason}");
    }
    if *interrupted > 0 {
        text += &format!(", after interruption {interrupted}");
    }
    match evicted {
        0 => {}
        1 => text += ", after it was ended for want of memory",
        more => text += &format!(", after {more} attempts were ended for want of memory"),
    }
    text
}

/// Failure reason of a job whose instances this server can no longer run.
pub(crate) fn no_longer_fits(rejection: &Rejection) -> String {
    format!(
        "CapacityError: the server's capacity or catalogue has changed since the training job was created: {rejection}"
    )
}

/// Where memory ran short: on a node with this name, if there are several.
fn machine(node: Option<&str>) -> String {
    node.map_or("the machine".to_owned(), |node| format!("node {node}"))
}

pub(crate) fn parked_for_memory(node: Option<&str>) -> String {
    format!("Paused; the memory of {} ran short, and it will go on from its checkpoint", machine(node))
}

/// `who` used the memory.
pub(crate) fn evicted(used_bytes: u64, who: &str, node: Option<&str>) -> String {
    format!(
        "Ended: the memory of {} ran short while {who} used {}. It is started again from its checkpoints \
         when there is room; it can be told to use less memory, or to wait for its whole type (packing = \"promise\" \
         in shoal.toml)",
        machine(node),
        gib(used_bytes)
    )
}
