//! Attributes of objects and the HTTP headers that carry them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, Method, Request, Response};
use s3s::dto::{
    Checksum, ETag, GetObjectOutput, HeadObjectOutput, Metadata, ServerSideEncryption, Timestamp, TimestampFormat,
};
use s3s::{Body, S3Result};
use shoal_store::{Attributes, ObjectMeta};

use crate::query::Query;
use crate::{checksums, storage_class, tags};

/// A document with a page of 1,000 parts has some 150 KiB.
const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// Headers that come back as they were given.
const KEPT: [&str; 5] = ["cache-control", "content-disposition", "content-encoding", "content-language", "expires"];

/// What a request to write an object says about it.
pub(crate) fn from_request(
    headers: &HeaderMap,
    metadata: Option<Metadata>,
    tagging: Option<&str>,
) -> S3Result<Attributes> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut kept: BTreeMap<String, String> =
        KEPT.iter().filter_map(|name| Some(((*name).to_owned(), text(name)?))).collect();
    // `aws-chunked` is how the request travelled, not what the object is.
    if let Some(encoding) = kept.remove("content-encoding") {
        let own: Vec<&str> =
            encoding.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "aws-chunked").collect();
        if !own.is_empty() {
            kept.insert("content-encoding".to_owned(), own.join(","));
        }
    }
    kept.extend(storage_class::of_request(headers)?);
    Ok(Attributes {
        content_type: text("content-type").filter(|value| !value.is_empty()),
        headers: kept,
        user: metadata.unwrap_or_default().into_iter().collect(),
        tags: tags::of_header(tagging)?,
        ..Attributes::default()
    })
}

/// What HEAD and GET say about an object.
pub(crate) fn describe(meta: &ObjectMeta, with_checksums: bool) -> HeadObjectOutput {
    let kept = |name: &str| meta.attributes.headers.get(name).cloned();
    let found = if with_checksums { checksums::to_dto(&meta.attributes.checksums) } else { Checksum::default() };
    HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        cache_control: kept("cache-control"),
        checksum_crc32: found.checksum_crc32,
        checksum_crc32c: found.checksum_crc32c,
        checksum_crc64nvme: found.checksum_crc64nvme,
        checksum_sha1: found.checksum_sha1,
        checksum_sha256: found.checksum_sha256,
        checksum_type: found.checksum_type,
        content_disposition: kept("content-disposition"),
        content_encoding: kept("content-encoding"),
        content_language: kept("content-language"),
        content_length: Some(signed(meta.size)),
        content_type: Some(meta.attributes.content_type.clone().unwrap_or_else(|| "binary/octet-stream".to_owned())),
        e_tag: Some(etag(meta)),
        expires: kept("expires").and_then(|text| Timestamp::parse(TimestampFormat::HttpDate, &text).ok()),
        last_modified: Some(timestamp(meta.modified_ms)),
        metadata: Some(meta.attributes.user.clone().into_iter().collect()).filter(|user: &Metadata| !user.is_empty()),
        storage_class: storage_class::other(&meta.attributes),
        version_id: meta.version.shown().map(str::to_owned),
        ..HeadObjectOutput::default()
    }
}

/// GET says what HEAD says.
pub(crate) fn for_download(head: HeadObjectOutput, meta: &ObjectMeta) -> GetObjectOutput {
    GetObjectOutput {
        accept_ranges: head.accept_ranges,
        cache_control: head.cache_control,
        checksum_crc32: head.checksum_crc32,
        checksum_crc32c: head.checksum_crc32c,
        checksum_crc64nvme: head.checksum_crc64nvme,
        checksum_sha1: head.checksum_sha1,
        checksum_sha256: head.checksum_sha256,
        checksum_type: head.checksum_type,
        content_disposition: head.content_disposition,
        content_encoding: head.content_encoding,
        content_language: head.content_language,
        content_length: head.content_length,
        content_range: head.content_range,
        content_type: head.content_type,
        e_tag: head.e_tag,
        expiration: head.expiration,
        expires: head.expires,
        last_modified: head.last_modified,
        metadata: head.metadata,
        parts_count: head.parts_count,
        server_side_encryption: head.server_side_encryption,
        ssekms_key_id: head.ssekms_key_id,
        bucket_key_enabled: head.bucket_key_enabled,
        sse_customer_algorithm: head.sse_customer_algorithm,
        sse_customer_key_md5: head.sse_customer_key_md5,
        storage_class: head.storage_class,
        tag_count: tag_count(meta),
        version_id: head.version_id,
        ..GetObjectOutput::default()
    }
}

/// How many tags the object has, if any.
pub(crate) fn tag_count(meta: &ObjectMeta) -> Option<i32> {
    i32::try_from(meta.attributes.tags.len()).ok().filter(|count| *count > 0)
}

pub(crate) fn etag(meta: &ObjectMeta) -> ETag {
    ETag::Strong(meta.etag.clone())
}

/// S3's times have whole seconds in headers; lists must not disagree with them.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(ms / 1000))
}

/// S3's shapes count in signed integers.
pub(crate) fn signed(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// What an object without a key has, in AWS's words: who reads the disk is kept out by what
/// encrypts the disk, as with SSE-S3.
pub(crate) fn at_rest() -> ServerSideEncryption {
    ServerSideEncryption::from_static(ServerSideEncryption::AES256)
}

/// Whether a request is a GetObjectAttributes.
pub(crate) fn is_asked_for<B>(request: &Request<B>) -> bool {
    *request.method() == Method::GET && Query::of(request.uri().query()).has("attributes")
}

/// GetObjectAttributes alone of all operations writes an entity tag without quotes.
pub(crate) async fn with_bare_etag(response: Response<Body>) -> Response<Body> {
    let (mut head, mut body) = response.into_parts();
    let Ok(document) = body.store_all_limited(MAX_DOCUMENT_BYTES).await else {
        return Response::from_parts(head, body);
    };
    let bare = String::from_utf8_lossy(&document).replacen("<ETag>\"", "<ETag>", 1).replacen("\"</ETag>", "</ETag>", 1);
    head.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(bare))
}
