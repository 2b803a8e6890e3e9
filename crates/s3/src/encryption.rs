//! Encryption at rest as clients of S3 ask for it: under a key of the owner (SSE-KMS), or under a
//! key that comes with each request (SSE-C).

use std::sync::Arc;

use http::HeaderMap;
use md5::{Digest, Md5};
use s3s::dto::ServerSideEncryption;
use s3s::{S3Error, S3Result, s3_error};
use shoal_encryption::{CustomerKey, Envelope, Holder, KeyError};
use shoal_store::{BucketEncryption, Encryption, ObjectMeta, Objects, StoreError, UploadMeta};

use crate::attributes::at_rest;
use crate::backend::Backend;
use crate::errors::{blocking, from_key, from_store};
use crate::guard::{Deed, Guard};
use crate::refusals;

/// AWS's key for requests that ask for SSE-KMS and name none.
const DEFAULT_KEY: &str = "aws/s3";
/// The one algorithm of keys of customers.
const ALGORITHM: &str = "AES256";

/// An extension of requests that no machine between client and server can read: over TLS, or from
/// this machine. Others may not carry keys.
#[derive(Debug, Clone, Copy)]
pub struct PrivateTransport;

/// Parts of the names of headers that belong to SSE-C.
pub(crate) const CUSTOMER_HEADERS: &str = "server-side-encryption-customer-";

/// The key of a customer in a request.
#[derive(Debug, Clone)]
pub(crate) struct Customer {
    pub(crate) key: CustomerKey,
    /// In base64; answers have it.
    md5: String,
}

impl Customer {
    /// From the three headers of SSE-C; `None`: there is none of them.
    pub(crate) fn of(algorithm: Option<&str>, key: Option<&str>, md5: Option<&str>) -> S3Result<Option<Self>> {
        const REQUESTS: &str = "Requests specifying Server Side Encryption with Customer provided keys must provide";
        if [algorithm, key, md5].iter().all(Option::is_none) {
            return Ok(None);
        }
        let invalid = |what: &str| s3_error!(InvalidArgument, "{REQUESTS} {what}.");
        if algorithm != Some(ALGORITHM) {
            return Err(invalid("a valid encryption algorithm"));
        }
        let key = key.ok_or_else(|| invalid("an appropriate secret key"))?;
        let md5 = md5.ok_or_else(|| invalid("the client calculated MD5 of the secret key"))?;
        let bytes = base64_simd::STANDARD.decode_to_vec(key).unwrap_or_default();
        let key = CustomerKey::of(&bytes)
            .ok_or_else(|| s3_error!(InvalidArgument, "The secret key was invalid for the specified algorithm."))?;
        if base64_simd::STANDARD.encode_to_string(Md5::digest(&bytes)) != md5 {
            return Err(s3_error!(
                InvalidArgument,
                "The calculated MD5 hash of the key did not match the hash that was provided."
            ));
        }
        Ok(Some(Self { key, md5: md5.to_owned() }))
    }
}

/// The key of a customer in the input of an operation.
macro_rules! customer {
    ($input:expr) => {
        $crate::encryption::Customer::of(
            $input.sse_customer_algorithm.as_deref(),
            $input.sse_customer_key.as_deref(),
            $input.sse_customer_key_md5.as_deref(),
        )
    };
}

/// That of the source of a copy.
macro_rules! source_customer {
    ($input:expr) => {
        $crate::encryption::Customer::of(
            $input.copy_source_sse_customer_algorithm.as_deref(),
            $input.copy_source_sse_customer_key.as_deref(),
            $input.copy_source_sse_customer_key_md5.as_deref(),
        )
    };
}

/// What the input of an operation that writes an object asks for.
macro_rules! asked {
    ($backend:expr, $guard:expr, $input:expr) => {
        $crate::encryption::customer!($input).and_then(|customer| {
            $crate::encryption::Asked::of(
                $backend,
                $guard,
                $input.server_side_encryption.as_ref().map(|kind| kind.as_str()),
                $input.ssekms_key_id.as_deref(),
                $input.bucket_key_enabled,
                customer,
            )
        })
    };
}

