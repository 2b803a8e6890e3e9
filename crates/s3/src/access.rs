//! Who may do what: keys, session tokens and scopes.

use std::sync::Arc;
use std::time::SystemTime;

use http::Extensions;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{
    CopyObjectInput, CopySource, DeleteObjectsInput, ListObjectVersionsInput, ListObjectsInput, ListObjectsV2Input,
    UploadPartCopyInput,
};
use s3s::path::S3Path;
use s3s::{S3Error, S3Request, S3Result, s3_error};
use shoal_policy::Policy;

use crate::backend::Backend;
use crate::encryption::{self, PrivateTransport};
use crate::guard::{self, Deed, Guard, PolicyCaller};
use crate::ranges::Passed;
use crate::{errors, percent, presigned, refusals, signed_headers};

/// Where access keys are looked up, on every request.
pub trait KeyStore: Send + Sync + 'static {
    /// The secret of the key of this id; `None` if there is none or it is no longer good.
    fn secret(&self, access_key_id: &str) -> Option<String>;

    /// What the key opens with the session token that came with it, which only temporary keys need.
    ///
    /// # Errors
    /// It opens nothing.
    fn scope(&self, access_key_id: &str, session_token: Option<&str>) -> Result<Scope, KeyFault>;

    /// Who holds the key, as policies name it.
    fn caller(&self, access_key_id: &str, session_token: Option<&str>) -> PolicyCaller;

    /// Why nothing more may be stored with the key; `None`: it may.
    fn full(&self, access_key_id: &str, session_token: Option<&str>) -> Option<String>;
}

/// Why a key opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFault {
    /// There is no such key, or no longer.
    Unknown,
    /// The session token is not the one that goes with it.
    WrongToken,
    /// The time of a temporary key is over.
    Expired,
    /// Its holder may make no more requests now.
    TooMany,
}

/// What a key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// A job's own objects, as pairs of a bucket and the prefix that keys must start with.
    Job {
        /// Objects that may be read, and prefixes that may be listed.
        read: Vec<(String, String)>,
        /// Objects that may be written and deleted.
        write: Vec<(String, String)>,
    },
    /// What the owner has allowed a key: as a job's, and names and settings of buckets.
    Key {
        /// Objects that may be read in addition to those that may be written; `None` for all.
        read: Option<Vec<(String, String)>>,
        /// Objects that may be written and deleted.
        write: Vec<(String, String)>,
    },
}

/// Operations on buckets that a key may call which reads something of the bucket. Others that read
/// have to be declared here first.
const BUCKET_READS: [&str; 18] = [
    "HeadBucket",
    "GetBucketLocation",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetBucketAcl",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketEncryption",
    "GetBucketCors",
    "GetBucketWebsite",
    "GetBucketLifecycleConfiguration",
    "GetBucketLogging",
    "GetBucketNotificationConfiguration",
    "GetBucketOwnershipControls",
    "GetBucketReplication",
    "GetBucketRequestPayment",
    "GetObjectLockConfiguration",
    "GetPublicAccessBlock",
];

/// Operations that store bytes. Completing an upload stores none that were not sent before.
const STORES: [&str; 5] = ["PutObject", "CopyObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy"];

