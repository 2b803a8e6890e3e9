//! Rows of tuning jobs' trials, and what their tuners have recorded.

use crate::{Cursor, ResourceRow, SortOrder, StoreError};

/// A training job as its tuning job's lists see it, beside the training job's own row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialRow {
    /// Tuning job's name.
    pub tuning: String,
    /// Training job's name, unique among trials.
    pub job: String,
    /// Creation.
    pub created_ms: u64,
    /// The training job's status; it follows the training job's row.
    pub status: String,
    /// Final value of the objective as the user sees it, if there is one; finite.
    pub value: Option<f64>,
    /// What was tuned, JSON: nothing that the core knows.
    pub tuned: Vec<u8>,
    /// What the core knows of the trial, JSON.
    pub view: Vec<u8>,
}

/// What changes of a trial's row while it goes on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialProgress {
    /// Training job's name; nothing happens if there is no such trial.
    pub job: String,
    /// As in [`TrialRow`].
    pub value: Option<f64>,
    /// As in [`TrialRow`].
    pub view: Vec<u8>,
}

/// Something that a tuner has recorded, opaque here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordRow {
    /// Tuning job's name.
    pub tuning: String,
    /// Its place among the tuning job's records, from 1, without gaps.
    pub seq: u64,
    /// Encoded.
    pub bytes: Vec<u8>,
}

/// Which trials of a tuning job a list shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialFilter {
    /// Tuning job's name.
    pub tuning: String,
    /// The training job's status is this.
    pub status: Option<String>,
    /// Order of the rows; equal ones come by name.
    pub sort: TrialSort,
    /// Direction of the order.
    pub order: SortOrder,
    /// Where the page before ended.
    pub after: Option<Cursor>,
    /// Most rows in a page.
    pub limit: usize,
}

impl Default for TrialFilter {
    fn default() -> Self {
        let (sort, order) = (TrialSort::Name, SortOrder::Ascending);
        Self { tuning: String::new(), status: None, sort, order, after: None, limit: 100 }
    }
}

/// What a list of trials is ordered by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrialSort {
    /// `job`.
    Name,
    /// `created_ms`.
    CreationTime,
    /// `status`.
    Status,
    /// `value`; trials without one are not listed.
    Value,
}

/// Trials of one page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrialPage {
    /// In the filter's order, each with its training job's row.
    pub rows: Vec<(TrialRow, ResourceRow)>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
}

/// Takes a record: its sequence number and bytes. An error ends the reading.
pub type EachRecord<'a> = dyn FnMut(u64, &[u8]) -> Result<(), StoreError> + 'a;

impl Cursor {
    /// The place after `row` in a list of trials sorted by `sort`.
    pub(crate) fn after_trial(row: &TrialRow, sort: TrialSort) -> Self {
        let value = match sort {
            TrialSort::Name => String::new(),
            TrialSort::CreationTime => row.created_ms.to_string(),
            TrialSort::Status => row.status.clone(),
            // The shortest text that is read back as the same number.
            TrialSort::Value => row.value.unwrap_or_default().to_string(),
        };
        Self { value, name: row.job.clone() }
    }
}
