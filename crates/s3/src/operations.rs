//! The operations that we serve; the framework answers `NotImplemented` for the others.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};
use shoal_store::Objects;

use crate::errors::{blocking, from_store};
use crate::{Options, buckets, copy, delete, download, list, multipart, upload};

/// What the operations work on.
pub(crate) struct Operations {
    pub(crate) objects: Arc<Objects>,
    pub(crate) options: Options,
}

impl Operations {
    /// `x-amz-expected-bucket-owner`: all buckets are our account's.
    pub(crate) fn check_owner(&self, expected: Option<&str>) -> S3Result<()> {
        match expected {
            Some(owner) if owner != self.options.account => Err(s3_error!(AccessDenied, "Access Denied")),
            _ => Ok(()),
        }
    }

    pub(crate) async fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        let (objects, name) = (Arc::clone(&self.objects), bucket.to_owned());
        match blocking(move || objects.bucket(&name)).await? {
            Some(_) => Ok(()),
            None => Err(from_store(shoal_store::StoreError::NoSuchBucket(bucket.to_owned()))),
        }
    }
}

#[async_trait::async_trait]
impl S3 for Operations {
    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> S3Result<S3Response<ListBucketsOutput>> {
        buckets::list_buckets(self, req.input).await
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> S3Result<S3Response<CreateBucketOutput>> {
        buckets::create_bucket(self, req.input).await
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        buckets::head_bucket(self, req.input).await
    }

    async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> S3Result<S3Response<DeleteBucketOutput>> {
        buckets::delete_bucket(self, req.input).await
    }

    async fn get_bucket_location(&self, req: S3Request<GetBucketLocationInput>) -> S3Result<S3Response<GetBucketLocationOutput>> {
        buckets::get_bucket_location(self, req.input).await
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        upload::put_object(self, req).await
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        download::head_object(self, req.input).await
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        download::get_object(self, req.input).await
    }

    async fn get_object_tagging(&self, req: S3Request<GetObjectTaggingInput>) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        download::get_object_tagging(self, req.input).await
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        copy::copy_object(self, req).await
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        delete::delete_object(self, req.input).await
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> S3Result<S3Response<DeleteObjectsOutput>> {
        delete::delete_objects(self, req.input).await
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> S3Result<S3Response<ListObjectsOutput>> {
        list::list_objects(self, req.input).await
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> S3Result<S3Response<ListObjectsV2Output>> {
        list::list_objects_v2(self, req.input).await
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        multipart::create_multipart_upload(self, req).await
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        upload::upload_part(self, req).await
    }

    async fn upload_part_copy(&self, req: S3Request<UploadPartCopyInput>) -> S3Result<S3Response<UploadPartCopyOutput>> {
        copy::upload_part_copy(self, req.input).await
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        multipart::complete_multipart_upload(self, req.input).await
    }

    async fn abort_multipart_upload(&self, req: S3Request<AbortMultipartUploadInput>) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        multipart::abort_multipart_upload(self, req.input).await
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> S3Result<S3Response<ListPartsOutput>> {
        multipart::list_parts(self, req.input).await
    }

    async fn list_multipart_uploads(&self, req: S3Request<ListMultipartUploadsInput>) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        multipart::list_multipart_uploads(self, req.input).await
    }
}
