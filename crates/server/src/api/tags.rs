//! Tags of training jobs, named by ARN.

use shoal_wire::{
    Error, Reply, Tag,
    arn::{self, Resource},
    tags,
};

use super::{Api, blocking, training::refused};
use crate::{admission::internal, core::RowFate};

impl Api {
    pub(super) async fn add_tags(&self, resource_arn: &str, added: Vec<Tag>) -> Result<Reply, Error> {
        let job = self.job_of(resource_arn).await?;
        let changed = move |present: &mut Vec<Tag>| tags::add(present, added);
        Ok(Reply::AddTags { tags: self.change_tags(&job, changed).await? })
    }

    pub(super) async fn list_tags(&self, resource_arn: &str, next_token: Option<&str>) -> Result<Reply, Error> {
        let job = self.job_of(resource_arn).await?;
        // A page holds 50 tags at least, and a resource has 50 at most: no token was ever given out.
        if next_token.is_some() {
            return Err(Error::validation("Invalid pagination token (nextToken): all tags of a resource come on one page; leave it out."));
        }
        let row = self.row(&job).await?;
        Ok(Reply::ListTags { tags: tags::from_json(&row.tags).map_err(|error| internal(&error))? })
    }

    pub(super) async fn delete_tags(&self, resource_arn: &str, keys: Vec<String>) -> Result<Reply, Error> {
        let job = self.job_of(resource_arn).await?;
        let changed = move |present: &mut Vec<Tag>| {
            present.retain(|tag| !keys.contains(&tag.key));
            Ok(())
        };
        self.change_tags(&job, changed).await?;
        Ok(Reply::DeleteTags)
    }

    /// Changes a job's tags, and gives them as they are then.
    async fn change_tags(
        &self,
        job: &str,
        change: impl FnOnce(&mut Vec<Tag>) -> Result<(), Error> + Send + 'static,
    ) -> Result<Vec<Tag>, Error> {
        let (send, receive) = tokio::sync::oneshot::channel();
        let edit = move |row: &mut shoal_store::JobRow| {
            let mut present = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
            change(&mut present)?;
            row.tags = tags::to_json(&present).to_string().into_bytes();
            let _ = send.send(present);
            Ok(RowFate::Keep)
        };
        self.world.core.edit(job, edit).await.map_err(|refusal| refused(&refusal))?;
        receive.await.map_err(|error| internal(&error))
    }

    /// The training job of this name, or else those whose names differ from it in case only.
    pub(super) async fn jobs_named(&self, name: &str) -> Result<Vec<String>, Error> {
        let (world, wanted) = (self.world.clone(), name.to_owned());
        blocking(move || {
            let exact = world.rows.job(&wanted).map_err(|error| internal(&error))?;
            match exact {
                Some(row) => Ok(vec![row.name]),
                None => world.rows.names(&wanted).map_err(|error| internal(&error)),
            }
        })
        .await
    }

    /// The name of the training job that an ARN names. AWS's ARNs are in lower case, names are not.
    pub(super) async fn job_of(&self, resource_arn: &str) -> Result<String, Error> {
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
        if kind != "training-job" {
            return Err(Error::validation(format!(
                "Requested resource not found. Shoal has training jobs and no {kind} ({resource_arn})."
            )));
        }
        let found = self.jobs_named(name).await?;
        match found.as_slice() {
            [] => Err(Error::validation("Requested resource not found.")),
            [name] => Ok(name.clone()),
            several => {
                refuse(format!("'{resource_arn}' is the ARN of {}; write the name in the ARN as the job's is", several.join(" and ")))
            }
        }
    }
}
