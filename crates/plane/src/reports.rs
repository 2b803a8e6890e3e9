//! From agents' reports to facts.

use crate::{
    AttemptId, Fact, Host, InstancePhase, InstanceReport, MetricValue, RankEnd, State,
    gang::{
        Gang,
        instances::{Attempt, Instance},
    },
    limits::MAX_TEXT,
    text::{first_characters, last_characters},
    training::TrainingJob,
};

/// Its programs run, or are about to, and none has said how it ended.
pub(crate) fn can_be_interrupted(gang: &Gang, attempt: &Attempt) -> bool {
    attempt.failed.is_none() && !gang.is_frozen() && !attempt.any(|instance| instance.is_member() && instance.over())
}

pub(crate) fn reported(
    state: &State,
    job: &TrainingJob,
    attempt: &AttemptId,
    host: Host,
    report: &InstanceReport,
) -> Option<Fact> {
    let gang = &job.gang;
    let instance = gang.running()?.instance(host)?;
    let attempt = attempt.clone();
    match (report, instance) {
        (InstanceReport::Downloading, Instance::Starting) => {
            Some(Fact::InstanceMoved { attempt, host, phase: InstancePhase::Downloading })
        }
        (InstanceReport::Training, Instance::Starting | Instance::Downloading) => {
            Some(Fact::InstanceMoved { attempt, host, phase: InstancePhase::Training })
        }
        (
            InstanceReport::RankEnded { end, final_metrics },
            Instance::Starting | Instance::Downloading | Instance::Running,
        ) => Some(Fact::RankEnded { attempt, host, end: bounded(end), final_metrics: finite(final_metrics) }),
        // The end of a program that was to serve is a failure, whatever it uploaded.
        (InstanceReport::Uploaded, Instance::Ended { .. }) if gang.spec.serves() && gang.stop.is_none() => None,
        (InstanceReport::Uploaded, Instance::Ended { .. }) => Some(Fact::InstanceUploaded { attempt, host }),
        // Stopped before it had started its program.
        (InstanceReport::Uploaded, Instance::Starting | Instance::Downloading | Instance::Running)
            if gang.stop.is_some() =>
        {
            Some(Fact::InstanceUploaded { attempt, host })
        }
        // How its program failed is known already and tells more.
        (InstanceReport::Lost { .. }, Instance::Ended { end, .. }) if gang.is_failure(end) && gang.stop.is_none() => {
            None
        }
        (
            InstanceReport::Lost { reason },
            Instance::Starting | Instance::Downloading | Instance::Running | Instance::Ended { .. },
        ) => Some(Fact::InstanceLost { attempt, host, reason: first_characters(reason, MAX_TEXT) }),
        // Whatever becomes of an instance that is taken away.
        (
            InstanceReport::RankEnded { .. } | InstanceReport::Uploaded | InstanceReport::Lost { .. },
            Instance::Leaving { .. },
        ) => Some(Fact::InstancesVacated { attempt, hosts: vec![host], message: None }),
        (
            InstanceReport::Objective { ordinal, value },
            Instance::Starting | Instance::Downloading | Instance::Running,
        ) => objective(state, job, attempt, host, *ordinal, *value),
        _ => None,
    }
}

/// The first host that reports counts. A trial that rests may have run a little further: that
/// counts as its own, and is no news to the tuner.
fn objective(
    state: &State,
    job: &TrainingJob,
    attempt: AttemptId,
    host: Host,
    ordinal: u32,
    value: f64,
) -> Option<Fact> {
    let trial = job.trial.as_deref().filter(|trial| trial.host.is_none_or(|counts| counts == host))?;
    let resource = trial.behind.saturating_add(ordinal);
    if resource <= trial.resource
        || job.gang.end.is_some()
        || job.gang.attempt.as_ref().is_some_and(|attempt| attempt.failed.is_some())
    {
        return None;
    }
    // What it says while it is being stopped is its last value, and no news to the tuner.
    let tuning = state.tunings.get(&trial.tuning).filter(|_| job.gang.stop.is_none() && job.gang.rest.is_none());
    let value = Some(value).filter(|value| value.is_finite());
    Some(Fact::ObjectiveReported {
        attempt,
        host,
        resource,
        value,
        seq: tuning.and_then(|tuning| tuning.next_request()),
    })
}

fn bounded(end: &RankEnd) -> RankEnd {
    RankEnd {
        failure_file: end.failure_file.as_deref().map(|text| first_characters(text, MAX_TEXT)),
        stderr_tail: last_characters(&end.stderr_tail, MAX_TEXT),
        ..end.clone()
    }
}

/// JSON has no other numbers, and neither has AWS's wire.
fn finite(metrics: &[MetricValue]) -> Vec<MetricValue> {
    metrics.iter().filter(|metric| metric.value.is_finite()).cloned().collect()
}
