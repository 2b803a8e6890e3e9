//! Copies between objects, whole or of a range into a part.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, ETag, ETagCondition,
    MetadataDirective, Range, TaggingDirective, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use shoal_store::{Attributes, StoreError, Version};

use crate::attributes;
use crate::backend::Backend;
use crate::checksums::{self, object_with_checksums, part_with_checksums};
use crate::conditions::{Conditions, put_condition};
use crate::errors::blocking;
use crate::lifecycle_settings;
use crate::multipart;
use crate::storage_class;

/// Bytes read at a time.
const PIECE: usize = 256 << 10;

pub(crate) async fn copy_object(
    backend: &Backend,
    req: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let S3Request { input, headers, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_owner(input.expected_source_bucket_owner.as_deref())?;
    let condition = put_condition(condition(&headers, &IF_MATCH)?, condition(&headers, &IF_NONE_MATCH)?)?;
    let server_side_encryption = attributes::encryption(input.server_side_encryption)?;
    let (source_bucket, source_key, version) = source_of(input.copy_source)?;
    let names_version = version.is_some();
    let source = backend.object(source_bucket.clone(), source_key.clone(), version).await.map_err(of_source)?;
    let conditions = Conditions {
        if_match: input.copy_source_if_match,
        if_none_match: input.copy_source_if_none_match,
        if_modified_since: input.copy_source_if_modified_since,
        if_unmodified_since: input.copy_source_if_unmodified_since,
    };
    conditions.check_copy(&source)?;
    let replace = input.metadata_directive.is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
    let is_earlier = names_version && source.version != Version::Only;
    // Tags alone are no reason: they have an operation of their own.
    if !replace && !is_earlier && (&source_bucket, &source_key) == (&input.bucket, &input.key) {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the \
             object's metadata."
        ));
    }
    let named = attributes::from_request(&headers, input.metadata, input.tagging.as_deref())?;
    let own = source.attributes.clone();
    let retag = input.tagging_directive.is_some_and(|directive| directive.as_str() == TaggingDirective::REPLACE);
    let tags = if retag { named.tags.clone() } else { own.tags.clone() };
    let attributes = if replace {
        // The content's checksums and parts stay true.
        Attributes { checksums: own.checksums, parts: own.parts, tags, ..named }
    } else {
        // The storage class is the request's to say, whatever the directive.
        let headers = storage_class::replaced(own.headers, &named.headers);
        Attributes { tags, headers, ..own }
    };
    let asked = checksums::for_upload(input.checksum_algorithm.as_ref(), None)?.map(|checksum| checksum.algorithm);
    // A checksum of the parts' checksums is none of the content.
    let asked = asked.filter(|name| attributes.checksums.get(name).is_none_or(|sum| sum.contains('-')));
    let objects = Arc::clone(&backend.objects);
    let (bucket, key) = (input.bucket, input.key);
    let copied = source.version.clone();
    let made = blocking(move || {
        let mut attributes = attributes;
        if let Some(algorithm) = asked {
            let mut hasher = checksums::hasher_of(Some(&algorithm));
            let mut file = objects.open_file(&source)?;
            let read = each_piece(&mut file, |piece| {
                hasher.update(piece);
                Ok(())
            });
            read.map_err(|error| StoreError::Io { what: "read", path: objects.path(&source), source: error })?;
            attributes.checksums = checksums::from_dto(hasher.finalize());
        }
        let meta = objects.copy((&source_bucket, &source), &bucket, &key, &attributes, &condition)?;
        let expiration = lifecycle_settings::expiration(&objects, &bucket, &meta);
        Ok((meta, expiration))
    });
    let (meta, expiration) = made.await?;
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(object_with_checksums!(
            &meta.attributes.checksums,
            CopyObjectResult {
                e_tag: Some(attributes::etag(&meta)),
                last_modified: Some(attributes::timestamp(meta.modified_ms)),
            }
        )),
        copy_source_version_id: copied.shown().map(str::to_owned),
        expiration,
        version_id: meta.version.shown().map(str::to_owned),
        server_side_encryption,
        ssekms_key_id: input.ssekms_key_id,
        ..CopyObjectOutput::default()
    }))
}

