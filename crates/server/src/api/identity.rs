//! STS and IAM: who the client is, and roles. There is one account, and every role name stands for it.

use shoal_wire::{Reply, arn};

use super::{Api, Caller};

/// The role that callers seem to have assumed: `get_execution_role` of the SDKs wants one.
const ROLE: &str = "ShoalRole";

/// Its id.
const ROLE_ID: &str = "AROASHOALSHOALSHOAL00";

impl Api {
    pub(super) fn caller_identity(&self, caller: &Caller) -> Reply {
        let session = caller.attempt.as_deref().unwrap_or("shoal");
        Reply::GetCallerIdentity {
            account: self.identity.account.clone(),
            arn: arn::assumed_role(&self.identity.account, ROLE, session),
            user_id: format!("{ROLE_ID}:{session}"),
        }
    }

    pub(super) fn role(&self, role_name: String) -> Reply {
        let arn = arn::role(&self.identity.account, &role_name);
        Reply::GetRole { role_name, role_id: ROLE_ID.to_owned(), arn, created_ms: 0 }
    }
}
