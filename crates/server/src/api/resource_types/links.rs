//! Rows that link others: which trial components are in which trials, and what has links at an end.

use serde_json::json;
use shoal_store::{LinkEnd, ResourceFilter, ResourceKind, ResourceRow};
use shoal_wire::Error;

use super::{Lookup, kinds::TRIAL_LINK, request};
use crate::{clock::now_ms, internal::internal};

/// Most trials of a component that it is shown with, and components that a trial is.
pub(super) const MOST_SHOWN: usize = 1000;

/// The row of a link, from the row of the trial; its name shows the trial's and the experiment's
/// names as they were given.
pub(super) fn link(component: &str, trial: &ResourceRow) -> Result<ResourceRow, Error> {
    let shown = request(trial)?;
    let experiment = trial.parent.as_deref().unwrap_or_default();
    let names = json!({"TrialName": shown.get("TrialName"), "ExperimentName": shown.get("ExperimentName")});
    let now = now_ms();
    Ok(ResourceRow {
        created_ms: now,
        modified_ms: now,
        parent: Some(trial.name.clone()),
        keys: [Some(component.into()), Some(experiment.into())],
        creator: trial.creator.clone(),
        request: serde_json::to_vec(&names).map_err(|error| internal(&error))?,
        ..ResourceRow::new(TRIAL_LINK, &name(component, &trial.name))
    })
}

pub(super) fn name(component: &str, trial: &str) -> String {
    format!("{component}/{trial}")
}

/// The component and the trial of a link's name.
pub(crate) fn ends(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

/// Rows of links that have a name at one end.
pub(super) fn links(
    lookup: Lookup<'_>,
    kind: ResourceKind,
    end: LinkEnd,
    name: &str,
    limit: usize,
) -> Result<Vec<ResourceRow>, Error> {
    let mut filter = ResourceFilter { limit, ..ResourceFilter::new(kind) };
    end.select(&mut filter, name);
    Ok(lookup.rows.list(&filter).map_err(|error| internal(&error))?.rows)
}
