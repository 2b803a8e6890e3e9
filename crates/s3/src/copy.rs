//! Copies between objects, whole or of a range into a part.

use std::sync::Arc;

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, ETag, ETagCondition,
    MetadataDirective, Range, TaggingDirective, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result, s3_error};
use shoal_encryption::{CustomerKey, Envelope};
use shoal_store::{Attributes, Encryption, ObjectMeta, ObjectReader, Objects, PutCondition, StoreError, Version};

use crate::attributes;
use crate::backend::Backend;
use crate::checksums::{self, object_with_checksums, part_with_checksums};
use crate::conditions::{Conditions, put_condition};
use crate::encryption::{self, Shown, asked, customer, source_customer, with_encryption};
use crate::errors::{blocking, blocking_s3, from_store};
use crate::guard::Guard;
use crate::lifecycle_settings;
use crate::multipart;
use crate::refusals;
use crate::storage_class;

pub(crate) async fn copy_object(
    backend: &Backend,
    req: S3Request<CopyObjectInput>,
) -> S3Result<S3Response<CopyObjectOutput>> {
    let S3Request { input, headers, extensions, .. } = req;
    let guard = extensions.get::<Guard>().cloned();
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_owner(input.expected_source_bucket_owner.as_deref())?;
    let condition = put_condition(condition(&headers, &IF_MATCH)?, condition(&headers, &IF_NONE_MATCH)?)?;
    let asked = asked!(backend, guard.as_ref(), input)?;
    let source_customer = source_customer!(input)?;
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
    encryption::may_read(backend, guard.as_ref(), &source, source_customer.as_ref())?;
    let replace = input.metadata_directive.is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
    let is_earlier = names_version && source.version != Version::Only;
    // Tags alone are no reason: they have an operation of their own.
    let is_itself = (&source_bucket, &source_key) == (&input.bucket, &input.key);
    if !replace && !is_earlier && !asked.is_named() && is_itself {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the \
             object's metadata, storage class, website redirect location or encryption attributes."
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
    let algorithm = checksums::for_upload(input.checksum_algorithm.as_ref(), None)?.map(|checksum| checksum.algorithm);
    // A checksum of the parts' checksums is none of the content.
    let algorithm = algorithm.filter(|name| attributes.checksums.get(name).is_none_or(|sum| sum.contains('-')));
    let (own, customer) = (backend.clone(), asked.customer().cloned());
    let (bucket, key) = (input.bucket, input.key);
    let copied = source.version.clone();
    let made = blocking_s3(move || {
        let encryption = asked.encryption(&own, guard.as_ref(), &bucket)?;
        let source_key = source_customer.as_ref().map(|customer| &customer.key);
        let copy = Copy { objects: &own.objects, source: &source, source_key, algorithm, attributes };
        let meta = if is_alike(source.attributes.encryption.as_ref(), &encryption) {
            copy.link(&source_bucket, &bucket, &key, &condition)
        } else {
            copy.write(&encryption, &bucket, &key, &condition)
        };
        let meta = meta.map_err(from_store)?;
        let expiration = lifecycle_settings::expiration(&own.objects, &bucket, &meta);
        Ok((meta, expiration))
    });
    let (meta, expiration) = made.await?;
    let shown = Shown::of(backend, meta.attributes.encryption.as_ref(), customer.as_ref());
    let output = CopyObjectOutput {
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
        ..CopyObjectOutput::default()
    };
    Ok(S3Response::new(with_encryption!(shown, output)))
}

/// Whether a content can be another object's as it is stored.
fn is_alike(source: Option<&Envelope>, target: &Encryption) -> bool {
    match (source, target) {
        (None, Encryption::None) => true,
        (Some(source), Encryption::Kms(rule)) => {
            source.kms_key() == Some(&rule.kms) && source.bucket_key == rule.bucket_key
        }
        _ => false,
    }
}

/// A copy of a whole object.
struct Copy<'a> {
    objects: &'a Objects,
    source: &'a ObjectMeta,
    source_key: Option<&'a CustomerKey>,
    /// Computed of the content, as it was asked for.
    algorithm: Option<String>,
    attributes: Attributes,
}

