//! Tags of resources, named by ARN.

use shoal_store::{ResourceKind, ResourceRow};
use shoal_wire::{
    AddTags, DeleteTags, Error, ListTags, Reply, Tag,
    arn::{self, Resource},
    tags,
};

use super::{Api, refused, resource_types};
use crate::internal::internal;

/// Kinds that have tags in addition to plain resources.
const JOBS: [ResourceKind; 2] = [ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB];

impl Api {
    pub(super) async fn add_tags(&self, request: AddTags) -> Result<Reply, Error> {
        let changed = move |present: &mut Vec<Tag>| tags::add(present, request.tags);
        Ok(Reply::tags(&self.change_tags(&request.resource_arn, changed).await?))
    }

    pub(super) async fn list_tags(&self, request: ListTags) -> Result<Reply, Error> {
        let (kind, name) = self.tagged(&request.resource_arn).await?;
        // A page holds 50 tags at least, and a resource has 50 at most: no token was ever given
        // out.
        if request.next_token.is_some() {
            return Err(Error::validation(
                "Invalid pagination token (nextToken): all tags of a resource come on one page; leave it out.",
            ));
        }
        let row = self.resource(kind, &name).await?;
        Ok(Reply::tags(&tags::from_json(&row.tags).map_err(|error| internal(&error))?))
    }

    pub(super) async fn delete_tags(&self, request: DeleteTags) -> Result<Reply, Error> {
        let changed = move |present: &mut Vec<Tag>| {
            present.retain(|tag| !request.tag_keys.contains(&tag.key));
            Ok(())
        };
        self.change_tags(&request.resource_arn, changed).await?;
        Ok(Reply::done())
    }

    /// Changes tags and returns the result.
    async fn change_tags(
        &self,
        resource_arn: &str,
        change: impl FnOnce(&mut Vec<Tag>) -> Result<(), Error> + Send + 'static,
    ) -> Result<Vec<Tag>, Error> {
        let (kind, name) = self.tagged(resource_arn).await?;
        let (send, receive) = tokio::sync::oneshot::channel();
        let edit = move |row: Option<ResourceRow>| {
            let mut row = row.ok_or_else(not_found)?;
            let mut present = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
            change(&mut present)?;
            row.tags = tags::to_json(&present).to_string().into_bytes();
            let _ = send.send(present);
            Ok(Some(row))
        };
        self.core.edit(kind, &name, edit).await.map_err(|refusal| refused(&refusal))?;
        receive.await.map_err(|error| internal(&error))
    }

    /// The name of the training job that an ARN names.
    pub(super) async fn job_of(&self, resource_arn: &str) -> Result<String, Error> {
        match self.tagged(resource_arn).await? {
            (ResourceKind::TRAINING_JOB, name) => Ok(name),
            (kind, _) => Err(Error::validation(format!(
                "'{resource_arn}' is the ARN of a {}; give a training job's.",
                kind.name()
            ))),
        }
    }

    /// The resource that an ARN names. AWS's ARNs are in lower case, names are not.
    async fn tagged(&self, resource_arn: &str) -> Result<(ResourceKind, String), Error> {
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
        let Some(kind) = JOBS.into_iter().find(|known| known.name() == kind).or_else(|| resource_types::kind(kind))
        else {
            return Err(Error::validation(format!(
                "Requested resource not found. Shoal has no {kind} ({resource_arn})."
            )));
        };
        match self.named(kind, name).await?.as_slice() {
            [] => Err(not_found()),
            [name] => Ok((kind, name.clone())),
            several => refuse(format!(
                "'{resource_arn}' is the ARN of {}; write the name in the ARN as the resource's is",
                several.join(" and ")
            )),
        }
    }
}

fn not_found() -> Error {
    Error::validation("Requested resource not found.")
}
