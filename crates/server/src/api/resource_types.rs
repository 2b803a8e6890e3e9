//! Resources without work behind them: their requests are stored, listed and shown. Each type is
//! one declaration here; what its operations do is the same for all (`registry`), and what its
//! shapes are is in the table of operations. Links between them (`trial_links`, `lineage`) are rows
//! that have names at their ends.

mod action;
mod artifact;
mod context;
mod experiment;
mod frozen_component;
mod job_component;
mod kinds;
mod lineage;
mod lineage_query;
mod links;
mod listed;
mod model;
mod old_records;
mod registry;
mod search_records;
mod trial;
mod trial_component;
mod trial_links;

use serde_json::{Map, Value};
use shoal_store::{Key, LinkEnd, ResourceKind, ResourceRow, Rows, Telemetry};
use shoal_wire::{Error, ErrorCode, Operation, arn};

pub(crate) use artifact::name_of as artifact_named_by;
pub(crate) use job_component::{NewJob, component_of, with_job};
pub(crate) use kinds::{EXPERIMENT, TRIAL, TRIAL_COMPONENT, TRIAL_LINK};
pub(crate) use links::ends as ends_of_trial_link;
pub(crate) use old_records::Deleted;
pub(crate) use registry::Registry;
pub(crate) use search_records::{experiment_record, trial_component_document, trial_component_record, trial_record};
pub(crate) use trial_component::series as component_series;

/// All types.
static TYPES: &[&ResourceType] = &[
    &action::ACTION,
    &artifact::ARTIFACT,
    &context::CONTEXT,
    &experiment::EXPERIMENT,
    &model::MODEL,
    &trial::TRIAL,
    &trial_component::TRIAL_COMPONENT,
];

/// The members of a validated input, or of what is shown.
type Members = Map<String, Value>;

/// A type of resource.
pub(crate) struct ResourceType {
    /// As in ARNs.
    kind: ResourceKind,
    /// Its name is the member `<noun>Name`, its ARN `<noun>Arn`.
    noun: &'static str,
    /// Each begins with its [`Verb`]. `cargo xtask codegen` reads them here.
    operations: &'static [&'static str],
    /// Names that differ only in the case of letters are the same.
    ignores_case: bool,
    /// What names a resource.
    named_by: NamedBy,
    /// The refusal of a name that is taken.
    duplicate: Refusal,
    /// The refusal of a name that does not exist.
    missing: Refusal,
    /// What it belongs to: the row's parent.
    belongs_to: Option<Owner>,
    /// Texts of the request that are the row's keys, as paths.
    keys: [Option<&'static [&'static str]>; 2],
    /// Further members of its list that select resources.
    filters: &'static [Filter],
    /// A list has one of these filters at most.
    one_filter: bool,
    /// Maps to which an update adds entries, and the most that they have. Other members are
    /// replaced. `<member>ToRemove` removes entries of any map.
    merged: &'static [(&'static str, usize)],
    /// Links that a deletion is refused for.
    held_by: &'static [Holder],
    /// Rules of the request across members, beyond the table's.
    check: fn(&Members) -> Result<(), Error>,
    /// Completes a description: the request, its name, ARN and times. Members that the output does
    /// not have are removed afterwards.
    describe: fn(Lookup<'_>, &ResourceRow, &mut Members) -> Result<(), Error>,
    /// The row that a name has before anything was stored for it.
    implied: fn(Lookup<'_>, &str) -> Result<Option<ResourceRow>, Error>,
    /// A request to create one, with all of its kinds of members.
    #[cfg(test)]
    sample: &'static str,
}

/// A type without rules of its own, for the declarations to start from.
const PLAIN: ResourceType = ResourceType {
    kind: ResourceKind::new(""),
    noun: "",
    operations: &[],
    ignores_case: true,
    named_by: NamedBy::Name,
    duplicate: Refusal(ErrorCode::ValidationException, ""),
    missing: Refusal(ErrorCode::ResourceNotFound, ""),
    belongs_to: None,
    keys: [None, None],
    filters: &[],
    one_filter: false,
    merged: &[],
    held_by: &[],
    check: |_| Ok(()),
    describe: |_, _, _| Ok(()),
    implied: |_, _| Ok(None),
    #[cfg(test)]
    sample: "{}",
};

static PLAIN_TYPE: ResourceType = PLAIN;

/// An entity of lineage is deleted without its associations.
const LINEAGE_HOLDERS: [Holder; 2] = [lineage_holder(LinkEnd::Parent), lineage_holder(LinkEnd::FirstKey)];

const fn lineage_holder(end: LinkEnd) -> Holder {
    let refusal = "'{name}' has associations; delete them first (ListAssociations, DeleteAssociation).";
    Holder { kind: kinds::ASSOCIATION, end, by_arn: true, refusal }
}

/// What names a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    /// The member `<noun>Name`; `<noun>Name` of other operations may be an ARN.
    Name,
    /// What the member `Source` is: other operations have `<noun>Arn`.
    Source,
}

/// What a resource belongs to.
struct Owner {
    of: ResourceKind,
    /// Member of the request that names it.
    member: &'static str,
}

/// A member of a list's request that selects resources.
struct Filter {
    member: &'static str,
    selects: Selects,
}

