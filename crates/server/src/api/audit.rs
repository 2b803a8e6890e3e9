//! CloudTrail over the audit log.

use shoal_wire::{Error, ErrorCode, LookupEvents, Reply};

use super::{Api, blocking, token};
use crate::{audit::Directory, internal::internal};

impl Api {
    /// `LookupEvents`: what was answered before this call is found.
    pub(super) async fn lookup_events(&self, request: LookupEvents) -> Result<Reply, Error> {
        let (audit, region) = (self.audit.clone(), self.identity.region.clone());
        let directory = Directory::new(self.data_dir.root());
        let question = token::question(&(&request.attribute, request.start_ms, request.end_ms))?;
        let before = match &request.next_token {
            None => None,
            Some(given) => {
                let invalid = || Error::new(ErrorCode::InvalidNextToken, "Give the NextToken of the page before.");
                let place = token::open(&question, given).map_err(|_| invalid())?;
                Some(place.parse().map_err(|_| invalid())?)
            }
        };
        blocking(move || {
            audit.flush();
            let found = directory.lookup(&request, before, &region).map_err(|error| internal(&error))?;
            let next = found.next.map(|number| token::seal(&question, &number.to_string()));
            Ok(Reply::lookup_events(&found.events, next.as_deref()))
        })
        .await
    }
}
