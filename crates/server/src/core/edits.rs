//! Changes of rows that are no events: resources that the core does not know, tags, members of a
//! request that may change, deletions of ended jobs.
//!
//! They go through the loop, which writes rows sequentially: a change is made on what the last
//! event left, and reads the rows that it depends on as they are then.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
};

use shoal_store::{Batch, LinkEnd, ResourceFilter, ResourceKind, ResourceRow, RowChange, Rows};
use shoal_wire::{Error, ErrorCode};
use tokio::sync::oneshot;

use super::{Core, Loop, Message, Refusal};
use crate::internal::internal;

/// Makes of the rows as they are now the ones that are put or deleted; of jobs only rows that have
/// left the core's state may be deleted, and the core's part stays. Runs on the loop, so it must be
/// quick and touch nothing else.
pub(super) type Change = Box<dyn FnOnce(&Present<'_>) -> Result<Vec<RowChange>, Error> + Send>;

/// A change of rows.
pub(super) struct RowEdit {
    /// What is changed, for messages.
    subject: String,
    change: Change,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

/// Rows as the edits so far leave them; `None` is deleted.
#[derive(Default)]
pub(super) struct Changed(BTreeMap<(ResourceKind, String), Option<ResourceRow>>);

/// Rows as a change finds them.
pub(crate) struct Present<'a> {
    rows: &'a dyn Rows,
    changed: &'a Changed,
}

impl Present<'_> {
    /// The row of this kind and name.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn row(&self, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, Error> {
        match self.changed.0.get(&(kind, name.to_owned())) {
            Some(row) => Ok(row.clone()),
            None => self.rows.resource(kind, name).map_err(|error| internal(&error)),
        }
    }

    /// Whether a row of the kind has this name at this end.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn has_link(&self, kind: ResourceKind, end: LinkEnd, name: &str) -> Result<bool, Error> {
        Ok(!self.links(kind, end, name, 1)?.is_empty())
    }

    /// Rows of the kind that have this name at this end: all, or at least this number.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) fn links(
        &self,
        kind: ResourceKind,
        end: LinkEnd,
        name: &str,
        least: usize,
    ) -> Result<Vec<ResourceRow>, Error> {
        let changed = || self.changed.0.iter().filter(|((of, _), _)| *of == kind);
        let new = changed().filter_map(|(_, row)| row.as_ref()).filter(|row| end.of(row) == Some(name));
        let mut found = Vec::from_iter(new.cloned());
        if found.len() < least {
            // Any of those that have changed may be among them.
            let mut filter = ResourceFilter { limit: changed().count() + least, ..ResourceFilter::new(kind) };
            end.select(&mut filter, name);
            let stored = self.rows.list(&filter).map_err(|error| internal(&error))?.rows;
            found.extend(stored.into_iter().filter(|row| !self.changed.0.contains_key(&(kind, row.name.clone()))));
        }
        Ok(found)
    }
}

impl Changed {
    fn note(&mut self, changes: &[RowChange]) {
        for change in changes {
            match change {
                RowChange::Put(row) => drop(self.0.insert((row.kind, row.name.clone()), Some((**row).clone()))),
                RowChange::Delete(kind, name) => drop(self.0.insert((*kind, name.clone()), None)),
                // No edit makes others.
                RowChange::Move(_)
                | RowChange::PutCheckpoint(_)
                | RowChange::PutTrial(_)
                | RowChange::MoveTrial(_)
                | RowChange::PutRecord(_) => {}
            }
        }
    }
}

/// Puts a row, or deletes it.
fn put_or_delete(kind: ResourceKind, name: String, row: Option<ResourceRow>) -> RowChange {
    match row {
        Some(row) => RowChange::Put(Box::new(row)),
        None => RowChange::Delete(kind, name),
    }
}

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
        let (subject, name) = (format!("{} {name}", kind.name()), name.to_owned());
        let change = move |present: &Present<'_>| {
            let row = change(present.row(kind, &name)?)?;
            Ok(vec![put_or_delete(kind, name, row)])
        };
        self.edit_rows(subject, change).await
    }

    /// Changes rows together, by what others are now, and waits until that is durable.
    ///
    /// # Errors
    /// The change refuses, or the journal does.
    pub(crate) async fn edit_rows(
        &self,
        subject: String,
        change: impl FnOnce(&Present<'_>) -> Result<Vec<RowChange>, Error> + Send + 'static,
    ) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let edit = RowEdit { subject, change: Box::new(change), reply };
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
        let mut changed = Changed::default();
        let mut replies = Vec::with_capacity(edits.len());
        for RowEdit { subject, change, reply } in edits {
            let answer = self.changed(&subject, change, &mut changed);
            replies.push((reply, answer.map(|_| ())));
        }
        let rows: Vec<_> = changed.0.into_iter().map(|((kind, name), row)| put_or_delete(kind, name, row)).collect();
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

    /// What a change makes of the rows, which later ones find.
    pub(super) fn changed(
        &self,
        subject: &str,
        change: Change,
        changed: &mut Changed,
    ) -> Result<Vec<RowChange>, Refusal> {
        let present = Present { rows: &*self.rows, changed };
        // Changes read what clients sent: a defect there must not end the loop.
        let panicked = |_| {
            let text = format!("the change of {subject} failed through a defect of the server");
            Err(Error::new(ErrorCode::InternalFailure, text))
        };
        let rows = catch_unwind(AssertUnwindSafe(|| change(&present))).unwrap_or_else(panicked)?;
        changed.note(&rows);
        Ok(rows)
    }
}
