//! Requests of S3 that are understood and not served: each is refused with a sentence, because a
//! client that hears "done" relies on it. What is declared in AWS with another code (access control
//! lists, object lock) has that code.

use http::{HeaderMap, StatusCode};
use s3s::{S3Error, S3ErrorCode, S3Result};
use shoal_store::Version;

use crate::query::Query;

/// Operations that configure what this server does not do.
const OPERATIONS: [(&str, &str); 18] = [
    (
        "PutBucketCors",
        "Requests of browsers from other origins are not answered, so a CORS configuration would have no effect.",
    ),
    ("PutBucketWebsite", "Buckets are not served as web sites."),
    ("PutBucketReplication", "Objects are not replicated: copy them."),
    ("PutBucketNotificationConfiguration", "No events are sent for objects."),
    ("PutBucketLogging", "No access logs are written into buckets."),
    ("PutBucketAccelerateConfiguration", "There is no accelerated endpoint."),
    ("PutBucketRequestPayment", "Nobody pays for requests."),
    ("PutBucketOwnershipControls", "All objects belong to this server's account."),
    ("PutBucketInventoryConfiguration", "No inventories are written."),
    ("PutBucketMetricsConfiguration", "Request metrics are at /metrics."),
    ("PutBucketAnalyticsConfiguration", "No storage class analysis is made."),
    ("PutBucketIntelligentTieringConfiguration", "Storage classes are labels: objects are not moved."),
    ("PutObjectLockConfiguration", "Objects cannot be locked."),
    ("PutObjectRetention", "Objects cannot be locked."),
    ("PutObjectLegalHold", "Objects cannot be locked."),
    ("DeletePublicAccessBlock", "Public access stays blocked: every request needs a signature."),
    ("SelectObjectContent", "Objects are not queried: download them."),
    ("RestoreObject", "Storage classes are labels: every object can be read at any time."),
];

/// Whether the operation is refused whatever its headers say: AWS names a bucket that does not
/// exist first.
pub(crate) fn is_refused_always(operation: &str) -> bool {
    OPERATIONS.iter().any(|(name, _)| *name == operation) || ABSENT.iter().any(|(name, ..)| *name == operation)
}

/// Configurations that a bucket never has: status, code and message are AWS's for one without.
const ABSENT: [(&str, StatusCode, &str, &str); 4] = [
    (
        "GetBucketWebsite",
        StatusCode::NOT_FOUND,
        "NoSuchWebsiteConfiguration",
        "The specified bucket does not have a website configuration",
    ),
    (
        "GetBucketReplication",
        StatusCode::NOT_FOUND,
        "ReplicationConfigurationNotFoundError",
        "The replication configuration was not found",
    ),
    (
        "GetObjectLockConfiguration",
        StatusCode::NOT_FOUND,
        "ObjectLockConfigurationNotFoundError",
        "Object Lock configuration does not exist for this bucket",
    ),
    ("GetObjectRetention", StatusCode::BAD_REQUEST, "InvalidRequest", "Bucket is missing Object Lock Configuration"),
];

/// A header that is accepted and changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEffect {
    /// Lower-case name.
    pub header: &'static str,
    /// Values that ask for what every object has anyway.
    pub usual: &'static [&'static str],
    /// Why it changes nothing.
    pub why: &'static str,
}

const NO_KEYS: &str = "where no key is named, the bucket has no default and the owner has declared no key `aws/s3` \
                       (docs/encryption.md)";
const NO_LOCKS: &str = "nothing is locked, so nothing has to be unlocked";

/// All headers that are accepted without effect; docs/accepted.md shows them.
pub const NO_EFFECT: [NoEffect; 9] = [
    NoEffect { header: "x-amz-server-side-encryption", usual: &["AES256"], why: NO_KEYS },
    NoEffect { header: "x-amz-server-side-encryption-bucket-key-enabled", usual: &["false"], why: NO_KEYS },
    NoEffect {
        header: "x-amz-server-side-encryption-context",
        usual: &[],
        why: "data keys are bound to the name of the key that wraps them alone",
    },
    NoEffect {
        header: "x-amz-storage-class",
        usual: &["STANDARD"],
        why: "a label: it is kept and shown, and every object is on the same disk and can be read at any time",
    },
    NoEffect { header: "x-amz-request-payer", usual: &[], why: "nobody pays for requests" },
    NoEffect { header: "x-amz-mfa", usual: &[], why: NO_LOCKS },
    NoEffect { header: "x-amz-bypass-governance-retention", usual: &["false"], why: NO_LOCKS },
    NoEffect {
        header: "x-amz-optional-object-attributes",
        usual: &[],
        why: "no object is archived, so none has a state of restoration",
    },
    NoEffect {
        header: "x-amz-transition-default-minimum-object-size",
        usual: &["all_storage_classes_128K"],
        why: "rules of a lifecycle move no object to another storage class",
    },
];

