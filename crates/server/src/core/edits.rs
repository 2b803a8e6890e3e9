//! Changes of rows that are no events: tags, members of a request that may change, the end of an ended job's row.
//!
//! They go through the loop, which writes rows one after the other: a change is made on what the last event left.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use shoal_plane::Rejection;
use shoal_store::{Batch, ResourceKind, ResourceRow, RowChange};
use shoal_wire::{Error, ErrorCode};
use tokio::sync::oneshot;

use super::{Core, Loop, Message, Refusal};

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFate {
    /// It is written with its changes.
    Keep,
    /// It goes. Only the row of a job that has left the hot state may.
    Delete,
}

/// Changes a row: all but its name and what the core knows. Runs on the loop, so it must be quick and touch nothing else.
type Change = Box<dyn FnOnce(&mut ResourceRow) -> Result<RowFate, Error> + Send>;

/// A change of one row.
pub(super) struct RowEdit {
    job: String,
    change: Change,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

/// The same of a tuning job's row.
type TuningChange = Box<dyn FnOnce(&mut ResourceRow) -> Result<RowFate, Error> + Send>;

/// A change of one tuning job's row.
pub(super) struct TuningEdit {
    name: String,
    change: TuningChange,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

impl Core {
    /// Changes a tuning job's row as it is now and waits until that is durable.
    ///
    /// # Errors
    /// There is no such tuning job, the change says no, or the journal does.
    pub(crate) async fn edit_tuning(
        &self,
        name: &str,
        change: impl FnOnce(&mut ResourceRow) -> Result<RowFate, Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let edit = TuningEdit { name: name.to_owned(), change: Box::new(change), reply };
        self.inbox.send(Message::EditTuning(edit)).map_err(|_| Refusal::Stopping)?;
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }

    /// Changes a job's row as it is now and waits until that is durable.
    ///
    /// # Errors
    /// There is no such job, the change says no, or the journal does.
    pub(crate) async fn edit(
        &self,
        job: &str,
        change: impl FnOnce(&mut ResourceRow) -> Result<RowFate, Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let edit = RowEdit { job: job.to_owned(), change: Box::new(change), reply };
        self.inbox.send(Message::Edit(edit)).map_err(|_| Refusal::Stopping)?;
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }
}

impl Loop {
    /// Makes the changes of tuning jobs' rows, each in a transaction of its own.
    pub(super) fn edit_tunings(&mut self, edits: Vec<TuningEdit>) {
        for TuningEdit { name, change, reply } in edits {
            let answer = self.edit_tuning(&name, change);
            if answer.is_ok() {
                self.changed.send_replace(self.version);
            }
            let _ = reply.send(answer);
        }
    }

    fn edit_tuning(&mut self, name: &str, change: TuningChange) -> Result<(), Refusal> {
        let present = self.rows.resource(ResourceKind::TUNING_JOB, name).map_err(|error| Refusal::Journal(error.to_string()))?;
        let Some(mut row) = present else { return Err(Refusal::Rejected(Rejection::TuningNotFound(name.to_owned()))) };
        let panicked =
            |_| Err(Error::new(ErrorCode::InternalFailure, "the change of this tuning job failed through a defect of the server"));
        let row_change = match catch_unwind(AssertUnwindSafe(|| change(&mut row))).unwrap_or_else(panicked)? {
            RowFate::Keep => RowChange::Put(Box::new(row)),
            RowFate::Delete => RowChange::Delete(ResourceKind::TUNING_JOB, name.to_owned()),
        };
        let appended = self.journal.append(&Batch { events: Vec::new(), rows: vec![row_change] });
        appended.map(|_| ()).map_err(|error| Refusal::Journal(error.to_string()))
    }

    /// Makes the changes in one transaction, each on what the one before left.
    pub(super) fn edit(&mut self, edits: Vec<RowEdit>) {
        if edits.is_empty() {
            return;
        }
        // `None` is a row that goes.
        let mut changed: BTreeMap<String, Option<ResourceRow>> = BTreeMap::new();
        let mut replies = Vec::with_capacity(edits.len());
        for RowEdit { job, change, reply } in edits {
            let answer = self.changed(&job, change, &mut changed);
            replies.push((reply, answer));
        }
        let row_change = |(name, row): (&String, &Option<ResourceRow>)| match row {
            Some(row) => RowChange::Put(Box::new(row.clone())),
            None => RowChange::Delete(ResourceKind::TRAINING_JOB, name.clone()),
        };
        let rows: Vec<_> = changed.iter().map(row_change).collect();
        if !rows.is_empty() {
            if let Err(error) = self.journal.append(&Batch { events: Vec::new(), rows }) {
                tracing::error!("journal: {error}");
                for (reply, _) in replies {
                    let _ = reply.send(Err(Refusal::Journal(error.to_string())));
                }
                return;
            }
            self.changed.send_replace(self.version);
        }
        for (reply, answer) in replies {
            let _ = reply.send(answer);
        }
    }

    fn changed(&self, job: &str, change: Change, changed: &mut BTreeMap<String, Option<ResourceRow>>) -> Result<(), Refusal> {
        let present = match changed.get(job) {
            Some(row) => row.clone(),
            None => self.rows.resource(ResourceKind::TRAINING_JOB, job).map_err(|error| Refusal::Journal(error.to_string()))?,
        };
        let Some(mut row) = present else { return Err(Refusal::Rejected(Rejection::NotFound)) };
        // Changes look at what clients sent: a defect there must not end the loop. The row that it leaves is dropped.
        let panicked =
            |_| Err(Error::new(ErrorCode::InternalFailure, "the change of this training job failed through a defect of the server"));
        let fate = catch_unwind(AssertUnwindSafe(|| change(&mut row))).unwrap_or_else(panicked)?;
        changed.insert(job.to_owned(), (fate == RowFate::Keep).then_some(row));
        Ok(())
    }
}
