//! A bucket's lifecycle configuration, and what answers say of it.

use std::sync::Arc;

use s3s::dto::{
    DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput,
    Timestamp, TimestampFormat,
};
use s3s::{S3Response, S3Result, s3_error};
use shoal_store::{ObjectMeta, Objects, StoreError, UploadMeta};

use crate::attributes::timestamp;
use crate::backend::Backend;
use crate::errors::{blocking, custom};
use crate::key_encoding::url_encode;
use crate::lifecycle::Lifecycle;
use crate::lifecycle_document;

pub(crate) async fn put_bucket_lifecycle_configuration(
    backend: &Backend,
    input: PutBucketLifecycleConfigurationInput,
) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_bucket(&input.bucket).await?;
    let Some(document) = input.lifecycle_configuration else {
        return Err(s3_error!(MalformedXML, "The request has no lifecycle configuration."));
    };
    let text = lifecycle_document::read(document)?.text();
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.set_bucket_lifecycle(&input.bucket, Some(&text))).await?;
    Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
}

pub(crate) async fn get_bucket_lifecycle_configuration(
    backend: &Backend,
    input: GetBucketLifecycleConfigurationInput,
) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    let Some(lifecycle) = blocking(move || of_bucket(&objects, &input.bucket)).await? else {
        return Err(custom(
            "NoSuchLifecycleConfiguration",
            http::StatusCode::NOT_FOUND,
            "The lifecycle configuration does not exist",
        ));
    };
    let rules = lifecycle.rules.into_iter().map(lifecycle_document::write).collect();
    Ok(S3Response::new(GetBucketLifecycleConfigurationOutput { rules: Some(rules), ..Default::default() }))
}

pub(crate) async fn delete_bucket_lifecycle(
    backend: &Backend,
    input: DeleteBucketLifecycleInput,
) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.set_bucket_lifecycle(&input.bucket, None)).await?;
    Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
}

/// A bucket's rules, if it has any.
fn of_bucket(objects: &Objects, bucket: &str) -> Result<Option<Lifecycle>, StoreError> {
    let read = |text: String| {
        Lifecycle::read(&text).map_err(|error| StoreError::Corrupt {
            path: "objects.db".into(),
            detail: format!("the lifecycle of bucket {bucket} cannot be read: {error}"),
        })
    };
    objects.bucket_lifecycle(bucket)?.map(read).transpose()
}

/// The header `x-amz-expiration` of a current object. What is asked for is done, so an error is
/// logged alone.
pub(crate) fn expiration(objects: &Objects, bucket: &str, meta: &ObjectMeta) -> Option<String> {
    let lifecycle = known(objects, bucket)?;
    let (end, rule) = lifecycle.end_of(meta)?;
    let mut date = Vec::new();
    timestamp(end).format(TimestampFormat::HttpDate, &mut date).ok()?;
    Some(format!("expiry-date=\"{}\", rule-id=\"{}\"", String::from_utf8(date).ok()?, url_encode(rule)))
}

/// When an upload is ended that is not completed, and by which rule.
pub(crate) fn abort_of(objects: &Objects, upload: &UploadMeta) -> Option<(Timestamp, String)> {
    let lifecycle = known(objects, &upload.bucket)?;
    let (end, rule) = lifecycle.end_of_upload(&upload.key, upload.created_ms)?;
    Some((timestamp(end), rule.to_owned()))
}

fn known(objects: &Objects, bucket: &str) -> Option<Lifecycle> {
    match of_bucket(objects, bucket) {
        Ok(lifecycle) => lifecycle,
        Err(StoreError::NoSuchBucket(_)) => None,
        Err(error) => {
            tracing::error!("S3: {error}");
            None
        }
    }
}
