//! A bucket's settings. All access goes by keys and nothing is encrypted by us, so what is put is checked for its form and not kept; what is
//! got is what holds. Set-up scripts of S3 then run, and who looks sees the truth.

use http::StatusCode;
use s3s::dto::*;
use s3s::{S3Response, S3Result, s3_error};

use crate::errors::custom;
use crate::operations::Operations;

async fn check(front: &Operations, bucket: &str, expected_owner: Option<&str>) -> S3Result<()> {
    front.check_owner(expected_owner)?;
    front.check_bucket(bucket).await
}

pub(crate) async fn put_bucket_cors(front: &Operations, input: PutBucketCorsInput) -> S3Result<S3Response<PutBucketCorsOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(PutBucketCorsOutput::default()))
}

pub(crate) async fn get_bucket_cors(front: &Operations, input: GetBucketCorsInput) -> S3Result<S3Response<GetBucketCorsOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Err(s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))
}

pub(crate) async fn delete_bucket_cors(front: &Operations, input: DeleteBucketCorsInput) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(DeleteBucketCorsOutput::default()))
}

pub(crate) async fn put_bucket_policy(front: &Operations, input: PutBucketPolicyInput) -> S3Result<S3Response<PutBucketPolicyOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(PutBucketPolicyOutput::default()))
}

pub(crate) async fn get_bucket_policy(front: &Operations, input: GetBucketPolicyInput) -> S3Result<S3Response<GetBucketPolicyOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Err(s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist"))
}

pub(crate) async fn delete_bucket_policy(
    front: &Operations,
    input: DeleteBucketPolicyInput,
) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(DeleteBucketPolicyOutput::default()))
}

pub(crate) async fn put_bucket_encryption(
    front: &Operations,
    input: PutBucketEncryptionInput,
) -> S3Result<S3Response<PutBucketEncryptionOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(PutBucketEncryptionOutput::default()))
}

pub(crate) async fn get_bucket_encryption(
    front: &Operations,
    input: GetBucketEncryptionInput,
) -> S3Result<S3Response<GetBucketEncryptionOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Err(custom(
        "ServerSideEncryptionConfigurationNotFoundError",
        StatusCode::NOT_FOUND,
        "The server side encryption configuration was not found",
    ))
}

pub(crate) async fn delete_bucket_encryption(
    front: &Operations,
    input: DeleteBucketEncryptionInput,
) -> S3Result<S3Response<DeleteBucketEncryptionOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(DeleteBucketEncryptionOutput::default()))
}

pub(crate) async fn get_bucket_versioning(
    front: &Operations,
    input: GetBucketVersioningInput,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(GetBucketVersioningOutput::default()))
}

pub(crate) async fn put_public_access_block(
    front: &Operations,
    input: PutPublicAccessBlockInput,
) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
    check(front, &input.bucket, input.expected_bucket_owner.as_deref()).await?;
    Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
}
