//! Who may make which call: by the role of the caller's key, and of users by what a call names.
//!
//! A user's calls name own resources, or such as do not exist; what lists them shows own ones alone
//! ([`Caller::rows`]). A training job's keys are bound by what jobs may do and by their creator's
//! key.

use std::sync::Arc;

use serde_json::Value;
use shoal_policy::Decision;
use shoal_s3::PolicyCaller;
use shoal_store::{Objects, ResourceKind, ResourceRow, Rows, Telemetry};
use shoal_wire::{Call, Error, ErrorCode, KeyRole, S3Uri, Service, arn, tags};

use super::{
    Api, Caller, blocking,
    named::{Named, created, named, subject},
    resource_types::{self, Lookup},
    resources::found,
};
use crate::{
    identity::{Identity, ROLE},
    internal::internal,
    key_ring::Holder,
    roles,
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
        let (service, account) = (call.operation.service, &self.identity.account);
        self.ring.roles.check(service, &call.input, account, &caller.arn(&self.identity))?;
        self.permit_job(call, &caller.holder).await?;
        if matches!(caller.holder, Holder::Session(_)) && KEYS.contains(&call.operation.name) {
            let why = " because a role's keys end, and keys do not: use the key that assumed it";
            return Err(self.denied(call, caller, &subject(call, &self.identity), why));
        }
        self.permit_role(call, caller).await?;
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
        let objects = self.admission.objects.clone();
        let principal = self.ring.policy_caller(&Holder::Member, Some(member));
        let policies = Policies { objects, principal, account: self.identity.account.clone() };
        if let Some((action, uri)) = forbidden_location(call, member, &policies)? {
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

    /// A role's session does what the policies of the role and its own permit, on each resource
    /// that it names.
    async fn permit_role(&self, call: &Call, caller: &Caller) -> Result<(), Error> {
        let principal = self.ring.policy_caller(&caller.holder, caller.member.as_deref());
        if principal.narrowed_by.is_empty() || call.operation.name == "GetCallerIdentity" {
            return Ok(());
        }
        let (rows, telemetry, names) = (self.rows.clone(), self.telemetry.clone(), named(call)?);
        let mut resources = blocking(move || named_rows(&*rows, &telemetry, &names)).await?;
        let new = created(call, &self.identity);
        let new = new.or_else(|| resources.is_empty().then(|| subject(call, &self.identity)));
        resources.extend(new.map(|arn| (arn, Vec::new())));
        let of_call = action(call);
        let mut deeds = Vec::from_iter(resources.into_iter().map(|(arn, tags)| (&*of_call, arn, tags)));
        // What a job reads and writes is the role's that it is given, so that is what is permitted.
        let given = if call.operation.service == Service::Sts { Vec::new() } else { roles::named(&call.input) };
        deeds.extend(given.into_iter().map(|role| ("iam:PassRole", role, Vec::new())));
        let of_request = tags_of(&call.input["Tags"]);
        for (action, resource, of_resource) in deeds {
            let key = |prefix: &str, (name, value): &(String, String)| (format!("{prefix}/{name}"), value.clone());
            let own = principal.principals.iter().take(1).map(|arn| ("aws:principalarn".to_owned(), arn.clone()));
            let tag_keys = of_request.iter().map(|(name, _)| ("aws:tagkeys".to_owned(), name.clone()));
            let request_tags = of_request.iter().map(|tag| key("aws:requesttag", tag));
            let resource_tags = of_resource.iter().map(|tag| key("aws:resourcetag", tag));
            let request = shoal_policy::Request {
                account: &self.identity.account,
                principals: principal.principals.clone(),
                action,
                resource: &resource,
                keys: own.chain(tag_keys).chain(request_tags).chain(resource_tags).collect(),
            };
            for policies in &principal.narrowed_by {
                let why = match shoal_policy::decide(policies.iter(), &request) {
                    Decision::Allowed => continue,
                    Decision::ExplicitDeny => " with an explicit deny in a policy of the role or the session",
                    Decision::ImplicitDeny => " because no policy of the role or the session allows it",
                };
                return Err(self.denied_action(action, caller, &resource, why));
            }
        }
        Ok(())
    }

    fn denied(&self, call: &Call, caller: &Caller, resource: &str, why: &str) -> Error {
        self.denied_action(&action(call), caller, resource, why)
    }

    fn denied_action(&self, action: &str, caller: &Caller, resource: &str, why: &str) -> Error {
        let user = caller.arn(&self.identity);
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
            (Holder::Attempt { id, .. }, _) => arn::assumed_role(account, ROLE, id),
            (Holder::Owner | Holder::Member, _) => arn::assumed_role(account, ROLE, "shoal"),
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
fn forbidden_location(
    call: &Call,
    member: &Member,
    policies: &Policies,
) -> Result<Option<(&'static str, S3Uri)>, Error> {
    let found = locations(&call.input);
    if let Some(text) = found.unreadable.first() {
        return Err(Error::validation(format!("'{}' is not an S3 location.", text.escape_debug())));
    }
    for uri in found.read {
        if !policies.permit(member.may_read(&uri.bucket, &uri.prefix), &uri, false)? {
            return Ok(Some(("read", uri)));
        }
    }
    for uri in found.written {
        if !policies.permit(member.may_write(&uri.bucket, &uri.prefix), &uri, true)? {
            return Ok(Some(("write", uri)));
        }
    }
    Ok(None)
}

/// What buckets' policies add to a key, or take away from it.
struct Policies {
    objects: Arc<Objects>,
    principal: PolicyCaller,
    account: String,
}

impl Policies {
    fn permit(&self, by_key: bool, uri: &S3Uri, writes: bool) -> Result<bool, Error> {
        let place = (uri.bucket.as_str(), uri.prefix.as_str());
        let decision = shoal_s3::bucket_decision(&self.objects, &self.principal, &self.account, place, writes);
        Ok(match decision.map_err(|error| internal(&error))? {
            Decision::Allowed => true,
            Decision::ExplicitDeny => false,
            Decision::ImplicitDeny => by_key,
        })
    }
}

/// ARNs and tags of the resources that a call names and that exist.
fn named_rows(rows: &dyn Rows, telemetry: &Telemetry, names: &[Named]) -> Result<Vec<(String, Tags)>, Error> {
    let mut found = Vec::new();
    for name in names {
        if let Named::Resource(kind, name) = name {
            for row in rows_of(Lookup { rows, telemetry }, *kind, name)? {
                let tags = tags::from_json(&row.tags).map_err(|error| internal(&error))?;
                found.push((row.arn, tags.into_iter().map(|tag| (tag.key, tag.value)).collect()));
            }
        }
    }
    Ok(found)
}

type Tags = Vec<(String, String)>;

/// The tags of a request.
fn tags_of(tags: &Value) -> Tags {
    let text = |tag: &Value, member: &str| tag.get(member).and_then(Value::as_str).map(str::to_owned);
    let tags = tags.as_array().into_iter().flatten();
    tags.filter_map(|tag| Some((text(tag, "Key")?, text(tag, "Value")?))).collect()
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
