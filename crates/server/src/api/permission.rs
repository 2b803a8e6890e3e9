//! Who may make which call: by the role of the caller's key, and of users by what a call names.
//!
//! A user's calls name own resources, or such as do not exist; what lists them shows own ones alone
//! ([`Caller::rows`]). A training job's keys are bound by what jobs may do and by their creator's
//! key.

use shoal_store::{ResourceKind, ResourceRow, Rows, Telemetry};
use shoal_wire::{Call, Error, ErrorCode, KeyRole, S3Uri, Service, arn};

use super::{
    Api, Caller, blocking,
    named::{Named, named, subject},
    resource_types::{self, Lookup},
    resources::found,
};
use crate::{
    identity::Identity,
    internal::internal,
    key_ring::Holder,
    team::{Access, Member, access, locations},
};

/// Kinds that are no plain resources.
const JOBS: [ResourceKind; 2] = [ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB];

/// Operations that make and end keys.
const KEYS: [&str; 3] = ["AddKey", "RotateKey", "RemoveKey"];

impl Api {
    /// Refuses a call that the caller may not make.
    ///
    /// # Errors
    /// `AccessDenied`, and the storage's.
    pub(crate) async fn permit(&self, call: &Call, caller: &Caller) -> Result<(), Error> {
        self.permit_job(call, &caller.holder).await?;
        if matches!(caller.holder, Holder::Session(_)) && KEYS.contains(&call.operation.name) {
            let why = " because a role's keys end, and keys do not: use the key that assumed it";
            return Err(self.denied(call, caller, &subject(call, &self.identity), why));
        }
        let Some(member) = &caller.member else { return Ok(()) };
        let access = access(call.operation);
        if !access.permits(member.role) {
            let why = match member.role {
                KeyRole::Reader => " because the key's role is reader",
                KeyRole::Owner | KeyRole::User => " because only owners may",
            };
            return Err(self.denied(call, caller, &subject(call, &self.identity), why));
        }
        if member.role != KeyRole::User || access == Access::Everyone {
            return Ok(());
        }
        if let Some((action, uri)) = forbidden_location(call, member)? {
            let why = format!(" because the key may not {action} s3://{}/{}", uri.bucket, uri.prefix);
            return Err(self.denied(call, caller, &subject(call, &self.identity), &why));
        }
        let (rows, telemetry, own) = (self.rows.clone(), self.telemetry.clone(), member.name.clone());
        let names = named(call)?;
        let others = blocking(move || others(&*rows, &telemetry, &names, &own)).await?;
        match others {
            None => Ok(()),
            Some((arn, why)) => Err(self.denied(call, caller, &arn, &why)),
        }
    }

    fn denied(&self, call: &Call, caller: &Caller, resource: &str, why: &str) -> Error {
        let user = caller.arn(&self.identity);
        let action = action(call);
        Error::new(
            ErrorCode::AccessDenied,
            format!("User: {user} is not authorized to perform: {action} on resource: {resource}{why}"),
        )
    }
}

impl Caller {
    /// The caller's ARN, as `GetCallerIdentity` has it.
    pub(crate) fn arn(&self, identity: &Identity) -> String {
        let account = &identity.account;
        match (&self.holder, &self.member) {
            (Holder::Member, Some(member)) => arn::user(account, &member.name),
            (Holder::Session(session), _) => arn::assumed_role(account, &session.role, &session.name),
            (Holder::Attempt { id, .. }, _) => arn::assumed_role(account, super::identity::ROLE, id),
            (Holder::Owner | Holder::Member, _) => arn::assumed_role(account, super::identity::ROLE, "shoal"),
        }
    }
}

/// An operation as IAM's policies name it.
fn action(call: &Call) -> String {
    let service = match call.operation.service {
        _ if call.operation.target.starts_with("Shoal.") => "shoal",
        Service::CloudWatch => "cloudwatch",
        service => service.scope(),
    };
    format!("{service}:{}", call.operation.name)
}

/// A location in S3 that a call names and the key does not open, and for what.
fn forbidden_location(call: &Call, member: &Member) -> Result<Option<(&'static str, S3Uri)>, Error> {
    let found = locations(&call.input);
    if let Some(text) = found.unreadable.first() {
        return Err(Error::validation(format!("'{}' is not an S3 location.", text.escape_debug())));
    }
    let read = found.read.into_iter().find(|uri| !member.may_read(&uri.bucket, &uri.prefix));
    let written = found.written.into_iter().find(|uri| !member.may_write(&uri.bucket, &uri.prefix));
    Ok(read.map(|uri| ("read", uri)).or_else(|| written.map(|uri| ("write", uri))))
}

/// The ARN of the first resource that was created with another key, and why it is not open.
fn others(
    rows: &dyn Rows,
    telemetry: &Telemetry,
    names: &[Named],
    own: &str,
) -> Result<Option<(String, String)>, Error> {
    for name in names {
        let (kind, name) = match name {
            Named::All(instead) => return Ok(Some(("*".to_owned(), format!(": {instead}")))),
            Named::Resource(kind, name) => (*kind, name),
        };
        for row in rows_of(Lookup { rows, telemetry }, kind, name)? {
            if row.creator.as_deref() != Some(own) {
                return Ok(Some((row.arn, " because it was created with another key".to_owned())));
            }
        }
    }
    Ok(None)
}

/// The rows that a name or an ARN may mean.
fn rows_of(lookup: Lookup<'_>, kind: ResourceKind, name: &str) -> Result<Vec<ResourceRow>, Error> {
    let Some(resource) = arn::resource(name) else {
        return Ok(match JOBS.contains(&kind) {
            true => found(lookup.rows, kind, name)?.into_iter().collect(),
            false => resource_types::stored_or_implied(lookup, kind, name)?.into_iter().collect(),
        });
    };
    if let Some(kind) = JOBS.into_iter().find(|kind| kind.name() == resource.kind) {
        let names = lookup.rows.names(kind, resource.name).map_err(|error| internal(&error))?;
        let all = names.iter().map(|name| found(lookup.rows, kind, name));
        return all.filter_map(Result::transpose).collect();
    }
    let Some(kind) = resource_types::kind(resource.kind) else { return Ok(Vec::new()) };
    // As tags find them: ARNs have names in lower case.
    let names = lookup.rows.names(kind, resource.name).map_err(|error| internal(&error))?;
    let stored = names.iter().map(|name| found(lookup.rows, kind, name));
    let implied = || resource_types::stored_or_implied(lookup, kind, resource.name);
    match Vec::from_iter(stored.collect::<Result<Vec<_>, _>>()?.into_iter().flatten()) {
        stored if stored.is_empty() => Ok(implied()?.into_iter().collect()),
        stored => Ok(stored),
    }
}
