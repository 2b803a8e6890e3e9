//! Conditions of requests on the object that is there: when it is read, copied or replaced.

use http::HeaderMap;
use s3s::dto::{ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use shoal_store::{ObjectMeta, PutCondition};

use crate::attributes;

/// When a reader wants the object at all.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// In the order of RFC 9110, section 13.2.2: an entity tag decides where both it and a date are
    /// given.
    pub(crate) fn check(self, meta: &ObjectMeta) -> S3Result<()> {
        let matches = |condition: &ETagCondition| condition.as_etag().is_none_or(|etag| etag.value() == meta.etag);
        let modified = attributes::timestamp(meta.modified_ms);
        let holds = match (&self.if_match, &self.if_unmodified_since) {
            (Some(condition), _) => matches(condition),
            (None, Some(since)) => modified <= *since,
            (None, None) => true,
        };
        if !holds {
            return Err(s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"));
        }
        let unchanged = match (&self.if_none_match, &self.if_modified_since) {
            (Some(condition), _) => matches(condition),
            (None, Some(since)) => modified <= *since,
            (None, None) => false,
        };
        if unchanged { Err(not_modified(meta)) } else { Ok(()) }
    }

    /// The same for the source of a copy, where an unchanged object is a failed condition.
    pub(crate) fn check_copy(self, source: &ObjectMeta) -> S3Result<()> {
        self.check(source)
            .map_err(|_| s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"))
    }
}

fn not_modified(meta: &ObjectMeta) -> S3Error {
    let mut error = S3Error::new(S3ErrorCode::NotModified);
    if let Ok(etag) = attributes::etag(meta).to_http_header() {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ETAG, etag);
        error.set_headers(headers);
    }
    error
}

/// Which present object, if any, may be replaced.
pub(crate) fn put_condition(
    if_match: Option<ETagCondition>,
    if_none_match: Option<ETagCondition>,
) -> S3Result<PutCondition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(PutCondition::Always),
        (None, Some(ETagCondition::Any)) => Ok(PutCondition::Absent),
        (Some(ETagCondition::ETag(etag)), None) => Ok(PutCondition::Matches(etag.into_value())),
        _ => Err(s3_error!(NotImplemented, "Only `If-None-Match: *` and `If-Match: <ETag>` are supported on writes.")),
    }
}