impl Scope {
    fn may_read(&self, bucket: &str, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Job { read, .. } => covers(read, bucket, key),
            Self::Key { read: None, .. } => true,
            Self::Key { read: Some(read), write } => covers(read, bucket, key) || covers(write, bucket, key),
        }
    }

    fn may_write(&self, bucket: &str, key: &str) -> bool {
        match self {
            Self::All => true,
            Self::Job { write, .. } | Self::Key { write, .. } => covers(write, bucket, key),
        }
    }

    fn may_see_bucket(&self, bucket: &str) -> bool {
        match self {
            Self::All => true,
            Self::Key { read: None, .. } => true,
            Self::Job { read, write } | Self::Key { read: Some(read), write } => {
                read.iter().chain(write).any(|(allowed, _)| allowed == bucket)
            }
        }
    }

    /// What the operation's name and path alone decide.
    fn permits(&self, operation: &str, path: &S3Path) -> bool {
        if *self == Self::All {
            return true;
        }
        match (operation, path) {
            (
                "GetObject" | "HeadObject" | "GetObjectAttributes" | "GetObjectTagging",
                S3Path::Object { bucket, key },
            ) => self.may_read(bucket, key),
            (
                "PutObject"
                | "CopyObject"
                | "DeleteObject"
                | "PutObjectTagging"
                | "DeleteObjectTagging"
                | "CreateMultipartUpload"
                | "UploadPart"
                | "UploadPartCopy"
                | "ListParts"
                | "CompleteMultipartUpload"
                | "AbortMultipartUpload",
                S3Path::Object { bucket, key },
            ) => self.may_write(bucket, key),
            ("HeadBucket" | "GetBucketLocation", S3Path::Bucket { bucket }) => self.may_see_bucket(bucket),
            (operation, S3Path::Bucket { bucket })
                if matches!(self, Self::Key { .. }) && BUCKET_READS.contains(&operation) =>
            {
                self.may_see_bucket(bucket)
            }
            ("ListBuckets", S3Path::Root) => matches!(self, Self::Key { .. }),
            ("GetObjectAcl", S3Path::Object { bucket, key }) => {
                matches!(self, Self::Key { .. }) && self.may_read(bucket, key)
            }
            // Of all keys that have uploads.
            ("ListMultipartUploads", S3Path::Bucket { .. }) => matches!(self, Self::Key { read: None, .. }),
            // Their inputs decide, below.
            ("ListObjects" | "ListObjectsV2" | "ListObjectVersions" | "DeleteObjects", S3Path::Bucket { .. }) => true,
            _ => false,
        }
    }
}

impl Scope {
    /// A job's program removes no version permanently: what it deletes by mistake is still there.
    fn permits_version(&self, operation: &str, is_version: bool) -> bool {
        !(is_version && operation == "DeleteObject" && matches!(self, Self::Job { .. }))
    }
}

fn covers(prefixes: &[(String, String)], bucket: &str, key: &str) -> bool {
    prefixes.iter().any(|(allowed, prefix)| allowed == bucket && key.starts_with(prefix.as_str()))
}

/// Called once a request's signature is verified, before its body is read, if it is among the
/// request's extensions.
#[derive(Clone)]
pub struct OnVerified(pub Arc<dyn Fn(Verified<'_>) + Send + Sync>);

/// A request whose signature is verified, and which may be refused all the same.
#[derive(Debug, Clone, Copy)]
pub struct Verified<'a> {
    /// The key that signed it.
    pub access_key_id: &'a str,
    /// Temporary keys have one.
    pub session_token: Option<&'a str>,
    /// What the key opens.
    pub scope: &'a Scope,
    /// S3's name of the operation.
    pub operation: &'a str,
    /// The bucket, and the object's key if it has one.
    pub place: Option<(&'a str, &'a str)>,
}

/// The secrets, for the framework's signature check.
pub(crate) struct Keys(pub(crate) Arc<dyn KeyStore>);

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        match self.0.secret(access_key) {
            Some(secret) => Ok(SecretKey::from(secret)),
            None => {
                Err(s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records."))
            }
        }
    }
}

/// Session tokens and scopes, after the signature is verified.
pub(crate) struct ScopedAccess {
    pub(crate) keys: Arc<dyn KeyStore>,
    pub(crate) backend: Backend,
}