/// An answer that shows how the object is encrypted.
macro_rules! with_encryption {
    ($shown:expr, $output:expr) => {{
        let (shown, mut output) = ($shown, $output);
        output.server_side_encryption = shown.kind;
        output.ssekms_key_id = shown.kms_key_id;
        output.bucket_key_enabled = shown.bucket_key;
        output.sse_customer_algorithm = shown.customer_algorithm;
        output.sse_customer_key_md5 = shown.customer_md5;
        output
    }};
}

pub(crate) use {asked, customer, source_customer, with_encryption};

/// What the writer of an object asks for.
#[derive(Debug, Clone)]
pub(crate) enum Asked {
    /// What the bucket has.
    Nothing,
    /// SSE-S3.
    Plain,
    /// SSE-KMS under this key.
    Kms(BucketEncryption),
    /// SSE-KMS under no key by name, where there is no key for that: SageMaker's SDKs ask so.
    AnyKms,
    Customer(Customer),
}

impl Asked {
    /// Checks what the headers ask for, as far as that does not depend on the bucket.
    pub(crate) fn of(
        backend: &Backend,
        guard: Option<&Guard>,
        kind: Option<&str>,
        key_id: Option<&str>,
        bucket_key: Option<bool>,
        customer: Option<Customer>,
    ) -> S3Result<Self> {
        let key_id = key_id.filter(|id| !id.is_empty());
        match (kind, customer) {
            (None, Some(customer)) if key_id.is_none() => Ok(Self::Customer(customer)),
            (_, Some(_)) => Err(s3_error!(
                InvalidArgument,
                "Server Side Encryption with Customer provided key is incompatible with the encryption method specified"
            )),
            (None | Some(ALGORITHM), None) if key_id.is_some() => Err(s3_error!(
                InvalidArgument,
                "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : \
                 aws:kms"
            )),
            (None, None) => Ok(Self::Nothing),
            (Some(ALGORITHM), None) => Ok(Self::Plain),
            (Some(ServerSideEncryption::AWS_KMS), None) => {
                let keys = backend.objects.keys();
                let name = match key_id {
                    Some(id) => find(backend, id)?,
                    None if keys.has(DEFAULT_KEY) => DEFAULT_KEY.to_owned(),
                    None => return Ok(Self::AnyKms),
                };
                let rule = BucketEncryption { kms: name, bucket_key: bucket_key == Some(true) };
                may_use(backend, guard, "kms:GenerateDataKey", &rule.kms)?;
                Ok(Self::Kms(rule))
            }
            (Some(ServerSideEncryption::AWS_KMS_DSSE), None) => Err(twice()),
            (Some(_), None) => Err(s3_error!(InvalidArgument, "The encryption method specified is not supported")),
        }
    }

    /// The key of the customer, if that is asked for.
    pub(crate) fn customer(&self) -> Option<&Customer> {
        match self {
            Self::Customer(customer) => Some(customer),
            _ => None,
        }
    }

