//! Tags of training and tuning jobs, named by ARN.

use shoal_store::ResourceKind;
use shoal_wire::{
    Error, Reply, Tag,
    arn::{self, Resource},
    tags,
};

use super::{Api, blocking, training::refused};
use crate::{admission::internal, core::RowFate};

/// What has tags, by name.
enum Tagged {
    Job(String),
    Tuning(String),
}

impl Api {
    pub(super) async fn add_tags(&self, resource_arn: &str, added: Vec<Tag>) -> Result<Reply, Error> {
        let tagged = self.tagged(resource_arn).await?;
        let changed = move |present: &mut Vec<Tag>| tags::add(present, added);
        Ok(Reply::AddTags { tags: self.change_tags(&tagged, changed).await? })
    }

    pub(super) async fn list_tags(&self, resource_arn: &str, next_token: Option<&str>) -> Result<Reply, Error> {
        let tagged = self.tagged(resource_arn).await?;
        // A page holds 50 tags at least, and a resource has 50 at most: no token was ever given out.
        if next_token.is_some() {
            return Err(Error::validation("Invalid pagination token (nextToken): all tags of a resource come on one page; leave it out."));
        }
        let tags = match &tagged {
            Tagged::Job(name) => self.row(name).await?.tags,
            Tagged::Tuning(name) => self.tuning_row(name).await?.tags,
        };
        Ok(Reply::ListTags { tags: tags::from_json(&tags).map_err(|error| internal(&error))? })
    }

    pub(super) async fn delete_tags(&self, resource_arn: &str, keys: Vec<String>) -> Result<Reply, Error> {
        let tagged = self.tagged(resource_arn).await?;
        let changed = move |present: &mut Vec<Tag>| {
            present.retain(|tag| !keys.contains(&tag.key));
            Ok(())
        };
        self.change_tags(&tagged, changed).await?;
        Ok(Reply::DeleteTags)
    }

    /// Changes tags, and gives them as they are then.
    async fn change_tags(
        &self,
        tagged: &Tagged,
        change: impl FnOnce(&mut Vec<Tag>) -> Result<(), Error> + Send + 'static,
    ) -> Result<Vec<Tag>, Error> {
        let (send, receive) = tokio::sync::oneshot::channel();
        let changed = move |tags: &mut Vec<u8>| {
            let mut present = tags::from_json(tags).map_err(|error| internal(&error))?;
            change(&mut present)?;
            *tags = tags::to_json(&present).to_string().into_bytes();
            let _ = send.send(present);
            Ok(RowFate::Keep)
        };
        let core = &self.world.core;
        let edited = match tagged {
            Tagged::Job(name) => core.edit(name, move |row: &mut shoal_store::ResourceRow| changed(&mut row.tags)).await,
            Tagged::Tuning(name) => core.edit_tuning(name, move |row: &mut shoal_store::ResourceRow| changed(&mut row.tags)).await,
        };
        edited.map_err(|refusal| refused(&refusal))?;
        receive.await.map_err(|error| internal(&error))
    }

    /// The training job of this name, or else those whose names differ from it in case only.
    pub(super) async fn jobs_named(&self, name: &str) -> Result<Vec<String>, Error> {
        let (world, wanted) = (self.world.clone(), name.to_owned());
        blocking(move || {
            let exact = world.rows.resource(ResourceKind::TRAINING_JOB, &wanted).map_err(|error| internal(&error))?;
            match exact {
                Some(row) => Ok(vec![row.name]),
                None => world.rows.names(ResourceKind::TRAINING_JOB, &wanted).map_err(|error| internal(&error)),
            }
        })
        .await
    }

    /// The tuning job of this name, or else those whose names differ from it in case only.
    async fn tunings_named(&self, name: &str) -> Result<Vec<String>, Error> {
        let (world, wanted) = (self.world.clone(), name.to_owned());
        blocking(move || match world.rows.resource(ResourceKind::TUNING_JOB, &wanted).map_err(|error| internal(&error))? {
            Some(row) => Ok(vec![row.name]),
            None => world.rows.names(ResourceKind::TUNING_JOB, &wanted).map_err(|error| internal(&error)),
        })
        .await
    }

    /// The name of the training job that an ARN names.
    pub(super) async fn job_of(&self, resource_arn: &str) -> Result<String, Error> {
        match self.tagged(resource_arn).await? {
            Tagged::Job(name) => Ok(name),
            Tagged::Tuning(_) => Err(Error::validation(format!("'{resource_arn}' is a tuning job's ARN; give a training job's."))),
        }
    }

    /// The job that an ARN names. AWS's ARNs are in lower case, names are not.
    async fn tagged(&self, resource_arn: &str) -> Result<Tagged, Error> {
        let refuse = |what: String| Err(Error::validation(format!("Invalid value at 'resourceArn': {what}.")));
        let Some(Resource { region, account, kind, name }) = arn::resource(resource_arn) else {
            return refuse(format!("'{resource_arn}' is not the ARN of a resource of SageMaker"));
        };
        if (region, account) != (self.identity.region.as_str(), self.identity.account.as_str()) {
            return refuse(format!(
                "'{resource_arn}' is of region {region} and account {account}; this server is {} and {}",
                self.identity.region, self.identity.account
            ));
        }
        let (found, of): (_, fn(String) -> Tagged) = match kind {
            "training-job" => (self.jobs_named(name).await?, Tagged::Job),
            "hyper-parameter-tuning-job" => (self.tunings_named(name).await?, Tagged::Tuning),
            _ => {
                return Err(Error::validation(format!(
                    "Requested resource not found. Shoal has training jobs and tuning jobs, and no {kind} ({resource_arn})."
                )));
            }
        };
        match found.as_slice() {
            [] => Err(Error::validation("Requested resource not found.")),
            [name] => Ok(of(name.clone())),
            several => {
                refuse(format!("'{resource_arn}' is the ARN of {}; write the name in the ARN as the job's is", several.join(" and ")))
            }
        }
    }
}
