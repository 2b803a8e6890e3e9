//! Records of experiments and lineage that were changed last before the owner's `experiments_days`.
//! They are deleted as a client would: a trial component with its place in trials, an entity of
//! lineage with its associations, then trials and experiments that are empty. What was linked later
//! stays, and so does what is linked to a record that was changed later, or to the component of a
//! job that is there.

use shoal_store::{Cursor, LinkEnd, ResourceFilter, ResourceKind, ResourceRow, RowChange};
use shoal_wire::{Error, arn};
use tokio::sync::oneshot;

use super::{
    LINEAGE_HOLDERS, Lookup, Registry, ResourceType, component_series,
    kinds::{ACTION, ARTIFACT, ASSOCIATION, CONTEXT, EXPERIMENT, TRIAL, TRIAL_COMPONENT},
    of_kind,
};
use crate::{core::Present, internal::internal};

/// What others belong to comes after them.
const KINDS: [ResourceKind; 6] = [TRIAL_COMPONENT, ARTIFACT, ACTION, CONTEXT, TRIAL, EXPERIMENT];

/// Rows that are read at once.
const PAGE: usize = 500;
/// Links of one record; one with more stays.
const MOST_LINKS: usize = 10_000;

/// A record that was deleted.
pub(crate) struct Deleted {
    /// As a client would have called it.
    pub(crate) operation: String,
    pub(crate) arn: String,
}

impl Registry {
    /// Deletes records; `note` gets each at once. What cannot be deleted stays for the next pass.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) async fn delete_before(&self, before_ms: u64, note: &(dyn Fn(Deleted) + Sync)) -> Result<(), Error> {
        for of in KINDS.map(of_kind) {
            let mut after = None;
            loop {
                let (old, next) = self.reading(move |lookup| page(lookup, of, before_ms, after)).await?;
                for row in old {
                    let (operation, arn) = (format!("Delete{}", of.noun), row.arn.clone());
                    match self.delete_old(of, row, before_ms).await {
                        Ok(true) => note(Deleted { operation, arn }),
                        Ok(false) => {}
                        Err(error) => tracing::info!("{arn} is old and not deleted yet: {}", error.message),
                    }
                }
                match next {
                    None => break,
                    next => after = next,
                }
            }
        }
        Ok(())
    }

    /// Whether it was, with its links, as all of them are now.
    async fn delete_old(&self, of: &'static ResourceType, row: ResourceRow, before_ms: u64) -> Result<bool, Error> {
        let (send, receive) = oneshot::channel();
        let key = row.name.clone();
        let change = move |present: &Present<'_>| {
            let links = match present.row(of.kind, &key)? {
                Some(row) => removable_links(present, of, &row, before_ms)?,
                None => None,
            };
            let _ = send.send(links.is_some());
            Ok(links.map_or_else(Vec::new, |links| {
                let links = links.into_iter().map(|link| RowChange::Delete(link.kind, link.name));
                Vec::from_iter(links.chain([RowChange::Delete(of.kind, key)]))
            }))
        };
        self.change(&self.named(of, &row.arn), change).await?;
        let is_deleted = receive.await.unwrap_or(false);
        if is_deleted && of.kind == TRIAL_COMPONENT {
            let series = component_series(&row);
            let removed = move |lookup: Lookup<'_>| lookup.telemetry.delete_series(&series).map_err(|it| internal(&it));
            if let Err(error) = self.reading(removed).await {
                tracing::warn!("the metrics of {}, which is deleted, stay: {}", row.arn, error.message);
            }
        }
        Ok(is_deleted)
    }
}

/// A page's records that may be deleted, and where the next page begins.
fn page(
    lookup: Lookup<'_>,
    of: &'static ResourceType,
    before_ms: u64,
    after: Option<Cursor>,
) -> Result<(Vec<ResourceRow>, Option<Cursor>), Error> {
    let filter =
        ResourceFilter { modified_before_ms: Some(before_ms), limit: PAGE, after, ..ResourceFilter::new(of.kind) };
    let page = lookup.rows.list(&filter).map_err(|error| internal(&error))?;
    let mut old = Vec::new();
    for row in page.rows {
        if !has_metrics_since(lookup, &row, before_ms)? {
            old.push(row);
        }
    }
    Ok((old, page.next))
}

/// A run of the SDK may send metrics without a change of its component.
fn has_metrics_since(lookup: Lookup<'_>, row: &ResourceRow, before_ms: u64) -> Result<bool, Error> {
    if row.kind != TRIAL_COMPONENT {
        return Ok(false);
    }
    let series = lookup.telemetry.summaries(&component_series(row)).map_err(|error| internal(&error))?;
    Ok(series.iter().any(|series| series.last_ms >= before_ms))
}

/// What links a record to others; none: it stays.
fn removable_links(
    present: &Present<'_>,
    of: &ResourceType,
    row: &ResourceRow,
    before_ms: u64,
) -> Result<Option<Vec<ResourceRow>>, Error> {
    if is_recent(row, before_ms) {
        return Ok(None);
    }
    let mut removed = Vec::new();
    // These may be ends of associations, which their deletion by a client leaves.
    let lineage: &[_] = if matches!(of.kind, TRIAL_COMPONENT | EXPERIMENT) { &LINEAGE_HOLDERS } else { &[] };
    for holder in of.held_by.iter().chain(lineage) {
        let name = if holder.by_arn { &row.arn } else { &row.name };
        let found = present.links(holder.kind, holder.end, name, MOST_LINKS)?;
        let is_link = holder.kind == ASSOCIATION || of.kind == TRIAL_COMPONENT;
        if !found.is_empty() && (!is_link || found.len() >= MOST_LINKS) {
            return Ok(None);
        }
        for link in &found {
            let other = other_end(present, link, row)?;
            if link.modified_ms >= before_ms || other.is_some_and(|other| is_recent(&other, before_ms)) {
                return Ok(None);
            }
        }
        removed.extend(found);
    }
    Ok(Some(removed))
}

/// Changed since, or the component of a job that is there.
fn is_recent(row: &ResourceRow, before_ms: u64) -> bool {
    row.modified_ms >= before_ms || row.kind == TRIAL_COMPONENT && row.parent.is_some()
}

/// What a link has at the end that is not this record.
fn other_end(present: &Present<'_>, link: &ResourceRow, row: &ResourceRow) -> Result<Option<ResourceRow>, Error> {
    let (parent, key) = (LinkEnd::Parent.of(link).unwrap_or_default(), LinkEnd::FirstKey.of(link).unwrap_or_default());
    if link.kind != ASSOCIATION {
        return present.row(TRIAL, parent);
    }
    let Some(other) = arn::resource(if parent == row.arn { key } else { parent }) else { return Ok(None) };
    match KINDS.into_iter().find(|kind| kind.name() == other.kind) {
        Some(kind) => present.row(kind, &of_kind(kind).key(other.name)),
        None => Ok(None),
    }
}
