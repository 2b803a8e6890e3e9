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

#[cfg(test)]
mod tests {
    use shoal_store::{ResourceKind, ResourceRow, SqliteJournal, TrialRow};

    use super::*;

    /// A journal that takes nothing.
    struct Refusing(SqliteJournal);

    impl Journal for Refusing {
        fn append(&mut self, _: &Batch) -> Result<u64, StoreError> {
            Err(StoreError::Full("the test's disk".to_owned()))
        }

        fn version(&self) -> Result<u64, StoreError> {
            self.0.version()
        }

        fn events_after(&self, version: u64, each: &mut EachEvent<'_>) -> Result<(), StoreError> {
            self.0.events_after(version, each)
        }

        fn snapshots(&self) -> Box<dyn Snapshots> {
            self.0.snapshots()
        }

        fn snapshot(&self) -> Result<Option<(u64, Vec<u8>)>, StoreError> {
            self.0.snapshot()
        }
    }

    fn batch() -> Batch {
        let job = ResourceRow {
            status: "InProgress".to_owned(),
            keys: [Some("Pending".into()), None],
            ..ResourceRow::new(ResourceKind::TRAINING_JOB, "a")
        };
        let trial = TrialRow {
            tuning: "tune".to_owned(),
            job: "a".to_owned(),
            created_ms: 1,
            status: "InProgress".to_owned(),
            value: None,
            tuned: b"{}".to_vec(),
            view: b"{}".to_vec(),
        };
        Batch { events: Vec::new(), rows: vec![RowChange::Put(Box::new(job)), RowChange::PutTrial(Box::new(trial))] }
    }

    #[test]
    fn only_what_is_durable_is_counted() {
        let counts = |exporter: &Exporter| (exporter.jobs.count("Pending"), exporter.trials.load(Ordering::Relaxed));
        let exporter = Exporter::new([].into_iter(), [].into_iter());
        let dir = tempfile::tempdir().unwrap();
        let journal = || SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        assert!(exporter.watch(Refusing(journal())).append(&batch()).is_err());
        assert_eq!(counts(&exporter), (0, 0));
        exporter.watch(journal()).append(&batch()).unwrap();
        assert_eq!(counts(&exporter), (1, 1));
    }
}
