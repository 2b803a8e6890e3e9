//! Reads of the rows, which the journal's transactions write.

use crate::{
    EachRecord, Page, ResourceFilter, ResourceKind, ResourceRow, StoreError, TrialFilter, TrialPage, TrialRow,
};

/// The receipt of a checkpoint file: what of it is durable in the object store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointRow {
    /// Training job's name.
    pub job: String,
    /// Below the checkpoint directory.
    pub path: String,
    /// The host that saved it, from 1.
    pub host: u32,
    /// Length.
    pub bytes: u64,
    /// SHA-256 of the content, hexadecimal.
    pub sha256: String,
    /// When it was durable, in milliseconds since the epoch.
    pub saved_ms: u64,
}

/// Reads of the rows. Any number of readers run concurrently with the journal's writer and see its
/// last commit.
pub trait Rows: Send + Sync {
    /// The resource of this kind and name.
    ///
    /// # Errors
    /// The storage's.
    fn resource(&self, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, StoreError>;

    /// Names of the kind that equal this one when the case of ASCII letters is ignored, sorted.
    ///
    /// # Errors
    /// The storage's.
    fn names(&self, kind: ResourceKind, name: &str) -> Result<Vec<String>, StoreError>;

    /// Resources that match the filter, in its order, from after its cursor.
    ///
    /// # Errors
    /// The storage's; [`StoreError::BadCursor`].
    fn list(&self, filter: &ResourceFilter) -> Result<Page, StoreError>;

    /// Kinds and names of training jobs and tuning jobs without a spec, which database formats
    /// before 5 did not have; sorted by name within a kind.
    ///
    /// # Errors
    /// The storage's.
    fn without_spec(&self) -> Result<Vec<(ResourceKind, String)>, StoreError>;

    /// Number of resources that match the filter, its order, cursor and limit aside.
    ///
    /// # Errors
    /// The storage's.
    fn count(&self, filter: &ResourceFilter) -> Result<u64, StoreError>;

    /// The latest receipt of each checkpoint file of a job and each host that saved it, by path and
    /// host: at most `limit` that come after this path and host (`("", 0)` for the first ones).
    ///
    /// # Errors
    /// The storage's.
    fn checkpoints(&self, job: &str, after: (&str, u32), limit: usize) -> Result<Vec<CheckpointRow>, StoreError>;

    /// The trial that this training job is, if it is one.
    ///
    /// # Errors
    /// The storage's.
    fn trial(&self, job: &str) -> Result<Option<TrialRow>, StoreError>;

    /// Trials of a tuning job that match the filter, in its order, from after its cursor.
    ///
    /// # Errors
    /// The storage's; [`StoreError::BadCursor`].
    fn list_trials(&self, filter: &TrialFilter) -> Result<TrialPage, StoreError>;

    /// Calls `each` with a tuning job's records after this number, in order.
    ///
    /// # Errors
    /// The storage's, and what `each` returns.
    fn records(&self, tuning: &str, after: u64, each: &mut EachRecord<'_>) -> Result<(), StoreError>;
}
