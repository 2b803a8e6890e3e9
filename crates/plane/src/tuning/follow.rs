//! What follows for a tuning job from what is known, one step at a time; asked again after each is
//! applied, until nothing follows.

use shoal_tuner::IMPROVEMENT;

use super::{MAX_FAILURES, job::EndedTrial};
use crate::{
    Event, Fact, State, StopCause, Time, TrainingCounters, TuningEnd, TuningStatus, decision::Decision,
    limits::MAX_TEXT, text::first_characters, tuning::job::TuningJob,
};

/// The next events that follow for this tuning job.
pub(crate) fn follow(state: &State, tuning: &str, now: Time) -> Vec<Event> {
    let Some(job) = state.tunings.get(tuning) else { return Vec::new() };
    if job.ended.is_some() {
        return if job.unreleased == 0 { of(job, now, Fact::TuningReleased) } else { Vec::new() };
    }
    if let Some(over) = job.over.front() {
        return of(job, now, ended(job, over));
    }
    if job.status == TuningStatus::Stopping {
        let is_over = job.trials.is_empty();
        return if is_over {
            of(job, now, end_of(job.end.unwrap_or(TuningEnd::User), job.failure_reason.clone()))
        } else {
            Vec::new()
        };
    }
    if let Some((end, reason)) = reason_to_end(job, now) {
        return ending(state, job, end, reason, now);
    }
    next_ask(job).map_or_else(Vec::new, |fact| of(job, now, fact))
}

fn of(job: &TuningJob, now: Time, fact: Fact) -> Vec<Event> {
    vec![Event { at: now, name: job.name.clone().into(), fact }]
}

fn end_of(end: TuningEnd, failure_reason: Option<String>) -> Fact {
    Fact::TuningEnded { status: end.status(), end, failure_reason }
}

/// The tuning job comes to its end for this reason: at once, or when its trials are stopped.
pub(crate) fn ending(
    state: &State,
    job: &TuningJob,
    end: TuningEnd,
    failure_reason: Option<String>,
    now: Time,
) -> Vec<Event> {
    if job.trials.is_empty() {
        return of(job, now, end_of(end, failure_reason));
    }
    let mut events = of(job, now, Fact::TuningStopping { end, failure_reason });
    let mut decision = Decision::new(state, now);
    for child in job.trials.values().filter_map(|name| state.jobs.get(name)) {
        if child.gang.in_progress() {
            decision.happens(child, child.stop_for(StopCause::Tuning, now));
        }
    }
    events.append(&mut decision.events);
    events
}

/// A trial's training job has ended: what that means for the tuning job.
fn ended(job: &TuningJob, over: &EndedTrial) -> Fact {
    let EndedTrial { definition, trial, job: training_job, end, outcome, value, training_s, .. } = over.clone();
    let minimised = value.map(|value| job.direction(definition).minimised(value));
    let best = job.best.as_ref().map(|best| job.direction(best.definition).minimised(best.value));
    let is_best = minimised.is_some_and(|value| best.is_none_or(|best| value < best));
    let improves = |value: f64| job.reference.is_none_or(|reference| value < reference - IMPROVEMENT * reference.abs());
    let not_improving = match minimised {
        None => job.not_improving,
        Some(value) if improves(value) => 0,
        Some(_) => job.not_improving + 1,
    };
    Fact::TrialEnded {
        definition,
        trial,
        training_job,
        end,
        outcome,
        value,
        is_best,
        not_improving,
        training_s,
        seq: job.next_request(),
    }
}

/// Why the tuning job comes to its end now, if it does.
fn reason_to_end(job: &TuningJob, now: Time) -> Option<(TuningEnd, Option<String>)> {
    let TrainingCounters { completed, stopped, .. } = job.ends;
    if completed > 0 && !job.has_reported && job.succeeded == 0 {
        return Some((TuningEnd::NoObjective, Some(no_objective(job))));
    }
    let ended = job.ended_trials();
    let is_exhausted = is_exhausted(job);
    let is_finished = is_exhausted && job.active == 0 && job.requests.is_empty();
    if completed + stopped == 0 && ended > 0 && (ended >= MAX_FAILURES || is_finished) {
        return Some((TuningEnd::Failures, Some(failures(job, ended))));
    }
    if let (Some(target), Some(best)) = (job.spec.target, &job.best) {
        let direction = job.direction(best.definition);
        if direction.minimised(best.value) <= direction.minimised(target) {
            return Some((TuningEnd::Target, None));
        }
    }
    if job.spec.not_improving.is_some_and(|most| job.not_improving >= most) {
        return Some((TuningEnd::NotImproving, None));
    }
    if job.spec.complete_on_convergence && job.converged.is_some() {
        return Some((TuningEnd::Converged, None));
    }
    if job.deadline().is_some_and(|deadline| deadline <= now) {
        return Some((TuningEnd::MaxRuntime, None));
    }
    is_finished.then_some((TuningEnd::Finished, None))
}

/// No trial will be started or resumed any more, as far as is known now. A tuner that waits while
/// nothing runs waits for nothing.
fn is_exhausted(job: &TuningJob) -> bool {
    let definitions = job.spec.definitions.len();
    let all_started = starts_left(job) == 0 && job.trials.is_empty();
    job.exhausted.len() >= definitions || all_started || (job.waits && job.active == 0)
}

fn starts_left(job: &TuningJob) -> u32 {
    job.spec.max_jobs.map_or(u32::MAX, |most| most.saturating_sub(job.started))
}

/// What the tuner is asked for now, if anything.
fn next_ask(job: &TuningJob) -> Option<Fact> {
    let has_asked =
        job.requests.iter().any(|request| matches!(request.what, super::job::RequestKind::Suggestions { .. }));
    let wanted = job.max_parallel.saturating_sub(job.active);
    let starts = starts_left(job).min(wanted);
    // With nothing left to start, only a paused trial can go on.
    let has_any = starts > 0 || job.trials.len() > job.active as usize;
    let asks = !has_asked && !job.waits && wanted > 0 && has_any && job.exhausted.len() < job.spec.definitions.len();
    asks.then_some(Fact::SuggestionsWanted { seq: job.next_seq, wanted, starts })
}

fn no_objective(job: &TuningJob) -> String {
    let metrics: Vec<&str> =
        job.spec.definitions.iter().filter_map(|spec| Some(spec.objectives.first()?.metric.as_str())).collect();
    let text = format!(
        "No objective metrics found after running {} training job{}: the objective metric {} never appeared in the \
         output of the first training job that completed. \
         Check that its metric definition's regular expression matches what the program prints.",
        job.ended_trials(),
        if job.ended_trials() == 1 { "" } else { "s" },
        metrics.join(", "),
    );
    first_characters(&text, MAX_TEXT)
}

fn failures(job: &TuningJob, ended: u32) -> String {
    let last = job.last_failure.as_deref().unwrap_or("no reason is known");
    let text = format!(
        "No training job succeeded after {ended} attempt{}. The last one failed with: {last}. \
         List the training jobs of the hyperparameter tuning job for the others.",
        if ended == 1 { "" } else { "s" }
    );
    first_characters(&text, MAX_TEXT)
}
