//! The journal, watched: what becomes of jobs is made into messages in the same transaction, and
//! new messages wake the deliverer.

use std::sync::Arc;

use shoal_store::{Batch, EachEvent, Journal, RowChange, Snapshots, StoreError};
use tokio::sync::Notify;

use super::{
    JobStates,
    rows::{Attempts, DELIVERY, MESSAGE, PENDING, stored},
};
use crate::clock::now_ms;

/// A journal that adds messages about jobs to what is written.
struct Watched {
    journal: Box<dyn Journal>,
    states: JobStates,
    wake: Arc<Notify>,
}

/// Has a journal add messages about jobs, and wake who delivers.
pub(crate) fn watch(journal: Box<dyn Journal>, states: JobStates, wake: Arc<Notify>) -> Box<dyn Journal> {
    Box::new(Watched { journal, states, wake })
}

impl Journal for Watched {
    fn append(&mut self, batch: &Batch) -> Result<u64, StoreError> {
        let messages = self.states.messages(&batch.rows);
        let version = if messages.is_empty() {
            self.journal.append(batch)?
        } else {
            let now_ms = now_ms();
            let mut batch = batch.clone();
            batch.rows.extend(messages.into_iter().map(|it| RowChange::Put(Box::new(it.into_row(now_ms)))));
            let version = self.journal.append(&batch)?;
            self.wake.notify_one();
            version
        };
        self.states.note(&batch.rows);
        let is_ours = |change: &RowChange| match change {
            // What is attempted again is the outbox's already.
            RowChange::Put(row) => {
                row.kind == MESSAGE
                    || row.kind == DELIVERY && row.status == PENDING && row.view == stored(&Attempts::default())
            }
            _ => false,
        };
        if batch.rows.iter().any(is_ours) {
            self.wake.notify_one();
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