impl Copy<'_> {
    /// Without copying bytes.
    fn link(
        self,
        source_bucket: &str,
        bucket: &str,
        key: &str,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let mut attributes = self.attributes;
        if let Some(algorithm) = self.algorithm {
            let mut hasher = checksums::hasher_of(Some(&algorithm));
            each_piece(&self.objects.open_reader(self.source, None)?, 0..self.source.size, |piece| {
                hasher.update(piece);
                Ok(())
            })?;
            attributes.checksums = checksums::from_dto(hasher.finalize());
        }
        self.objects.copy((source_bucket, self.source), bucket, key, &attributes, condition)
    }

    /// By decrypting and encrypting the content, which is one piece from then on.
    fn write(
        self,
        encryption: &Encryption,
        bucket: &str,
        key: &str,
        condition: &PutCondition,
    ) -> Result<ObjectMeta, StoreError> {
        let mut attributes = Attributes { parts: Vec::new(), ..self.attributes };
        attributes.checksums.retain(|_, sum| !sum.contains('-'));
        let mut hasher = checksums::hasher_of(self.algorithm.as_deref());
        let mut writer = self.objects.encrypt(self.objects.writer()?, encryption)?;
        let reader = self.objects.open_reader(self.source, self.source_key)?;
        each_piece(&reader, 0..self.source.size, |piece| {
            hasher.update(piece);
            writer.append(piece)
        })?;
        if self.algorithm.is_some() {
            attributes.checksums = checksums::from_dto(hasher.finalize());
        }
        self.objects.commit(writer, bucket, key, &attributes, condition)
    }
}

pub(crate) async fn upload_part_copy(
    backend: &Backend,
    req: S3Request<UploadPartCopyInput>,
) -> S3Result<S3Response<UploadPartCopyOutput>> {
    let S3Request { input, extensions, .. } = req;
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_owner(input.expected_source_bucket_owner.as_deref())?;
    let number = multipart::part_number(input.part_number)?;
    let upload = multipart::check_upload(backend, &input.upload_id, &input.bucket, &input.key).await?;
    encryption::may_write_part(backend, extensions.get::<Guard>(), &upload)?;
    let (customer, source_customer) = (customer!(input)?, source_customer!(input)?);
    let shown = Shown::of_part(backend, &upload, customer.as_ref())?;
    let (bucket, key, version) = source_of(input.copy_source)?;
    let (objects, source_key) = (Arc::clone(&backend.objects), source_customer.as_ref().map(|it| it.key.clone()));
    let opened = blocking(move || objects.reader_with(&bucket, &key, version.as_deref(), source_key.as_ref())).await;
    let reader = opened.map_err(of_source)?;
    let source = reader.meta.clone();
    let copied = source.version.clone();
    encryption::may_read(backend, extensions.get::<Guard>(), &source, source_customer.as_ref())?;
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
    let part = blocking_s3(move || {
        let writer = objects.part_writer(&input.upload_id, number, Some(chosen.end - chosen.start));
        let key = customer.as_ref().map(|customer| &customer.key);
        let writer = writer.and_then(|writer| objects.seal_part(writer, &upload, key));
        let mut writer = writer.map_err(encryption::of_part)?;
        let mut hasher = checksums::hasher_of(upload.checksum.as_ref().map(|checksum| checksum.algorithm.as_str()));
        let copied = each_piece(&reader, chosen, |piece| {
            hasher.update(piece);
            writer.append(piece)
        });
        copied.map_err(from_store)?;
        let checksums = checksums::from_dto(hasher.finalize());
        objects.commit_part(writer, &input.upload_id, number, &checksums).map_err(from_store)
    });
    let part = part.await?;
    let output = UploadPartCopyOutput {
        copy_part_result: Some(part_with_checksums!(
            &part.checksums,
            CopyPartResult {
                e_tag: Some(ETag::Strong(part.etag)),
                last_modified: Some(attributes::timestamp(part.modified_ms)),
            }
        )),
        copy_source_version_id: copied.shown().map(str::to_owned),
        ..UploadPartCopyOutput::default()
    };
    Ok(S3Response::new(with_encryption!(shown, output)))
}

/// A condition on what the copy replaces, which the framework does not read.
fn condition(headers: &HeaderMap, name: &HeaderName) -> S3Result<Option<ETagCondition>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let condition = ETagCondition::parse_http_header(value.as_bytes());
    condition.map(Some).map_err(|_| s3_error!(InvalidArgument, "The value of {} is no entity tag.", name))
}

fn each_piece(
    reader: &ObjectReader,
    range: std::ops::Range<u64>,
    mut take: impl FnMut(&[u8]) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut at = range.start;
    while at < range.end {
        let piece = reader.read(at, range.end)?;
        take(&piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Bucket, key and version.
fn source_of(source: CopySource) -> S3Result<(String, String, Option<String>)> {
    match source {
        CopySource::Bucket { bucket, key, version_id } => {
            refusals::version_of(version_id.as_deref())?;
            Ok((bucket.into(), key.into(), version_id.map(String::from)))
        }
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
