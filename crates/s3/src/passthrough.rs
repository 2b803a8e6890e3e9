//! What buckets do not have that show one of another store as it is: each is refused with a
//! sentence, because a client that hears "done" relies on it.

use http::HeaderMap;
use s3s::S3Result;
use shoal_store::Passthrough;

use crate::encryption::CUSTOMER_HEADERS;
use crate::errors::from_store;
use crate::query::Query;

const VERSIONS: &str = "its objects have one version here, whatever that store keeps";
const LIFECYCLE: &str = "nothing expires there by rules of this server; set them in that store";
const KEYS: &str = "contents are encrypted as that store is set up, and under no key of this server (SSE-KMS) or of a \
                    request (SSE-C)";
const TAGS: &str = "its objects have no tags here";
const REMOVAL: &str = "it is removed by taking its [bucket.NAME] out of shoal.toml";

/// Operations that are not served, and why.
const OPERATIONS: [(&str, &str); 8] = [
    ("PutBucketVersioning", VERSIONS),
    ("ListObjectVersions", VERSIONS),
    ("PutBucketLifecycleConfiguration", LIFECYCLE),
    ("PutBucketEncryption", KEYS),
    ("GetObjectTagging", TAGS),
    ("PutObjectTagging", TAGS),
    ("DeleteObjectTagging", TAGS),
    ("DeleteBucket", REMOVAL),
];

/// Operations that write.
const WRITES: [&str; 9] = [
    "PutObject",
    "PostObject",
    "CopyObject",
    "CreateMultipartUpload",
    "UploadPart",
    "UploadPartCopy",
    "CompleteMultipartUpload",
    "DeleteObject",
    "DeleteObjects",
];

/// # Errors
/// `NotImplemented`; `AccessDenied` where nothing may be written.
pub(crate) fn check(
    shown: &Passthrough,
    bucket: &str,
    operation: &str,
    headers: &HeaderMap,
    query: &Query,
) -> S3Result<()> {
    if WRITES.contains(&operation) {
        shown.may_write(bucket).map_err(from_store)?;
    }
    match missing(operation, headers, query) {
        Some(why) => Err(from_store(shown.has_none(bucket, why))),
        None => Ok(()),
    }
}

/// Why it is not served, if it is not.
fn missing(operation: &str, headers: &HeaderMap, query: &Query) -> Option<&'static str> {
    let has_key = |name: &str| {
        name.strip_prefix("x-amz-").is_some_and(|rest| rest.starts_with(CUSTOMER_HEADERS))
            || name == "x-amz-server-side-encryption-aws-kms-key-id"
    };
    let by_name = OPERATIONS.iter().find(|(name, _)| *name == operation).map(|(_, why)| *why);
    by_name
        .or_else(|| query.get("versionId").filter(|id| *id != "null").map(|_| VERSIONS))
        .or_else(|| headers.keys().any(|name| has_key(name.as_str())).then_some(KEYS))
        .or_else(|| headers.contains_key("x-amz-tagging").then_some(TAGS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_such_a_bucket_does_not_have_is_named() {
        for (operation, header, query, expected) in [
            ("PutObject", "x-amz-meta-a", "", None),
            ("PutObject", "x-amz-tagging", "", Some(TAGS)),
            ("PutObject", "x-amz-server-side-encryption-customer-algorithm", "", Some(KEYS)),
            ("PutObject", "x-amz-server-side-encryption-aws-kms-key-id", "", Some(KEYS)),
            ("CopyObject", "x-amz-copy-source-server-side-encryption-customer-key", "", None),
            ("GetObject", "range", "versionId=null", None),
            ("GetObject", "range", "versionId=1", Some(VERSIONS)),
            ("GetObjectTagging", "host", "tagging", Some(TAGS)),
            ("PutBucketPolicy", "host", "policy", None),
            ("DeleteBucket", "host", "", Some(REMOVAL)),
        ] {
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static(header), "x".parse().unwrap())]);
            assert_eq!(missing(operation, &headers, &Query::of(Some(query))), expected, "{operation} {header} {query}");
        }
    }
}
