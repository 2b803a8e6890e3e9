//! Which trial components are in which trials: a link has the trial, the component and the trial's
//! experiment at its ends.

use serde_json::{Value, json};
use shoal_store::{ResourceKind, ResourceRow, RowChange};
use shoal_wire::{Call, Error, Reply};

use super::{Registry, request, trial::TRIAL, trial_component::TRIAL_COMPONENT};
use crate::{
    admission::internal,
    api::{listing::members, resource_types::registry::Target},
    clock::now_ms,
    core::Present,
};

/// Its parent is the trial, its keys are the component and the experiment.
pub(crate) const LINK: ResourceKind = ResourceKind::new("trial-association");

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
        request: serde_json::to_vec(&names).map_err(|error| internal(&error))?,
        ..ResourceRow::new(LINK, &name(component, &trial.name))
    })
}

fn name(component: &str, trial: &str) -> String {
    format!("{component}/{trial}")
}

/// The component and the trial of a link's name.
pub(crate) fn ends(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((name, ""))
}

impl Registry {
    /// `AssociateTrialComponent`.
    ///
    /// # Errors
    /// There is no such trial or component, or the association is there already.
    pub(crate) async fn associate(&self, call: Call) -> Result<Reply, Error> {
        let (component, trial) = self.ends(&call)?;
        let reply = reply(&component, &trial);
        let implied = self.implied(&component).await?;
        let (names, key) = ((component.name.clone(), trial.name.clone()), component.key());
        let (missing, no_trial, trial_key) = (component.missing(), trial.missing(), trial.key());
        let change = move |present: &Present<'_>| {
            let mut changes = Vec::new();
            if present.row(TRIAL_COMPONENT.kind, &key)?.is_none() {
                changes.push(RowChange::Put(Box::new(implied.ok_or(missing)?)));
            }
            let trial = present.row(TRIAL.kind, &trial_key)?.ok_or(no_trial)?;
            let link = link(&key, &trial)?;
            if present.row(LINK, &link.name)?.is_some() {
                return Err(Error::validation(format!(
                    "The association of Trial Component '{}' with Trial '{}' already exists.",
                    names.0, names.1
                )));
            }
            changes.push(RowChange::Put(Box::new(link)));
            Ok(changes)
        };
        self.change(&component, change).await?;
        Ok(reply)
    }

    /// `DisassociateTrialComponent`.
    ///
    /// # Errors
    /// They are not associated.
    pub(crate) async fn disassociate(&self, call: Call) -> Result<Reply, Error> {
        let (component, trial) = self.ends(&call)?;
        let reply = reply(&component, &trial);
        let (missing, no_trial) = (component.missing(), trial.missing());
        let (key, trial_key) = (component.key(), trial.key());
        let absent = Error::new(
            shoal_wire::ErrorCode::ResourceNotFound,
            format!("Trial Component '{}' is not associated with Trial '{}'.", component.name, trial.name),
        );
        let change = move |present: &Present<'_>| {
            let link = name(&key, &trial_key);
            if present.row(LINK, &link)?.is_some() {
                return Ok(vec![RowChange::Delete(LINK, link)]);
            }
            present.row(TRIAL_COMPONENT.kind, &key)?.ok_or(missing)?;
            present.row(TRIAL.kind, &trial_key)?.ok_or(no_trial)?;
            Err(absent)
        };
        self.change(&component, change).await?;
        Ok(reply)
    }

    /// The component and the trial that a request names.
    fn ends(&self, call: &Call) -> Result<(Target, Target), Error> {
        let input = members(call)?;
        let text = |member: &str| input.get(member).and_then(Value::as_str).unwrap_or_default();
        let component = self.named(&TRIAL_COMPONENT, text("TrialComponentName"));
        Ok((component, self.named(&TRIAL, text("TrialName"))))
    }
}

fn reply(component: &Target, trial: &Target) -> Reply {
    Reply::of(json!({"TrialComponentArn": component.arn, "TrialArn": trial.arn}))
}
