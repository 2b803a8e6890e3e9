//! What follows from what is known of a training job, and when.
//!
//! Instances report; the job's status follows them:
//!
//! | secondary status | entered when | leaves to |
//! |---|---|---|
//! | Starting | created; again when it leaves the queue | Pending, Downloading, Interrupted, Stopping, Failed, Stopped, MaxWaitTimeExceeded |
//! | Pending | capacity lacks | Starting, Failed, Stopped, MaxWaitTimeExceeded |
//! | Downloading | the first instance downloads; `TrainingStartTime` | Training, Interrupted, Stopping, Failed, Stopped; Starting in a retry |
//! | Training | the first instance trains | Uploading, Interrupted, Stopping, Failed, Stopped; Starting in a retry, Pending after a rest |
//! | Interrupted | instances of managed spot training are taken away, or memory runs short | Starting, Pending, Failed, Stopped, MaxWaitTimeExceeded |
//! | Stopping | StopTrainingJob, MaxRuntimeInSeconds or MaxWaitTimeInSeconds | Uploading, Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded, Failed |
//! | Uploading | all programs are over, each with exit code 0 or stopped | Completed, Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded, Failed; Starting in a retry |
//! | Completed, Failed, Stopped, MaxRuntimeExceeded, MaxWaitTimeExceeded | once | - |
//!
//! - Success is exit code 0 everywhere, all artifacts uploaded and stored.
//! - A failing host does not decide at once: a rank that is killed makes its peers exit within milliseconds, and their reports may come first. The
//!   job fails when all hosts are over or [`SETTLE_MS`] after the first failure arrived; which host is to blame is [`crate::failure`]'s.
//!   Peers that still run are then told to stop. A failed job stores nothing.
//! - A stop sends SIGTERM, then SIGKILL after the grace; whatever the exit codes, what the hosts then upload is stored and the job is Stopped. Hosts that
//!   do not answer within the grace and [`UNANSWERED_S`] end it without artifacts; artifacts are awaited for [`UPLOAD_LIMIT_S`].
//! - Artifacts of programs that ended well are awaited for as long; then the attempt has failed by the hosts that did not send them.
//! - Nothing waits forever for a launcher that is silent: see [`LAUNCH_LIMIT_S`].
//! - An attempt that failed through our own side (an instance lost, a launch that failed, artifacts that could not be stored: what would fail the
//!   job with an `InternalServerError`) is followed by another while `RetryStrategy` allows: the job goes back to Starting, its instances end as a
//!   failed job's do, and only when the attempt is released does the job stand in the queue again, at the place that its creation gave it.
//!   MaxRuntimeInSeconds is for all attempts together. A stop ends the retries.
//!
//! - An interruption ends the programs as a stop does, SIGTERM and the grace, but stores nothing: what counts are the checkpoints that are saved until
//!   the release. Then the job stands in the queue again, as after a retry, and goes on from them. It is limited by time alone: MaxRuntimeInSeconds
//!   for the attempts together, until each was interrupted, and MaxWaitTimeInSeconds for everything since the creation.
//!
//! - An eviction, when the machine's memory runs short, is an interruption with a grace of [`EVICTION_GRACE_S`] at most.
//!
//! Deadlines that passed while the server was down are due at once, so after a restart the shell lets agents say what they have to say
//! before its first Tick.

use crate::{
    Fact, JobStatus, SecondaryStatus, StopCause, Time,
    failure::{self, internal_error},
    limits::{LAUNCH_LIMIT_S, MAX_TEXT, PARK_UPLOAD_LIMIT_S, PEER_GRACE_S, SETTLE_MS, UNANSWERED_S, UPLOAD_LIMIT_S},
    text::first_characters,
    training_job::{Attempt, Instance, Stage, TrainingJob},
};

/// The table above.
pub(crate) fn follows(from: SecondaryStatus, to: SecondaryStatus) -> bool {
    use SecondaryStatus as S;
    let next: &[S] = match from {
        S::Starting => &[S::Pending, S::Downloading, S::Interrupted, S::Stopping, S::Failed, S::Stopped, S::MaxWaitTimeExceeded],
        S::Pending => &[S::Starting, S::Failed, S::Stopped, S::MaxWaitTimeExceeded],
        S::Downloading => &[S::Training, S::Interrupted, S::Stopping, S::Failed, S::Stopped, S::Starting],
        S::Training => &[S::Uploading, S::Interrupted, S::Stopping, S::Failed, S::Stopped, S::Starting, S::Pending],
        S::Interrupted => &[S::Starting, S::Pending, S::Failed, S::Stopped, S::MaxWaitTimeExceeded],
        S::Stopping => &[S::Uploading, S::Stopped, S::MaxRuntimeExceeded, S::MaxWaitTimeExceeded, S::Failed],
        S::Uploading => &[S::Completed, S::Stopped, S::MaxRuntimeExceeded, S::MaxWaitTimeExceeded, S::Failed, S::Starting],
        S::Completed | S::Failed | S::Stopped | S::MaxRuntimeExceeded | S::MaxWaitTimeExceeded => &[],
    };
    next.contains(&to)
}

