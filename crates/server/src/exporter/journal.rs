//! The journal, watched: every append is timed, and the rows in it tell what becomes of jobs.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use shoal_store::{Batch, EachEvent, Journal, RowChange, Snapshots, StoreError};

use super::Exporter;

/// A journal that is watched.
pub(crate) struct Watched<J> {
    pub(super) journal: J,
    pub(super) exporter: Arc<Exporter>,
}

impl<J: Journal> Journal for Watched<J> {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        let started = Instant::now();
        let version = self.journal.append(batch)?;
        self.exporter.appends.observe([], started.elapsed());
        for change in &batch.rows {
            match change {
                RowChange::Put(row) => {
                    [&self.exporter.jobs, &self.exporter.tunings].iter().for_each(|kind| kind.put(row));
                }
                RowChange::Move(progress) => {
                    [&self.exporter.jobs, &self.exporter.tunings].iter().for_each(|kind| kind.moved(progress));
                }
                RowChange::PutTrial(_) => drop(self.exporter.trials.fetch_add(1, Ordering::Relaxed)),
                // Nothing here counts these.
                _ => {}
            }
        }
        Ok(version)
    }

    fn version(&self) -> Result<u64, StoreError> {
        self.journal.version()
    }

    fn events_after(&self, version: u64, each: &mut EachEvent<'_>) -> Result<(), StoreError> {
        self.journal.events_after(version, each)
    }

    fn snapshots(&self) -> Box<dyn Snapshots> {
        self.journal.snapshots()
    }

    fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
        self.journal.snapshot()
    }
}
