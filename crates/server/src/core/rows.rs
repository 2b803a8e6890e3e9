//! Rows as a turn leaves them for readers.

use shoal_plane::{Event, Fact, JobView, TuningView};
use shoal_store::{CheckpointRow, Key, ResourceKind, ResourceProgress, ResourceRow, RowChange};

use super::Opaque;

/// Training jobs' first key.
pub(crate) fn secondary_status(keys: &[Option<Key>; 2]) -> &str {
    keys[0].as_ref().and_then(Key::text).unwrap_or_default()
}

pub(super) fn job_progress(name: &str, view: &JobView) -> ResourceProgress {
    ResourceProgress {
        kind: ResourceKind::TRAINING_JOB,
        name: name.to_owned(),
        modified_ms: view.modified.0,
        ended_ms: view.training_end.map(|time| time.0),
        status: view.status.name().to_owned(),
        ended: view.ended,
        keys: [Some(view.secondary.name().into()), None],
        view: serde_json::to_vec(view).expect("a view has string keys only"),
    }
}

pub(super) fn tuning_progress(name: &str, view: &TuningView) -> ResourceProgress {
    ResourceProgress {
        kind: ResourceKind::TUNING_JOB,
        name: name.to_owned(),
        modified_ms: view.modified.0,
        ended_ms: view.ended.map(|time| time.0),
        status: view.status.name().to_owned(),
        ended: view.ended.is_some(),
        keys: [None, None],
        view: serde_json::to_vec(view).expect("a view has string keys only"),
    }
}

/// The whole row of a resource that is new, else its progress.
pub(super) fn change(
    progress: ResourceProgress,
    new: Option<Opaque>,
    created_ms: u64,
    parent: Option<&str>,
) -> RowChange {
    let Some(Opaque { uid, arn, request, spec, tags, creator }) = new else {
        return RowChange::Move(Box::new(progress));
    };
    let parent = parent.map(str::to_owned);
    let mut row = ResourceRow {
        uid,
        arn,
        created_ms,
        parent,
        request,
        spec,
        tags,
        creator,
        ..ResourceRow::new(progress.kind, &progress.name)
    };
    row.advance(progress);
    RowChange::Put(Box::new(row))
}

/// The receipt of a saved checkpoint: it changes no view, and snapshots do not contain it.
pub(super) fn receipt(event: &Event) -> Option<CheckpointRow> {
    let Fact::CheckpointSaved { host, path, bytes, sha256, .. } = &event.fact else { return None };
    Some(CheckpointRow {
        job: event.name.clone(),
        path: path.clone(),
        host: host.0,
        bytes: *bytes,
        sha256: sha256.clone(),
        saved_ms: event.at.0,
    })
}
