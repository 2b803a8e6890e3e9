//! Which trial components are in which trials: a link has the trial, the component and the trial's
//! experiment at its ends.

use serde_json::{Value, json};
use shoal_store::RowChange;
use shoal_wire::{Call, Error, ErrorCode, Reply};

use super::{
    Registry,
    kinds::{TRIAL, TRIAL_COMPONENT, TRIAL_LINK},
    links::{link, name},
    of_kind,
    registry::Target,
};
use crate::{api::listing::members, core::Present};

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
            if present.row(TRIAL_COMPONENT, &key)?.is_none() {
                changes.push(RowChange::Put(Box::new(implied.ok_or(missing)?)));
            }
            let trial = present.row(TRIAL, &trial_key)?.ok_or(no_trial)?;
            let link = link(&key, &trial)?;
            if present.row(TRIAL_LINK, &link.name)?.is_some() {
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
            ErrorCode::ResourceNotFound,
            format!("Trial Component '{}' is not associated with Trial '{}'.", component.name, trial.name),
        );
        let change = move |present: &Present<'_>| {
            let link = name(&key, &trial_key);
            if present.row(TRIAL_LINK, &link)?.is_some() {
                return Ok(vec![RowChange::Delete(TRIAL_LINK, link)]);
            }
            present.row(TRIAL_COMPONENT, &key)?.ok_or(missing)?;
            present.row(TRIAL, &trial_key)?.ok_or(no_trial)?;
            Err(absent)
        };
        self.change(&component, change).await?;
        Ok(reply)
    }

    /// The component and the trial that a request names.
    fn ends(&self, call: &Call) -> Result<(Target, Target), Error> {
        let input = members(call)?;
        let text = |member: &str| input.get(member).and_then(Value::as_str).unwrap_or_default();
        let component = self.named(of_kind(TRIAL_COMPONENT), text("TrialComponentName"));
        Ok((component, self.named(of_kind(TRIAL), text("TrialName"))))
    }
}

fn reply(component: &Target, trial: &Target) -> Reply {
    Reply::of(json!({"TrialComponentArn": component.arn, "TrialArn": trial.arn}))
}
