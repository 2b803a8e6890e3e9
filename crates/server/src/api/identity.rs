//! STS and IAM: who the client is, roles and what they may do. There is one account. Where no roles
//! are declared, every role name stands for it; a caller that assumes a role keeps its own rights
//! for a time, as far as the policies of a declared role and those of the session permit.

use std::ops::Range;

use serde_json::Value;
use shoal_policy::{Decision, Policy, decide};
use shoal_wire::{
    AssumeRole, AssumedRole, Error, ErrorCode, Evaluation, GetRole, ListRoles, Paging, Reply, Role,
    SimulatePrincipalPolicy, arn,
};

use super::{Api, Caller, user_id};
use crate::{clock::now_ms, identity::ROLE, internal::internal, key_ring::Holder, sessions::Session};

/// The id of every role.
const ROLE_ID: &str = "AROASHOALSHOALSHOAL00";

/// Bytes of a session's policies: they are in its token, which each request carries.
const MAX_POLICY_BYTES: usize = 2048;

/// A session's policy in one line.
fn session_policy(document: &str) -> Result<String, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(ErrorCode::InvalidFormat, format!("Policy is not a policy that is evaluated here: {error}"))
    };
    Policy::of_identity(document).map_err(|error| wrong(&error))?;
    let value: Value = serde_json::from_str(document).map_err(|error| wrong(&error))?;
    Ok(value.to_string())
}

impl Api {
    pub(super) fn caller_identity(&self, caller: &Caller) -> Reply {
        let session = match (&caller.holder, &caller.member) {
            (Holder::Member, Some(member)) => return self.user_identity(&member.name, caller),
            (Holder::Owner | Holder::Member, _) => "shoal",
            (Holder::Session(session), _) => session.name.as_str(),
            (Holder::Attempt { id, .. }, _) => &**id,
        };
        let id = format!("{ROLE_ID}:{session}");
        Reply::get_caller_identity(&self.identity.account, &caller.arn(&self.identity), &id)
    }

    fn user_identity(&self, name: &str, caller: &Caller) -> Reply {
        Reply::get_caller_identity(&self.identity.account, &caller.arn(&self.identity), &user_id(name))
    }

    pub(super) fn assume_role(&self, request: AssumeRole, caller: &Caller) -> Result<Reply, Error> {
        let account = &self.identity.account;
        if request.account != *account {
            let role = arn::role(&request.account, &request.role);
            return Err(Error::new(
                ErrorCode::AccessDenied,
                format!(
                    "not authorized to perform sts:AssumeRole on {role}: the roles of this server are those of the \
                     account {account}"
                ),
            ));
        }
        let wanted_ms = now_ms() / 1000 * 1000 + u64::from(request.duration_s) * 1000;
        // A role's keys open no role that outlives them.
        let expires_ms = match &caller.holder {
            Holder::Session(session) => wanted_ms.min(session.expires_ms),
            _ => wanted_ms,
        };
        let issuer = caller.member.as_ref().map(|member| member.access_key_id.clone());
        // Nor one that may do more.
        let mut documents = match &caller.holder {
            Holder::Session(session) => session.documents.clone(),
            _ => Vec::new(),
        };
        documents.extend(request.policy.as_deref().map(session_policy).transpose()?);
        let bytes = documents.iter().map(String::len).sum::<usize>();
        if bytes > MAX_POLICY_BYTES {
            return Err(Error::new(
                ErrorCode::ResourceLimitExceeded,
                format!(
                    "The session's policies, with those of the session that opens it, have {bytes} bytes without white \
                     space; {MAX_POLICY_BYTES} is the most."
                ),
            ));
        }
        let session = Session { issuer, role: request.role, name: request.session, expires_ms, documents };
        let keys = session.open(&self.keys).map_err(|error| internal(&error))?;
        Ok(Reply::assume_role(&AssumedRole {
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key,
            session_token: keys.session_token.unwrap_or_default(),
            expires_ms,
            arn: arn::assumed_role(account, &session.role, &session.name),
            id: format!("{ROLE_ID}:{}", session.name),
            packed_policy_percent: (bytes * 100).div_ceil(MAX_POLICY_BYTES),
        }))
    }

    pub(super) fn get_role(&self, request: GetRole) -> Result<Reply, Error> {
        self.ring.roles.found(&request.role_name)?;
        Ok(Reply::get_role(&self.role(request.role_name)))
    }

    /// Those that are declared, or the one that need not be made up.
    pub(super) fn list_roles(&self, request: &ListRoles) -> Result<Reply, Error> {
        let mut names = Vec::from_iter(self.ring.roles.names().cloned());
        if names.is_empty() {
            names.push(ROLE.to_owned());
        }
        let is_root = request.path_prefix == "/";
        let roles = Vec::from_iter(names.into_iter().filter(|_| is_root).map(|name| self.role(name)));
        let (places, marker) = page(roles.len(), &request.paging)?;
        Ok(Reply::list_roles(&roles[places], marker.as_deref()))
    }

