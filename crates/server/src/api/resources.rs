//! What calls for resources of every kind have in common: a row by name, a Describe that is held, a page of a list.

use shoal_store::{Cursor, ResourceFilter, ResourceKind, ResourceRow};
use shoal_wire::{Error, SortOrder};
use tokio::time::Instant;

use super::{Api, Caller, blocking, token};
use crate::{
    admission::{self, internal},
    effects::World,
};

impl Api {
    /// The row of this kind and name.
    pub(super) async fn resource(&self, kind: ResourceKind, name: &str) -> Result<ResourceRow, Error> {
        let (world, name) = (self.world.clone(), name.to_owned());
        blocking(move || found(&world, kind, &name)?.ok_or_else(|| missing(kind, &name))).await
    }

    /// The same, at the latest state that this caller may wait for (see [`super::hold`]).
    pub(super) async fn held(&self, kind: ResourceKind, name: &str, caller: &Caller) -> Result<ResourceRow, Error> {
        let mut version = self.world.core.version();
        let mut row = self.resource(kind, name).await?;
        let until = Instant::now() + self.holds.wait(name, row.created_ms, &caller.user_agent);
        while !row.ended && Instant::now() < until {
            match tokio::time::timeout_at(until, version.changed()).await {
                Ok(Ok(())) => row = self.resource(kind, name).await?,
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Ok(row)
    }

    /// The resource of this name, or else those whose names differ from it in case only.
    pub(super) async fn named(&self, kind: ResourceKind, name: &str) -> Result<Vec<String>, Error> {
        let (world, wanted) = (self.world.clone(), name.to_owned());
        blocking(move || match found(&world, kind, &wanted)? {
            Some(row) => Ok(vec![row.name]),
            None => world.rows.names(kind, &wanted).map_err(|error| internal(&error)),
        })
        .await
    }

    /// A page of a list and the token of the next one. `question` is any text that distinguishes this list, without its page, from others.
    pub(super) async fn list<T: Send + 'static>(
        &self,
        filter: ResourceFilter,
        question: &str,
        given: Option<&str>,
        summary: impl Fn(&World, ResourceRow) -> Result<T, Error> + Send + 'static,
    ) -> Result<(Vec<T>, Option<String>), Error> {
        let filter = ResourceFilter { after: place(question, given)?, ..filter };
        let world = self.world.clone();
        let (summaries, next) = blocking(move || {
            let page = world.rows.list(&filter).map_err(|error| internal(&error))?;
            let summaries = page.rows.into_iter().map(|row| summary(&world, row)).collect::<Result<_, _>>()?;
            Ok((summaries, page.next))
        })
        .await?;
        Ok((summaries, next.map(|cursor| token::seal(question, &cursor.to_string()))))
    }
}

pub(super) fn stored_order(order: SortOrder) -> shoal_store::SortOrder {
    match order {
        SortOrder::Ascending => shoal_store::SortOrder::Ascending,
        SortOrder::Descending => shoal_store::SortOrder::Descending,
    }
}

/// Position of a page token.
pub(super) fn place(question: &str, given: Option<&str>) -> Result<Option<Cursor>, Error> {
    given.map(|given| token::open(question, given)?.parse::<Cursor>().map_err(|error| internal(&error))).transpose()
}

/// The row of this kind and name, if there is one.
pub(super) fn found(world: &World, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, Error> {
    world.rows.resource(kind, name).map_err(|error| internal(&error))
}

/// AWS's answer for a name that the kind does not have.
pub(super) fn missing(kind: ResourceKind, name: &str) -> Error {
    match kind {
        ResourceKind::TUNING_JOB => admission::no_tuning_job(name),
        _ => Error::validation("Requested resource not found."),
    }
}
