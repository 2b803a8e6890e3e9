//! Uploads in parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, Checksum, CompleteMultipartUploadInput, CompleteMultipartUploadOutput,
    CompletedPart, CreateMultipartUploadInput, CreateMultipartUploadOutput, ETag, ListMultipartUploadsInput, ListMultipartUploadsOutput,
    ListPartsInput, ListPartsOutput, MultipartUpload, Part,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use shoal_store::{StoreError, UploadMeta};

use crate::attributes;
use crate::checksums;
use crate::errors::{blocking, from_store};
use crate::list::Encoding;
use crate::operations::Operations;
use crate::upload::put_condition;

/// S3's limit.
const LAST_PART: i32 = 10_000;

pub(crate) fn part_number(number: i32) -> S3Result<u32> {
    match u32::try_from(number) {
        Ok(valid) if (1..=LAST_PART).contains(&number) => Ok(valid),
        _ => Err(s3_error!(InvalidArgument, "Part number must be an integer between 1 and 10000, inclusive")),
    }
}

/// An upload's id opens that upload only under its own bucket and key, which the scope was checked for.
pub(crate) async fn check_upload(front: &Operations, upload: &str, bucket: &str, key: &str) -> S3Result<UploadMeta> {
    let (objects, id) = (Arc::clone(&front.objects), upload.to_owned());
    let meta = blocking(move || objects.upload(&id)).await?;
    if meta.bucket != bucket || meta.key != key {
        return Err(from_store(StoreError::NoSuchUpload(upload.to_owned())));
    }
    Ok(meta)
}

pub(crate) async fn create_multipart_upload(
    front: &Operations,
    req: S3Request<CreateMultipartUploadInput>,
) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
    let S3Request { input, headers, .. } = req;
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    let server_side_encryption = attributes::encryption(input.server_side_encryption)?;
    let attributes = attributes::from_request(&headers, input.metadata);
    let objects = Arc::clone(&front.objects);
    let (bucket, key) = (input.bucket.clone(), input.key.clone());
    let upload = blocking(move || objects.create_upload(&bucket, &key, &attributes)).await?;
    Ok(S3Response::new(CreateMultipartUploadOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(upload),
        checksum_algorithm: input.checksum_algorithm,
        server_side_encryption,
        ssekms_key_id: input.ssekms_key_id,
        ..CreateMultipartUploadOutput::default()
    }))
}

pub(crate) async fn complete_multipart_upload(
    front: &Operations,
    input: CompleteMultipartUploadInput,
) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    check_upload(front, &input.upload_id, &input.bucket, &input.key).await?;
    let condition = put_condition(input.if_match, input.if_none_match)?;
    let named = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
    if named.is_empty() {
        return Err(s3_error!(MalformedXML, "You must specify at least one part"));
    }
    let chosen = named.iter().map(chosen_part).collect::<S3Result<Vec<_>>>()?;

    let (objects, id) = (Arc::clone(&front.objects), input.upload_id.clone());
    let stored = blocking(move || objects.parts(&id)).await?;
    let stored: BTreeMap<u32, _> = stored.into_iter().map(|part| (part.number, part.checksums)).collect();
    for (part, (number, _)) in named.into_iter().zip(&chosen) {
        let promised = checksums_of(part);
        let agree = stored.get(number).is_none_or(|kept| promised.iter().all(|(name, sum)| kept.get(name).is_none_or(|kept| kept == sum)));
        if !agree {
            return Err(from_store(StoreError::InvalidPart(*number)));
        }
    }

    let (objects, upload) = (Arc::clone(&front.objects), input.upload_id);
    let meta = blocking(move || objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &condition)).await?;
    Ok(S3Response::new(CompleteMultipartUploadOutput {
        location: Some(format!("/{}/{}", input.bucket, input.key)),
        bucket: Some(input.bucket),
        key: Some(input.key),
        e_tag: Some(attributes::etag(&meta)),
        ..CompleteMultipartUploadOutput::default()
    }))
}

