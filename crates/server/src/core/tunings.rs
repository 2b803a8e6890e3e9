//! Rows of trials and of what studies recorded, as a turn leaves them.

use shoal_plane::{JobStatus, JobView, Turn};
use shoal_store::{RecordRow, RowChange, TrialProgress, TrialRow};

/// What a training job's view changes in its trial's row; a new one is written whole, with what was
/// tuned.
pub(super) fn trial_change(job: &str, view: &JobView, tuned: Option<Vec<u8>>) -> Option<RowChange> {
    let trial = view.trial.as_ref()?;
    let has_value = view.ended && matches!(view.status, JobStatus::Completed | JobStatus::Stopped);
    let value = trial.objective.filter(|value| has_value && value.is_finite());
    let (job, bytes) = (job.to_owned(), serde_json::to_vec(trial).expect("a view has string keys only"));
    Some(match tuned {
        None => RowChange::MoveTrial(Box::new(TrialProgress { job, value, view: bytes })),
        Some(tuned) => {
            let (tuning, status) = (trial.tuning.to_string(), view.status.name().to_owned());
            RowChange::PutTrial(Box::new(TrialRow {
                tuning,
                job,
                created_ms: view.created.0,
                status,
                value,
                tuned,
                view: bytes,
            }))
        }
    })
}

/// New records of tuners.
pub(super) fn records(turn: &Turn) -> impl Iterator<Item = RowChange> {
    turn.records.iter().map(|stored| {
        let bytes = serde_json::to_vec(&stored.record).expect("numbers that are none travel as null");
        RowChange::PutRecord(RecordRow { tuning: stored.tuning.to_string(), seq: stored.number + 1, bytes })
    })
}