pub(crate) async fn upload_part_copy(
    backend: &Backend,
    input: UploadPartCopyInput,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_owner(input.expected_source_bucket_owner.as_deref())?;
    let number = multipart::part_number(input.part_number)?;
    let upload = multipart::check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;
    let (bucket, key, version) = source_of(input.copy_source)?;
    let objects = Arc::clone(&backend.objects);
    let opened = blocking(move || objects.read_version(&bucket, &key, version.as_deref())).await;
    let (source, mut file) = opened.map_err(of_source)?;
    let copied = source.version.clone();
    let conditions = Conditions {
        if_match: input.copy_source_if_match,
        if_none_match: input.copy_source_if_none_match,
        if_modified_since: input.copy_source_if_modified_since,
        if_unmodified_since: input.copy_source_if_unmodified_since,
    };
    conditions.check_copy(&source)?;
    let chosen = match &input.copy_source_range {
        None => 0..source.size,
        Some(text) => {
            let range = Range::parse(text)
                .map_err(|_| s3_error!(InvalidArgument, "The x-amz-copy-source-range value is not valid"))?;
            range.check(source.size).map_err(|_| {
                s3_error!(InvalidRange, "The specified copy range is invalid for the source object size")
            })?
        }
    };
    let objects = Arc::clone(&backend.objects);
    let part = blocking(move || {
        let mut writer = objects.part_writer(&input.upload_id, number, Some(chosen.end - chosen.start))?;
        let mut hasher = checksums::hasher_of(upload.checksum.as_ref().map(|checksum| checksum.algorithm.as_str()));
        let copied = file.seek(SeekFrom::Start(chosen.start)).and_then(|_| {
            let mut range = file.take(chosen.end - chosen.start);
            each_piece(&mut range, |piece| {
                hasher.update(piece);
                writer.write_all(piece)
            })
        });
        copied.map_err(|error| StoreError::Io {
            what: "copy a part of",
            path: objects.path(&source),
            source: error,
        })?;
        objects.commit_part(writer, &input.upload_id, number, &checksums::from_dto(hasher.finalize()))
    });
    let part = part.await?;
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(part_with_checksums!(
            &part.checksums,
            CopyPartResult {
                e_tag: Some(ETag::Strong(part.etag)),
                last_modified: Some(attributes::timestamp(part.modified_ms)),
            }
        )),
        copy_source_version_id: copied.shown().map(str::to_owned),
        ..UploadPartCopyOutput::default()
    }))
}

/// A condition on what the copy replaces, which the framework does not read.
fn condition(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<ETagCondition>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let condition = ETagCondition::parse_http_header(value.as_bytes());
    condition.map(Some).map_err(|_| s3_error!(InvalidArgument, "The value of {} is no entity tag.", name))
}

fn each_piece(from: &mut impl Read, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            length => take(&piece[..length])?,
        }
    }
}

/// Bucket, key and version.
fn source_of(source: CopySource) -> S3Result<(String, String, Option<String>)> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => Ok((bucket.into(), key.into(), version_id.map(String::from))),
        CopySource::AccessPoint { .. } | CopySource::Outpost { .. } => {
            Err(s3_error!(NotImplemented, "Only `<bucket>/<key>` is supported as the source of a copy."))
        }
    }
}

/// A delete marker has nothing to copy.
fn of_source(error: S3Error) -> S3Error {
    match error.code() {
        S3ErrorCode::MethodNotAllowed => s3_error!(
            InvalidRequest,
            "The source of a copy request may not specifically refer to a delete marker by version id."
        ),
        _ => error,
    }
}