/// Which resources a filter selects.
enum Selects {
    /// Those that belong to the resource of this type and name.
    Owned(ResourceKind),
    /// Those whose key is this text; of a text that is lower case in rows, whatever its case.
    Key { at: usize, lower: bool },
    /// Those that links have at one end; the name of a resource of this type is at another.
    Linked { of: ResourceKind, by: LinkEnd, names: LinkEnd },
}

/// Links or resources that a deletion is refused for.
struct Holder {
    kind: ResourceKind,
    end: LinkEnd,
    /// The end has the resource's ARN, not its name.
    by_arn: bool,
    /// `{name}` is replaced.
    refusal: &'static str,
}

/// A code and a text, in which `{name}` and `{arn}` are replaced.
struct Refusal(ErrorCode, &'static str);

/// What descriptions are read from beside their rows.
#[derive(Clone, Copy)]
pub(crate) struct Lookup<'a> {
    pub(crate) rows: &'a dyn Rows,
    pub(crate) telemetry: &'a Telemetry,
}

/// What an operation does with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Describe,
    List,
    Update,
    Delete,
}

impl Verb {
    fn of(operation: &str) -> Option<Self> {
        let verbs = [
            ("Create", Self::Create),
            ("Describe", Self::Describe),
            ("List", Self::List),
            ("Update", Self::Update),
            ("Delete", Self::Delete),
        ];
        verbs.into_iter().find(|(name, _)| operation.starts_with(name)).map(|(_, verb)| verb)
    }
}

/// The type and the verb of an operation on a plain resource.
pub(crate) fn operation(operation: &Operation) -> Option<(&'static ResourceType, Verb)> {
    let found = TYPES.iter().copied().find(|it| it.operations.contains(&operation.name))?;
    Some((found, Verb::of(operation.name)?))
}

/// Names of the operations on plain resources.
#[cfg(test)]
pub(crate) fn operations() -> impl Iterator<Item = &'static str> {
    TYPES.iter().flat_map(|it| it.operations).copied()
}

/// The type of plain resources of this kind, which is one of [`kinds`].
fn of_kind(kind: ResourceKind) -> &'static ResourceType {
    TYPES.iter().copied().find(|it| it.kind == kind).unwrap_or(&PLAIN_TYPE)
}

/// The row of a plain resource, or that which its name has before anything was stored for it.
///
/// # Errors
/// The storage's.
pub(crate) fn stored_or_implied(
    lookup: Lookup<'_>,
    kind: ResourceKind,
    name: &str,
) -> Result<Option<ResourceRow>, Error> {
    let of = of_kind(kind);
    match lookup.rows.resource(kind, &of.key(name)).map_err(|error| crate::internal::internal(&error))? {
        Some(row) => Ok(Some(row)),
        None => (of.implied)(lookup, &of.key(name)),
    }
}

/// The kind of plain resources of this name in ARNs.
pub(crate) fn kind(name: &str) -> Option<ResourceKind> {
    TYPES.iter().map(|it| it.kind).find(|kind| kind.name() == name)
}

impl ResourceType {
    fn name_member(&self) -> String {
        format!("{}Name", self.noun)
    }

    fn arn_member(&self) -> String {
        format!("{}Arn", self.noun)
    }

    /// The row's name for a resource's name.
    fn key(&self, name: &str) -> String {
        if self.ignores_case { name.to_lowercase() } else { name.to_owned() }
    }

    /// The row's keys for a request.
    fn keys_of(&self, request: &Members) -> [Option<Key>; 2] {
        self.keys.map(|path| {
            let (first, rest) = path?.split_first()?;
            let value = rest.iter().try_fold(request.get(*first)?, |value, member| value.get(member))?;
            value.as_str().map(Key::from)
        })
    }

    /// Refuses a name that is not one of this type's resources.
    fn missing(&self, name: &str, arn: &str) -> Error {
        self.missing.of(name, arn)
    }
}

impl Refusal {
    fn of(&self, name: &str, arn: &str) -> Error {
        Error::new(self.0, self.1.replace("{name}", name).replace("{arn}", arn))
    }
}

/// Who created something and who changed it, which is not known and empty.
fn users(row: &ResourceRow, shown: &mut Members) {
    shown.insert("CreatedBy".to_owned(), created_by(row));
    shown.insert("LastModifiedBy".to_owned(), Value::Object(Map::new()));
}

/// Who created something: the user of its key, as AWS has IAM's users; empty for the owner.
fn created_by(row: &ResourceRow) -> Value {
    let Some(creator) = &row.creator else { return Value::Object(Map::new()) };
    let account = arn::resource(&row.arn).map_or("", |place| place.account);
    serde_json::json!({"IamIdentity": {"Arn": arn::user(account, creator), "PrincipalId": user_id(creator)}})
}

/// The unique id of a key's user, as IAM writes those of users.
pub(crate) fn user_id(name: &str) -> String {
    format!("AIDA{}", &crate::hex::sha256_hex(name)[..17].to_uppercase())
}

/// A display name is the name where the request gives none.
fn default_display_name(of: &ResourceType, shown: &mut Members) {
    let name = shown.get(&of.name_member()).cloned().unwrap_or_default();
    shown.entry("DisplayName").or_insert(name);
}

/// The request of a row as it is stored.
fn request(row: &ResourceRow) -> Result<Members, Error> {
    serde_json::from_slice(&row.request).map_err(|error| crate::internal::internal(&error))
}

#[cfg(test)]
mod links_tests;
#[cfg(test)]
mod tests;
