//! Bodies into objects' files.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use s3s::dto::{Checksum, ETag, ETagCondition, PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartInput, UploadPartOutput};
use s3s::{S3Request, S3Response, S3Result, TrailingHeaders, s3_error};
use shoal_store::{Attributes, ObjectWriter, Objects, PutCondition};
use tokio::sync::mpsc;

use crate::attributes;
use crate::checksums::{self, Promise};
use crate::errors::{blocking, from_body};
use crate::multipart;
use crate::operations::Operations;

/// Pieces of a body that wait for the disk. hyper's are at most some hundred kilobytes each.
const QUEUE: usize = 8;

pub(crate) async fn put_object(front: &Operations, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
    let S3Request { input, headers, trailing_headers, .. } = req;
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    let server_side_encryption = attributes::encryption(input.server_side_encryption)?;
    let condition = put_condition(input.if_match, input.if_none_match)?;
    let attributes = attributes::from_request(&headers, input.metadata, input.tagging.as_deref())?;
    front.check_bucket(&input.bucket).await?;

    let (writer, checksums) = receive(&front.objects, input.body, Promise::of(&headers), trailing_headers).await?;
    let attributes = Attributes { checksums, ..attributes };
    let objects = Arc::clone(&front.objects);
    let (bucket, key) = (input.bucket, input.key);
    let meta = blocking(move || objects.commit(writer, &bucket, &key, &attributes, &condition)).await?;

    let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, checksum_type } =
        checksums::to_dto(&meta.attributes.checksums);
    Ok(S3Response::new(PutObjectOutput {
        e_tag: Some(attributes::etag(&meta)),
        checksum_crc32,
        checksum_crc32c,
        checksum_crc64nvme,
        checksum_sha1,
        checksum_sha256,
        checksum_type,
        server_side_encryption,
        ssekms_key_id: input.ssekms_key_id,
        ..PutObjectOutput::default()
    }))
}

pub(crate) async fn upload_part(front: &Operations, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
    let S3Request { input, headers, trailing_headers, .. } = req;
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    let number = multipart::part_number(input.part_number)?;
    let upload = multipart::check_upload(front, &input.upload_id, &input.bucket, &input.key).await?;

    let promise = Promise::of(&headers).and(upload.checksum.as_ref());
    let (writer, checksums) = receive(&front.objects, input.body, promise, trailing_headers).await?;
    let objects = Arc::clone(&front.objects);
    let part = blocking(move || objects.commit_part(writer, &input.upload_id, number, &checksums)).await?;

    let Checksum { checksum_crc32, checksum_crc32c, checksum_crc64nvme, checksum_sha1, checksum_sha256, .. } =
        checksums::to_dto(&part.checksums);
    Ok(S3Response::new(UploadPartOutput {
        e_tag: Some(ETag::Strong(part.etag)),
        checksum_crc32,
        checksum_crc32c,
        checksum_crc64nvme,
        checksum_sha1,
        checksum_sha256,
        ..UploadPartOutput::default()
    }))
}

/// Which present object, if any, may be replaced.
pub(crate) fn put_condition(if_match: Option<ETagCondition>, if_none_match: Option<ETagCondition>) -> S3Result<PutCondition> {
    match (if_match, if_none_match) {
        (None, None) => Ok(PutCondition::Always),
        (None, Some(ETagCondition::Any)) => Ok(PutCondition::Absent),
        (Some(ETagCondition::ETag(etag)), None) => Ok(PutCondition::Matches(etag.into_value())),
        _ => Err(s3_error!(NotImplemented, "Only `If-None-Match: *` and `If-Match: <ETag>` are supported on writes.")),
    }
}

/// Writes a body to a new file while it comes in, and checks it against what the headers and its trailer promise. The file goes when
/// anything is wrong.
async fn receive(
    objects: &Arc<Objects>,
    body: Option<StreamingBlob>,
    promise: Promise,
    trailers: Option<TrailingHeaders>,
) -> S3Result<(ObjectWriter, BTreeMap<String, String>)> {
    let mut hasher = promise.hasher();
    let (queue, mut pieces) = mpsc::channel::<Bytes>(QUEUE);
    let objects = Arc::clone(objects);
    let writing = tokio::spawn(blocking(move || {
        let mut writer = objects.writer()?;
        while let Some(piece) = pieces.blocking_recv() {
            hasher.update(&piece);
            writer.append(&piece)?;
        }
        Ok((writer, hasher.finalize()))
    }));
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            // Dropping the queue ends the writer, whose file goes with it.
            let piece = piece.map_err(|error| from_body(&error))?;
            if queue.send(piece).await.is_err() {
                // The writer has failed; it says why below.
                break;
            }
        }
    }
    drop(queue);
    let (writer, computed) = writing.await.map_err(|_| s3_error!(InternalError))??;
    let checksums = promise.check(computed, writer.md5(), trailers.as_ref())?;
    Ok((writer, checksums))
}
