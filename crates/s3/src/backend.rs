//! The objects and the settings that all operations share, and the checks of requests against both.

use std::sync::Arc;
use std::time::Duration;

use s3s::{S3Result, s3_error};
use shoal_store::{ObjectMeta, Objects, StoreError};

use crate::errors::{blocking, from_store};

/// What the front says of itself and what it tolerates.
#[derive(Debug, Clone)]
pub struct Options {
    /// Region that buckets claim to be in.
    pub region: String,
    /// Account that owns all buckets, twelve digits.
    pub account: String,
    /// How far a request's time may be from ours.
    pub max_skew: Duration,
    /// Refuse requests with headers that have no effect, instead of naming them in the answer.
    pub strict: bool,
}

/// What every operation needs.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) objects: Arc<Objects>,
    pub(crate) options: Options,
}

impl Backend {
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
            None => Err(from_store(StoreError::NoSuchBucket(bucket.to_owned()))),
        }
    }

    /// # Errors
    /// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`; `MethodNotAllowed` of a delete marker.
    pub(crate) async fn object(&self, bucket: String, key: String, version: Option<String>) -> S3Result<ObjectMeta> {
        let objects = Arc::clone(&self.objects);
        blocking(move || objects.version(&bucket, &key, version.as_deref())).await
    }
}
