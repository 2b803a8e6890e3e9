//! Records of experiments and lineage that were changed last before the owner's `experiments_days`.
//! They are deleted as a client would: a trial component with its place in trials, an entity of
//! lineage with its associations, then trials and experiments that are empty. What is linked to
//! something later stays, and so does the component of a job that is still there.

use shoal_store::{Cursor, ResourceFilter, ResourceKind, ResourceRow, RowChange};
use shoal_wire::Error;

use super::{
    LINEAGE_HOLDERS, Lookup, Registry, ResourceType,
    kinds::{ACTION, ARTIFACT, ASSOCIATION, CONTEXT, EXPERIMENT, TRIAL, TRIAL_COMPONENT},
    links::links,
    of_kind,
};
use crate::internal::internal;

/// What others belong to comes after them.
const KINDS: [ResourceKind; 6] = [TRIAL_COMPONENT, ARTIFACT, ACTION, CONTEXT, TRIAL, EXPERIMENT];

/// Rows that are read at once.
const PAGE: usize = 500;
/// Links of one record; one with more stays.
const MOST_LINKS: usize = 100_000;

/// A record to delete, and what links it to others.
struct Old {
    row: ResourceRow,
    links: Vec<ResourceRow>,
}

/// A record that was deleted.
pub(crate) struct Deleted {
    /// As a client would have called it.
    pub(crate) operation: String,
    pub(crate) arn: String,
}

impl Registry {
    /// Deletes records, each of which is then in `deleted`. What cannot be deleted stays for the
    /// next pass.
    ///
    /// # Errors
    /// The storage's.
    pub(crate) async fn delete_before(&self, before_ms: u64, deleted: &mut Vec<Deleted>) -> Result<(), Error> {
        for of in KINDS.map(of_kind) {
            let mut after = None;
            loop {
                let (old, next) = self.reading(move |lookup| page(lookup, of, before_ms, after)).await?;
                for old in old {
                    let (operation, arn) = (format!("Delete{}", of.noun), old.row.arn.clone());
                    match self.delete_old(of, old).await {
                        Ok(()) => deleted.push(Deleted { operation, arn }),
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

    async fn delete_old(&self, of: &'static ResourceType, old: Old) -> Result<(), Error> {
        let target = self.named(of, &old.row.arn);
        if !old.links.is_empty() {
            let removed = old.links.into_iter().map(|link| RowChange::Delete(link.kind, link.name));
            let removed = Vec::from_iter(removed);
            self.change(&target, move |_| Ok(removed)).await?;
        }
        self.delete(&target).await
    }
}

/// A page's old records, and where the next page begins.
fn page(
    lookup: Lookup<'_>,
    of: &'static ResourceType,
    before_ms: u64,
    after: Option<Cursor>,
) -> Result<(Vec<Old>, Option<Cursor>), Error> {
    let filter =
        ResourceFilter { modified_before_ms: Some(before_ms), limit: PAGE, after, ..ResourceFilter::new(of.kind) };
    let page = lookup.rows.list(&filter).map_err(|error| internal(&error))?;
    let mut old = Vec::new();
    for row in page.rows {
        // The component of a job that is there.
        if of.kind == TRIAL_COMPONENT && row.parent.is_some() {
            continue;
        }
        if let Some(links) = removable_links(lookup, of, &row, before_ms)? {
            old.push(Old { row, links });
        }
    }
    Ok((old, page.next))
}

/// What links a record to others; none: it stays for one of them.
fn removable_links(
    lookup: Lookup<'_>,
    of: &ResourceType,
    row: &ResourceRow,
    before_ms: u64,
) -> Result<Option<Vec<ResourceRow>>, Error> {
    let mut removed = Vec::new();
    // A component may be an end of associations, which its deletion by a client leaves.
    let lineage: &[_] = if of.kind == TRIAL_COMPONENT { &LINEAGE_HOLDERS } else { &[] };
    for holder in of.held_by.iter().chain(lineage) {
        let name = if holder.by_arn { &row.arn } else { &row.name };
        let found = links(lookup, holder.kind, holder.end, name, MOST_LINKS)?;
        let is_link = holder.kind == ASSOCIATION || of.kind == TRIAL_COMPONENT;
        let is_old = found.iter().all(|link| link.modified_ms < before_ms) && found.len() < MOST_LINKS;
        if !(found.is_empty() || is_link && is_old) {
            return Ok(None);
        }
        removed.extend(found);
    }
    Ok(Some(removed))
}
