//! Trial components whose jobs are deleted.

use shoal_store::ResourceRow;
use shoal_wire::Error;

use super::{Lookup, job_component::component_of, kinds::TRIAL_COMPONENT, of_kind, registry::description};
use crate::{
    api::{Api, blocking},
    clock::now_ms,
    core::refused,
    internal::internal,
};

impl Api {
    /// A trial component stays when its job is deleted, as it was shown last.
    pub(in crate::api) async fn keep_component(&self, job: &str) -> Result<(), Error> {
        let (records, job) = (self.records.clone(), job.to_owned());
        let lookup = move || freeze(Lookup { rows: &*records.rows, telemetry: &records.telemetry }, &job);
        let Some(row) = blocking(lookup).await? else { return Ok(()) };
        let (kind, name) = (row.kind, row.name.clone());
        // What was changed since stays as it is.
        let keep = move |present: Option<ResourceRow>| match present {
            Some(present) if present.modified_ms <= row.modified_ms => {
                Ok(Some(ResourceRow { tags: present.tags, ..row }))
            }
            other => Ok(other),
        };
        self.core.edit(kind, &name, keep).await.map_err(|refusal| refused(&refusal))
    }
}

/// What is left of a component whose job is deleted: as it was shown last.
///
/// # Errors
/// The storage's.
fn freeze(lookup: Lookup<'_>, job: &str) -> Result<Option<ResourceRow>, Error> {
    let name = component_of(job);
    let stored = lookup.rows.resource(TRIAL_COMPONENT, &name).map_err(|error| internal(&error))?;
    let Some(row) = stored.filter(|row| row.parent.as_deref() == Some(job)) else { return Ok(None) };
    let mut shown = description(of_kind(TRIAL_COMPONENT), lookup, &row)?;
    for member in [
        "TrialComponentArn",
        "CreationTime",
        "LastModifiedTime",
        "CreatedBy",
        "LastModifiedBy",
        "Sources",
        "TrialComponentSource",
    ] {
        shown.shift_remove(member);
    }
    let request = serde_json::to_vec(&shown).map_err(|error| internal(&error))?;
    Ok(Some(ResourceRow { parent: None, request, modified_ms: now_ms(), ..row }))
}
