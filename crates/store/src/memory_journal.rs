//! Journal and rows in memory, for tests of what stands on them. Clones share the contents.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::memory_resources::Resources;
use crate::memory_trials::Trials;
use crate::{
    Batch, CheckpointRow, EachEvent, EachRecord, Journal, Page, ResourceFilter, ResourceKind, ResourceRow, RowChange,
    Rows, Snapshots, StoreError, TrialFilter, TrialPage, TrialRow,
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
    resources: Resources,
    /// By job, path and host.
    checkpoints: BTreeMap<(String, String, u32), CheckpointRow>,
    trials: Trials,
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
                RowChange::Put(row) => contents.resources.put(row),
                RowChange::Move(progress) => {
                    contents.resources.advance(progress);
                    if progress.kind == ResourceKind::TRAINING_JOB {
                        contents.trials.follow_job(&progress.name, &progress.status);
                    }
                }
                RowChange::Delete(kind, name) => {
                    contents.resources.delete(*kind, name);
                    match *kind {
                        ResourceKind::TRAINING_JOB => {
                            contents.checkpoints.retain(|(job, ..), _| job != name);
                            contents.trials.forget_job(name);
                        }
                        ResourceKind::TUNING_JOB => contents.trials.forget_tuning(name),
                        _ => {}
                    }
                }
                RowChange::PutCheckpoint(row) => {
                    contents.checkpoints.insert((row.job.clone(), row.path.clone(), row.host), row.clone());
                }
                RowChange::PutTrial(row) => contents.trials.put(row),
                RowChange::MoveTrial(progress) => contents.trials.advance(progress),
                RowChange::PutRecord(row) => contents.trials.put_record(row),
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
    fn resource(&self, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, StoreError> {
        Ok(self.lock().resources.get(kind, name).cloned())
    }

    fn names(&self, kind: ResourceKind, name: &str) -> Result<Vec<String>, StoreError> {
        Ok(self.lock().resources.names(kind, name))
    }

    fn list(&self, filter: &ResourceFilter) -> Result<Page, StoreError> {
        self.lock().resources.list(filter)
    }

    fn without_spec(&self) -> Result<Vec<(ResourceKind, String)>, StoreError> {
        Ok(self.lock().resources.without_spec())
    }

    fn count(&self, filter: &ResourceFilter) -> Result<u64, StoreError> {
        Ok(self.lock().resources.count(filter))
    }

    fn checkpoints(
        &self,
        job: &str,
        (path, host): (&str, u32),
        limit: usize,
    ) -> Result<Vec<CheckpointRow>, StoreError> {
        let contents = self.lock();
        let start = (Bound::Excluded((job.to_owned(), path.to_owned(), host)), Bound::Unbounded);
        let rows = contents.checkpoints.range(start).map(|(_, row)| row);
        Ok(rows.take_while(|row| row.job == job).take(limit).cloned().collect())
    }

    fn trial(&self, job: &str) -> Result<Option<TrialRow>, StoreError> {
        Ok(self.lock().trials.trial(job))
    }

    fn list_trials(&self, filter: &TrialFilter) -> Result<TrialPage, StoreError> {
        let contents = self.lock();
        contents.trials.list(filter, |job| contents.resources.get(ResourceKind::TRAINING_JOB, job).cloned())
    }

    fn records(&self, tuning: &str, after: u64, each: &mut EachRecord<'_>) -> Result<(), StoreError> {
        let records = self.lock().trials.records(tuning, after);
        records.into_iter().try_for_each(|(seq, bytes)| each(seq, &bytes))
    }
}