#[async_trait::async_trait]
impl S3Access for ScopedAccess {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(credentials) = cx.credentials() else {
            return Err(s3_error!(AccessDenied, "Requests must be signed."));
        };
        signed_headers::check(cx.headers(), cx.uri().query())?;
        presigned::check_expiry(cx.uri().query(), SystemTime::now())?;
        let access_key_id = credentials.access_key.clone();
        let token = session_token(cx);
        let scope = self.keys.scope(&access_key_id, token.as_deref()).map_err(|fault| match fault {
            KeyFault::Unknown => denied(),
            KeyFault::WrongToken => {
                s3_error!(InvalidToken, "The provided token is malformed or otherwise invalid.")
            }
            KeyFault::Expired => s3_error!(ExpiredToken, "The provided token has expired."),
            KeyFault::TooMany => s3_error!(SlowDown, "Please reduce your request rate: it is above your quota."),
        })?;
        let report = cx.extensions_mut().get::<OnVerified>().cloned();
        if let Some(OnVerified(report)) = report {
            let place = match cx.s3_path() {
                S3Path::Root => None,
                S3Path::Bucket { bucket } => Some((&**bucket, "")),
                S3Path::Object { bucket, key } => Some((&**bucket, &**key)),
            };
            let (session_token, operation) = (token.as_deref(), cx.s3_op().name());
            report(Verified { access_key_id: &access_key_id, session_token, scope: &scope, operation, place });
        }
        let guard = self.guard(scope, self.keys.caller(&access_key_id, token.as_deref()), cx.s3_path()).await?;
        let query = cx.uri().query().map(str::to_owned);
        let by_key = guard.scope.permits(cx.s3_op().name(), cx.s3_path())
            && guard.scope.permits_version(cx.s3_op().name(), names_version(query.as_deref()));
        // Each of the objects that are deleted together is looked at, below.
        let is_decided_later = cx.s3_op().name() == "DeleteObjects";
        if !is_decided_later && !guard.permits(by_key, &deed(cx.s3_op().name(), cx.s3_path(), query.as_deref())) {
            return Err(denied());
        }
        if STORES.contains(&cx.s3_op().name())
            && let Some(why) = self.keys.full(&access_key_id, token.as_deref())
        {
            return Err(errors::quota_exceeded(why));
        }
        let bucket = cx
            .s3_path()
            .get_bucket_name()
            .filter(|_| refusals::is_refused_always(cx.s3_op().name()))
            .map(str::to_owned);
        if let Some(bucket) = bucket {
            self.backend.check_bucket(&bucket).await?;
        }
        refusals::check(cx.s3_op().name(), cx.headers(), query.as_deref())?;
        let has_keys = cx.headers().keys().any(|name| name.as_str().contains(encryption::CUSTOMER_HEADERS));
        if has_keys && cx.extensions_mut().get::<PrivateTransport>().is_none() {
            return Err(s3_error!(
                InvalidRequest,
                "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure \
                 connection."
            ));
        }
        if self.backend.options.strict {
            let (headers, bucket) = (cx.headers().clone(), cx.s3_path().get_bucket_name().map(str::to_owned));
            let has_kms = encryption::has_kms(&self.backend, &headers, bucket).await?;
            refusals::refuse_without_effect(&headers, has_kms)?;
        }
        // The path alone decides about these two.
        if matches!(cx.s3_op().name(), "GetObject" | "HeadObject")
            && let Some(passed) = cx.extensions_mut().get::<Passed>()
        {
            let mut found = Extensions::new();
            found.insert(guard.clone());
            passed.set(found);
        }
        cx.extensions_mut().insert(guard);
        Ok(())
    }

    async fn list_objects(&self, req: &mut S3Request<ListObjectsInput>) -> S3Result<()> {
        let prefix = req.input.prefix.as_deref().unwrap_or_default();
        allow(lists(guard(req)?, &req.input.bucket, prefix, "ListObjects"))
    }

    async fn list_objects_v2(&self, req: &mut S3Request<ListObjectsV2Input>) -> S3Result<()> {
        let prefix = req.input.prefix.as_deref().unwrap_or_default();
        allow(lists(guard(req)?, &req.input.bucket, prefix, "ListObjects"))
    }

    async fn list_object_versions(&self, req: &mut S3Request<ListObjectVersionsInput>) -> S3Result<()> {
        let prefix = req.input.prefix.as_deref().unwrap_or_default();
        allow(lists(guard(req)?, &req.input.bucket, prefix, "ListObjectVersions"))
    }

    async fn delete_objects(&self, req: &mut S3Request<DeleteObjectsInput>) -> S3Result<()> {
        let (guard, bucket) = (guard(req)?, &req.input.bucket);
        allow(req.input.delete.objects.iter().all(|object| {
            let is_version = object.version_id.is_some();
            let by_key =
                guard.scope.may_write(bucket, &object.key) && guard.scope.permits_version("DeleteObject", is_version);
            guard.permits(by_key, &of_object("DeleteObject", bucket, &object.key, is_version))
        }))
    }

    async fn copy_object(&self, req: &mut S3Request<CopyObjectInput>) -> S3Result<()> {
        self.may_copy_from(guard(req)?, &req.input.copy_source).await
    }

    async fn upload_part_copy(&self, req: &mut S3Request<UploadPartCopyInput>) -> S3Result<()> {
        self.may_copy_from(guard(req)?, &req.input.copy_source).await
    }
}