    pub(super) fn simulate_policy(&self, request: &SimulatePrincipalPolicy) -> Result<Reply, Error> {
        let ours = format!(":iam::{}:", self.identity.account);
        if !(request.source_arn.starts_with("arn:") && request.source_arn.contains(&ours)) {
            return Err(Error::new(
                ErrorCode::ResourceNotFound,
                format!("{} is no role of the account {}", request.source_arn, self.identity.account),
            ));
        }
        let name = request.source_arn.rsplit_once('/').map_or("", |(_, name)| name);
        let is_role = request.source_arn.contains(":role/");
        let policies = self.ring.roles.policies(name).filter(|_| is_role);
        let decision = |action: &str, resource: &str| match &policies {
            None => "allowed",
            Some(policies) => {
                let account = &self.identity.account;
                let (keys, principals) = (Vec::new(), vec![request.source_arn.clone()]);
                let asked = shoal_policy::Request { account, principals, action, resource, keys };
                match decide(policies.iter(), &asked) {
                    Decision::Allowed => "allowed",
                    Decision::ExplicitDeny => "explicitDeny",
                    Decision::ImplicitDeny => "implicitDeny",
                }
            }
        };
        let (evaluations, marker) = evaluations(request, decision)?;
        Ok(Reply::simulate_principal_policy(&evaluations, marker.as_deref()))
    }

    fn role(&self, name: String) -> Role {
        Role { arn: arn::role(&self.identity.account, &name), name, id: ROLE_ID.to_owned(), created_ms: 0 }
    }
}

/// A page of what every action on every resource comes to. Two lists that fit a request make
/// billions of pairs: only the page's are built.
fn evaluations(
    request: &SimulatePrincipalPolicy,
    decision: impl Fn(&str, &str) -> &'static str,
) -> Result<(Vec<Evaluation>, Option<String>), Error> {
    let (actions, resources) = (&request.actions, &request.resources);
    let (places, marker) = page(actions.len().saturating_mul(resources.len()), &request.paging)?;
    let pair = |at: usize| {
        let (action, resource) = (actions[at / resources.len()].clone(), resources[at % resources.len()].clone());
        Evaluation { decision: decision(&action, &resource), action, resource }
    };
    Ok((places.map(pair).collect(), marker))
}

/// The places of a page in a list of so many items that never changes; its marker is the number of
/// items before it.
fn page(items: usize, paging: &Paging) -> Result<(Range<usize>, Option<String>), Error> {
    let start: usize = match &paging.marker {
        None => 0,
        Some(marker) => {
            let place = marker.parse().ok().filter(|place| *place < items);
            place.ok_or_else(|| Error::validation("Invalid Marker: give the Marker of the page before unchanged."))?
        }
    };
    let end = start.saturating_add(paging.max_items as usize).min(items);
    Ok((start..end, (end < items).then(|| end.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_every_size_have_every_item_once() {
        for max_items in 1..7 {
            let (mut found, mut marker) = (Vec::new(), None);
            loop {
                let (items, next) = page(5, &Paging { marker, max_items }).unwrap();
                found.extend(items);
                marker = next;
                if marker.is_none() {
                    break;
                }
            }
            assert_eq!(found, [0, 1, 2, 3, 4], "by {max_items}");
        }
        for made_up in ["", "x", "-1", "5", "99999999999999999999"] {
            assert!(page(5, &Paging { marker: Some(made_up.to_owned()), max_items: 1 }).is_err(), "{made_up}");
        }
    }

    #[test]
    fn a_page_of_evaluations_costs_no_more_than_itself() {
        let names = |what: &str, count: usize| (0..count).map(|at| format!("{what}{at}")).collect::<Vec<_>>();
        let asked = |actions, resources, marker: Option<&str>, max_items| SimulatePrincipalPolicy {
            source_arn: String::new(),
            actions: names("a", actions),
            resources: names("r", resources),
            paging: Paging { marker: marker.map(str::to_owned), max_items },
        };
        let pairs =
            |found: Vec<Evaluation>| found.into_iter().map(|each| each.action + &each.resource).collect::<Vec<_>>();
        let (found, marker) = evaluations(&asked(2, 3, None, 100), |_, _| "allowed").unwrap();
        assert_eq!(
            (pairs(found), marker),
            (["a0r0", "a0r1", "a0r2", "a1r0", "a1r1", "a1r2"].map(str::to_owned).to_vec(), None)
        );
        // Ten thousand million pairs.
        let (found, marker) = evaluations(&asked(100_000, 100_000, Some("9999999997"), 2), |_, _| "allowed").unwrap();
        assert_eq!(pairs(found), ["a99999r99997", "a99999r99998"]);
        let (found, end) = evaluations(&asked(100_000, 100_000, marker.as_deref(), 2), |_, _| "allowed").unwrap();
        assert_eq!((pairs(found), end), (vec!["a99999r99999".to_owned()], None));
    }
}
