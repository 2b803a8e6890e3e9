//! The rows of one creator, for readers that may see no others.

use std::sync::Arc;

use crate::{
    CheckpointRow, EachRecord, Page, ResourceFilter, ResourceKind, ResourceRow, Rows, StoreError, TrialFilter,
    TrialPage, TrialRow,
};

/// Rows of which those of other creators are hidden: they are not found, listed or counted. What is
/// kept of a job beside its row is hidden with it.
pub struct CreatorRows {
    rows: Arc<dyn Rows>,
    creator: String,
}

impl CreatorRows {
    /// The rows of this creator.
    pub fn new(rows: Arc<dyn Rows>, creator: &str) -> Self {
        Self { rows, creator: creator.to_owned() }
    }

    fn is_own(&self, row: &ResourceRow) -> bool {
        row.creator.as_ref() == Some(&self.creator)
    }

    fn has(&self, kind: ResourceKind, name: &str) -> Result<bool, StoreError> {
        Ok(self.resource(kind, name)?.is_some())
    }

    fn narrowed(&self, filter: &ResourceFilter) -> ResourceFilter {
        ResourceFilter { creator: Some(self.creator.clone()), ..filter.clone() }
    }
}

impl Rows for CreatorRows {
    fn resource(&self, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, StoreError> {
        Ok(self.rows.resource(kind, name)?.filter(|row| self.is_own(row)))
    }

    fn names(&self, kind: ResourceKind, name: &str) -> Result<Vec<String>, StoreError> {
        let mut own = Vec::new();
        for name in self.rows.names(kind, name)? {
            if self.has(kind, &name)? {
                own.push(name);
            }
        }
        Ok(own)
    }

    fn list(&self, filter: &ResourceFilter) -> Result<Page, StoreError> {
        self.rows.list(&self.narrowed(filter))
    }

    fn without_spec(&self) -> Result<Vec<(ResourceKind, String)>, StoreError> {
        // Formats without specs had no creators.
        Ok(Vec::new())
    }

    fn count(&self, filter: &ResourceFilter) -> Result<u64, StoreError> {
        self.rows.count(&self.narrowed(filter))
    }

    fn checkpoints(&self, job: &str, after: (&str, u32), limit: usize) -> Result<Vec<CheckpointRow>, StoreError> {
        if self.has(ResourceKind::TRAINING_JOB, job)? {
            self.rows.checkpoints(job, after, limit)
        } else {
            Ok(Vec::new())
        }
    }

    fn trial(&self, job: &str) -> Result<Option<TrialRow>, StoreError> {
        if self.has(ResourceKind::TRAINING_JOB, job)? { self.rows.trial(job) } else { Ok(None) }
    }

    fn list_trials(&self, filter: &TrialFilter) -> Result<TrialPage, StoreError> {
        if self.has(ResourceKind::TUNING_JOB, &filter.tuning)? {
            self.rows.list_trials(filter)
        } else {
            Ok(TrialPage::default())
        }
    }

    fn records(&self, tuning: &str, after: u64, each: &mut EachRecord<'_>) -> Result<(), StoreError> {
        if self.has(ResourceKind::TUNING_JOB, tuning)? { self.rows.records(tuning, after, each) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Journal as _, RowChange, SqliteJournal};

    #[test]
    fn rows_of_others_are_not_there() {
        let temp = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&temp.path().join("shoal.db")).unwrap();
        let (job, tuning) = (ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB);
        let row = |kind, name: &str, creator: Option<&str>| {
            let creator = creator.map(str::to_owned);
            RowChange::Put(Box::new(ResourceRow { creator, ..ResourceRow::new(kind, name) }))
        };
        let receipt = |job: &str| {
            RowChange::PutCheckpoint(CheckpointRow {
                job: job.to_owned(),
                path: "a".to_owned(),
                host: 1,
                ..CheckpointRow::default()
            })
        };
        let trial = |tuning: &str, job: &str| {
            RowChange::PutTrial(Box::new(TrialRow {
                tuning: tuning.to_owned(),
                job: job.to_owned(),
                ..TrialRow::default()
            }))
        };
        let rows = vec![
            row(job, "own", Some("anna")),
            row(job, "other", Some("ben")),
            row(job, "owners", None),
            row(tuning, "own", Some("anna")),
            row(tuning, "other", Some("ben")),
            receipt("own"),
            receipt("other"),
            trial("own", "own"),
            trial("other", "other"),
        ];
        journal.append(&Batch { events: Vec::new(), rows }).unwrap();
        let own = CreatorRows::new(Arc::new(journal.rows()), "anna");
        for (name, expected) in [("own", true), ("other", false), ("owners", false)] {
            assert_eq!(own.resource(job, name).unwrap().is_some(), expected, "{name}");
            assert_eq!(own.names(job, &name.to_uppercase()).unwrap().len(), usize::from(expected), "{name}");
            let receipts = if name == "owners" { 0 } else { usize::from(expected) };
            assert_eq!(own.checkpoints(name, ("", 0), 9).unwrap().len(), receipts, "{name}");
            assert_eq!(own.trial(name).unwrap().is_some(), expected, "{name}");
            let trials = TrialFilter { tuning: name.to_owned(), ..TrialFilter::default() };
            assert_eq!(own.list_trials(&trials).unwrap().rows.len(), receipts, "{name}");
        }
        let all = ResourceFilter::new(job);
        assert_eq!(own.list(&all).unwrap().rows.len(), 1);
        assert_eq!(own.count(&all).unwrap(), 1);
        let of_ben = ResourceFilter { creator: Some("ben".to_owned()), ..all };
        assert_eq!(own.count(&of_ben).unwrap(), 1, "a filter does not widen: its creator is replaced");
    }
}