impl ScopedAccess {
    /// What decides about a request for something on this path.
    async fn guard(&self, scope: Scope, caller: PolicyCaller, path: &S3Path) -> S3Result<Guard> {
        let policy = match path.get_bucket_name() {
            Some(bucket) => self.policy(bucket.to_owned()).await?,
            None => None,
        };
        Ok(Guard { scope, caller, account: self.backend.options.account.clone(), policy })
    }

    async fn policy(&self, bucket: String) -> S3Result<Option<Arc<Policy>>> {
        let objects = Arc::clone(&self.backend.objects);
        errors::blocking(move || guard::policy_of(&objects, &bucket)).await
    }

    async fn may_copy_from(&self, guard: &Guard, source: &CopySource) -> S3Result<()> {
        let CopySource::Bucket { bucket, key, version_id } = source else { return Err(denied()) };
        let policy = self.policy(bucket.to_string()).await?;
        let by_key = guard.scope.may_read(bucket, key);
        allow(guard.permits_by(policy.as_deref(), by_key, &of_object("GetObject", bucket, key, version_id.is_some())))
    }
}

/// What an operation does, by its name, its path and, of lists, the prefix in its query.
fn deed(operation: &str, path: &S3Path, query: Option<&str>) -> Deed {
    let action = guard::action(operation);
    match path {
        S3Path::Root => Deed { action, resource: "*".to_owned(), prefix: None },
        S3Path::Object { bucket, key } => of_object(operation, bucket, key, names_version(query)),
        S3Path::Bucket { bucket } => {
            let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            let given = pairs.into_iter().find(|(name, _)| *name == "prefix").and_then(|(_, it)| percent::decode(it));
            let is_list = operation.starts_with("ListObject");
            Deed { action, resource: guard::arn(bucket, None), prefix: given.filter(|_| is_list) }
        }
    }
}

fn of_object(operation: &str, bucket: &str, key: &str, is_version: bool) -> Deed {
    let action = if is_version { guard::version_action(operation) } else { guard::action(operation) };
    Deed { action, resource: guard::arn(bucket, Some(key)), prefix: None }
}

/// Whether a request names a version.
fn names_version(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| pair.starts_with("versionId="))
}

fn lists(guard: &Guard, bucket: &str, prefix: &str, operation: &str) -> bool {
    let prefix_given = Some(prefix.to_owned()).filter(|prefix| !prefix.is_empty());
    let deed = Deed { action: guard::action(operation), resource: guard::arn(bucket, None), prefix: prefix_given };
    guard.permits(guard.scope.may_read(bucket, prefix), &deed)
}

fn guard<T>(req: &S3Request<T>) -> S3Result<&Guard> {
    req.extensions.get::<Guard>().ok_or_else(denied)
}

fn allow(allowed: bool) -> S3Result<()> {
    if allowed { Ok(()) } else { Err(denied()) }
}

fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