fn chosen_part(part: &CompletedPart) -> S3Result<(u32, String)> {
    let (Some(number), Some(etag)) = (part.part_number, &part.e_tag) else {
        return Err(s3_error!(MalformedXML, "Every part needs a PartNumber and an ETag"));
    };
    Ok((part_number(number)?, etag.value().to_owned()))
}

fn checksums_of(part: CompletedPart) -> BTreeMap<String, String> {
    checksums::from_dto(Checksum {
        checksum_crc32: part.checksum_crc32,
        checksum_crc32c: part.checksum_crc32c,
        checksum_crc64nvme: part.checksum_crc64nvme,
        checksum_sha1: part.checksum_sha1,
        checksum_sha256: part.checksum_sha256,
        checksum_type: None,
    })
}

pub(crate) async fn abort_multipart_upload(
    front: &Operations,
    input: AbortMultipartUploadInput,
) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    check_upload(front, &input.upload_id, &input.bucket, &input.key).await?;
    let objects = Arc::clone(&front.objects);
    blocking(move || objects.abort_upload(&input.upload_id)).await?;
    Ok(S3Response::new(AbortMultipartUploadOutput::default()))
}

pub(crate) async fn list_parts(front: &Operations, input: ListPartsInput) -> S3Result<S3Response<ListPartsOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    check_upload(front, &input.upload_id, &input.bucket, &input.key).await?;
    let (objects, id) = (Arc::clone(&front.objects), input.upload_id.clone());
    let mut parts = blocking(move || objects.parts(&id)).await?;
    let after = input.part_number_marker.and_then(|marker| u32::try_from(marker).ok()).unwrap_or(0);
    parts.retain(|part| part.number > after);
    let max_parts = input.max_parts.filter(|most| *most >= 0).unwrap_or(1000).min(1000);
    let more = parts.len() > usize::try_from(max_parts).expect("a page size is not negative");
    parts.truncate(usize::try_from(max_parts).expect("a page size is not negative"));
    let number = |number: u32| i32::try_from(number).unwrap_or(LAST_PART);
    let next_part_number_marker = if more { parts.last().map(|part| number(part.number)) } else { None };
    let listed = parts.into_iter().map(|part| {
        let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, .. } =
            checksums::to_dto(&part.checksums);
        Part {
            part_number: Some(number(part.number)),
            size: Some(attributes::signed(part.size)),
            e_tag: Some(ETag::Strong(part.etag)),
            last_modified: Some(attributes::timestamp(part.modified_ms)),
            checksum_crc32,
            checksum_crc32c,
            checksum_crc64nvme,
            checksum_sha1,
            checksum_sha256,
        }
    });
    Ok(S3Response::new(ListPartsOutput {
        bucket: Some(input.bucket),
        key: Some(input.key),
        upload_id: Some(input.upload_id),
        parts: Some(listed.collect()),
        part_number_marker: input.part_number_marker,
        next_part_number_marker,
        max_parts: Some(max_parts),
        is_truncated: Some(more),
        ..ListPartsOutput::default()
    }))
}

/// All of a bucket's unfinished uploads at once; there are never many.
pub(crate) async fn list_multipart_uploads(
    front: &Operations,
    input: ListMultipartUploadsInput,
) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    let encoding = Encoding::of(input.encoding_type)?;
    let (objects, bucket) = (Arc::clone(&front.objects), input.bucket.clone());
    let prefix = input.prefix.clone().unwrap_or_default();
    let uploads = blocking(move || objects.uploads(&bucket, &prefix)).await?;
    let listed = uploads.into_iter().map(|upload| MultipartUpload {
        key: Some(encoding.text(upload.key)),
        upload_id: Some(upload.id),
        initiated: Some(attributes::timestamp(upload.created_ms)),
        ..MultipartUpload::default()
    });
    Ok(S3Response::new(ListMultipartUploadsOutput {
        bucket: Some(input.bucket),
        prefix: input.prefix.map(|prefix| encoding.text(prefix)),
        uploads: Some(listed.collect()),
        is_truncated: Some(false),
        encoding_type: encoding.named(),
        ..ListMultipartUploadsOutput::default()
    }))
}
