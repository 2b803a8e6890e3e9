//! Changes of rows that are no events: resources that the core does not know, tags, members of a
//! request that may change, deletions of ended jobs.
//!
//! They go through the loop, which writes rows sequentially: a change is made on what the last
//! event left.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use shoal_store::{Batch, ResourceKind, ResourceRow, RowChange};
use shoal_wire::{Error, ErrorCode};
use tokio::sync::oneshot;

use super::{Core, Loop, Message, Refusal};

/// Maps the row as it is now (`None`: there is none of this kind and name) to the row that replaces
/// it (`None` deletes it; only the row of a job that has left the core's state may be deleted).
/// Kind, name and the core's part stay. Runs on the loop, so it must be quick and touch nothing
/// else.
type Change = Box<dyn FnOnce(Option<ResourceRow>) -> Result<Option<ResourceRow>, Error> + Send>;

/// A change of one row.
pub(super) struct RowEdit {
    kind: ResourceKind,
    name: String,
    change: Change,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

/// Rows as the edits so far leave them; `None` is deleted.
type Changed = BTreeMap<(ResourceKind, String), Option<ResourceRow>>;

impl Core {
    /// Changes a row as it is now and waits until that is durable.
    ///
    /// # Errors
    /// The change refuses, or the journal does.
    pub(crate) async fn edit(
        &self,
        kind: ResourceKind,
        name: &str,
        change: impl FnOnce(Option<ResourceRow>) -> Result<Option<ResourceRow>, Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let edit = RowEdit { kind, name: name.to_owned(), change: Box::new(change), reply };
        self.inbox.send(Message::Edit(edit)).map_err(|_| Refusal::Stopping)?;
        answer.await.unwrap_or(Err(Refusal::Stopping))
    }
}

impl Loop {
    /// Makes the changes in one transaction, each on what the one before left.
    pub(super) fn edit(&mut self, edits: Vec<RowEdit>) {
        if edits.is_empty() {
            return;
        }
        let mut changed = Changed::new();
        let mut replies = Vec::with_capacity(edits.len());
        for RowEdit { kind, name, change, reply } in edits {
            let answer = self.changed(kind, name, change, &mut changed);
            replies.push((reply, answer));
        }
        let row_change = |((kind, name), row)| match row {
            Some(row) => RowChange::Put(Box::new(row)),
            None => RowChange::Delete(kind, name),
        };
        let rows: Vec<_> = changed.into_iter().map(row_change).collect();
        if !rows.is_empty() {
            if let Err(error) = self.journal.append(&Batch { events: Vec::new(), rows }) {
                tracing::error!("journal: {error}");
                for (reply, _) in replies {
                    let _ = reply.send(Err(Refusal::Journal(error.to_string())));
                }
                return;
            }
            self.changed.send_replace(self.control.version());
        }
        for (reply, answer) in replies {
            let _ = reply.send(answer);
        }
    }

    fn changed(&self, kind: ResourceKind, name: String, change: Change, changed: &mut Changed) -> Result<(), Refusal> {
        let key = (kind, name);
        let present = match changed.get(&key) {
            Some(row) => row.clone(),
            None => self.rows.resource(kind, &key.1).map_err(|error| Refusal::Journal(error.to_string()))?,
        };
        // Changes read what clients sent: a defect there must not end the loop.
        let panicked = |_| {
            let text = format!("the change of {} {} failed through a defect of the server", kind.name(), key.1);
            Err(Error::new(ErrorCode::InternalFailure, text))
        };
        let row = catch_unwind(AssertUnwindSafe(|| change(present))).unwrap_or_else(panicked)?;
        changed.insert(key, row);
        Ok(())
    }
}
