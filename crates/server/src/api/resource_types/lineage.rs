//! Associations of lineage: directed edges between artifacts, actions, contexts, trial components
//! and experiments.

use serde_json::{Value, json};
use shoal_store::{Key, KeyTest, ResourceKind, ResourceRow, ResourceSort, RowChange};
use shoal_wire::{Call, Error, ErrorCode, Reply, arn, timestamp};

use super::{
    Members, Registry, created_by,
    kinds::{ACTION, ARTIFACT, ASSOCIATION, CONTEXT, EXPERIMENT, TRIAL_COMPONENT},
    listed::NEWEST_FIRST,
    of_kind,
    registry::Target,
    request,
};
use crate::{
    api::listing::{Listing, members},
    clock::now_ms,
    core::Present,
    internal::internal,
};

/// What can be associated.
const ENTITIES: [ResourceKind; 5] = [ACTION, ARTIFACT, CONTEXT, EXPERIMENT, TRIAL_COMPONENT];

/// Types of associations; one may have none.
const TYPES: [&str; 6] = ["", "ContributedTo", "AssociatedWith", "DerivedFrom", "Produced", "SameAs"];

fn name(source: &str, destination: &str, of_type: &str) -> String {
    format!("{source} {destination} {of_type}")
}

/// What an entity is called and of which type it is, from its row.
pub(super) struct Entity {
    pub(super) name: Option<String>,
    pub(super) of_type: String,
    /// `LineageType` of a vertex; experiments have none.
    pub(super) lineage_type: Option<&'static str>,
    pub(super) properties: Members,
}

impl Entity {
    pub(super) fn of(row: &ResourceRow) -> Result<Self, Error> {
        let own = request(row)?;
        let text = |member: &str| own.get(member).and_then(Value::as_str).map(str::to_owned);
        let source_type = || own.get("Source").and_then(|it| it["SourceType"].as_str()).map(str::to_owned);
        let (name, of_type, lineage_type) = match row.kind {
            ARTIFACT => (text("ArtifactName"), text("ArtifactType"), Some("Artifact")),
            ACTION => (text("ActionName"), text("ActionType"), Some("Action")),
            CONTEXT => (text("ContextName"), text("ContextType"), Some("Context")),
            EXPERIMENT => (text("ExperimentName"), Some("Experiment".to_owned()), None),
            _ => (text("TrialComponentName"), source_type(), Some("TrialComponent")),
        };
        let properties = own.get("Properties").and_then(Value::as_object).cloned().unwrap_or_default();
        Ok(Self { name, of_type: of_type.unwrap_or_else(|| "TrialComponent".to_owned()), lineage_type, properties })
    }
}

impl Registry {
    /// The entity that an ARN names.
    pub(super) fn entity(&self, given: &str) -> Result<Target, Error> {
        let kind = arn::resource(given).map_or("", |it| it.kind);
        match ENTITIES.into_iter().find(|of| of.name() == kind) {
            Some(of) => Ok(self.named(of_kind(of), given)),
            None => Err(Error::validation(format!("'{given}' is not the ARN of an entity of lineage."))),
        }
    }

