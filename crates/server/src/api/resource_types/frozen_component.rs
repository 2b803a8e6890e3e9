//! Trial components whose jobs are deleted.

use shoal_store::ResourceRow;
use shoal_wire::Error;

use super::{Lookup, job_component::component_of, kinds::TRIAL_COMPONENT, of_kind, registry::description};
use crate::{admission::internal, clock::now_ms};

/// What is left of a component whose job is deleted: as it was shown last.
///
/// # Errors
/// The storage's.
pub(crate) fn freeze(lookup: Lookup<'_>, job: &str) -> Result<Option<ResourceRow>, Error> {
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
