//! Who may do what: keys, session tokens and scopes.

use std::sync::Arc;
use std::time::SystemTime;

use http::Extensions;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::{
    CopyObjectInput, CopySource, DeleteObjectsInput, ListObjectVersionsInput, ListObjectsInput, ListObjectsV2Input,
    PutObjectInput, UploadPartCopyInput,
};
use s3s::path::S3Path;
use s3s::{S3Error, S3Request, S3Result, s3_error};
use shoal_policy::Policy;

use crate::backend::Backend;
use crate::encryption::{self, PrivateTransport};
use crate::guard::{self, Deed, Guard, PolicyCaller};
use crate::query::Query;
use crate::ranges::Passed;
use crate::{Scope, errors, passthrough, presigned, refusals, signed_headers};

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

/// Operations that store bytes. Completing an upload stores none that were not sent before.
const STORES: [&str; 6] =
    ["PutObject", FORM_UPLOAD, "CopyObject", "CreateMultipartUpload", "UploadPart", "UploadPartCopy"];

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
        let query = Query::of(cx.uri().query());
        // Its fields are signed, and neither its headers nor its address.
        let is_form = cx.s3_op().name() == FORM_UPLOAD;
        if !is_form {
            signed_headers::check(cx.headers(), &query)?;
            presigned::check_expiry(&query, SystemTime::now())?;
        }
        let access_key_id = credentials.access_key.clone();
        let token = session_token(cx, &query);
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
        let by_key = guard.scope.permits(cx.s3_op().name(), cx.s3_path())
            && guard.scope.permits_version(cx.s3_op().name(), query.has(VERSION));
        // Each of the objects that are deleted together is looked at, below, and the key in a form.
        let is_decided_later = is_form || cx.s3_op().name() == "DeleteObjects";
        if !is_decided_later && !guard.permits(by_key, &deed(cx.s3_op().name(), cx.s3_path(), &query)) {
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
        refusals::check(cx.s3_op().name(), cx.headers(), &query)?;
        if let Some(bucket) = cx.s3_path().get_bucket_name()
            && let Some(shown) = self.backend.objects.passthrough(bucket)
        {
            passthrough::check(shown, bucket, cx.s3_op().name(), cx.headers(), &query)?;
        }
        let has_keys = cx.headers().keys().any(|name| name.as_str().contains(encryption::CUSTOMER_HEADERS));
        if has_keys {
            carries_keys(cx.extensions_mut())?;
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
        if is_form {
            cx.extensions_mut().insert(FormUpload);
        }
        Ok(())
    }

    /// The path decides about all but forms, which have the object's key among their fields.
    async fn put_object(&self, req: &mut S3Request<PutObjectInput>) -> S3Result<()> {
        if req.extensions.get::<FormUpload>().is_none() {
            return Ok(());
        }
        let (guard, bucket, key) = (guard(req)?, &req.input.bucket, &req.input.key);
        allow(guard.permits(guard.scope.may_write(bucket, key), &of_object("PutObject", bucket, key, false)))?;
        let input = &req.input;
        let has_keys =
            [&input.sse_customer_algorithm, &input.sse_customer_key_md5].into_iter().any(|field| field.is_some());
        if has_keys || input.sse_customer_key.is_some() { carries_keys(&req.extensions) } else { Ok(()) }
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

/// The parameter that names a version.
const VERSION: &str = "versionId";

/// The framework's name of an upload by a form.
const FORM_UPLOAD: &str = "PostObject";

/// An extension of requests that upload by a form.
#[derive(Clone, Copy)]
struct FormUpload;

/// # Errors
/// Keys of customers may not come this way.
fn carries_keys(extensions: &Extensions) -> S3Result<()> {
    extensions.get::<PrivateTransport>().map(|_| ()).ok_or_else(|| {
        s3_error!(
            InvalidRequest,
            "Requests specifying Server Side Encryption with Customer provided keys must be made over a secure \
             connection."
        )
    })
}

/// What an operation does, by its name, its path and, of lists, the prefix in its query.
fn deed(operation: &str, path: &S3Path, query: &Query) -> Deed {
    let action = guard::action(operation);
    match path {
        S3Path::Root => Deed { action, resource: "*".to_owned(), prefix: None },
        S3Path::Object { bucket, key } => of_object(operation, bucket, key, query.has(VERSION)),
        S3Path::Bucket { bucket } => {
            let prefix = query.get("prefix").filter(|_| operation.starts_with("ListObject")).map(str::to_owned);
            Deed { action, resource: guard::arn(bucket, None), prefix }
        }
    }
}

fn of_object(operation: &str, bucket: &str, key: &str, is_version: bool) -> Deed {
    let action = if is_version { guard::version_action(operation) } else { guard::action(operation) };
    Deed { action, resource: guard::arn(bucket, Some(key)), prefix: None }
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
fn session_token(cx: &S3AccessContext<'_>, query: &Query) -> Option<String> {
    const NAME: &str = "x-amz-security-token";
    if let Some(value) = cx.headers().get(NAME) {
        return value.to_str().ok().map(str::to_owned);
    }
    query.find(|name| name.eq_ignore_ascii_case(NAME)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_named_however_its_parameter_is_written() {
        let path = S3Path::Object { bucket: "b".into(), key: "k".into() };
        for (query, expected) in [
            ("x-id=DeleteObject&versionId=1", "s3:DeleteObjectVersion"),
            ("version%49d=1", "s3:DeleteObjectVersion"),
            ("%76ersionId", "s3:DeleteObjectVersion"),
            ("versionid=1", "s3:DeleteObject"),
        ] {
            assert_eq!(deed("DeleteObject", &path, &Query::of(Some(query))).action, expected, "{query}");
        }
        let list = deed("ListObjectsV2", &S3Path::Bucket { bucket: "b".into() }, &Query::of(Some("pre%66ix=a+b%2F")));
        assert_eq!(list.prefix.as_deref(), Some("a b/"));
    }
}
