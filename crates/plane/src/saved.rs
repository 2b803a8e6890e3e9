//! A state as bytes. The layout is that of format 1 and not that of the state: what is in memory
//! may be arranged otherwise.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    GangSpec, JobName, JobStatus, MetricValue, Time, Transition, TuningName,
    gang::{End, Gang, Stop, instances::Attempt, rest::Rest, retry::Retry},
    jobs::Jobs,
    quotas::Usage,
    training::{TrainingJob, rules::Evaluations, trial::Trial},
    tuning::job::TuningJob,
};

/// Version of the snapshot's encoding.
const SNAPSHOT_FORMAT: u32 = 1;

/// The bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Written by a newer version.
    #[error(
        "snapshot of format {found}, and this version reads format {SNAPSHOT_FORMAT}: use the version that wrote it or \
         a newer one"
    )]
    Format {
        /// Its `v`.
        found: u32,
    },
    /// Not JSON of a snapshot.
    #[error("malformed snapshot")]
    Malformed(#[from] serde_json::Error),
}

/// What a snapshot holds.
pub(crate) struct Restored {
    pub(crate) clock: Time,
    pub(crate) created: u64,
    pub(crate) jobs: Jobs,
    pub(crate) tunings: BTreeMap<TuningName, Arc<TuningJob>>,
    pub(crate) usage: Usage,
}

#[derive(Serialize, Deserialize)]
struct Snapshot<Job, Tuning, Used> {
    v: u32,
    clock: Time,
    created: u64,
    jobs: Vec<Job>,
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    tunings: Vec<Tuning>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Used>,
}

/// As a [`SavedJob`], which is larger than the job: there is one at a time.
impl Serialize for TrainingJob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        SavedJob::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TrainingJob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SavedJob::deserialize(deserializer).map(Self::from)
    }
}

#[derive(Serialize, Deserialize)]
struct SavedJob<'a> {
    name: Cow<'a, JobName>,
    uid: Cow<'a, str>,
    order: u64,
    spec: Cow<'a, GangSpec>,
    status: JobStatus,
    transitions: Cow<'a, [Transition]>,
    failure_reason: Option<Cow<'a, str>>,
    created: Time,
    modified: Time,
    training_start: Option<Time>,
    ended: Option<Time>,
    final_metrics: Cow<'a, BTreeMap<String, MetricValue>>,
    stop: Option<Cow<'a, Stop>>,
    attempt: Option<Cow<'a, Attempt>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry: Option<SavedRetry<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<SavedTrial<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<Cow<'a, Evaluations>>,
}

#[derive(Serialize, Deserialize)]
struct SavedRetry<'a> {
    #[serde(flatten)]
    retry: Cow<'a, Retry>,
    #[serde(default, skip_serializing_if = "is_empty")]
    measured: Cow<'a, BTreeMap<String, MetricValue>>,
}

#[derive(Serialize, Deserialize)]
struct SavedTrial<'a> {
    #[serde(flatten)]
    trial: Cow<'a, Trial>,
    rest: Option<Cow<'a, Rest>>,
}

#[expect(clippy::ptr_arg, reason = "serde asks for a reference to the field")]
fn is_empty(metrics: &Cow<'_, BTreeMap<String, MetricValue>>) -> bool {
    metrics.is_empty()
}

impl<'a> From<&'a TrainingJob> for SavedJob<'a> {
    fn from(job: &'a TrainingJob) -> Self {
        let gang = &job.gang;
        let retry = gang
            .retry
            .as_deref()
            .map(|retry| SavedRetry { retry: Cow::Borrowed(retry), measured: Cow::Borrowed(&job.earlier_metrics) });
        let rest = gang.rest.as_ref().map(Cow::Borrowed);
        Self {
            name: Cow::Borrowed(&gang.name),
            uid: Cow::Borrowed(&gang.uid),
            order: gang.order,
            spec: Cow::Borrowed(&gang.spec),
            status: job.status(),
            transitions: Cow::Borrowed(&job.transitions),
            failure_reason: job.failure_reason.as_deref().map(Cow::Borrowed),
            created: gang.created,
            modified: job.modified,
            training_start: gang.started,
            ended: gang.end.map(|end| end.at),
            final_metrics: Cow::Borrowed(&job.final_metrics),
            stop: gang.stop.as_ref().map(Cow::Borrowed),
            attempt: gang.attempt.as_ref().map(Cow::Borrowed),
            retry,
            trial: job.trial.as_deref().map(|trial| SavedTrial { trial: Cow::Borrowed(trial), rest }),
            rules: job.rules.as_deref().map(Cow::Borrowed),
        }
    }
}

impl From<SavedJob<'_>> for TrainingJob {
    fn from(saved: SavedJob<'_>) -> Self {
        let (retry, earlier_metrics) = match saved.retry {
            Some(saved) => (Some(Box::new(saved.retry.into_owned())), saved.measured.into_owned()),
            None => (None, BTreeMap::new()),
        };
        let (trial, rest) = match saved.trial {
            Some(saved) => (Some(Box::new(saved.trial.into_owned())), saved.rest.map(Cow::into_owned)),
            None => (None, None),
        };
        let gang = Gang {
            name: saved.name.into_owned(),
            uid: saved.uid.into_owned(),
            order: saved.order,
            spec: saved.spec.into_owned(),
            created: saved.created,
            started: saved.training_start,
            stop: saved.stop.map(Cow::into_owned),
            end: saved.ended.map(|at| End { at, failed: saved.status == JobStatus::Failed }),
            attempt: saved.attempt.map(Cow::into_owned),
            retry,
            rest,
        };
        Self {
            gang,
            transitions: saved.transitions.into_owned(),
            failure_reason: saved.failure_reason.map(Cow::into_owned),
            modified: saved.modified,
            final_metrics: saved.final_metrics.into_owned(),
            earlier_metrics,
            trial,
            rules: saved.rules.map(|rules| Box::new(rules.into_owned())),
        }
    }
}

/// A state as bytes, without capacity and catalogue.
pub(crate) fn encode(
    clock: Time,
    created: u64,
    jobs: &Jobs,
    tunings: &BTreeMap<TuningName, Arc<TuningJob>>,
    usage: &Usage,
) -> Vec<u8> {
    let jobs = jobs.iter().collect();
    let tunings = tunings.values().map(|tuning| &**tuning).collect();
    let usage = (!usage.is_empty()).then_some(usage);
    let snapshot = Snapshot { v: SNAPSHOT_FORMAT, clock, created, jobs, tunings, usage };
    serde_json::to_vec(&snapshot).expect("strings, numbers and lists always serialise")
}

/// What [`encode`] wrote.
pub(crate) fn decode(bytes: &[u8]) -> Result<Restored, SnapshotError> {
    let Snapshot::<TrainingJob, TuningJob, Usage> { v, clock, created, jobs, tunings, usage } =
        serde_json::from_slice(bytes)?;
    if v != SNAPSHOT_FORMAT {
        return Err(SnapshotError::Format { found: v });
    }
    let tunings = tunings.into_iter().map(|tuning| (tuning.name.clone(), Arc::new(tuning))).collect();
    Ok(Restored { clock, created, jobs: jobs.into_iter().collect(), tunings, usage: usage.unwrap_or_default() })
}
