//! Lists of plain resources: the members that all lists have are `listing`'s, the filters of a type
//! are in its declaration.

use serde_json::Value;
use shoal_store::{Key, KeyTest, Linked, ResourceRow, ResourceSort, SortOrder};
use shoal_wire::{Error, Operation, Reply};

use super::{
    Filter, Lookup, Members, ResourceType, Selects,
    kinds::TRIAL_LINK,
    of_kind,
    registry::{Registry, description},
};
use crate::{
    api::{
        blocking,
        listing::{DefaultOrder, Listing},
    },
    internal::internal,
};

/// Descending, whatever the order is by.
pub(super) const NEWEST_FIRST: DefaultOrder = DefaultOrder {
    sort: ResourceSort::CreationTime,
    order: SortOrder::Descending,
    order_of_sort: SortOrder::Descending,
};

impl Registry {
    pub(super) async fn list(
        &self,
        of: &'static ResourceType,
        operation: &Operation,
        input: &Members,
    ) -> Result<Reply, Error> {
        let (list, summary) =
            operation.output_list().ok_or_else(|| Error::validation("The operation lists nothing."))?;
        let given: Vec<_> = of.filters.iter().filter_map(|it| Some((it, input.get(it.member)?.as_str()?))).collect();
        if of.one_filter
            && let [(one, _), (other, _), ..] = given.as_slice()
        {
            return Err(Error::validation(format!(
                "{} and {} are alternatives: give one of them.",
                one.member, other.member
            )));
        }
        let further: Vec<_> = of.filters.iter().map(|filter| filter.member).collect();
        let mut listing = Listing::read(of.kind, NEWEST_FIRST, input, &further)?;
        for (filter, text) in &given {
            self.select(filter, text, &mut listing).await?;
        }
        let is_first = listing.filter.after.is_none();
        let telemetry = self.telemetry.clone();
        let rows = self.rows.clone();
        let summaries = move |page: Vec<ResourceRow>| -> Result<Vec<Value>, Error> {
            let lookup = Lookup { rows: &*rows, telemetry: &telemetry };
            let summary = |row: &ResourceRow| {
                let mut shown = description(of, lookup, row)?;
                shown.retain(|member, _| summary.contains(&member.as_str()));
                Ok(Value::Object(shown))
            };
            page.iter().map(summary).collect()
        };
        let (mut items, next): (Vec<_>, _) = listing.page(self.rows.clone(), summaries.clone()).await?;
        if items.is_empty()
            && is_first
            && let [(Filter { selects: Selects::Key { .. }, .. }, name)] = given.as_slice()
        {
            // Nothing was stored for it: what it implies by itself.
            let name = (*name).to_owned();
            let implied = self.reading(move |lookup| (of.implied)(lookup, &name)).await?;
            items = blocking(move || summaries(implied.into_iter().collect())).await?;
        }
        Ok(Reply::page(list, items.into_iter(), "NextToken", next.as_deref()))
    }

    /// Restricts a list by a filter of its type.
    async fn select(&self, filter: &Filter, text: &str, listing: &mut Listing) -> Result<(), Error> {
        match filter.selects {
            Selects::Key { at, lower } => {
                let key = if lower { text.to_lowercase() } else { text.to_owned() };
                listing.filter.keys[at] = Some(KeyTest::Is(Key::Text(key)));
            }
            Selects::Owned(of) => {
                listing.filter.parent = Some(self.existing(of_kind(of), text).await?);
            }
            Selects::Linked { of, by, names } => {
                let is = self.existing(of_kind(of), text).await?;
                listing.filter.linked = Some(Linked { links: TRIAL_LINK, by, is, names });
            }
        }
        Ok(())
    }

    /// The row's name of a resource that is there.
    async fn existing(&self, of: &'static ResourceType, name: &str) -> Result<String, Error> {
        let target = self.named(of, name);
        let key = target.key();
        let name = key.clone();
        let found = move |lookup: Lookup<'_>| match lookup.rows.resource(of.kind, &name) {
            Ok(Some(_)) => Ok(true),
            Ok(None) => Ok((of.implied)(lookup, &name)?.is_some()),
            Err(error) => Err(internal(&error)),
        };
        if self.reading(found).await? { Ok(key) } else { Err(target.missing()) }
    }
}
