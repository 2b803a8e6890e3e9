//! STS and IAM: who the client is, roles and what they may do. There is one account, every role name stands for it, and whoever assumes a
//! role has the owner's rights for a time.

use shoal_wire::{AssumeRole, AssumedRole, Error, ErrorCode, Evaluation, Paging, Reply, Role, SimulatePrincipalPolicy, arn};

use super::{Api, Caller};
use crate::{admission::internal, core::now_ms, keys::Holder, sessions::Session};

/// The role that callers seem to have assumed: `get_execution_role` of the SDKs wants one.
const ROLE: &str = "ShoalRole";

/// The id of every role.
const ROLE_ID: &str = "AROASHOALSHOALSHOAL00";

impl Api {
    pub(super) fn caller_identity(&self, caller: &Caller) -> Reply {
        let (role, session) = match &caller.holder {
            Holder::Owner => (ROLE, "shoal"),
            Holder::Session(session) => (session.role.as_str(), session.name.as_str()),
            Holder::Attempt { id, .. } => (ROLE, id.as_str()),
        };
        Reply::GetCallerIdentity {
            account: self.identity.account.clone(),
            arn: arn::assumed_role(&self.identity.account, role, session),
            user_id: format!("{ROLE_ID}:{session}"),
        }
    }

    pub(super) fn assume_role(&self, request: AssumeRole) -> Result<Reply, Error> {
        let account = &self.identity.account;
        if request.account != *account {
            let role = arn::role(&request.account, &request.role);
            return Err(Error::new(
                ErrorCode::AccessDenied,
                format!("not authorized to perform sts:AssumeRole on {role}: the roles of this server are those of the account {account}"),
            ));
        }
        let expires_ms = now_ms() / 1000 * 1000 + u64::from(request.duration_s) * 1000;
        let session = Session { role: request.role, name: request.session, expires_ms };
        let keys = session.open(&self.world.keys).map_err(|error| internal(&error))?;
        Ok(Reply::AssumeRole(AssumedRole {
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key,
            session_token: keys.session_token.unwrap_or_default(),
            expires_ms,
            arn: arn::assumed_role(account, &session.role, &session.name),
            id: format!("{ROLE_ID}:{}", session.name),
        }))
    }

    pub(super) fn get_role(&self, name: String) -> Reply {
        Reply::GetRole(self.role(name))
    }

    /// The one role that need not be made up.
    pub(super) fn list_roles(&self, path_prefix: &str, paging: &Paging) -> Result<Reply, Error> {
        let roles = if path_prefix == "/" { vec![self.role(ROLE.to_owned())] } else { Vec::new() };
        let (roles, marker) = page(roles, paging)?;
        Ok(Reply::ListRoles { roles, marker })
    }

    pub(super) fn simulate_policy(&self, request: &SimulatePrincipalPolicy) -> Result<Reply, Error> {
        let ours = format!(":iam::{}:", self.identity.account);
        if !(request.source_arn.starts_with("arn:") && request.source_arn.contains(&ours)) {
            return Err(Error::new(
                ErrorCode::ResourceNotFound,
                format!("{} is no role of the account {}", request.source_arn, self.identity.account),
            ));
        }
        let each = |action: &String| {
            let each = |resource: &String| Evaluation { action: action.clone(), resource: resource.clone() };
            request.resources.iter().map(each).collect::<Vec<_>>()
        };
        let (evaluations, marker) = page(request.actions.iter().flat_map(each).collect(), &request.paging)?;
        Ok(Reply::SimulatePrincipalPolicy { evaluations, marker })
    }

    fn role(&self, name: String) -> Role {
        Role { arn: arn::role(&self.identity.account, &name), name, id: ROLE_ID.to_owned(), created_ms: 0 }
    }
}

/// A page of a list that never changes; its marker is the number of items before it.
fn page<T>(all: Vec<T>, paging: &Paging) -> Result<(Vec<T>, Option<String>), Error> {
    let start: usize = match &paging.marker {
        None => 0,
        Some(marker) => {
            let place = marker.parse().ok().filter(|place| *place < all.len());
            place.ok_or_else(|| Error::validation("Invalid Marker: give the Marker of the page before unchanged."))?
        }
    };
    let end = start.saturating_add(paging.max_items as usize);
    let marker = (end < all.len()).then(|| end.to_string());
    Ok((all.into_iter().skip(start).take(end - start).collect(), marker))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_every_size_have_every_item_once() {
        for max_items in 1..7 {
            let (mut found, mut marker) = (Vec::new(), None);
            loop {
                let (items, next) = page((0..5).collect(), &Paging { marker, max_items }).unwrap();
                found.extend(items);
                marker = next;
                if marker.is_none() {
                    break;
                }
            }
            assert_eq!(found, [0, 1, 2, 3, 4], "by {max_items}");
        }
        for made_up in ["", "x", "-1", "5", "99999999999999999999"] {
            assert!(page(vec![0; 5], &Paging { marker: Some(made_up.to_owned()), max_items: 1 }).is_err(), "{made_up}");
        }
    }
}
