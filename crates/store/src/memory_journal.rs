//! Journal and rows in memory, for tests of what stands on them. Clones share the contents.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::memory_tuning::Tunings;
use crate::{
    Batch, CheckpointRow, Cursor, EachEvent, EachRecord, JobFilter, JobProgress, JobRow, JobSort, Journal, Page, RowChange, Rows,
    Snapshots, SortOrder, StoreError, TrialFilter, TrialPage, TrialRow, TuningPage, TuningRow,
};

/// A journal that lasts as long as its last clone.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Debug, Default)]
struct Contents {
    version: u64,
    events: BTreeMap<u64, Vec<u8>>,
    snapshot: Option<(u64, Vec<u8>)>,
    jobs: BTreeMap<String, JobRow>,
    /// By job, path and host.
    checkpoints: BTreeMap<(String, String, u32), CheckpointRow>,
    tunings: Tunings,
}

impl MemoryJournal {
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().expect("no method panics while it holds the lock")
    }
}

impl Journal for MemoryJournal {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        let mut contents = self.lock();
        for event in &batch.events {
            contents.version += 1;
            let version = contents.version;
            contents.events.insert(version, event.clone());
        }
        for change in &batch.rows {
            match change {
                RowChange::PutJob(row) => drop(contents.jobs.insert(row.name.clone(), JobRow::clone(row))),
                RowChange::MoveJob(progress) => {
                    contents.tunings.follow_job(&progress.name, &progress.status);
                    let JobProgress { name, modified_ms, ended_ms, status, secondary, ended, view } = JobProgress::clone(progress);
                    if let Some(row) = contents.jobs.get_mut(&name) {
                        *row = JobRow { modified_ms, ended_ms, status, secondary, ended, view, ..mem::take(row) };
                    }
                }
                RowChange::DeleteJob(name) => {
                    contents.jobs.remove(name);
                    contents.checkpoints.retain(|(job, ..), _| job != name);
                    contents.tunings.forget_job(name);
                }
                RowChange::PutCheckpoint(row) => {
                    contents.checkpoints.insert((row.job.clone(), row.path.clone(), row.host), row.clone());
                }
                other => contents.tunings.change(other),
            }
        }
        Ok(contents.version)
    }

    fn version(&self) -> Result<u64, StoreError> {
        Ok(self.lock().version)
    }

    fn events_after(&self, version: u64, each: &mut EachEvent<'_>) -> Result<(), StoreError> {
        let events = self.lock().events.clone();
        events.range(version.saturating_add(1)..).try_for_each(|(version, bytes)| each(*version, bytes))
    }

    fn snapshots(&self) -> Box<dyn Snapshots> {
        Box::new(self.clone())
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        Ok(self.lock().snapshot.clone())
    }
}

impl Snapshots for MemoryJournal {
    fn put(&self, version: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut contents = self.lock();
        if contents.snapshot.as_ref().is_none_or(|(present, _)| version >= *present) {
            contents.version = contents.version.max(version);
            contents.events.retain(|event, _| *event > version);
            contents.snapshot = Some((version, bytes.to_owned()));
        }
        Ok(())
    }
}

impl Rows for MemoryJournal {
    fn job(&self, name: &str) -> Result<Option<JobRow>, StoreError> {
        Ok(self.lock().jobs.get(name).cloned())
    }

    fn names(&self, name: &str) -> Result<Vec<String>, StoreError> {
        Ok(self.lock().jobs.keys().filter(|it| it.eq_ignore_ascii_case(name)).cloned().collect())
    }