/// What a job waits for besides reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timer {
    MaxPending,
    MaxWait,
    Launch,
    MaxRuntime,
    Settle,
    StopUnanswered,
    StopUpload,
    Upload,
    PeersUnanswered,
}

/// The job's next deadline.
pub(crate) fn deadline(job: &TrainingJob) -> Option<Time> {
    timer(job).map(|(at, _)| at)
}

/// At most one timer runs at a time.
fn timer(job: &TrainingJob) -> Option<(Time, Timer)> {
    let Some(attempt) = &job.attempt else {
        let pending = job.spec.max_pending_s.map(|limit| (job.waits_since().plus_s(limit), Timer::MaxPending));
        return if job.waits() { sooner(pending, max_wait(job)) } else { None };
    };
    if attempt.stage != Stage::Running || job.is_frozen() {
        return None;
    }
    let any_active = attempt.instances.iter().any(Instance::active);
    let grace_s = if attempt.interrupted { job.spec.grace_s } else { PEER_GRACE_S };
    let peers_end = |failed: Time| any_active.then(|| (failed.plus_s(u64::from(grace_s) + UNANSWERED_S), Timer::PeersUnanswered));
    match (job.status, &job.stop, job.ended) {
        (JobStatus::Failed, _, Some(ended)) => peers_end(ended),
        (JobStatus::InProgress, ..) if let Some(failed) = attempt.failed => match last_seen_awaited(attempt) {
            Some(seen) if attempt.parked && !any_active => Some((seen.plus_s(PARK_UPLOAD_LIMIT_S), Timer::StopUpload)),
            _ => peers_end(failed),
        },
        (JobStatus::Stopping, Some(stop), _) if !all_over(attempt) => {
            Some((stop.at.plus_s(u64::from(job.spec.grace_s) + UNANSWERED_S), Timer::StopUnanswered))
        }
        (JobStatus::Stopping, ..) => last_seen_awaited(attempt).map(|at| (at.plus_s(UPLOAD_LIMIT_S), Timer::StopUpload)),
        (JobStatus::InProgress, ..) => {
            if let Some(first) = failure::first_seen(attempt) {
                return Some((first.plus_ms(SETTLE_MS), Timer::Settle));
            }
            if all_over(attempt) {
                return last_seen_awaited(attempt).map(|at| (at.plus_s(UPLOAD_LIMIT_S), Timer::Upload));
            }
            let limit = match job.attempt_start() {
                None => (attempt.launched.plus_s(LAUNCH_LIMIT_S), Timer::Launch),
                Some(start) => (start.plus_ms(job.runtime_left_ms()), Timer::MaxRuntime),
            };
            sooner(Some(limit), max_wait(job))
        }
        _ => None,
    }
}

fn max_wait(job: &TrainingJob) -> Option<(Time, Timer)> {
    job.spec.max_wait_s.map(|limit| (job.created.plus_s(limit), Timer::MaxWait))
}

fn sooner(one: Option<(Time, Timer)>, other: Option<(Time, Timer)>) -> Option<(Time, Timer)> {
    one.into_iter().chain(other).min_by_key(|(at, _)| *at)
}

fn all_over(attempt: &Attempt) -> bool {
    attempt.instances.iter().all(Instance::over)
}

/// When the last of the programs ended whose artifacts are awaited.
fn last_seen_awaited(attempt: &Attempt) -> Option<Time> {
    let ends = attempt.instances.iter().filter_map(|instance| match instance {
        Instance::Ended { seen, .. } => Some(*seen),
        _ => None,
    });
    ends.max()
}

/// The next fact that follows from what is known; asked again after it is applied, until none follows.
pub(crate) fn consequence(job: &TrainingJob, now: Time) -> Option<Fact> {
    let due = timer(job).filter(|(at, _)| *at <= now).map(|(_, timer)| timer);
    let Some(attempt) = &job.attempt else {
        return match due {
            Some(Timer::MaxPending) => Some(stopped(StopReason::MaxPending)),
            Some(Timer::MaxWait) => Some(stopped(StopReason::MaxWait)),
            _ => job.ended.map(|_| Fact::Released { attempt: None }),
        };
    };
    if attempt.stage != Stage::Running {
        let is_over = job.ended.is_some() || attempt.failed.is_some() && !attempt.parked;
        return (is_over && attempt.stage == Stage::Storing).then(|| Fact::ReleaseOrdered { attempt: attempt.id.clone() });
    }
    match job.status {
        JobStatus::InProgress if attempt.failed.is_none() => in_progress(job, attempt, due, now),
        JobStatus::Stopping => stopping(job, attempt, due),
        JobStatus::InProgress | JobStatus::Failed if due.is_none() && attempt.instances.iter().any(Instance::active) => None,
        JobStatus::InProgress if attempt.parked => parked(attempt, due),
        // Another attempt would have no time.
        JobStatus::InProgress if attempt.interrupted && max_wait(job).is_some_and(|(at, _)| at <= now) => {
            Some(stopped(StopReason::MaxWait))
        }
        JobStatus::InProgress | JobStatus::Failed | JobStatus::Stopped | JobStatus::Completed => {
            Some(Fact::ReleaseOrdered { attempt: attempt.id.clone() })
        }
    }
}

