//! Rows: what lists and lookups read, kept by the journal's transactions.

use std::fmt;
use std::str::FromStr;

use crate::{EachRecord, StoreError, TrialFilter, TrialPage, TrialRow, TuningPage, TuningRow};

/// A training job as lists and lookups see it. Times are milliseconds since the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobRow {
    /// Unique among rows.
    pub name: String,
    /// Random, given at creation.
    pub uid: String,
    /// Amazon resource name.
    pub arn: String,
    /// Creation.
    pub created_ms: u64,
    /// Last change.
    pub modified_ms: u64,
    /// End, if it is over.
    pub ended_ms: Option<u64>,
    /// Primary status.
    pub status: String,
    /// Secondary status.
    pub secondary: String,
    /// The job is over.
    pub ended: bool,
    /// The request as it came, JSON.
    pub request: Vec<u8>,
    /// What the core knows of it, JSON.
    pub view: Vec<u8>,
    /// Tags, JSON.
    pub tags: Vec<u8>,
}

/// What changes of a training job's row while the job goes on: all that the core knows of it, and nothing of what the client said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// Which row; nothing happens if there is none.
    pub name: String,
    /// As in [`JobRow`].
    pub modified_ms: u64,
    /// As in [`JobRow`].
    pub ended_ms: Option<u64>,
    /// As in [`JobRow`].
    pub status: String,
    /// As in [`JobRow`].
    pub secondary: String,
    /// As in [`JobRow`].
    pub ended: bool,
    /// As in [`JobRow`].
    pub view: Vec<u8>,
}

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

/// Reads of the rows. Any number of readers run beside the journal's writer and see its last commit.
pub trait Rows: Send + Sync {
    /// The job of this name.
    ///
    /// # Errors
    /// The storage's.
    fn job(&self, name: &str) -> Result<Option<JobRow>, StoreError>;

    /// Names of the jobs that have this name when upper and lower case of ASCII letters are taken for the same, sorted.
    ///
    /// # Errors
    /// The storage's.
    fn names(&self, name: &str) -> Result<Vec<String>, StoreError>;

    /// Jobs that match the filter, in its order, from after its cursor.
    ///
    /// # Errors
    /// The storage's; [`StoreError::BadCursor`].
    fn list(&self, filter: &JobFilter) -> Result<Page, StoreError>;

    /// The latest receipt of each checkpoint file of a job and each host that saved it, by path and host: at most `limit` that come after
    /// this path and host (`("", 0)` for the first ones).
    ///
    /// # Errors
    /// The storage's.
    fn checkpoints(&self, job: &str, after: (&str, u32), limit: usize) -> Result<Vec<CheckpointRow>, StoreError>;

    /// How many jobs match the filter, its order, cursor and limit aside.
    ///
    /// # Errors
    /// The storage's.
    fn count(&self, filter: &JobFilter) -> Result<u64, StoreError>;

    /// The tuning job of this name.
    ///
    /// # Errors
    /// The storage's.
    fn tuning(&self, name: &str) -> Result<Option<TuningRow>, StoreError>;

    /// As [`Self::names`], of tuning jobs.
    ///
    /// # Errors
    /// The storage's.
    fn tuning_names(&self, name: &str) -> Result<Vec<String>, StoreError>;

    /// Tuning jobs that match the filter, in its order, from after its cursor. They have no secondary status: the filter must name none.
    ///
    /// # Errors
    /// The storage's; [`StoreError::BadCursor`].
    fn list_tunings(&self, filter: &JobFilter) -> Result<TuningPage, StoreError>;

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

/// Which jobs a list shows. All conditions that are set must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFilter {
    /// The name contains this, case-sensitively.
    pub name_contains: Option<String>,
    /// The name is one of these.
    pub names: Option<Vec<String>>,
    /// The name contains this, whatever the case of ASCII letters.
    pub name_resembles: Option<String>,
    /// The status is this.
    pub status: Option<String>,
    /// The secondary status is this. Use it with a status that few jobs have: no index knows it.
    pub secondary: Option<String>,
    /// The secondary status is another. As with `secondary`.
    pub secondary_not: Option<String>,
    /// Created later than this.
    pub created_after_ms: Option<u64>,
    /// Created earlier than this.
    pub created_before_ms: Option<u64>,
    /// Modified later than this.
    pub modified_after_ms: Option<u64>,
    /// Modified earlier than this.
    pub modified_before_ms: Option<u64>,
    /// Order of the rows; equal ones come by name.
    pub sort: JobSort,
    /// Direction of the order.
    pub order: SortOrder,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// Most rows in a page.
    pub limit: usize,
}

impl Default for JobFilter {
    fn default() -> Self {
        Self {
            name_contains: None,
            names: None,
            name_resembles: None,
            status: None,
            secondary: None,
            secondary_not: None,
            created_after_ms: None,
            created_before_ms: None,
            modified_after_ms: None,
            modified_before_ms: None,
            sort: JobSort::CreationTime,
            order: SortOrder::Ascending,
            after: None,
            limit: 100,
        }
    }
}

/// What a list is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSort {
    /// `name`.
    Name,
    /// `created_ms`.
    CreationTime,
    /// `status`.
    Status,
}

/// Direction of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortOrder {
    /// Smallest first.
    Ascending,
    /// Greatest first.
    Descending,
}

/// Rows of one page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// In the filter's order.
    pub rows: Vec<JobRow>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
}

/// A place in a list: after the row with this sort value and name. It stays good when rows come and go. `Display` and `FromStr` give
/// its text form, for tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) value: String,
    pub(crate) name: String,
}

impl Cursor {
    /// The place after `row` in a list sorted by `sort`.
    pub fn after(row: &JobRow, sort: JobSort) -> Self {
        Self::of(sort, row.created_ms, &row.status, &row.name)
    }

    pub(crate) fn of(sort: JobSort, created_ms: u64, status: &str, name: &str) -> Self {
        let value = match sort {
            JobSort::Name => String::new(),
            JobSort::CreationTime => created_ms.to_string(),
            JobSort::Status => status.to_owned(),
        };
        Self { value, name: name.to_owned() }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.value, self.name)
    }
}

impl FromStr for Cursor {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let (value, name) = text.split_once('/').ok_or_else(|| StoreError::BadCursor(text.to_owned()))?;
        Ok(Self { value: value.to_owned(), name: name.to_owned() })
    }
}
