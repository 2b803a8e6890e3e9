//! Objects to clients: HEAD and GET, whole or in ranges, under conditions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::HeaderMap;
use s3s::dto::{
    ChecksumMode, ETagCondition, GetObjectInput, GetObjectOutput, GetObjectTaggingInput, GetObjectTaggingOutput, HeadObjectInput,
    HeadObjectOutput, Range, StreamingBlob, Timestamp,
};
use s3s::{S3Error, S3ErrorCode, S3Response, S3Result, s3_error};
use shoal_store::{ObjectMeta, StoreError};

use crate::attributes;
use crate::errors::blocking;
use crate::operations::Operations;

/// Bytes read from a file at a time.
const PIECE: u64 = 256 * 1024;

pub(crate) async fn head_object(front: &Operations, input: HeadObjectInput) -> S3Result<S3Response<HeadObjectOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    check_part_number(input.part_number)?;
    let meta = find(front, input.bucket, input.key).await?;
    let conditions = Conditions {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    conditions.check(&meta)?;
    let mut head = attributes::describe(&meta, wants_checksums(input.checksum_mode.as_ref(), input.range));
    select(&mut head, &meta, input.range)?;
    Ok(S3Response::new(head))
}

pub(crate) async fn get_object(front: &Operations, input: GetObjectInput) -> S3Result<S3Response<GetObjectOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    check_part_number(input.part_number)?;
    let objects = Arc::clone(&front.objects);
    let (meta, file) = blocking(move || objects.read(&input.bucket, &input.key)).await?;
    let conditions = Conditions {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    conditions.check(&meta)?;
    let mut head = attributes::describe(&meta, wants_checksums(input.checksum_mode.as_ref(), input.range));
    let range = select(&mut head, &meta, input.range)?;
    let body = pieces(file, range.start, range.end);
    Ok(S3Response::new(GetObjectOutput { body: Some(body), ..attributes::for_download(head) }))
}

/// Tags are not kept: every object that exists has none. Clients ask before they copy in parts.
pub(crate) async fn get_object_tagging(front: &Operations, input: GetObjectTaggingInput) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    find(front, input.bucket, input.key).await?;
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set: Vec::new(), version_id: None }))
}

pub(crate) async fn find(front: &Operations, bucket: String, key: String) -> S3Result<ObjectMeta> {
    let objects = Arc::clone(&front.objects);
    blocking(move || objects.get(&bucket, &key)?.ok_or(StoreError::NoSuchKey { bucket, key })).await
}

/// A checksum is of the whole content; clients would hold a range to it.
fn wants_checksums(mode: Option<&ChecksumMode>, range: Option<Range>) -> bool {
    range.is_none() && mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// Objects have no parts once they are complete, so that the first part is all of it.
fn check_part_number(part: Option<i32>) -> S3Result<()> {
    match part {
        None | Some(1) => Ok(()),
        Some(_) => Err(s3_error!(NotImplemented, "Only part number 1, the whole object, can be asked for.")),
    }
}

/// Narrows the description to the range and returns its bytes.
fn select(head: &mut HeadObjectOutput, meta: &ObjectMeta, range: Option<Range>) -> S3Result<std::ops::Range<u64>> {
    let Some(range) = range else { return Ok(0..meta.size) };
    let chosen = range.check(meta.size).map_err(|_| {
        let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_RANGE, format!("bytes */{}", meta.size).parse().expect("digits are a header value"));
        error.set_headers(headers);
        error
    })?;
    head.content_length = Some(attributes::signed(chosen.end - chosen.start));
    // Nothing of an empty object is all of it.
    if meta.size > 0 {
        head.content_range = Some(format!("bytes {}-{}/{}", chosen.start, chosen.end - 1, meta.size));
    }
    Ok(chosen)
}

/// When a reader wants the object at all.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    pub(crate) if_modified_since: Option<Timestamp>,
    pub(crate) if_unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// In the order of RFC 9110, section 13.2.2: an entity tag decides where both it and a date are given.
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
        self.check(source).map_err(|_| s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold"))
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

/// Bytes `start..end` of a file, a piece at a time and only as fast as the client takes them.
fn pieces(file: File, start: u64, end: u64) -> StreamingBlob {
    let file = Arc::new(file);
    StreamingBlob::wrap(stream::try_unfold(start, move |at| {
        let file = Arc::clone(&file);
        async move {
            let length = (end - at).min(PIECE);
            if length == 0 {
                return Ok(None);
            }
            let read = move || {
                let mut piece = vec![0; usize::try_from(length).expect("a piece fits in memory")];
                file.read_exact_at(&mut piece, at)?;
                Ok(Bytes::from(piece))
            };
            let piece: Result<Bytes, io::Error> = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
            Ok::<_, io::Error>(Some((piece?, at + length)))
        }
    }))
}