fn in_progress(job: &TrainingJob, attempt: &Attempt, due: Option<Timer>, now: Time) -> Option<Fact> {
    if let Some(step) = step(job, attempt) {
        return Some(step);
    }
    if failure::first_seen(attempt).is_some() {
        return (all_over(attempt) || due == Some(Timer::Settle)).then(|| attempt_failed(job, attempt, failure::reason(attempt), now));
    }
    match due {
        Some(Timer::Launch) => {
            let reason = internal_error(&format!("no instance reported within {LAUNCH_LIMIT_S} s of its launch"));
            return Some(attempt_failed(job, attempt, reason, now));
        }
        Some(Timer::MaxRuntime) => return Some(stop(StopCause::MaxRuntime)),
        Some(Timer::MaxWait) => return Some(stop_of(job, StopCause::MaxWait, now)),
        Some(Timer::Upload) => return Some(attempt_failed(job, attempt, failure::not_uploaded(attempt), now)),
        _ => {}
    }
    attempt.instances.iter().all(|instance| *instance == Instance::Uploaded).then(|| Fact::UploadsEnded { attempt: attempt.id.clone() })
}

/// A trial that is ended to make room leaves its model first: it may be the best one, and never be resumed.
fn parked(attempt: &Attempt, due: Option<Timer>) -> Option<Fact> {
    if last_seen_awaited(attempt).is_some() && due.is_none() {
        return None;
    }
    let id = attempt.id.clone();
    let is_uploaded = attempt.instances.contains(&Instance::Uploaded);
    Some(if is_uploaded && all_over(attempt) { Fact::UploadsEnded { attempt: id } } else { Fact::ReleaseOrdered { attempt: id } })
}

fn stopping(job: &TrainingJob, attempt: &Attempt, due: Option<Timer>) -> Option<Fact> {
    let ended = || stopped(stopped_as(job));
    if !all_over(attempt) {
        return (due == Some(Timer::StopUnanswered)).then(ended);
    }
    let awaited = last_seen_awaited(attempt).is_some();
    let uploaded = attempt.instances.contains(&Instance::Uploaded);
    if (awaited || uploaded) && job.secondary() == SecondaryStatus::Stopping {
        return Some(moved(SecondaryStatus::Uploading));
    }
    if awaited && due.is_none() {
        return None;
    }
    Some(if uploaded { Fact::UploadsEnded { attempt: attempt.id.clone() } } else { ended() })
}

/// One step forward, if the instances are further than the job's secondary status.
fn step(job: &TrainingJob, attempt: &Attempt) -> Option<Fact> {
    let any = |wanted: fn(&Instance) -> bool| attempt.instances.iter().any(wanted);
    let next = match job.secondary() {
        SecondaryStatus::Starting if any(|i| i.active() || matches!(i, Instance::Ended { .. } | Instance::Uploaded)) => {
            SecondaryStatus::Downloading
        }
        SecondaryStatus::Downloading if any(|i| matches!(i, Instance::Training | Instance::Ended { .. } | Instance::Uploaded)) => {
            SecondaryStatus::Training
        }
        SecondaryStatus::Training if all_over(attempt) && failure::first_seen(attempt).is_none() => SecondaryStatus::Uploading,
        _ => return None,
    };
    Some(moved(next))
}

fn moved(secondary: SecondaryStatus) -> Fact {
    let message = match secondary {
        SecondaryStatus::Downloading => "Downloading input data",
        SecondaryStatus::Training => "Training image download completed. Training in progress.",
        _ => "Uploading generated training model",
    };
    Fact::JobMoved { secondary, message: message.to_owned() }
}

pub(crate) fn stop(cause: StopCause) -> Fact {
    let message = match cause {
        StopCause::User => "Stopping the training job",
        StopCause::MaxRuntime => "Stopping the training job: it reached MaxRuntimeInSeconds",
        StopCause::MaxWait => "Stopping the training job: it reached MaxWaitTimeInSeconds",
        StopCause::Early => "Stopping the training job early: others of its tuning job are more promising",
        StopCause::MaxResource => "Stopping the training job: it reached MaxResource of its tuning job",
        StopCause::Tuning => "Stopping the training job: its tuning job ends",
    };
    Fact::StopRequested { cause, message: message.to_owned() }
}

