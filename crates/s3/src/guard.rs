//! What the caller of a request may do: what its key opens, what the bucket's policy adds or takes
//! away, and to what its role narrows both.

use std::sync::Arc;

use shoal_policy::{Decision, Policy, Request, decide};
use shoal_store::{Objects, StoreError};

use crate::Scope;

/// Who signs a request, as policies name it.
#[derive(Debug, Clone, Default)]
pub struct PolicyCaller {
    /// Its ARN, and that of the role whose session it is.
    pub principals: Vec<String>,
    /// The name of a user's key.
    pub username: Option<String>,
    /// Of a session: the policies of its role where roles are declared, and those that it was
    /// opened with. Each of them has to allow what is done.
    pub narrowed_by: Vec<Arc<Vec<Policy>>>,
}

/// The caller of a request, and the policy of the bucket that its path names.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) scope: Scope,
    pub(crate) caller: PolicyCaller,
    pub(crate) account: String,
    pub(crate) policy: Option<Arc<Policy>>,
}

/// What is done: an action, the resource's ARN, and the prefix of a list.
#[derive(Debug, Clone)]
pub(crate) struct Deed {
    pub(crate) action: String,
    pub(crate) resource: String,
    pub(crate) prefix: Option<String>,
}

/// `arn:aws:s3:::bucket/key`, without a key the bucket's.
pub(crate) fn arn(bucket: &str, key: Option<&str>) -> String {
    key.map_or_else(|| format!("arn:aws:s3:::{bucket}"), |key| format!("arn:aws:s3:::{bucket}/{key}"))
}

/// An operation as policies name it.
pub(crate) fn action(operation: &str) -> String {
    let name = match operation {
        "HeadObject" | "GetObject" | "GetObjectAttributes" => "GetObject",
        "PutObject"
        | "CopyObject"
        | "CreateMultipartUpload"
        | "UploadPart"
        | "UploadPartCopy"
        | "CompleteMultipartUpload" => "PutObject",
        "ListParts" => "ListMultipartUploadParts",
        "DeleteObjects" => "DeleteObject",
        "HeadBucket" | "ListObjects" | "ListObjectsV2" => "ListBucket",
        "ListObjectVersions" => "ListBucketVersions",
        "ListMultipartUploads" => "ListBucketMultipartUploads",
        "ListBuckets" => "ListAllMyBuckets",
        "GetBucketEncryption" => "GetEncryptionConfiguration",
        "PutBucketEncryption" | "DeleteBucketEncryption" => "PutEncryptionConfiguration",
        "GetPublicAccessBlock" => "GetBucketPublicAccessBlock",
        "PutPublicAccessBlock" | "DeletePublicAccessBlock" => "PutBucketPublicAccessBlock",
        "DeleteBucketTagging" => "PutBucketTagging",
        "GetBucketLifecycleConfiguration" => "GetLifecycleConfiguration",
        "PutBucketLifecycleConfiguration" | "DeleteBucketLifecycle" => "PutLifecycleConfiguration",
        other => other,
    };
    format!("s3:{name}")
}

/// The same of an operation on a version that its request names.
pub(crate) fn version_action(operation: &str) -> String {
    let action = action(operation);
    match action.as_str() {
        "s3:GetObject" | "s3:DeleteObject" => action + "Version",
        "s3:GetObjectTagging" | "s3:PutObjectTagging" | "s3:DeleteObjectTagging" => {
            action.replace("Tagging", "VersionTagging")
        }
        "s3:GetObjectAcl" => action.replace("Acl", "VersionAcl"),
        _ => action,
    }
}

/// What a bucket's owner can always do, so that no policy locks a bucket permanently.
const OWNERS: [&str; 3] = ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"];

impl Guard {
    /// Whether it may be done. `by_key`: the key opens it.
    pub(crate) fn permits(&self, by_key: bool, deed: &Deed) -> bool {
        self.permits_by(self.policy.as_deref(), by_key, deed)
    }

    /// The same of something in another bucket.
    pub(crate) fn permits_by(&self, policy: Option<&Policy>, by_key: bool, deed: &Deed) -> bool {
        let request = request(&self.caller, &self.account, deed);
        if self.caller.narrowed_by.iter().any(|it| decide(it.iter(), &request) != Decision::Allowed) {
            return false;
        }
        if by_key && self.scope == Scope::All && OWNERS.contains(&deed.action.as_str()) {
            return true;
        }
        match decide(policy, &request) {
            Decision::ExplicitDeny => false,
            Decision::Allowed => true,
            Decision::ImplicitDeny => by_key,
        }
    }
}

fn request<'a>(caller: &PolicyCaller, account: &'a str, deed: &'a Deed) -> Request<'a> {
    let arn = caller.principals.first().map(|arn| ("aws:principalarn".to_owned(), arn.clone()));
    let name = caller.username.clone().map(|name| ("aws:username".to_owned(), name));
    let prefix = deed.prefix.clone().map(|prefix| ("s3:prefix".to_owned(), prefix));
    Request {
        account,
        principals: caller.principals.clone(),
        action: &deed.action,
        resource: &deed.resource,
        keys: arn.into_iter().chain(name).chain(prefix).collect(),
    }
}

