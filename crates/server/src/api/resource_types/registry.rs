//! What the operations on plain resources do: the same for each type. Lists are in `listed`.

use std::sync::Arc;

use serde_json::{Map, Value};
use shoal_store::{ResourceRow, RowChange, Rows, Telemetry};
use shoal_wire::{Call, Error, Operation, Reply, arn, tags, timestamp};

use super::{
    Lookup, Members, NamedBy, ResourceType, TRIAL_COMPONENT, Verb, artifact, component_series, of_kind, request,
};
use crate::{
    api::Caller,
    clock::now_ms,
    core::refused,
    core::{Core, Present},
    hex::random_hex,
    identity::Identity,
    internal::blocking,
    internal::internal,
};

/// The plain resources of all types.
#[derive(Clone)]
pub(crate) struct Registry {
    pub(super) core: Core,
    pub(super) rows: Arc<dyn Rows>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) identity: Identity,
}

impl Registry {
    pub(crate) fn new(core: Core, rows: Arc<dyn Rows>, telemetry: Arc<Telemetry>, identity: Identity) -> Self {
        Self { core, rows, telemetry, identity }
    }

    /// The same with only the rows that this caller may see, for what lists.
    pub(crate) fn seen_by(&self, caller: &Caller) -> Self {
        Self { rows: caller.rows(&self.rows), ..self.clone() }
    }

    /// Answers a call of an operation on a type.
    ///
    /// # Errors
    /// As at AWS.
    pub(crate) async fn answer(
        &self,
        of: &'static ResourceType,
        verb: Verb,
        call: Call,
        caller: &Caller,
    ) -> Result<Reply, Error> {
        let Value::Object(input) = call.input else { return Err(Error::validation("The request is not an object.")) };
        if verb == Verb::List {
            return self.seen_by(caller).list(of, call.operation, &input).await;
        }
        let target = self.target(of, verb, &input)?;
        match verb {
            Verb::Describe => return self.describe(target, call.operation).await,
            Verb::Create => self.create(&target, input, caller.creator()).await?,
            Verb::Update => self.update(&target, input).await?,
            Verb::Delete => self.delete(&target).await?,
            Verb::List => {}
        }
        Ok(arn_reply(&target, call.operation))
    }

    /// The resource that a request names.
    fn target(&self, of: &'static ResourceType, verb: Verb, input: &Members) -> Result<Target, Error> {
        let text = |member: &str| input.get(member).and_then(Value::as_str);
        let name = match of.named_by {
            NamedBy::Name => text(&of.name_member()).unwrap_or_default().to_owned(),
            NamedBy::Source if verb == Verb::Create => artifact::name_of(&input["Source"]),
            NamedBy::Source => match (text(&of.arn_member()), input.get("Source")) {
                (Some(arn), _) => arn.to_owned(),
                (None, Some(source)) => artifact::name_of(source),
                (None, None) => {
                    return Err(Error::validation(format!("Give {} or Source.", of.arn_member())));
                }
            },
        };
        Ok(self.named(of, &name))
    }

    /// The resource of this name or ARN.
    pub(super) fn named(&self, of: &'static ResourceType, name: &str) -> Target {
        // An ARN of another kind names no resource of this one.
        let name = arn::resource(name).filter(|it| it.kind == of.kind.name()).map_or(name, |it| it.name).to_owned();
        let arn = arn::sagemaker(&self.identity.region, &self.identity.account, of.kind.name(), &name);
        Target { arn, name, of }
    }