    /// The encryption is named.
    pub(crate) fn is_named(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// How an object of this bucket is encrypted. Blocks.
    pub(crate) fn encryption(&self, backend: &Backend, guard: Option<&Guard>, bucket: &str) -> S3Result<Encryption> {
        match self {
            Self::Plain => Ok(Encryption::None),
            Self::Kms(rule) => Ok(Encryption::Kms(rule.clone())),
            Self::Customer(customer) => Ok(Encryption::Customer(customer.key.clone())),
            Self::Nothing | Self::AnyKms => {
                let default = backend.objects.encryption_for(bucket, None).map_err(from_store)?;
                if let Encryption::Kms(rule) = &default {
                    may_use(backend, guard, "kms:GenerateDataKey", &rule.kms)?;
                }
                Ok(default)
            }
        }
    }
}

/// The name of a key that a client names.
///
/// # Errors
/// `KMS.NotFoundException`.
pub(crate) fn find(backend: &Backend, id: &str) -> S3Result<String> {
    let found = backend.objects.keys().find(id);
    found.map(str::to_owned).map_err(|error| from_key(&error))
}

/// The key of a bucket's default that names none.
pub(crate) fn find_default(backend: &Backend) -> S3Result<String> {
    find(backend, DEFAULT_KEY)
}

pub(crate) fn twice() -> S3Error {
    s3_error!(NotImplemented, "Contents are encrypted once, not twice (DSSE-KMS): ask for aws:kms.")
}

/// AWS requires rights on the key, too: a declared role must give them, any other key has them.
pub(crate) fn may_use(backend: &Backend, guard: Option<&Guard>, action: &str, name: &str) -> S3Result<()> {
    let deed = Deed { action: action.to_owned(), resource: backend.objects.keys().arn(name), prefix: None };
    match guard {
        Some(guard) if !guard.permits_by(None, true, &deed) => {
            Err(s3_error!(AccessDenied, "Access Denied: no policy of the role allows {} on {}", action, deed.resource))
        }
        _ => Ok(()),
    }
}

/// Whether a reader may have the content, as far as keys decide.
///
/// # Errors
/// AWS's.
pub(crate) fn may_read(
    backend: &Backend,
    guard: Option<&Guard>,
    meta: &ObjectMeta,
    customer: Option<&Customer>,
) -> S3Result<()> {
    has_customers_key(meta, customer)?;
    match meta.attributes.encryption.as_ref().and_then(Envelope::kms_key) {
        Some(name) => may_use(backend, guard, "kms:Decrypt", name),
        None => Ok(()),
    }
}

/// Whether the holder of a key may write parts of this upload, as far as the upload's key decides.
///
/// # Errors
/// `AccessDenied`.
pub(crate) fn may_write_part(backend: &Backend, guard: Option<&Guard>, upload: &UploadMeta) -> S3Result<()> {
    match upload.attributes.encryption.as_ref().and_then(Envelope::kms_key) {
        Some(name) => may_use(backend, guard, "kms:GenerateDataKey", name),
        None => Ok(()),
    }
}

/// Whether a request has the key of a customer if, and only if, the object has one, and the same.
///
/// # Errors
/// AWS's.
pub(crate) fn has_customers_key(meta: &ObjectMeta, customer: Option<&Customer>) -> S3Result<()> {
    let envelope = meta.attributes.encryption.as_ref().filter(|envelope| envelope.holder == Holder::Customer);
    match (envelope, customer) {
        (None, None) => Ok(()),
        (None, Some(_)) => Err(not_applicable()),
        (Some(_), None) => Err(from_key(&KeyError::NoCustomerKey)),
        (Some(envelope), Some(customer)) => customer.key.open(envelope).map(drop).map_err(|error| from_key(&error)),
    }
}

fn not_applicable() -> S3Error {
    s3_error!(InvalidRequest, "The encryption parameters are not applicable to this object.")
}

/// An error of a part's writer, in AWS's words for parts.
pub(crate) fn of_part(error: StoreError) -> S3Error {
    match error {
        StoreError::Key(KeyError::NoCustomerKey) => s3_error!(
            InvalidRequest,
            "The multipart upload initiate requested encryption. Subsequent part requests must include the appropriate \
             encryption parameters."
        ),
        StoreError::Key(KeyError::WrongCustomerKey) => {
            s3_error!(InvalidArgument, "The provided encryption parameters did not match the ones used originally.")
        }
        other => from_store(other),
    }
}

/// How an object is encrypted, as answers show it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Shown {
    pub(crate) kind: Option<ServerSideEncryption>,
    pub(crate) kms_key_id: Option<String>,
    pub(crate) bucket_key: Option<bool>,
    pub(crate) customer_algorithm: Option<String>,
    pub(crate) customer_md5: Option<String>,
}

impl Shown {
    /// Of an object, or of an upload, with this wrapped key.
    pub(crate) fn of(backend: &Backend, envelope: Option<&Envelope>, customer: Option<&Customer>) -> Self {
        match envelope.map(|envelope| (&envelope.holder, envelope.bucket_key)) {
            None => Self { kind: Some(at_rest()), ..Self::default() },
            Some((Holder::Kms(name), bucket_key)) => Self::kms(backend, name, bucket_key),
            Some((Holder::Customer, _)) => Self::customer(customer),
        }
    }