/// The policy of a bucket; none of one that does not exist.
pub(crate) fn policy_of(objects: &Objects, bucket: &str) -> Result<Option<Arc<Policy>>, StoreError> {
    let text = match objects.bucket_policy(bucket) {
        Err(StoreError::NoSuchBucket(_)) => return Ok(None),
        found => found?,
    };
    // It was read when it was stored; one that cannot be read now must open nothing.
    text.map(|text| match Policy::of_resource(&text) {
        Ok(policy) => Ok(Arc::new(policy)),
        Err(error) => Err(StoreError::Corrupt {
            path: "objects.db".into(),
            detail: format!("the policy of bucket {bucket} cannot be read: {error}"),
        }),
    })
    .transpose()
}

/// What the policy of a bucket decides about an object, or about those below a prefix.
///
/// # Errors
/// The storage's.
pub fn bucket_decision(
    objects: &Objects,
    caller: &PolicyCaller,
    account: &str,
    (bucket, key): (&str, &str),
    writes: bool,
) -> Result<Decision, StoreError> {
    let operation = if writes { "PutObject" } else { "GetObject" };
    let deed = Deed { action: action(operation), resource: arn(bucket, Some(key)), prefix: None };
    Ok(decide(policy_of(objects, bucket)?.as_deref(), &request(caller, account, &deed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READS: &str = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::1:user/anna"}, "Action": "s3:GetObject",
         "Resource": "arn:aws:s3:::data/*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::data/secret/*"}]}"#;
    const NARROW: &str = r#"{"Statement": {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}}"#;

    #[test]
    fn what_names_a_version_has_an_action_of_its_own() {
        for (operation, expected) in [
            ("HeadObject", "s3:GetObjectVersion"),
            ("GetObjectAttributes", "s3:GetObjectVersion"),
            ("GetObjectTagging", "s3:GetObjectVersionTagging"),
            ("PutObjectTagging", "s3:PutObjectVersionTagging"),
            ("DeleteObjects", "s3:DeleteObjectVersion"),
            ("GetObjectAcl", "s3:GetObjectVersionAcl"),
            ("ListObjectVersions", "s3:ListBucketVersions"),
            ("PutBucketVersioning", "s3:PutBucketVersioning"),
            ("DeleteBucketLifecycle", "s3:PutLifecycleConfiguration"),
        ] {
            assert_eq!(version_action(operation), expected);
        }
    }

    #[test]
    fn a_key_a_buckets_policy_and_a_role_come_to_one_answer() {
        let policy = Some(Arc::new(Policy::of_resource(READS).unwrap()));
        let guard = |user: &str, scope: Scope, has_role: bool| Guard {
            scope,
            caller: PolicyCaller {
                principals: vec![format!("arn:aws:iam::1:user/{user}")],
                username: Some(user.to_owned()),
                narrowed_by: Vec::from_iter(has_role.then(|| Arc::new(vec![Policy::of_identity(NARROW).unwrap()]))),
            },
            account: "1".to_owned(),
            policy: policy.clone(),
        };
        let nothing = || Scope::Key { read: Some(Vec::new()), write: Vec::new() };
        let deed = |operation: &str, key: &str| Deed {
            action: action(operation),
            resource: arn("data", Some(key)),
            prefix: None,
        };
        for (user, has_role, by_key, operation, key, expected) in [
            // The policy adds to the key, for those whom it names.
            ("anna", false, false, "HeadObject", "a", true),
            ("anna", false, false, "PutObject", "a", false),
            ("ben", false, false, "GetObject", "a", false),
            ("ben", false, true, "GetObject", "a", true),
            // It takes away from all.
            ("anna", false, true, "GetObject", "secret/a", false),
            ("ben", false, true, "PutObject", "secret/a", false),
            // A role narrows both.
            ("anna", true, false, "GetObject", "a", true),
            ("anna", true, true, "PutObject", "a", false),
            ("ben", true, false, "GetObject", "a", false),
        ] {
            let permits = guard(user, nothing(), has_role).permits(by_key, &deed(operation, key));
            assert_eq!(permits, expected, "{user} {has_role} {by_key} {operation} {key}");
        }
        let owner = guard("owner", Scope::All, false);
        let locked = Policy::of_resource(
            r#"{"Statement": {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "arn:aws:s3:::data"}}"#,
        )
        .unwrap();
        let of_bucket = |operation: &str| Deed { action: action(operation), resource: arn("data", None), prefix: None };
        assert!(!owner.permits_by(Some(&locked), true, &of_bucket("ListObjectsV2")));
        assert!(owner.permits_by(Some(&locked), true, &of_bucket("DeleteBucketPolicy")));
    }
}
