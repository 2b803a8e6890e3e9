//! STS and IAM: temporary keys, roles, and what a role may do.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Call, Error, Input, Reply,
    call::{plain_inputs, read},
    timestamp,
};

/// What roles say of who may take them: SageMaker. Percent-encoded as IAM does.
const TRUST_POLICY: &str = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22%3A%22Allow%22%2C%22Principal%22%3A%7B%22Service%22%3A%22\
                            sagemaker.amazonaws.com%22%7D%2C%22Action%22%3A%22sts%3AAssumeRole%22%7D%5D%7D";
/// Items on a page by default.
const DEFAULT_ITEMS: u32 = 100;

/// An `AssumeRole`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumeRole {
    /// The role's account, twelve digits.
    pub account: String,
    /// The role's name, without a path.
    pub role: String,
    /// Names the session; 2 to 64 letters, digits and `=,.@-_+`.
    pub session: String,
    /// 900 to 43,200.
    pub duration_s: u32,
    /// A document that narrows the session.
    pub policy: Option<String>,
}

/// The reply to [`AssumeRole`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssumedRole {
    /// Temporary.
    pub access_key_id: String,
    /// Secret.
    pub secret_access_key: String,
    /// Goes with every request.
    pub session_token: String,
    /// Milliseconds since the epoch.
    pub expires_ms: u64,
    /// [`crate::arn::assumed_role`].
    pub arn: String,
    /// Of what a session's policies may have, what they have.
    pub packed_policy_percent: usize,
    /// `<role id>:<session>`.
    pub id: String,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// `AROA` and 17 letters or digits.
    pub id: String,
    /// [`crate::arn::role`].
    pub arn: String,
    /// Milliseconds since the epoch.
    pub created_ms: u64,
}

/// A `GetRole`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetRole {
    /// Role's name, without a path.
    pub role_name: String,
}

/// A `ListRoles`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRoles {
    /// What their paths begin with.
    pub path_prefix: String,
    /// Of the roles.
    pub paging: Paging,
}

/// One page of a list of IAM's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    /// From the page before.
    pub marker: Option<String>,
    /// 1 to 1000.
    pub max_items: u32,
}

/// A `SimulatePrincipalPolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatePrincipalPolicy {
    /// Whose rights.
    pub source_arn: String,
    /// `s3:GetObject` and the like.
    pub actions: Vec<String>,
    /// At least one; `*` where the request names none.
    pub resources: Vec<String>,
    /// Of the results.
    pub paging: Paging,
}

/// What a simulation decides about an action on a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evaluation {
    /// As asked.
    pub action: String,
    /// As asked.
    pub resource: String,
    /// `allowed`, `explicitDeny` or `implicitDeny`.
    pub decision: &'static str,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AssumeRoleRequest {
    role_arn: String,
    role_session_name: String,
    duration_seconds: Option<u32>,
    policy: Option<String>,
    #[serde(default)]
    policy_arns: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListRolesRequest {
    path_prefix: Option<String>,
    marker: Option<String>,
    max_items: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SimulatePrincipalPolicyRequest {
    policy_source_arn: String,
    action_names: Vec<String>,
    #[serde(default)]
    resource_arns: Vec<String>,
    marker: Option<String>,
    max_items: Option<u32>,
}

impl Input for AssumeRole {
    fn read(call: Call) -> Result<Self, Error> {
        read::<AssumeRoleRequest>(call.input)?.check()
    }
}

impl AssumeRoleRequest {
    fn check(self) -> Result<AssumeRole, Error> {
        // A narrower session that is not narrower would be a lie.
        if !self.policy_arns.is_empty() {
            return Err(Error::validation(
                "Shoal has no managed policies: write what the session may do into Policy, and leave out PolicyArns.",
            ));
        }
        let mut parts = self.role_arn.splitn(6, ':');
        let (arn, _partition, service, region, account, role) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
        let name = role.and_then(|role| role.strip_prefix("role/")).and_then(|path| path.rsplit('/').next());
        let digits = |account: &&str| account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
        match (arn, service, region, account.filter(digits), name.filter(|name| is_role_name(name))) {
            (Some("arn"), Some("iam"), Some(""), Some(account), Some(name)) => Ok(AssumeRole {
                account: account.to_owned(),
                role: name.to_owned(),
                session: self.role_session_name,
                duration_s: self.duration_seconds.unwrap_or(3600),
                policy: self.policy,
            }),
            _ => Err(Error::validation(format!(
                "{} is invalid: RoleArn is arn:aws:iam::<12 digits>:role/<name>",
                self.role_arn
            ))),
        }
    }
}

/// IAM's rule for names of roles.
fn is_role_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte))
}