    /// `AddAssociation`.
    ///
    /// # Errors
    /// One of the two does not exist, or they are associated so already.
    pub(crate) async fn add_association(&self, call: Call, creator: Option<String>) -> Result<Reply, Error> {
        let input = members(&call)?;
        let (source, destination) = self.association(input)?;
        let of_type = input.get("AssociationType").and_then(Value::as_str).unwrap_or_default().to_owned();
        let reply = reply(&source, &destination);
        let implied = [self.implied(&source).await?, self.implied(&destination).await?];
        let subject = self.named(source.of, &source.arn);
        let change = move |present: &Present<'_>| {
            let mut changes = Vec::new();
            let mut ends = Vec::with_capacity(2);
            for (end, implied) in [&source, &destination].into_iter().zip(implied) {
                let row = match present.row(end.of.kind, &end.key())? {
                    Some(row) => row,
                    None => {
                        let row = implied.ok_or_else(|| end.missing())?;
                        changes.push(RowChange::Put(Box::new(row.clone())));
                        row
                    }
                };
                ends.push(Entity::of(&row)?);
            }
            let link = link((&source, &ends[0]), (&destination, &ends[1]), &of_type)?;
            let link = ResourceRow { creator, ..link };
            if present.row(ASSOCIATION, &link.name)?.is_some() {
                return Err(Error::validation(format!(
                    "The association of {} with {} already exists.",
                    source.arn, destination.arn
                )));
            }
            changes.push(RowChange::Put(Box::new(link)));
            Ok(changes)
        };
        self.change(&subject, change).await?;
        Ok(reply)
    }

    /// `DeleteAssociation`: of whatever type.
    ///
    /// # Errors
    /// They are not associated.
    pub(crate) async fn delete_association(&self, call: Call) -> Result<Reply, Error> {
        let (source, destination) = self.association(members(&call)?)?;
        let reply = reply(&source, &destination);
        let subject = self.named(source.of, &source.arn);
        let change = move |present: &Present<'_>| {
            let mut changes = Vec::new();
            for of_type in TYPES {
                let name = name(&source.arn, &destination.arn, of_type);
                if present.row(ASSOCIATION, &name)?.is_some() {
                    changes.push(RowChange::Delete(ASSOCIATION, name));
                }
            }
            match changes.is_empty() {
                false => Ok(changes),
                true => Err(Error::new(
                    ErrorCode::ResourceNotFound,
                    format!("There is no association of {} with {}.", source.arn, destination.arn),
                )),
            }
        };
        self.change(&subject, change).await?;
        Ok(reply)
    }

    /// `ListAssociations`.
    ///
    /// # Errors
    /// The token is not one of this list.
    pub(crate) async fn list_associations(&self, call: Call) -> Result<Reply, Error> {
        let input = members(&call)?;
        let text = |member: &str| input.get(member).and_then(Value::as_str).map(str::to_owned);
        let further = ["SourceArn", "DestinationArn", "SourceType", "DestinationType", "AssociationType", "SortBy"];
        let mut listing = Listing::read(ASSOCIATION, NEWEST_FIRST, input, &further)?;
        let filter = &mut listing.filter;
        filter.parent = text("SourceArn").map(|arn| arn.to_lowercase());
        filter.status = text("SourceType");
        let key = |text: Option<String>| text.map(|text| KeyTest::Is(Key::Text(text)));
        filter.keys = [key(text("DestinationArn").map(|arn| arn.to_lowercase())), key(text("DestinationType"))];
        // ARNs have no spaces.
        filter.name_contains = text("AssociationType").map(|of_type| format!(" {of_type}"));
        filter.sort = match text("SortBy").as_deref() {
            Some("SourceArn") => ResourceSort::Name,
            Some("DestinationArn") => ResourceSort::FirstKey,
            Some("SourceType") => ResourceSort::Status,
            Some("DestinationType") => ResourceSort::SecondKey,
            _ => ResourceSort::CreationTime,
        };
        let summary = |row: ResourceRow| {
            let mut shown = request(&row)?;
            shown.insert("CreationTime".to_owned(), timestamp::seconds(row.created_ms));
            shown.insert("CreatedBy".to_owned(), created_by(&row));
            Ok(Value::Object(shown))
        };
        let summaries = move |rows: Vec<_>| rows.into_iter().map(summary).collect();
        let (items, next): (Vec<_>, _) = listing.page(self.rows.clone(), summaries).await?;
        Ok(Reply::page("AssociationSummaries", items.into_iter(), "NextToken", next.as_deref()))
    }

    /// The entities that a request names.
    fn association(&self, input: &Members) -> Result<(Target, Target), Error> {
        let end = |member: &str| self.entity(input.get(member).and_then(Value::as_str).unwrap_or_default());
        Ok((end("SourceArn")?, end("DestinationArn")?))
    }
}

/// The row of an association; its request is its summary.
fn link(source: (&Target, &Entity), destination: (&Target, &Entity), of_type: &str) -> Result<ResourceRow, Error> {
    let mut summary = Members::new();
    let mut put = |member: &str, value: Option<&str>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            summary.insert(member.to_owned(), json!(value));
        }
    };
    put("SourceArn", Some(&source.0.arn));
    put("DestinationArn", Some(&destination.0.arn));
    put("SourceType", Some(&source.1.of_type));
    put("DestinationType", Some(&destination.1.of_type));
    put("AssociationType", Some(of_type));
    put("SourceName", source.1.name.as_deref());
    put("DestinationName", destination.1.name.as_deref());
    let now = now_ms();
    Ok(ResourceRow {
        created_ms: now,
        modified_ms: now,
        status: source.1.of_type.clone(),
        parent: Some(source.0.arn.clone()),
        keys: [Some(destination.0.arn.as_str().into()), Some(destination.1.of_type.as_str().into())],
        request: serde_json::to_vec(&summary).map_err(|error| internal(&error))?,
        ..ResourceRow::new(ASSOCIATION, &name(&source.0.arn, &destination.0.arn, of_type))
    })
}

fn reply(source: &Target, destination: &Target) -> Reply {
    Reply::of(json!({"SourceArn": source.arn, "DestinationArn": destination.arn}))
}