    /// Of a part of an upload.
    ///
    /// # Errors
    /// The request has the key of a customer, and the upload has none.
    pub(crate) fn of_part(backend: &Backend, upload: &UploadMeta, customer: Option<&Customer>) -> S3Result<Self> {
        let shown = Self::of(backend, upload.attributes.encryption.as_ref(), customer);
        if customer.is_some() && shown.customer_algorithm.is_none() { Err(not_applicable()) } else { Ok(shown) }
    }

    /// Of an upload that begins.
    pub(crate) fn of_new(backend: &Backend, encryption: &Encryption, customer: Option<&Customer>) -> Self {
        match encryption {
            Encryption::None => Self::of(backend, None, None),
            Encryption::Kms(rule) => Self::kms(backend, &rule.kms, rule.bucket_key),
            Encryption::Customer(_) => Self::customer(customer),
        }
    }

    fn kms(backend: &Backend, name: &str, bucket_key: bool) -> Self {
        Self {
            kind: Some(ServerSideEncryption::from_static(ServerSideEncryption::AWS_KMS)),
            kms_key_id: Some(backend.objects.keys().arn(name)),
            bucket_key: bucket_key.then_some(true),
            ..Self::default()
        }
    }

    fn customer(customer: Option<&Customer>) -> Self {
        Self {
            customer_algorithm: Some(ALGORITHM.to_owned()),
            customer_md5: customer.map(|customer| customer.md5.clone()),
            ..Self::default()
        }
    }
}

/// Whether SSE-KMS under no key by name has an effect in this bucket. Blocks.
fn any_kms_has_effect(objects: &Objects, bucket: &str) -> Result<bool, StoreError> {
    Ok(objects.keys().has(DEFAULT_KEY) || matches!(objects.encryption_for(bucket, None)?, Encryption::Kms(_)))
}

/// Whether the object of a request is encrypted under a key of the owner.
pub(crate) async fn has_kms(backend: &Backend, headers: &HeaderMap, bucket: Option<String>) -> S3Result<bool> {
    if headers.contains_key("x-amz-server-side-encryption-aws-kms-key-id") {
        return Ok(true);
    }
    let Some(bucket) = bucket.filter(|_| refusals::asks_for_any_kms(headers)) else { return Ok(false) };
    let objects = Arc::clone(&backend.objects);
    blocking(move || any_kms_has_effect(&objects, &bucket)).await
}

#[cfg(test)]
mod tests {
    use s3s::S3ErrorCode;

    use super::*;

    #[test]
    fn the_headers_of_sse_c_are_checked_as_aws_does() {
        let (key, other) = ([7; 32], [8; 32]);
        let base64 = |bytes: &[u8]| base64_simd::STANDARD.encode_to_string(bytes);
        let (md5, short) = (base64(&Md5::digest(key)), base64(&[7; 16]));
        let (key, other) = (base64(&key), base64(&Md5::digest(other)));
        let (aes, key, md5) = (Some("AES256"), Some(&*key), Some(&*md5));
        assert!(Customer::of(None, None, None).unwrap().is_none());
        assert_eq!(Customer::of(aes, key, md5).unwrap().unwrap().md5, md5.unwrap());
        for (algorithm, key, md5, expected) in [
            (None, key, md5, "encryption algorithm"),
            (Some("AES128"), key, md5, "encryption algorithm"),
            (aes, None, md5, "secret key."),
            (aes, key, None, "client calculated MD5"),
            (aes, key, Some(&*other), "did not match"),
            (aes, Some(&*short), md5, "invalid for the specified algorithm"),
            (aes, Some("%"), md5, "invalid for the specified algorithm"),
        ] {
            let error = Customer::of(algorithm, key, md5).map(|_| ()).unwrap_err();
            assert_eq!(*error.code(), S3ErrorCode::InvalidArgument);
            assert!(error.message().unwrap().contains(expected), "{error:?}");
        }
    }
}