/// From the header, or from the URL of a presigned request; both are covered by the signature.
fn session_token(cx: &S3AccessContext<'_>) -> Option<String> {
    const NAME: &str = "x-amz-security-token";
    if let Some(value) = cx.headers().get(NAME) {
        return value.to_str().ok().map(str::to_owned);
    }
    let pairs = cx.uri().query()?.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(NAME))?;
    percent::decode(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_sees_its_own_prefixes() {
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        let scope =
            Scope::Job { read: vec![pair("data", "train/"), pair("ckpt", "j/")], write: vec![pair("ckpt", "j/")] };
        let object = |bucket: &str, key: &str| S3Path::Object { bucket: bucket.into(), key: key.into() };
        let bucket = |bucket: &str| S3Path::Bucket { bucket: bucket.into() };
        for (operation, path, expected) in [
            ("GetObject", object("data", "train/a"), true),
            ("GetObject", object("data", "training"), false),
            ("GetObject", object("other", "train/a"), false),
            ("HeadObject", object("ckpt", "j/x"), true),
            ("PutObject", object("ckpt", "j/x"), true),
            ("PutObject", object("data", "train/a"), false),
            ("UploadPart", object("ckpt", "k/x"), false),
            ("DeleteObject", object("data", "train/a"), false),
            ("HeadBucket", bucket("data"), true),
            ("HeadBucket", bucket("other"), false),
            ("DeleteBucket", bucket("ckpt"), false),
            ("CreateBucket", bucket("new"), false),
            ("ListBuckets", S3Path::Root, false),
            ("PostObject", bucket("ckpt"), false),
            ("PutObjectAcl", object("ckpt", "j/x"), false),
        ] {
            assert_eq!(scope.permits(operation, &path), expected, "{operation} {path:?}");
            assert!(Scope::All.permits(operation, &path));
        }
    }

    #[test]
    fn a_job_removes_no_version() {
        let scope = Scope::Job { read: Vec::new(), write: vec![("ckpt".to_owned(), String::new())] };
        let user = Scope::Key { read: None, write: Vec::new() };
        assert!(!scope.permits_version("DeleteObject", names_version(Some("x-id=DeleteObject&versionId=1"))));
        assert!(scope.permits_version("DeleteObject", names_version(Some("x-id=DeleteObject"))));
        assert!(scope.permits_version("GetObject", true) && user.permits_version("DeleteObject", true));
    }

    /// All operations that change something, and some that read.
    #[test]
    fn a_key_reads_and_writes_what_the_owner_has_allowed() {
        let pair = |bucket: &str, prefix: &str| (bucket.to_owned(), prefix.to_owned());
        let reader = Scope::Key { read: None, write: Vec::new() };
        let user = Scope::Key { read: Some(vec![pair("data", "shared/")]), write: vec![pair("out", "anna/")] };
        let object = |bucket: &str, key: &str| S3Path::Object { bucket: bucket.into(), key: key.into() };
        let bucket = |bucket: &str| S3Path::Bucket { bucket: bucket.into() };
        for (operation, path, by_reader, by_user) in [
            ("GetObject", object("data", "shared/a"), true, true),
            ("GetObject", object("data", "private/a"), true, false),
            ("GetObject", object("out", "anna/a"), true, true),
            ("HeadObject", object("out", "ben/a"), true, false),
            ("GetObjectAcl", object("out", "ben/a"), true, false),
            ("HeadBucket", bucket("out"), true, true),
            ("HeadBucket", bucket("other"), true, false),
            ("GetBucketVersioning", bucket("data"), true, true),
            ("GetBucketTagging", bucket("other"), true, false),
            ("ListBuckets", S3Path::Root, true, true),
            ("ListMultipartUploads", bucket("out"), true, false),
            ("PutObject", object("out", "anna/a"), false, true),
            ("PutObject", object("out", "ben/a"), false, false),
            ("PutObject", object("data", "shared/a"), false, false),
            ("CopyObject", object("out", "annabel/a"), false, false),
            ("DeleteObject", object("out", "anna/a"), false, true),
            ("DeleteObject", object("data", "shared/a"), false, false),
            ("PutObjectTagging", object("out", "ben/a"), false, false),
            ("CreateMultipartUpload", object("out", "ben/a"), false, false),
            ("UploadPart", object("out", "anna/a"), false, true),
            ("UploadPartCopy", object("out", "ben/a"), false, false),
            ("CompleteMultipartUpload", object("out", "ben/a"), false, false),
            ("AbortMultipartUpload", object("out", "ben/a"), false, false),
            ("CreateBucket", bucket("new"), false, false),
            ("DeleteBucket", bucket("out"), false, false),
            ("PutBucketTagging", bucket("out"), false, false),
            ("DeleteBucketTagging", bucket("out"), false, false),
            ("PutBucketPolicy", bucket("out"), false, false),
            ("PutPublicAccessBlock", bucket("out"), false, false),
            ("PostObject", bucket("out"), false, false),
            ("PutObjectAcl", object("out", "anna/a"), false, false),
            ("AnOperationOfTomorrow", bucket("out"), false, false),
            ("AnOperationOfTomorrow", object("out", "anna/a"), false, false),
        ] {
            assert_eq!(reader.permits(operation, &path), by_reader, "{operation} {path:?} by a reader");
            assert_eq!(user.permits(operation, &path), by_user, "{operation} {path:?} by a user");
        }
    }
}