    /// Runs what reads the rows and the telemetry.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        work: impl FnOnce(Lookup<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (rows, telemetry) = (self.rows.clone(), self.telemetry.clone());
        blocking(move || work(Lookup { rows: &*rows, telemetry: &telemetry })).await
    }

    /// Changes rows together.
    pub(super) async fn change(
        &self,
        subject: &Target,
        change: impl FnOnce(&Present<'_>) -> Result<Vec<RowChange>, Error> + Send + 'static,
    ) -> Result<(), Error> {
        let subject = format!("{} {}", subject.of.kind.name(), subject.name);
        self.core.edit_rows(subject, change).await.map_err(|refusal| refused(&refusal))
    }

    async fn create(&self, target: &Target, mut request: Members, creator: Option<String>) -> Result<(), Error> {
        let of = target.of;
        (of.check)(&request)?;
        let tags = request.shift_remove("Tags").unwrap_or_default();
        let tags = tags::check(tags::from_json(tags.to_string().as_bytes()).map_err(|error| internal(&error))?)?;
        let owner = of.belongs_to.as_ref().map(|owner| {
            let name = request.get(owner.member).and_then(Value::as_str).unwrap_or_default();
            self.named(of_kind(owner.of), name)
        });
        let now = now_ms();
        let row = ResourceRow {
            uid: random_hex(6).map_err(|error| internal(&error))?,
            arn: target.arn.clone(),
            created_ms: now,
            modified_ms: now,
            parent: owner.as_ref().map(Target::key),
            keys: of.keys_of(&request),
            request: serde_json::to_vec(&request).map_err(|error| internal(&error))?,
            tags: tags::to_json(&tags).to_string().into_bytes(),
            creator,
            ..ResourceRow::new(of.kind, &target.key())
        };
        let implied = self.implied(target).await?;
        self.begin_series(&row).await?;
        let duplicate = of.duplicate.of(&target.name, &target.arn);
        let create = move |present: &Present<'_>| {
            if implied.is_some() || present.row(of.kind, &row.name)?.is_some() {
                return Err(duplicate);
            }
            if let Some(owner) = owner
                && present.row(owner.of.kind, &owner.key())?.is_none()
            {
                return Err(owner.missing());
            }
            Ok(vec![RowChange::Put(Box::new(row))])
        };
        self.change(target, create).await
    }

    /// A new component has no metrics, whatever a deletion that a crash cut short has left.
    async fn begin_series(&self, row: &ResourceRow) -> Result<(), Error> {
        if row.kind != TRIAL_COMPONENT {
            return Ok(());
        }
        let (name, series) = (row.name.clone(), component_series(row));
        let is_left = move |lookup: Lookup<'_>| {
            let is_new = lookup.rows.resource(TRIAL_COMPONENT, &name).map_err(|error| internal(&error))?.is_none();
            if is_new {
                lookup.telemetry.delete_series(&series).map_err(|error| internal(&error))?;
            }
            Ok(())
        };
        self.reading(is_left).await
    }

    /// The row that a name has before anything was stored for it.
    pub(super) async fn implied(&self, target: &Target) -> Result<Option<ResourceRow>, Error> {
        let (of, key) = (target.of, target.key());
        self.reading(move |lookup| (of.implied)(lookup, &key)).await
    }

    /// Replaces the members that the update has, adds entries to maps and removes some.
    async fn update(&self, target: &Target, update: Members) -> Result<(), Error> {
        let (of, key, missing) = (target.of, target.key(), target.missing());
        (of.check)(&update)?;
        let implied = self.implied(target).await?;
        let change = move |present: &Present<'_>| {
            let mut row = present.row(of.kind, &key)?.or(implied).ok_or(missing)?;
            let mut request = request(&row)?;
            apply(of, &mut request, update, row.parent.is_some())?;
            row.request = serde_json::to_vec(&request).map_err(|error| internal(&error))?;
            // What is modified in the millisecond of its creation is shown as modified later.
            row.modified_ms = now_ms().max(row.modified_ms);
            Ok(vec![RowChange::Put(Box::new(row))])
        };
        self.change(target, change).await
    }

    async fn delete(&self, target: &Target) -> Result<(), Error> {
        let (of, name, arn, key, missing) =
            (target.of, target.name.clone(), target.arn.clone(), target.key(), target.missing());
        let (send, receive) = tokio::sync::oneshot::channel();
        let change = move |present: &Present<'_>| {
            let row = present.row(of.kind, &key)?.ok_or(missing)?;
            for holder in of.held_by {
                if present.has_link(holder.kind, holder.end, if holder.by_arn { &arn } else { &key })? {
                    return Err(Error::validation(holder.refusal.replace("{name}", &name)));
                }
            }
            let _ = send.send(row);
            Ok(vec![RowChange::Delete(of.kind, key)])
        };
        self.change(target, change).await?;
        if of.kind == TRIAL_COMPONENT
            && let Ok(row) = receive.await
            && row.parent.is_none()
        {
            let series = component_series(&row);
            return self
                .reading(move |lookup| lookup.telemetry.delete_series(&series).map_err(|error| internal(&error)))
                .await;
        }
        Ok(())
    }

    async fn describe(&self, target: Target, operation: &Operation) -> Result<Reply, Error> {
        let (of, key) = (target.of, target.key());
        let found = move |lookup: Lookup<'_>| {
            let row = match lookup.rows.resource(of.kind, &key).map_err(|error| internal(&error))? {
                Some(row) => Some(row),
                None => (of.implied)(lookup, &key)?,
            };
            row.map(|row| description(of, lookup, &row)).transpose()
        };
        let mut shown = self.reading(found).await?.ok_or_else(|| target.missing())?;
        shown.retain(|member, _| operation.output_member(member).is_some());
        Ok(Reply::of(Value::Object(shown)))
    }
}

/// The resource that a request names.
pub(super) struct Target {
    pub(super) of: &'static ResourceType,
    pub(super) name: String,
    pub(super) arn: String,
}

impl Target {
    pub(super) fn key(&self) -> String {
        self.of.key(&self.name)
    }

