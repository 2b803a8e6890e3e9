//! The keys of a server beside its owner's: operations of ours beside IAM's (`Shoal.AddKey`,
//! `Shoal.ListKeys`, `Shoal.RotateKey`, `Shoal.RemoveKey`), as a key here has one of three roles
//! instead of policies.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Call, Error, Input, Reply, S3Uri,
    call::{plain_inputs, read},
    refusal::refuse,
    timestamp,
};

/// The operation's `X-Amz-Target`: makes a key.
pub const ADD_KEY: &str = "Shoal.AddKey";
/// Lists keys, without their secrets.
pub const LIST_KEYS: &str = "Shoal.ListKeys";
/// Replaces a key by a new one of the same name.
pub const ROTATE_KEY: &str = "Shoal.RotateKey";
/// Removes a key.
pub const REMOVE_KEY: &str = "Shoal.RemoveKey";

/// The name of the key in the data directory's file `keys`.
pub const OWNER_NAME: &str = "owner";
/// Locations that one key may have of each kind.
const MAX_LOCATIONS: usize = 100;

/// What the holder of a key may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyRole {
    /// Everything.
    Owner,
    /// See and change what was created with the key.
    User,
    /// See everything and change nothing.
    Reader,
}

impl KeyRole {
    /// As requests write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::User => "user",
            Self::Reader => "reader",
        }
    }
}

/// Makes a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddKey {
    /// IAM's rule for names of users.
    pub name: String,
    /// What it may do.
    pub role: KeyRole,
    /// Of a user: what of S3 may be read; `None` for all.
    pub read: Option<Vec<S3Uri>>,
    /// Of a user: what of S3 may be written; `None` for the server's default.
    pub write: Option<Vec<S3Uri>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AddKeyRequest {
    name: String,
    role: KeyRole,
    #[serde(default)]
    read: Option<Vec<String>>,
    #[serde(default)]
    write: Option<Vec<String>>,
}

/// A request about a key that there is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NamedKey {
    /// Its name.
    pub name: String,
}

plain_inputs!(NamedKey);

impl Input for AddKey {
    fn read(call: Call) -> Result<Self, Error> {
        let request: AddKeyRequest = read(call.input)?;
        if !is_user_name(&request.name) {
            return refuse(
                "name",
                &format!("'{}' must have 1 to 64 letters, digits and +=,.@-_", request.name.escape_debug()),
            );
        }
        if request.name.eq_ignore_ascii_case(OWNER_NAME) {
            return refuse("name", "'owner' is the key in the data directory's file keys");
        }
        if request.role != KeyRole::User && (request.read.is_some() || request.write.is_some()) {
            return refuse("read", "only a user's access to S3 is narrowed; an owner has all, a reader reads all");
        }
        let (read, write) = (locations("read", request.read)?, locations("write", request.write)?);
        Ok(Self { name: request.name, role: request.role, read, write })
    }
}

fn locations(member: &str, given: Option<Vec<String>>) -> Result<Option<Vec<S3Uri>>, Error> {
    let Some(given) = given else { return Ok(None) };
    if given.len() > MAX_LOCATIONS {
        return refuse(member, &format!("{} locations; {MAX_LOCATIONS} are allowed", given.len()));
    }
    let parsed =
        given.iter().enumerate().map(|(at, text)| crate::refusal::s3_uri(&format!("{member}.{}", at + 1), text));
    parsed.collect::<Result<_, _>>().map(Some)
}

/// IAM's rule for names of users, which is that of roles.
fn is_user_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@-_".contains(&byte))
}

/// A key as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySummary {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub role: KeyRole,
    /// `AKIA` and 16 letters or digits.
    pub access_key_id: String,
    /// ARN of its IAM user.
    pub arn: String,
    /// What of S3 a user may read; `None` for all.
    pub read: Option<Vec<S3Uri>>,
    /// What of S3 a user may write; `None` for all.
    pub write: Option<Vec<S3Uri>>,
    /// Milliseconds since the epoch.
    pub created_ms: u64,
    /// Milliseconds since the epoch; that of the creation for one that was not rotated.
    pub rotated_ms: u64,
}

impl Reply {
    /// `Shoal.AddKey` and `Shoal.RotateKey`: the only time that the secret is shown.
    pub fn new_key(key: &KeySummary, secret_access_key: &str) -> Self {
        let mut shown = summary(key);
        shown["SecretAccessKey"] = json!(secret_access_key);
        Self::of(shown)
    }

    /// `Shoal.ListKeys`.
    pub fn list_keys(keys: &[KeySummary]) -> Self {
        Self::of(json!({"Keys": keys.iter().map(summary).collect::<Vec<_>>()}))
    }

    /// IAM's `GetUser`.
    pub fn get_user(key: &KeySummary, id: &str) -> Self {
        Self::of(json!({"User": {
            "Path": "/",
            "UserName": key.name,
            "UserId": id,
            "Arn": key.arn,
            "CreateDate": timestamp::iso8601(key.created_ms),
            "Tags": [{"Key": "shoal:role", "Value": key.role.name()}],
        }}))
    }
}

fn summary(key: &KeySummary) -> Value {
    let locations =
        |of: &Option<Vec<S3Uri>>| of.as_ref().map(|of| of.iter().map(ToString::to_string).collect::<Vec<_>>());
    json!({
        "Name": key.name,
        "Role": key.role.name(),
        "AccessKeyId": key.access_key_id,
        "Arn": key.arn,
        "Read": locations(&key.read),
        "Write": locations(&key.write),
        "CreationTime": timestamp::seconds(key.created_ms),
        "RotationTime": timestamp::seconds(key.rotated_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{operations, parse};

    fn added(input: &Value) -> Result<AddKey, Error> {
        let head = http::Request::post("/").header("x-amz-target", ADD_KEY).body(()).unwrap().into_parts().0;
        parse(crate::Service::SageMaker, &head, input.to_string().as_bytes())?.read()
    }

    #[test]
    fn a_key_has_a_name_a_role_and_locations() {
        let key =
            added(&json!({"Name": "anna", "Role": "user", "Write": ["s3://models/anna/", "s3://scratch"]})).unwrap();
        assert_eq!((key.name.as_str(), key.role, key.read), ("anna", KeyRole::User, None));
        let write: Vec<_> = key.write.unwrap().into_iter().map(|uri| (uri.bucket, uri.prefix)).collect();
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        assert_eq!(write, [pair("models", "anna/"), pair("scratch", "")]);
        for refused in [
            json!({"Role": "user"}),
            json!({"Name": "anna"}),
            json!({"Name": "", "Role": "user"}),
            json!({"Name": "a b", "Role": "user"}),
            json!({"Name": "a/b", "Role": "user"}),
            json!({"Name": "x".repeat(65), "Role": "user"}),
            json!({"Name": "Owner", "Role": "user"}),
            json!({"Name": "anna", "Role": "root"}),
            json!({"Name": "anna", "Role": "reader", "Write": ["s3://models/"]}),
            json!({"Name": "anna", "Role": "owner", "Read": []}),
            json!({"Name": "anna", "Role": "user", "Write": ["models/anna"]}),
        ] {
            assert!(added(&refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn the_operations_are_served() {
        for target in [ADD_KEY, LIST_KEYS, ROTATE_KEY, REMOVE_KEY] {
            assert!(operations().any(|operation| operation.target == target), "{target}");
        }
    }
}
