//! Objects to clients: HEAD and GET, whole or in ranges, under conditions.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{HeaderMap, StatusCode};
use s3s::dto::{
    ChecksumMode, GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectAttributesParts, GetObjectInput,
    GetObjectOutput, HeadObjectInput, HeadObjectOutput, ObjectAttributes, ObjectPart, Range, StorageClass,
    StreamingBlob,
};
use s3s::{Body, S3Request, S3Response, S3Result, s3_error};
use shoal_store::{ObjectMeta, ObjectReader};

use crate::attributes;
use crate::backend::Backend;
use crate::checksums;
use crate::conditions::Conditions;
use crate::encryption::{self, Shown, customer, with_encryption};
use crate::errors::{self, blocking};
use crate::guard::Guard;
use crate::lifecycle_settings;
use crate::multipart;
use crate::storage_class;

/// Objects up to this length are read at once, in the step that finds them.
const SMALL: u64 = 64 * 1024;

/// Parts of an object that are described at a time.
const LARGEST_PAGE: i32 = 1000;

pub(crate) async fn head_object(
    backend: &Backend,
    req: S3Request<HeadObjectInput>,
) -> S3Result<S3Response<HeadObjectOutput>> {
    let S3Request { input, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let customer = customer!(input)?;
    let (objects, is_current) = (Arc::clone(&backend.objects), input.version_id.is_none());
    let (meta, expiration) = blocking(move || {
        let meta = objects.version(&input.bucket, &input.key, input.version_id.as_deref())?;
        let expiration = is_current.then(|| lifecycle_settings::expiration(&objects, &input.bucket, &meta)).flatten();
        Ok((meta, expiration))
    })
    .await?;
    encryption::has_customers_key(&meta, customer.as_ref())?;
    let conditions = Conditions {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    conditions.check(&meta)?;
    let wanted = Wanted::of(input.range, input.part_number)?;
    let with_checksums = wants_checksums(input.checksum_mode.as_ref(), wanted);
    if with_checksums {
        // Sums of the plain content say much of what it is.
        encryption::may_read(backend, extensions.get::<Guard>(), &meta, customer.as_ref())?;
    }
    let head = attributes::describe(&meta, with_checksums);
    let shown = Shown::of(backend, meta.attributes.encryption.as_ref(), customer.as_ref());
    let mut head = with_encryption!(shown, head);
    select(&mut head, &meta, wanted)?;
    head.expiration = expiration;
    let mut response = S3Response::new(head);
    if let Some(count) = attributes::tag_count(&meta) {
        response.headers.insert("x-amz-tagging-count", count.into());
    }
    Ok(response)
}

pub(crate) async fn get_object(
    backend: &Backend,
    req: S3Request<GetObjectInput>,
) -> S3Result<S3Response<GetObjectOutput>> {
    let S3Request { input, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let customer = customer!(input)?;
    let (objects, key) = (Arc::clone(&backend.objects), customer.as_ref().map(|customer| customer.key.clone()));
    let is_current = input.version_id.is_none();
    let (reader, content, expiration) = blocking(move || {
        let reader = objects.reader_with(&input.bucket, &input.key, input.version_id.as_deref(), key.as_ref())?;
        let content = if reader.meta.size <= SMALL { Some(reader.read_all()?) } else { None };
        let expiration =
            is_current.then(|| lifecycle_settings::expiration(&objects, &input.bucket, &reader.meta)).flatten();
        Ok((reader, content, expiration))
    })
    .await?;
    let meta = &reader.meta;
    encryption::may_read(backend, extensions.get::<Guard>(), meta, customer.as_ref())?;
    let conditions = Conditions {
        if_match: input.if_match,
        if_none_match: input.if_none_match,
        if_modified_since: input.if_modified_since,
        if_unmodified_since: input.if_unmodified_since,
    };
    conditions.check(meta)?;
    let wanted = Wanted::of(input.range, input.part_number)?;
    let head = attributes::describe(meta, wants_checksums(input.checksum_mode.as_ref(), wanted));
    let shown = Shown::of(backend, meta.attributes.encryption.as_ref(), customer.as_ref());
    let mut head = with_encryption!(shown, head);
    let range = select(&mut head, meta, wanted)?;
    head.expiration = expiration;
    let output = attributes::for_download(head, meta);
    let body = match content {
        Some(content) => {
            let place = |at| usize::try_from(at).expect("a small object fits in memory");
            StreamingBlob::from(Body::from(Bytes::from(content).slice(place(range.start)..place(range.end))))
        }
        None => pieces(reader, range).await?,
    };
    Ok(S3Response::new(GetObjectOutput { body: Some(body), ..output }))
}

pub(crate) async fn get_object_attributes(
    backend: &Backend,
    req: S3Request<GetObjectAttributesInput>,
) -> S3Result<S3Response<GetObjectAttributesOutput>> {
    let S3Request { input, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let customer = customer!(input)?;
    let meta = backend.object(input.bucket, input.key, input.version_id).await?;
    encryption::has_customers_key(&meta, customer.as_ref())?;
    // Some clients send a header each, others one with all.
    let asked = |name: &str| {
        input.object_attributes.iter().flat_map(|all| all.as_str().split(',')).any(|one| one.trim() == name)
    };
    if asked(ObjectAttributes::CHECKSUM) {
        encryption::may_read(backend, extensions.get::<Guard>(), &meta, customer.as_ref())?;
    }
    let checksum =
        Some(checksums::to_dto(&meta.attributes.checksums)).filter(|_| !meta.attributes.checksums.is_empty());
    let parts = (asked(ObjectAttributes::OBJECT_PARTS) && !meta.attributes.parts.is_empty())
        .then(|| parts_page(&meta, input.part_number_marker.unwrap_or(0), input.max_parts.unwrap_or(LARGEST_PAGE)));
    Ok(S3Response::new(GetObjectAttributesOutput {
        checksum: checksum.filter(|_| asked(ObjectAttributes::CHECKSUM)),
        e_tag: asked(ObjectAttributes::ETAG).then(|| attributes::etag(&meta)),
        last_modified: Some(attributes::timestamp(meta.modified_ms)),
        object_parts: parts,
        object_size: asked(ObjectAttributes::OBJECT_SIZE).then(|| attributes::signed(meta.size)),
        storage_class: asked(ObjectAttributes::STORAGE_CLASS)
            .then(|| StorageClass::from(storage_class::of(&meta.attributes))),
        version_id: meta.version.shown().map(str::to_owned),
        ..GetObjectAttributesOutput::default()
    }))
}

/// Parts after `marker`, at most `most`.
fn parts_page(meta: &ObjectMeta, marker: i32, most: i32) -> GetObjectAttributesParts {
    let most = most.clamp(0, LARGEST_PAGE);
    let mut number = 0;
    let all: Vec<ObjectPart> = part_sizes(meta)
        .map(|size| {
            number += 1;
            ObjectPart { part_number: Some(number), size: Some(attributes::signed(size)), ..ObjectPart::default() }
        })
        .collect();
    let total = all.len();
    let after = |part: &ObjectPart| part.part_number.is_some_and(|number| number > marker);
    let page: Vec<ObjectPart> = all.into_iter().filter(after).take(usize::try_from(most).unwrap_or(0)).collect();
    let last = page.last().and_then(|part| part.part_number);
    let total = i32::try_from(total).unwrap_or(i32::MAX);
    GetObjectAttributesParts {
        is_truncated: Some(last.is_some_and(|last| last < total)),
        max_parts: Some(most),
        next_part_number_marker: last,
        part_number_marker: Some(marker),
        parts: Some(page),
        total_parts_count: Some(total),
    }
}

/// Bytes of each part that the object came in; of an object in one piece that is all of it.
fn part_sizes(meta: &ObjectMeta) -> impl Iterator<Item = u64> {
    let whole = meta.attributes.parts.is_empty().then_some((1, meta.size));
    whole
        .into_iter()
        .chain(meta.attributes.parts.iter().copied())
        .flat_map(|(count, size)| std::iter::repeat_n(size, count as usize))
}

/// How much of an object a reader wants.
#[derive(Debug, Clone, Copy)]
enum Wanted {
    All,
    Range(Range),
    /// From 1.
    Part(usize),
}

impl Wanted {
    fn of(range: Option<Range>, part: Option<i32>) -> S3Result<Self> {
        match (range, part) {
            (None, None) => Ok(Self::All),
            (Some(range), None) => Ok(Self::Range(range)),
            (None, Some(number)) => multipart::part_number(number).map(|number| Self::Part(number as usize)),
            (Some(_), Some(_)) => {
                Err(s3_error!(InvalidRequest, "Cannot specify both Range header and partNumber query parameter"))
            }
        }
    }
}

/// A checksum is of the whole content; clients would hold a range to it.
fn wants_checksums(mode: Option<&ChecksumMode>, wanted: Wanted) -> bool {
    matches!(wanted, Wanted::All) && mode.is_some_and(|mode| mode.as_str() == ChecksumMode::ENABLED)
}

/// Narrows the description to what is wanted and returns its bytes.
fn select(head: &mut HeadObjectOutput, meta: &ObjectMeta, wanted: Wanted) -> S3Result<std::ops::Range<u64>> {
    let chosen = match wanted {
        Wanted::All => return Ok(0..meta.size),
        Wanted::Range(range) => range.check(meta.size).map_err(|_| {
            let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
            let mut headers = HeaderMap::new();
            headers.insert(
                http::header::CONTENT_RANGE,
                format!("bytes */{}", meta.size).parse().expect("digits are a header value"),
            );
            error.set_headers(headers);
            error
        })?,
        Wanted::Part(number) => {
            let size = part_sizes(meta).nth(number - 1).ok_or_else(|| {
                errors::custom(
                    "InvalidPartNumber",
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    "The requested partnumber is not satisfiable",
                )
            })?;
            let start = part_sizes(meta).take(number - 1).sum();
            head.parts_count =
                i32::try_from(part_sizes(meta).count()).ok().filter(|_| !meta.attributes.parts.is_empty());
            start..start + size
        }
    };
    head.content_length = Some(attributes::signed(chosen.end - chosen.start));
    // Nothing of an empty object is all of it.
    if meta.size > 0 {
        head.content_range = Some(format!("bytes {}-{}/{}", chosen.start, chosen.end - 1, meta.size));
    }
    Ok(chosen)
}

/// These bytes of an object, a piece at a time and only as fast as the client takes them. The first
/// piece is read now, while a damaged object can still be answered with an error; damage that is
/// found later ends the connection, and the server's log names the object.
async fn pieces(reader: ObjectReader, range: std::ops::Range<u64>) -> S3Result<StreamingBlob> {
    let (start, end) = (range.start, range.end);
    let reader = Arc::new(reader);
    let read = move |at: u64| {
        let reader = Arc::clone(&reader);
        blocking(move || reader.read(at, end).map(Bytes::from))
    };
    let first = read(start).await?;
    let next = start + first.len() as u64;
    let rest = stream::try_unfold(next, move |at| {
        let reading = (at < end).then(|| read(at));
        async move {
            let Some(reading) = reading else { return Ok(None) };
            let piece = reading.await.inspect_err(|error| tracing::error!("an answer was broken off: {error}"));
            let piece = piece.map_err(io::Error::other)?;
            let next = at + piece.len() as u64;
            Ok::<_, io::Error>(Some((piece, next)))
        }
    });
    Ok(StreamingBlob::wrap(stream::once(async { Ok(first) }).chain(rest)))
}
