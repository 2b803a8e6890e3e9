//! The journal: an append-only sequence of events and the rows that they change, written together.

use crate::{
    CheckpointRow, RecordRow, ResourceKind, ResourceProgress, ResourceRow, StoreError, TrialProgress, TrialRow,
};

/// What one decision leaves behind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Encoded events, in order. The first gets the version after the journal's.
    pub events: Vec<Vec<u8>>,
    /// What the events change in the rows, in order.
    pub rows: Vec<RowChange>,
}

/// A change of the rows.
#[derive(Debug, Clone, PartialEq)]
pub enum RowChange {
    /// Inserts the resource's row or replaces the one of the same kind and name.
    Put(Box<ResourceRow>),
    /// Changes what progresses in the resource's row. Of a training job that is a trial this
    /// changes the trial's status, too.
    Move(Box<ResourceProgress>),
    /// Removes the resource's row of this kind and name, if there is one, and the rows that
    /// [`ResourceKind`] says are deleted with it. Training jobs of a deleted tuning job stay.
    Delete(ResourceKind, String),
    /// Inserts a checkpoint file's receipt or replaces the one of the same job, path and host.
    PutCheckpoint(CheckpointRow),
    /// Inserts a trial's row or replaces the one of the same training job. [`RowChange::Move`]
    /// changes its status from then on.
    PutTrial(Box<TrialRow>),
    /// Changes what the core knows in the trial's row.
    MoveTrial(Box<TrialProgress>),
    /// Inserts a tuner's record or replaces the one of the same tuning job and number.
    PutRecord(RecordRow),
}

/// Takes an event: its version and bytes. An error ends the replay.
pub type EachEvent<'a> = dyn FnMut(u64, &[u8]) -> Result<(), StoreError> + 'a;

/// A durable sequence of events. An event's *version* is its place in it, from 1; the journal's
/// version is that of its last event, 0 when it is empty.
///
/// A batch is applied whole or not at all, and is durable when `append` returns. Events are never
/// changed; a snapshot at version `v` stands for all events up to `v`, which are dropped.
pub trait Journal: Send {
    /// Appends the events and makes the row changes in one transaction. Returns the version after
    /// it.
    ///
    /// # Errors
    /// [`StoreError::Full`] and others; then nothing of the batch has happened.
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError>;

    /// Version of the last event.
    ///
    /// # Errors
    /// The storage's.
    fn version(&self) -> Result<u64, StoreError>;

    /// Calls `each` with every event of a greater version than this, in order. Events that a
    /// snapshot stands for are gone.
    ///
    /// # Errors
    /// The storage's, and what `each` returns.
    fn events_after(&self, version: u64, each: &mut EachEvent<'_>) -> Result<(), StoreError>;

    /// The way to put snapshots, for another thread.
    fn snapshots(&self) -> Box<dyn Snapshots>;

    /// The snapshot and its version, if there is one.
    ///
    /// # Errors
    /// The storage's.
    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError>;
}

/// Puts snapshots of a journal's state beside whoever appends to it: no append waits for more than
/// some milliseconds, however large it is.
pub trait Snapshots: Send {
    /// Replaces the snapshot and drops the events that it stands for. The latest snapshot wins: one
    /// of a lower version than the present one is ignored. One caller at a time.
    ///
    /// # Errors
    /// The storage's; then what the old snapshot or this one needs is still there.
    fn put(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError>;
}