    pub(super) fn missing(&self) -> Error {
        self.of.missing(&self.name, &self.arn)
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

/// All that is shown of a resource, in the members of its type's descriptions and summaries.
pub(super) fn description(of: &ResourceType, lookup: Lookup<'_>, row: &ResourceRow) -> Result<Members, Error> {
    let mut shown = request(row)?;
    shown.insert(of.arn_member(), Value::from(row.arn.as_str()));
    shown.insert("CreationTime".to_owned(), timestamp::seconds(row.created_ms));
    shown.insert("LastModifiedTime".to_owned(), timestamp::seconds(row.modified_ms));
    (of.describe)(lookup, row, &mut shown)?;
    Ok(shown)
}

/// Applies an update to a request. Of a resource that is completed by its parent (`is_completed`),
/// an entry that is removed is null from then on: the parent's would be shown again.
fn apply(of: &ResourceType, request: &mut Members, update: Members, is_completed: bool) -> Result<(), Error> {
    const REMOVAL: &str = "ToRemove";
    let is_identity = |member: &str| member == of.name_member() && of.named_by == NamedBy::Name;
    let mut removals = Vec::new();
    for (member, value) in update {
        let merged = of.merged.iter().find(|(merged, _)| *merged == member);
        match (member.strip_suffix(REMOVAL), value) {
            (Some(map), Value::Array(names)) => removals.push((map.to_owned(), names)),
            (None, _) if is_identity(&member) || member == of.arn_member() => {}
            (None, Value::Object(entries)) if merged.is_some() => {
                change_map(request, &member, |present| present.extend(entries));
            }
            (_, value) => drop(request.insert(member, value)),
        }
    }
    for (map, names) in removals {
        change_map(request, &map, |entries| {
            for name in names.iter().filter_map(Value::as_str) {
                if is_completed {
                    entries.insert(name.to_owned(), Value::Null);
                } else {
                    entries.shift_remove(name);
                }
            }
        });
    }
    for (member, most) in of.merged {
        let entries = request.get(*member).and_then(Value::as_object).map_or(0, Map::len);
        if entries > *most {
            return Err(Error::validation(format!(
                "Invalid value at '{member}': with those that are there already it has {entries} entries; {most} are \
                 allowed."
            )));
        }
    }
    Ok(())
}

/// Changes the map of this name, which is empty if it is missing.
fn change_map(request: &mut Members, member: &str, change: impl FnOnce(&mut Members)) {
    let mut entries = match request.shift_remove(member) {
        Some(Value::Object(entries)) => entries,
        _ => Map::new(),
    };
    change(&mut entries);
    request.insert(member.to_owned(), Value::Object(entries));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::resource_types::kinds::ARTIFACT;

    fn applied(of: &ResourceType, request: &Value, update: &Value, is_completed: bool) -> Result<Value, Error> {
        let mut changed = request.as_object().unwrap().clone();
        apply(of, &mut changed, update.as_object().unwrap().clone(), is_completed)?;
        Ok(Value::Object(changed))
    }

    #[test]
    fn an_update_adds_to_some_maps_and_replaces_others() {
        let number = |value: f64| json!({"NumberValue": value});
        let component = json!({"TrialComponentName": "A", "Parameters": {"a": number(1.0), "b": number(2.0)}});
        let update = json!({"TrialComponentName": "a", "Parameters": {"b": number(3.0), "c": number(4.0)},
            "ParametersToRemove": ["a", "absent"], "DisplayName": "other", "InputArtifactsToRemove": ["x"]});
        let plain = json!({"TrialComponentName": "A", "Parameters": {"b": number(3.0), "c": number(4.0)},
            "DisplayName": "other", "InputArtifacts": {}});
        assert_eq!(applied(of_kind(TRIAL_COMPONENT), &component, &update, false), Ok(plain));
        let of_job = applied(of_kind(TRIAL_COMPONENT), &component, &update, true).unwrap();
        assert_eq!(of_job["Parameters"]["a"], Value::Null);
        assert!(of_job["InputArtifacts"].as_object().unwrap().contains_key("x"), "hidden of the job's");
        let artifact = json!({"ArtifactName": "n", "Properties": {"a": "1", "b": "2"}});
        let update = json!({"ArtifactArn": "arn", "ArtifactName": "m", "Properties": {"c": "3", "d": "4"}, "PropertiesToRemove": ["d"]});
        assert_eq!(
            applied(of_kind(ARTIFACT), &artifact, &update, false),
            Ok(json!({"ArtifactName": "m", "Properties": {"c": "3"}}))
        );
    }

    #[test]
    fn maps_that_grow_by_updates_have_their_limits() {
        let entries = |from: usize, to: usize| -> Value {
            (from..to).map(|n| (format!("p{n}"), json!({"NumberValue": 1.0}))).collect::<Map<_, _>>().into()
        };
        let component = json!({"Parameters": entries(0, 250)});
        let update = |to| json!({"Parameters": entries(200, to)});
        assert!(applied(of_kind(TRIAL_COMPONENT), &component, &update(300), false).is_ok());
        let refused = applied(of_kind(TRIAL_COMPONENT), &component, &update(301), false).unwrap_err();
        assert!(refused.message.contains("301 entries; 300 are allowed"), "{}", refused.message);
    }
}