/// Those that have an effect where SSE-KMS has a key.
const OF_KMS: [&str; 2] = ["x-amz-server-side-encryption", "x-amz-server-side-encryption-bucket-key-enabled"];

/// SSE-KMS is asked for, and no key by name.
pub(crate) fn asks_for_any_kms(headers: &HeaderMap) -> bool {
    let value = |name| headers.get(name).map(|value: &http::HeaderValue| value.as_bytes()).unwrap_or_default();
    value(OF_KMS[0]) == b"aws:kms" && value("x-amz-server-side-encryption-aws-kms-key-id").is_empty()
}

impl NoEffect {
    /// It has an effect where the object is encrypted under a key of the owner.
    pub(crate) fn is_of_kms(&self) -> bool {
        OF_KMS.contains(&self.header)
    }
}

/// The headers of a request that change nothing.
pub(crate) fn without_effect(headers: &HeaderMap) -> Vec<&'static NoEffect> {
    let changes_nothing = |row: &&NoEffect| {
        let value = headers.get(row.header).map(|value| value.to_str().unwrap_or_default().trim());
        value.is_some_and(|value| !value.is_empty() && !row.usual.iter().any(|usual| usual.eq_ignore_ascii_case(value)))
    };
    NO_EFFECT.iter().filter(changes_nothing).collect()
}

/// What a strict server answers to a request with such headers. `has_kms`: its object is encrypted
/// under a key of the owner.
///
/// # Errors
/// There are some; the message names each with its reason.
pub(crate) fn refuse_without_effect(headers: &HeaderMap, has_kms: bool) -> S3Result<()> {
    let rows = without_effect(headers).into_iter().filter(|row| !has_kms || !row.is_of_kms());
    let found = Vec::from_iter(rows.map(|row| format!("{} ({})", row.header, row.why)));
    if found.is_empty() {
        return Ok(());
    }
    let message = format!(
        "This server is strict, and these headers have no effect here: {}. Leave them out, or start the server without \
         --strict.",
        found.join("; ")
    );
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, message))
}

/// Refuses an operation, or what its headers and query ask for.
///
/// # Errors
/// Why it is not served.
pub(crate) fn check(operation: &str, headers: &HeaderMap, query: &Query) -> S3Result<()> {
    if let Some((_, sentence)) = OPERATIONS.iter().find(|(name, _)| *name == operation) {
        return Err(not_implemented(sentence));
    }
    if let Some((_, status, code, message)) = ABSENT.iter().find(|(name, ..)| *name == operation) {
        return Err(crate::errors::custom(code, *status, *message));
    }
    if matches!(operation, "PutBucketAcl" | "PutObjectAcl") {
        return Err(no_lists());
    }
    headers.keys().try_for_each(|name| header(name.as_str(), headers))?;
    match query.get("versionId") {
        None => Ok(()),
        Some("") => Err(invalid_argument("Version id cannot be the empty string")),
        Some(version) if OF_VERSIONS.contains(&operation) => version_of(Some(version)),
        Some(_) => Err(invalid_argument("This operation does not accept a version-id.")),
    }
}

/// Operations that look for the version that a request names.
const OF_VERSIONS: [&str; 8] = [
    "DeleteObject",
    "GetObject",
    "HeadObject",
    "GetObjectAttributes",
    "GetObjectAcl",
    "GetObjectTagging",
    "PutObjectTagging",
    "DeleteObjectTagging",
];

fn header(name: &str, headers: &HeaderMap) -> S3Result<()> {
    let value = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match name {
        // What holds for every object: it belongs to the account, and nobody else has access.
        "x-amz-acl" if matches!(value, "private" | "bucket-owner-full-control") => Ok(()),
        "x-amz-acl" => Err(no_lists()),
        _ if name.starts_with("x-amz-grant-") => Err(no_lists()),
        "x-amz-bucket-object-lock-enabled" if value.eq_ignore_ascii_case("true") => {
            Err(not_implemented("Objects cannot be locked."))
        }
        _ if name.starts_with("x-amz-object-lock-") => {
            Err(invalid_request("Bucket is missing Object Lock Configuration"))
        }
        "x-amz-object-ownership" if value != "BucketOwnerEnforced" => {
            Err(not_implemented("All objects belong to this server's account."))
        }
        "x-amz-website-redirect-location" => {
            Err(not_implemented("Buckets are not served as web sites, so no request is redirected."))
        }
        "x-amz-write-offset-bytes" => {
            Err(not_implemented("Nothing is appended to an object: write it again, or in parts."))
        }
        _ => Ok(()),
    }
}

