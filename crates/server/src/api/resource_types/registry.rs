//! What the operations on plain resources do: the same for each type.

use std::sync::Arc;

use serde_json::{Map, Value};
use shoal_store::{ResourceRow, ResourceSort, Rows, SortOrder};
use shoal_wire::{Call, Error, Operation, Reply, arn, tags, timestamp};

use super::{ResourceType, Verb};
use crate::{
    admission::internal,
    api::{
        Identity, blocking,
        listing::{DefaultOrder, Listing},
        training::refused,
    },
    clock::now_ms,
    core::Core,
    hex::random_hex,
};

/// Descending, whatever the order is by.
const NEWEST_FIRST: DefaultOrder = DefaultOrder {
    sort: ResourceSort::CreationTime,
    order: SortOrder::Descending,
    order_of_sort: SortOrder::Descending,
};

/// The plain resources of all types.
pub(crate) struct Registry {
    pub(super) core: Core,
    pub(super) rows: Arc<dyn Rows>,
    pub(super) identity: Identity,
}

/// The members of a validated input.
type Members = Map<String, Value>;

impl Registry {
    pub(crate) fn new(core: Core, rows: Arc<dyn Rows>, identity: Identity) -> Self {
        Self { core, rows, identity }
    }

    /// Answers a call of an operation on a type.
    ///
    /// # Errors
    /// As at AWS.
    pub(crate) async fn answer(&self, of: &'static ResourceType, verb: Verb, call: Call) -> Result<Reply, Error> {
        let Value::Object(input) = call.input else { return Err(Error::validation("The request is not an object.")) };
        let name = input.get(&of.name_member()).and_then(Value::as_str).unwrap_or_default().to_owned();
        let target = Target {
            arn: arn::sagemaker(&self.identity.region, &self.identity.account, of.kind.name(), &name),
            name,
            of,
        };
        match verb {
            Verb::List => return self.list(of, call.operation, &input).await,
            Verb::Describe => return self.describe(target, call.operation).await,
            Verb::Create => self.create(&target, input).await?,
            Verb::Update => self.update(&target, input).await?,
            Verb::Delete => self.edit(&target, |_| Ok(None)).await?,
        }
        Ok(arn_reply(&target, call.operation))
    }

    async fn create(&self, target: &Target, mut request: Members) -> Result<(), Error> {
        (target.of.check)(&request)?;
        let tags = request.shift_remove("Tags").unwrap_or_default();
        let tags = tags::check(tags::from_json(tags.to_string().as_bytes()).map_err(|error| internal(&error))?)?;
        let now = now_ms();
        let row = ResourceRow {
            uid: random_hex(6).map_err(|error| internal(&error))?,
            arn: target.arn.clone(),
            created_ms: now,
            modified_ms: now,
            request: serde_json::to_vec(&request).map_err(|error| internal(&error))?,
            tags: tags::to_json(&tags).to_string().into_bytes(),
            ..ResourceRow::new(target.of.kind, &target.key())
        };
        let duplicate = target.of.duplicate.of(&target.name, &target.arn);
        let edit = move |present: Option<ResourceRow>| if present.is_some() { Err(duplicate) } else { Ok(Some(row)) };
        self.core.edit(target.of.kind, &target.key(), edit).await.map_err(|refusal| refused(&refusal))
    }

    /// Replaces the members that the update has.
    async fn update(&self, target: &Target, update: Members) -> Result<(), Error> {
        let name_member = target.of.name_member();
        let edit = move |mut row: ResourceRow| {
            let mut request = request(&row)?;
            request.extend(update.into_iter().filter(|(member, _)| *member != name_member));
            row.request = serde_json::to_vec(&request).map_err(|error| internal(&error))?;
            row.modified_ms = now_ms();
            Ok(Some(row))
        };
        self.edit(target, edit).await
    }

    /// Changes a row that exists.
    async fn edit(
        &self,
        target: &Target,
        edit: impl FnOnce(ResourceRow) -> Result<Option<ResourceRow>, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let missing = target.missing();
        let edit = move |present: Option<ResourceRow>| edit(present.ok_or(missing)?);
        self.core.edit(target.of.kind, &target.key(), edit).await.map_err(|refusal| refused(&refusal))
    }

    async fn describe(&self, target: Target, operation: &Operation) -> Result<Reply, Error> {
        let (rows, of, key) = (self.rows.clone(), target.of, target.key());
        let found = blocking(move || rows.resource(of.kind, &key).map_err(|error| internal(&error))).await?;
        let mut shown = description(of, &found.ok_or_else(|| target.missing())?)?;
        shown.retain(|member, _| operation.output_member(member).is_some());
        Ok(Reply::of(Value::Object(shown)))
    }

    async fn list(&self, of: &'static ResourceType, operation: &Operation, input: &Members) -> Result<Reply, Error> {
        let (list, summary) =
            operation.output_list().ok_or_else(|| Error::validation("The operation lists nothing."))?;
        let summary = move |row: ResourceRow| -> Result<Value, Error> {
            let mut shown = description(of, &row)?;
            shown.retain(|member, _| summary.contains(&member.as_str()));
            Ok(Value::Object(shown))
        };
        let summaries = move |rows: Vec<_>| rows.into_iter().map(summary).collect();
        let listing = Listing::read(of.kind, NEWEST_FIRST, input, &[])?;
        let (items, next): (Vec<_>, _) = listing.page(self.rows.clone(), summaries).await?;
        Ok(Reply::page(list, items.into_iter(), "NextToken", next.as_deref()))
    }
}

/// The resource that a request names.
struct Target {
    of: &'static ResourceType,
    name: String,
    arn: String,
}

impl Target {
    fn key(&self) -> String {
        self.of.key(&self.name)
    }

    fn missing(&self) -> Error {
        self.of.missing.of(&self.name, &self.arn)
    }
}

/// The ARN, where the operation's output has it.
fn arn_reply(target: &Target, operation: &Operation) -> Reply {
    let member = target.of.arn_member();
    match operation.output_member(&member) {
        Some(_) => Reply::of(Value::Object(Members::from_iter([(member, Value::from(target.arn.as_str()))]))),
        None => Reply::done(),
    }
}

fn request(row: &ResourceRow) -> Result<Members, Error> {
    serde_json::from_slice(&row.request).map_err(|error| internal(&error))
}

/// All that is shown of a resource, in the members of its type's descriptions and summaries.
fn description(of: &ResourceType, row: &ResourceRow) -> Result<Members, Error> {
    let mut shown = request(row)?;
    shown.insert(of.arn_member(), Value::from(row.arn.as_str()));
    shown.insert("CreationTime".to_owned(), timestamp::seconds(row.created_ms));
    shown.insert("LastModifiedTime".to_owned(), timestamp::seconds(row.modified_ms));
    (of.describe)(&mut shown);
    Ok(shown)
}