impl Input for ListRoles {
    fn read(call: Call) -> Result<Self, Error> {
        let request: ListRolesRequest = read(call.input)?;
        let path_prefix = request.path_prefix.unwrap_or_else(|| "/".to_owned());
        Ok(Self { path_prefix, paging: Paging::new(request.marker, request.max_items) })
    }
}

impl Input for SimulatePrincipalPolicy {
    fn read(call: Call) -> Result<Self, Error> {
        let request: SimulatePrincipalPolicyRequest = read(call.input)?;
        let resources = if request.resource_arns.is_empty() { vec!["*".to_owned()] } else { request.resource_arns };
        Ok(Self {
            source_arn: request.policy_source_arn,
            actions: request.action_names,
            resources,
            paging: Paging::new(request.marker, request.max_items),
        })
    }
}

/// A `GetUser`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct GetUser {
    /// Without one, the caller.
    pub user_name: Option<String>,
}

plain_inputs!(GetRole, GetUser);

impl Paging {
    fn new(marker: Option<String>, max_items: Option<u32>) -> Self {
        Self { marker, max_items: max_items.unwrap_or(DEFAULT_ITEMS) }
    }
}

impl Reply {
    /// `GetCallerIdentity`: twelve digits, [`crate::arn::assumed_role`] and `<role id>:<session>`.
    pub fn get_caller_identity(account: &str, arn: &str, user_id: &str) -> Self {
        Self::of(json!({"Arn": arn, "UserId": user_id, "Account": account}))
    }

    /// `AssumeRole`.
    pub fn assume_role(role: &AssumedRole) -> Self {
        Self::of(assumed(role))
    }

    /// `GetRole`.
    pub fn get_role(shown: &Role) -> Self {
        Self::of(json!({"Role": role(shown)}))
    }

    /// `ListRoles`: one page.
    pub fn list_roles(roles: &[Role], marker: Option<&str>) -> Self {
        Self::of(page("Roles", &roles.iter().map(role).collect(), marker))
    }

    /// `SimulatePrincipalPolicy`: one page.
    pub fn simulate_principal_policy(evaluations: &[Evaluation], marker: Option<&str>) -> Self {
        let entry = |evaluation: &Evaluation| {
            json!({
                "EvalActionName": evaluation.action,
                "EvalResourceName": evaluation.resource,
                "EvalDecision": evaluation.decision,
                "MatchedStatements": [],
                "MissingContextValues": [],
            })
        };
        Self::of(page("EvaluationResults", &evaluations.iter().map(entry).collect(), marker))
    }
}

fn assumed(role: &AssumedRole) -> Value {
    json!({
        "Credentials": {
            "AccessKeyId": role.access_key_id,
            "SecretAccessKey": role.secret_access_key,
            "SessionToken": role.session_token,
            "Expiration": timestamp::iso8601(role.expires_ms),
        },
        "AssumedRoleUser": {"Arn": role.arn, "AssumedRoleId": role.id},
        "PackedPolicySize": role.packed_policy_percent,
    })
}

fn role(role: &Role) -> Value {
    json!({
        "Path": "/",
        "RoleName": role.name,
        "RoleId": role.id,
        "Arn": role.arn,
        "CreateDate": timestamp::iso8601(role.created_ms),
        "AssumeRolePolicyDocument": TRUST_POLICY,
        "MaxSessionDuration": 43_200,
    })
}

fn page(name: &str, items: &Value, marker: Option<&str>) -> Value {
    let mut page = json!({name: items, "IsTruncated": marker.is_some()});
    if let Some(marker) = marker {
        page["Marker"] = json!(marker);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_named_by_their_arn() {
        let check = |arn: &str, expected: Option<(&str, &str)>| {
            let request = AssumeRoleRequest {
                role_arn: arn.to_owned(),
                role_session_name: "me".to_owned(),
                duration_seconds: None,
                policy: None,
                policy_arns: vec![],
            };
            let found = request.check().ok().map(|request| (request.account, request.role));
            assert_eq!(found, expected.map(|(account, role)| (account.to_owned(), role.to_owned())), "{arn}");
        };
        check("arn:aws:iam::123456789012:role/Trainer", Some(("123456789012", "Trainer")));
        check("arn:aws-cn:iam::123456789012:role/service-role/Trainer", Some(("123456789012", "Trainer")));
        check("arn:aws:iam::123456789012:user/Trainer", None);
        check("arn:aws:iam::12345678901:role/Trainer", None);
        check("arn:aws:iam:us-east-1:123456789012:role/Trainer", None);
        check("arn:aws:sts::123456789012:assumed-role/Trainer/me", None);
        check("arn:aws:iam::123456789012:role/", None);
        check("arn:aws:iam::123456789012:role/a b", None);
        check("Trainer", None);
    }
}