/// Checks that an id can be a version's. Whether there is such a version is another question.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn version_of(version: Option<&str>) -> S3Result<()> {
    match version {
        Some(id) if !Version::is_id(id) => Err(invalid_argument("Invalid version id specified")),
        _ => Ok(()),
    }
}

fn invalid_argument(sentence: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidArgument, sentence)
}

fn not_implemented(sentence: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::NotImplemented, sentence)
}

fn invalid_request(sentence: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidRequest, sentence)
}

fn no_lists() -> S3Error {
    S3Error::with_message(S3ErrorCode::AccessControlListNotSupported, "The bucket does not allow ACLs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_every_header_without_effect() {
        let page = include_str!("../../../docs/accepted.md");
        let shown: Vec<&str> = page.lines().filter(|line| line.starts_with("| s3 |")).collect();
        let rows: Vec<String> = NO_EFFECT
            .iter()
            .map(|row| {
                let usual = row.usual.iter().map(|usual| format!(", other than `{usual}`")).collect::<String>();
                format!("| s3 | any | `{}`{usual} | {} |", row.header, row.why)
            })
            .collect();
        assert_eq!(shown, rows, "the rows of docs/accepted.md would be:\n{}", rows.join("\n"));
    }

    #[test]
    fn headers_without_effect_are_named() {
        for (name, value, expected) in [
            ("x-amz-server-side-encryption", "aws:kms", true),
            ("x-amz-server-side-encryption", "AES256", false),
            ("x-amz-storage-class", "GLACIER", true),
            ("x-amz-storage-class", "STANDARD", false),
            ("x-amz-request-payer", "requester", true),
            ("x-amz-meta-a", "b", false),
        ] {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())]);
            let expected = if expected { vec![name] } else { Vec::new() };
            let found: Vec<&str> = without_effect(&headers).iter().map(|row| row.header).collect();
            assert_eq!(found, expected, "{name}: {value}");
            let is_taken = found.is_empty() || name.contains("encryption");
            assert_eq!(refuse_without_effect(&headers, true).is_ok(), is_taken, "{name}: {value}");
            match refuse_without_effect(&headers, false) {
                Ok(()) => assert!(expected.is_empty(), "{name}: {value}"),
                Err(error) => assert!(error.message().unwrap().contains(&format!("{name} (")), "{error:?}"),
            }
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        type Headers = &'static [(&'static str, &'static str)];
        for (operation, headers, query, expected) in [
            ("PutObject", &[] as Headers, "", None),
            ("PutObject", &[("x-amz-acl", "bucket-owner-full-control"), ("x-amz-storage-class", "STANDARD")], "", None),
            ("PutObject", &[("x-amz-acl", "public-read")], "", Some("AccessControlListNotSupported")),
            ("CreateBucket", &[("x-amz-grant-read", "id=1")], "", Some("AccessControlListNotSupported")),
            ("PutObjectAcl", &[], "acl", Some("AccessControlListNotSupported")),
            ("PutObject", &[("x-amz-object-lock-mode", "GOVERNANCE")], "", Some("InvalidRequest")),
            ("CreateBucket", &[("x-amz-bucket-object-lock-enabled", "true")], "", Some("NotImplemented")),
            ("PutObject", &[("x-amz-website-redirect-location", "/x")], "", Some("NotImplemented")),
            ("PutBucketReplication", &[], "replication", Some("NotImplemented")),
            ("PutBucketWebsite", &[], "website", Some("NotImplemented")),
            ("GetBucketWebsite", &[], "website", Some("NoSuchWebsiteConfiguration")),
            ("GetObject", &[], "versionId=null", None),
            ("GetObject", &[], "versionId=abc", Some("InvalidArgument")),
            ("GetObject", &[], "version%49d=00000000000000000000000000000000", None),
            ("PutObject", &[], "version%49d=null", Some("InvalidArgument")),
            ("GetObject", &[], "versionId=", Some("InvalidArgument")),
            ("PutObject", &[], "versionId=null", Some("InvalidArgument")),
            ("PutBucketVersioning", &[], "versioning", None),
            ("DeleteObject", &[], "x-id=DeleteObject&versionId=n%75ll", None),
            ("DeleteObject", &[], "versionId=3%2F4", Some("InvalidArgument")),
        ] {
            let mut map = HeaderMap::new();
            map.extend(
                headers.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())),
            );
            let found =
                check(operation, &map, &Query::of(Some(query))).err().map(|error| error.code().as_str().to_owned());
            assert_eq!(found.as_deref(), expected, "{operation} {headers:?} {query}");
        }
    }
}
