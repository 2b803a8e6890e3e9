//! Rows of tuning jobs, of their trials and of what their studies recorded, as a turn leaves them.

use shoal_plane::{JobStatus, JobView, Turn};
use shoal_store::{RecordRow, RowChange, TrialProgress, TrialRow, TuningProgress, TuningRow};

use super::{Created, Opaque};

/// What a training job's view changes in its trial's row; a new one is written whole, with what was tuned.
pub(super) fn trial_change(job: &str, view: &JobView, tuned: Option<Vec<u8>>) -> Option<RowChange> {
    let trial = view.trial.as_ref()?;
    let has_value = view.ended && matches!(view.status, JobStatus::Completed | JobStatus::Stopped);
    let value = trial.objective.filter(|value| has_value && value.is_finite());
    let (job, bytes) = (job.to_owned(), serde_json::to_vec(trial).expect("a view has string keys only"));
    Some(match tuned {
        None => RowChange::MoveTrial(Box::new(TrialProgress { job, value, view: bytes })),
        Some(tuned) => {
            let (tuning, status) = (trial.tuning.clone(), format!("{:?}", view.status));
            RowChange::PutTrial(Box::new(TrialRow { tuning, job, created_ms: view.created.0, status, value, tuned, view: bytes }))
        }
    })
}

/// Rows of the tuning jobs that changed, and new records.
pub(super) fn changes(turn: &Turn, created: &mut Created) -> Vec<RowChange> {
    let tunings = turn.tunings.iter().map(|(name, view)| {
        let progress = TuningProgress {
            name: name.clone(),
            modified_ms: view.modified.0,
            ended_ms: view.ended.map(|time| time.0),
            status: view.status.name().to_owned(),
            ended: view.ended.is_some(),
            view: serde_json::to_vec(view).expect("a view has string keys only"),
        };
        match created.tunings.remove(name) {
            None => RowChange::MoveTuning(Box::new(progress)),
            Some(Opaque { uid, arn, request, tags }) => {
                let TuningProgress { name, modified_ms, ended_ms, status, ended, view: bytes } = progress;
                let created_ms = view.created.0;
                let row = TuningRow { name, uid, arn, created_ms, modified_ms, ended_ms, status, ended, request, view: bytes, tags };
                RowChange::PutTuning(Box::new(row))
            }
        }
    });
    let records = turn.records.iter().map(|stored| {
        let bytes = serde_json::to_vec(&stored.record).expect("numbers that are none travel as null");
        RowChange::PutRecord(RecordRow { tuning: stored.tuning.clone(), seq: stored.number + 1, bytes })
    });
    tunings.chain(records).collect()
}