    fn list(&self, filter: &JobFilter) -> Result<Page, StoreError> {
        let created_after_cursor = match (&filter.after, filter.sort) {
            (Some(cursor), JobSort::CreationTime) => cursor.number()?,
            _ => 0,
        };
        // (created, status, name) with the parts that do not order left empty.
        let place = |created_ms: u64, status: &str, name: &str| match filter.sort {
            JobSort::Name => (0, String::new(), name.to_owned()),
            JobSort::CreationTime => (created_ms, String::new(), name.to_owned()),
            JobSort::Status => (0, status.to_owned(), name.to_owned()),
        };
        let place_of = |row: &JobRow| place(row.created_ms, &row.status, &row.name);
        let start = filter.after.as_ref().map(|cursor| place(created_after_cursor, &cursor.value, &cursor.name));

        let contents = self.lock();
        let mut rows: Vec<&JobRow> = contents.jobs.values().filter(|row| matches(filter, row)).collect();
        rows.sort_by_key(|row| place_of(row));
        if filter.order == SortOrder::Descending {
            rows.reverse();
        }
        rows.retain(|row| match (&start, filter.order) {
            (None, _) => true,
            (Some(start), SortOrder::Ascending) => place_of(row) > *start,
            (Some(start), SortOrder::Descending) => place_of(row) < *start,
        });
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        let next = if more { rows.last().map(|row| Cursor::after(row, filter.sort)) } else { None };
        Ok(Page { rows: rows.into_iter().cloned().collect(), next })
    }

    fn checkpoints(&self, job: &str, (path, host): (&str, u32), limit: usize) -> Result<Vec<CheckpointRow>, StoreError> {
        let contents = self.lock();
        let start = (Bound::Excluded((job.to_owned(), path.to_owned(), host)), Bound::Unbounded);
        let rows = contents.checkpoints.range(start).map(|(_, row)| row);
        Ok(rows.take_while(|row| row.job == job).take(limit).cloned().collect())
    }

    fn count(&self, filter: &JobFilter) -> Result<u64, StoreError> {
        Ok(self.lock().jobs.values().filter(|row| matches(filter, row)).count() as u64)
    }

    fn tuning(&self, name: &str) -> Result<Option<TuningRow>, StoreError> {
        Ok(self.lock().tunings.get(name))
    }

    fn tuning_names(&self, name: &str) -> Result<Vec<String>, StoreError> {
        Ok(self.lock().tunings.names(name))
    }

    fn list_tunings(&self, filter: &JobFilter) -> Result<TuningPage, StoreError> {
        // As training jobs, which have all that the filter asks for.
        let contents = self.lock();
        let as_job = |row: &TuningRow| {
            let TuningRow { name, created_ms, modified_ms, status, .. } = row.clone();
            RowChange::PutJob(Box::new(JobRow { name, created_ms, modified_ms, status, ..JobRow::default() }))
        };
        let rows = contents.tunings.all().map(as_job).collect();
        let mut jobs = MemoryJournal::default();
        jobs.append(&Batch { events: Vec::new(), rows })?;
        let page = jobs.list(filter)?;
        Ok(TuningPage { rows: page.rows.iter().filter_map(|row| contents.tunings.get(&row.name)).collect(), next: page.next })
    }

    fn trial(&self, job: &str) -> Result<Option<TrialRow>, StoreError> {
        Ok(self.lock().tunings.trial(job))
    }

    fn list_trials(&self, filter: &TrialFilter) -> Result<TrialPage, StoreError> {
        let contents = self.lock();
        contents.tunings.list(filter, |job| contents.jobs.get(job).cloned())
    }

    fn records(&self, tuning: &str, after: u64, each: &mut EachRecord<'_>) -> Result<(), StoreError> {
        let records = self.lock().tunings.records(tuning, after);
        records.into_iter().try_for_each(|(seq, bytes)| each(seq, &bytes))
    }
}

fn matches(filter: &JobFilter, row: &JobRow) -> bool {
    filter.name_contains.as_ref().is_none_or(|part| row.name.contains(part.as_str()))
        && filter.names.as_ref().is_none_or(|names| names.contains(&row.name))
        && filter.name_resembles.as_ref().is_none_or(|part| row.name.to_ascii_lowercase().contains(&part.to_ascii_lowercase()))
        && filter.status.as_ref().is_none_or(|status| row.status == *status)
        && filter.secondary.as_ref().is_none_or(|secondary| row.secondary == *secondary)
        && filter.secondary_not.as_ref().is_none_or(|secondary| row.secondary != *secondary)
        && filter.created_after_ms.is_none_or(|ms| row.created_ms > ms)
        && filter.created_before_ms.is_none_or(|ms| row.created_ms < ms)
        && filter.modified_after_ms.is_none_or(|ms| row.modified_ms > ms)
        && filter.modified_before_ms.is_none_or(|ms| row.modified_ms < ms)
}
