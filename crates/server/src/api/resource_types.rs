//! Resources without work behind them: their requests are stored, listed and shown. Each type is
//! one declaration here; what its operations do is the same for all (`registry`), and what its
//! shapes are is in the table of operations.

mod experiment;
mod model;
mod registry;

use serde_json::{Map, Value};
use shoal_store::ResourceKind;
use shoal_wire::{Error, ErrorCode, Operation};

pub(crate) use registry::Registry;

/// All types.
static TYPES: &[&ResourceType] = &[&experiment::EXPERIMENT, &model::MODEL];

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
    /// The refusal of a name that is taken.
    duplicate: Refusal,
    /// The refusal of a name that does not exist.
    missing: Refusal,
    /// Rules of the request across members, beyond the table's.
    check: fn(&Map<String, Value>) -> Result<(), Error>,
    /// Completes a description: the request, its name, ARN and times. Members that the output does
    /// not have are removed afterwards.
    describe: fn(&mut Map<String, Value>),
    /// A request to create one, with all of its kinds of members.
    #[cfg(test)]
    sample: &'static str,
}

/// A code and a text, in which `{name}` and `{arn}` are replaced.
struct Refusal(ErrorCode, &'static str);

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
}

impl Refusal {
    fn of(&self, name: &str, arn: &str) -> Error {
        Error::new(self.0, self.1.replace("{name}", name).replace("{arn}", arn))
    }
}

#[cfg(test)]
mod tests;