/// How a job in progress begins to stop.
pub(crate) fn stop_of(job: &TrainingJob, cause: StopCause, now: Time) -> Fact {
    let is_abandoned = job.attempt.as_ref().is_none_or(|attempt| attempt.failed.is_some() && !attempt.parked);
    if is_abandoned {
        return stopped(cause.into());
    }
    if let Some(parked) = job.attempt.as_ref().filter(|attempt| attempt.parked) {
        // Once it is stored, what it left is its model.
        return if parked.stage == Stage::Releasing { stopped(cause.into()) } else { stop(cause) };
    }
    // Its artifacts are being stored.
    let Some(attempt) = job.running() else { return stop(cause) };
    if failure::first_seen(attempt).is_some() {
        let reason = failure::reason(attempt);
        return if is_retried(job, &reason, now) { stopped(cause.into()) } else { failed(reason) };
    }
    if attempt.instances.iter().all(|instance| *instance == Instance::Starting) {
        return stopped(cause.into());
    }
    stop(cause)
}

/// Why a job is `Stopped` in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// Somebody wanted it.
    Wanted,
    MaxRuntime,
    MaxPending,
    MaxWait,
}

impl From<StopCause> for StopReason {
    fn from(cause: StopCause) -> Self {
        match cause {
            StopCause::MaxRuntime => StopReason::MaxRuntime,
            StopCause::MaxWait => StopReason::MaxWait,
            StopCause::User | StopCause::Early | StopCause::MaxResource | StopCause::Tuning => StopReason::Wanted,
        }
    }
}

/// Why a job that is being stopped will be.
pub(crate) fn stopped_as(job: &TrainingJob) -> StopReason {
    job.stop.as_ref().map_or(StopReason::Wanted, |stop| stop.cause.into())
}

pub(crate) fn stopped(reason: StopReason) -> Fact {
    let (secondary, message) = match reason {
        StopReason::Wanted => (SecondaryStatus::Stopped, "Training job stopped"),
        StopReason::MaxRuntime => (SecondaryStatus::MaxRuntimeExceeded, "Training job runtime exceeded MaxRuntimeInSeconds provided"),
        StopReason::MaxPending => {
            (SecondaryStatus::MaxWaitTimeExceeded, "Training job waited longer than MaxPendingTimeInSeconds provided")
        }
        // As AWS words it.
        StopReason::MaxWait => (SecondaryStatus::MaxWaitTimeExceeded, "Training job wait time exceeded MaxWaitTimeInSeconds provided"),
    };
    Fact::JobEnded { status: JobStatus::Stopped, secondary, message: message.to_owned(), failure_reason: None }
}

pub(crate) fn completed() -> Fact {
    Fact::JobEnded {
        status: JobStatus::Completed,
        secondary: SecondaryStatus::Completed,
        message: "Training job completed".to_owned(),
        failure_reason: None,
    }
}

/// What a failed attempt means for its job: another one, or the end.
pub(crate) fn attempt_failed(job: &TrainingJob, attempt: &Attempt, reason: String, now: Time) -> Fact {
    let rests = job.trial.as_ref().is_some_and(|trial| trial.is_unwanted() && trial.is_frozen());
    if rests && job.stop.is_none() && failure::is_internal(&reason) {
        // Nothing of it ran: it goes on from its checkpoint when it is wanted.
        let message = first_characters(&format!("Paused, and no longer in memory: {reason}"), MAX_TEXT);
        return Fact::TrialParked { attempt: attempt.id.clone(), message, stores: false, rested: true };
    }
    if !is_retried(job, &reason, now) {
        return failed(reason);
    }
    let message = format!("Starting the training job again, retry {} of {}: {reason}", job.failed_attempts() + 1, job.spec.retries);
    Fact::AttemptFailed { attempt: attempt.id.clone(), reason, message }
}

/// Whether an attempt that fails for this reason would be followed by another.
pub(crate) fn is_retried(job: &TrainingJob, reason: &str, now: Time) -> bool {
    let ran_ms = job.attempt_start().map_or(0, |start| now.ms_since(start));
    let may_run = job.failed_attempts() < job.spec.retries && ran_ms < job.runtime_left_ms();
    may_run && job.stop.is_none() && failure::is_internal(reason)
}

pub(crate) fn failed(reason: String) -> Fact {
    Fact::JobEnded { status: JobStatus::Failed, secondary: SecondaryStatus::Failed, message: reason.clone(), failure_reason: Some(reason) }
}
