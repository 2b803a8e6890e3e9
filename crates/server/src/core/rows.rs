//! What a turn leaves in rows for readers.

use shoal_plane::{Event, Fact, JobView};
use shoal_store::{CheckpointRow, JobProgress, JobRow};

use super::Opaque;

pub(super) fn progress(name: &str, view: &JobView) -> JobProgress {
    JobProgress {
        name: name.to_owned(),
        modified_ms: view.modified.0,
        ended_ms: view.training_end.map(|time| time.0),
        status: format!("{:?}", view.status),
        secondary: format!("{:?}", view.secondary),
        ended: view.ended,
        view: serde_json::to_vec(view).expect("a view has string keys only"),
    }
}

pub(super) fn row(opaque: Opaque, view: &JobView, progress: JobProgress) -> JobRow {
    let Opaque { uid, arn, request, tags } = opaque;
    let JobProgress { name, modified_ms, ended_ms, status, secondary, ended, view: view_bytes } = progress;
    JobRow { name, uid, arn, created_ms: view.created.0, modified_ms, ended_ms, status, secondary, ended, request, view: view_bytes, tags }
}

/// What a checkpoint's event leaves for readers: it changes no view, and a snapshot drops it.
pub(super) fn receipt(event: &Event) -> Option<CheckpointRow> {
    let Fact::CheckpointSaved { host, path, bytes, sha256, .. } = &event.fact else { return None };
    Some(CheckpointRow {
        job: event.job.clone(),
        path: path.clone(),
        host: *host,
        bytes: *bytes,
        sha256: sha256.clone(),
        saved_ms: event.at.0,
    })
}
