//! Copies between objects, whole or of a range into a part.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;

use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, ETag, MetadataDirective, Range, UploadPartCopyInput,
    UploadPartCopyOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};
use shoal_store::{Attributes, PutCondition, StoreError};

use crate::attributes;
use crate::download::{Conditions, find};
use crate::errors::blocking;
use crate::multipart;
use crate::operations::Operations;

pub(crate) async fn copy_object(front: &Operations, req: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
    let S3Request { input, headers, .. } = req;
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    front.check_owner(input.expected_source_bucket_owner.as_deref())?;
    let server_side_encryption = attributes::encryption(input.server_side_encryption)?;
    let (source_bucket, source_key) = source_of(input.copy_source)?;
    let source = find(front, source_bucket.clone(), source_key.clone()).await?;
    let conditions = Conditions {
        if_match: input.copy_source_if_match,
        if_none_match: input.copy_source_if_none_match,
        if_modified_since: input.copy_source_if_modified_since,
        if_unmodified_since: input.copy_source_if_unmodified_since,
    };
    conditions.check_copy(&source)?;
    let replace = input.metadata_directive.is_some_and(|directive| directive.as_str() == MetadataDirective::REPLACE);
    if !replace && (&source_bucket, &source_key) == (&input.bucket, &input.key) {
        return Err(s3_error!(
            InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata."
        ));
    }
    let attributes = if replace {
        // The content's checksums stay true.
        Attributes { checksums: source.attributes.checksums.clone(), ..attributes::from_request(&headers, input.metadata) }
    } else {
        source.attributes.clone()
    };
    let objects = Arc::clone(&front.objects);
    let (bucket, key) = (input.bucket, input.key);
    let meta = blocking(move || objects.copy((&source_bucket, &source), &bucket, &key, &attributes, &PutCondition::Always)).await?;
    Ok(S3Response::new(CopyObjectOutput {
        copy_object_result: Some(CopyObjectResult {
            e_tag: Some(attributes::etag(&meta)),
            last_modified: Some(attributes::timestamp(meta.modified_ms)),
            ..CopyObjectResult::default()
        }),
        server_side_encryption,
        ssekms_key_id: input.ssekms_key_id,
        ..CopyObjectOutput::default()
    }))
}

pub(crate) async fn upload_part_copy(front: &Operations, input: UploadPartCopyInput) -> S3Result<S3Response<UploadPartCopyOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    front.check_owner(input.expected_source_bucket_owner.as_deref())?;
    let number = multipart::part_number(input.part_number)?;
    multipart::check_upload(front, &input.upload_id, &input.bucket, &input.key).await?;
    let (bucket, key) = source_of(input.copy_source)?;
    let objects = Arc::clone(&front.objects);
    let (source, mut file) = blocking(move || objects.read(&bucket, &key)).await?;
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
            let range = Range::parse(text).map_err(|_| s3_error!(InvalidArgument, "The x-amz-copy-source-range value is not valid"))?;
            range
                .check(source.size)
                .map_err(|_| s3_error!(InvalidRange, "The specified copy range is invalid for the source object size"))?
        }
    };
    let objects = Arc::clone(&front.objects);
    let part = blocking(move || {
        let mut writer = objects.writer()?;
        let copied = file.seek(SeekFrom::Start(chosen.start));
        let copied = copied.and_then(|_| io::copy(&mut file.take(chosen.end - chosen.start), &mut writer));
        copied.map_err(|error| StoreError::Io { what: "copy a part of", path: objects.path(&source), source: error })?;
        objects.commit_part(writer, &input.upload_id, number, &BTreeMap::new())
    });
    let part = part.await?;
    Ok(S3Response::new(UploadPartCopyOutput {
        copy_part_result: Some(CopyPartResult {
            e_tag: Some(ETag::Strong(part.etag)),
            last_modified: Some(attributes::timestamp(part.modified_ms)),
            ..CopyPartResult::default()
        }),
        ..UploadPartCopyOutput::default()
    }))
}

fn source_of(source: CopySource) -> S3Result<(String, String)> {
    match source {
        CopySource::Bucket { bucket, key, .. } => Ok((bucket.into(), key.into())),
        CopySource::AccessPoint { .. } | CopySource::Outpost { .. } => {
            Err(s3_error!(NotImplemented, "Only `<bucket>/<key>` is supported as the source of a copy."))
        }
    }
}
