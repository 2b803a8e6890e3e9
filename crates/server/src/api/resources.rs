//! What calls for resources of every kind have in common: a row by name, a Describe that is held,
//! the position of a page.

use shoal_store::{Cursor, ResourceKind, ResourceRow, Rows};
use shoal_wire::Error;
use tokio::time::Instant;

use super::{Api, Caller, blocking, token};
use crate::{admission, internal::internal};

impl Api {
    /// The row of this kind and name.
    pub(super) async fn resource(&self, kind: ResourceKind, name: &str) -> Result<ResourceRow, Error> {
        let (rows, name) = (self.rows.clone(), name.to_owned());
        blocking(move || found(&*rows, kind, &name)?.ok_or_else(|| missing(kind, &name))).await
    }

    /// The same, at the latest state that this caller may wait for (see [`super::hold`]).
    pub(super) async fn held(&self, kind: ResourceKind, name: &str, caller: &Caller) -> Result<ResourceRow, Error> {
        let mut version = self.core.version();
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
        let (rows, wanted) = (self.rows.clone(), name.to_owned());
        blocking(move || match found(&*rows, kind, &wanted)? {
            Some(row) => Ok(vec![row.name]),
            None => rows.names(kind, &wanted).map_err(|error| internal(&error)),
        })
        .await
    }
}

/// Position of a page token.
pub(super) fn place(question: &str, given: Option<&str>) -> Result<Option<Cursor>, Error> {
    given.map(|given| token::open(question, given)?.parse::<Cursor>().map_err(|error| internal(&error))).transpose()
}

/// The row of this kind and name, if there is one.
pub(super) fn found(rows: &dyn Rows, kind: ResourceKind, name: &str) -> Result<Option<ResourceRow>, Error> {
    rows.resource(kind, name).map_err(|error| internal(&error))
}

/// AWS's answer for a name that the kind does not have.
pub(super) fn missing(kind: ResourceKind, name: &str) -> Error {
    match kind {
        ResourceKind::TUNING_JOB => admission::no_tuning_job(name),
        _ => Error::validation("Requested resource not found."),
    }
}
