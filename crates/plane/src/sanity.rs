//! What must hold of the whole state after every event.

use std::collections::BTreeSet;

use crate::{
    Host, JobStatus, SecondaryStatus, State, TuningStatus,
    gang::instances::{Attempt, Stage},
    state::Index,
    training::{TrainingJob, status::follows},
    tuning::job::{RequestKind, TuningJob},
};

/// `Err` with what should hold, if it does not.
fn ensure(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

impl State {
    fn check_tuning(&self, tuning: &TuningJob) -> Result<(), String> {
        let children: Vec<_> = self.jobs.iter().filter(|job| job.tuning() == Some(&tuning.name)).collect();
        ensure(tuning.unreleased as usize == children.len(), "it counts its training jobs")?;
        let active = children.iter().filter(|job| job.gang.is_active()).count();
        ensure(
            tuning.active as usize == active,
            &format!("{active} of its trials are active, and it counts {}", tuning.active),
        )?;
        let waiting = children.iter().filter(|job| job.gang.waits()).count();
        ensure(
            tuning.waiting as usize == waiting,
            &format!("{waiting} of its trials wait, and it counts {}", tuning.waiting),
        )?;
        let is_over = |key: &(u32, u32)| tuning.over.iter().any(|over| (over.definition, over.trial) == *key);
        for job in &children {
            let key = job.trial.as_ref().map_or((0, 0), |trial| (trial.definition, trial.trial));
            let is_known = tuning.trials.get(&key) == Some(&job.gang.name);
            ensure(job.gang.end.is_some() || is_known, &format!("{} is its trial", job.gang.name))?;
            ensure(job.gang.end.is_some() || !is_over(&key), &format!("{} has not ended", job.gang.name))?;
        }
        for (key, name) in &tuning.trials {
            let lives = self.jobs.get(name).is_some_and(|job| job.gang.end.is_none());
            ensure(lives || is_over(key), &format!("{name} lives, or is known to have ended"))?;
        }
        let trials = u32::try_from(tuning.trials.len()).map_err(|_| "it has too many trials")?;
        ensure(tuning.started == trials + tuning.ended_trials(), "each trial lives or has ended")?;
        ensure(
            tuning.spec.max_jobs.is_none_or(|most| tuning.started <= most),
            "no more trials are started than there may be",
        )?;
        ensure(tuning.requests.iter().is_sorted_by(|one, next| one.seq < next.seq), "its requests are in order")?;
        ensure(
            tuning.requests.back().is_none_or(|last| last.seq < tuning.next_seq),
            "requests have numbers of their own",
        )?;
        let asks =
            tuning.requests.iter().filter(|request| matches!(request.what, RequestKind::Suggestions { .. })).count();
        ensure(asks <= 1, "the tuner is asked for trials once at a time")?;
        let has_say = tuning.status == TuningStatus::InProgress;
        ensure(has_say || tuning.requests.is_empty(), "the tuner has no say in its end")?;
        let has_ended = matches!(tuning.status, TuningStatus::Completed | TuningStatus::Failed | TuningStatus::Stopped);
        ensure(has_ended == tuning.ended.is_some(), "it has an end if it is over")?;
        ensure(!has_ended || tuning.trials.is_empty(), "no trial outlives it")?;
        ensure(
            !has_ended || (tuning.status == TuningStatus::Failed) == tuning.failure_reason.is_some(),
            "it says why it failed",
        )?;
        ensure(
            tuning.failure_reason.iter().all(|reason| reason.chars().count() <= 1024),
            "its failure reason is at most 1024 characters",
        )
    }

    /// Checks the invariants of the whole state; for tests, after every event. That no more is held
    /// than there is cannot be one of them: capacity may have been lowered by the configuration.
    ///
    /// # Errors
    /// The first invariant that is broken, and where.
    pub fn sanity_check(&self) -> Result<(), String> {
        let mut orders = BTreeSet::new();
        let mut gpus = BTreeSet::new();
        for job in self.jobs.iter() {
            let name = &job.gang.name;
            let of_job = |error: String| format!("training job {name}: {error}");
            ensure(self.jobs.get(name) == Some(job), "is not found under its name").map_err(of_job)?;
            ensure(
                job.gang.order < self.created && orders.insert(job.gang.order),
                "its place in the order of creation is its own",
            )
            .map_err(of_job)?;
            ensure(job.modified <= self.clock, "was modified in the future").map_err(of_job)?;
            check_transitions(job).map_err(of_job)?;
            check_status(job).map_err(of_job)?;
            if let Some(attempt) = &job.gang.attempt {
                check_attempt(job, attempt).map_err(of_job)?;
                for (host, of_host) in Host::numbered().zip(&attempt.placement.gpus) {
                    let node = attempt.placement.node(host);
                    let is_numbered_here = self.capacity.node(node).is_none_or(|node| !node.has_scheduler);
                    for gpu in of_host.iter().filter(|_| is_numbered_here) {
                        let is_new = gpus.insert((node, *gpu));
                        ensure(is_new, &format!("GPU {gpu} of node {node} is held twice")).map_err(of_job)?;
                    }
                }
            }
        }
        for (name, tuning) in &self.tunings {
            self.check_tuning(tuning).map_err(|error| format!("tuning job {name}: {error}"))?;
        }
        ensure(Index::of(&self.jobs) == self.index, "the index is not that of the jobs")
    }
}

fn check_transitions(job: &TrainingJob) -> Result<(), String> {
    let first = job.transitions.first().ok_or("has no transition")?;
    ensure(
        first.status == SecondaryStatus::Starting && first.start == job.gang.created,
        "begins with Starting at its creation",
    )?;
    for pair in job.transitions.windows(2) {
        let (from, to) = (&pair[0], &pair[1]);
        ensure(follows(from.status, to.status), &format!("{} never follows {}", to.status.name(), from.status.name()))?;
        ensure(from.end == Some(to.start) && from.start <= to.start, "its transitions join without gaps")?;
    }
    ensure(job.transitions.iter().all(|transition| !transition.message.is_empty()), "each transition has a message")?;
    ensure(
        job.transitions.last().and_then(|last| last.end) == job.gang.end.map(|end| end.at),
        "its last transition ends with it",
    )
}

fn check_status(job: &TrainingJob) -> Result<(), String> {
    use SecondaryStatus as S;
    let secondary = job.secondary();
    let fits = match job.status() {
        JobStatus::InProgress => {
            matches!(secondary, S::Starting | S::Pending | S::Downloading | S::Training | S::Interrupted | S::Uploading)
        }
        JobStatus::Stopping => matches!(secondary, S::Stopping | S::Uploading),
        JobStatus::Completed => secondary == S::Completed,
        JobStatus::Failed => secondary == S::Failed,
        JobStatus::Stopped => matches!(secondary, S::Stopped | S::MaxRuntimeExceeded | S::MaxWaitTimeExceeded),
    };
    ensure(fits, &format!("{} is no secondary status of {}", secondary.name(), job.status().name()))?;
    let over = matches!(job.status(), JobStatus::Completed | JobStatus::Failed | JobStatus::Stopped);
    ensure(over == job.gang.end.is_some(), "it has an end if it is over")?;
    ensure(
        (job.status() == JobStatus::Failed) == job.failure_reason.is_some(),
        "it has a failure reason if it failed",
    )?;
    ensure(
        job.failure_reason.iter().all(|reason| reason.chars().count() <= 1024),
        "its failure reason is at most 1024 characters",
    )?;
    ensure(job.gang.failed_attempts() <= job.gang.spec.retries, "it is not retried more often than it may be")?;
    ensure(job.status() != JobStatus::Stopping || job.gang.stop.is_some(), "it stops for a cause")?;
    let is_evicted = job.gang.retry.as_ref().is_some_and(|retry| retry.evicted > 0);
    ensure(
        secondary != S::Interrupted || is_evicted || job.gang.spec.max_wait_s.is_some(),
        "only managed spot training is interrupted, but for want of memory",
    )?;
    ensure(job.final_metrics.len() <= 40, "it has at most 40 final metrics")?;
    let trained = job
        .transitions
        .iter()
        .find(|transition| transition.status == S::Downloading)
        .map(|transition| transition.start);
    ensure(job.gang.started == trained, "training starts with Downloading")
}

fn check_attempt(job: &TrainingJob, attempt: &Attempt) -> Result<(), String> {
    ensure(attempt.instances.len() == job.gang.spec.instances as usize, "it has as many instances as were asked for")?;
    ensure(attempt.id == job.gang.attempt_id(job.gang.number_of(attempt)), "its name has its number")?;
    ensure(attempt.instances.len() == attempt.placement.gpus.len(), "each instance is placed")?;
    let nodes = attempt.placement.nodes.len();
    ensure(nodes == 0 || nodes == attempt.instances.len(), "each instance is on a node")?;
    let may_be_queued = attempt.stage == Stage::Running && attempt.failed.is_none();
    ensure(
        job.secondary() != SecondaryStatus::Pending || may_be_queued,
        "it waits for instances only before they start",
    )?;
    let all_over = attempt.all_over();
    ensure(job.secondary() != SecondaryStatus::Uploading || all_over, "uploads begin when all programs are over")?;
    match attempt.stage {
        Stage::Running => Ok(()),
        Stage::Storing => ensure(all_over, "artifacts are stored when all programs are over"),
        Stage::Releasing => {
            ensure(job.gang.end.is_some() || attempt.failed.is_some(), "it is released when it is over")
        }
    }?;
    ensure(attempt.failed.is_some() || !attempt.interrupted, "another attempt follows one that was interrupted")?;
    let is_between = matches!(job.secondary(), SecondaryStatus::Starting | SecondaryStatus::Interrupted);
    ensure(attempt.failed.is_some() || !attempt.parked, "a trial that makes room rests")?;
    let is_stopped = attempt.parked && job.gang.stop.is_some();
    let is_unseen = attempt.parked && job.secondary() == SecondaryStatus::Training;
    let may_follow = is_between || is_stopped || is_unseen;
    ensure(
        attempt.failed.is_none() || job.gang.end.is_some() || may_follow,
        "another attempt begins with Starting, or nobody sees it",
    )
}
