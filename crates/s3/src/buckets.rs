//! Operations on buckets.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use s3s::Body;
use s3s::dto::{
    Bucket, BucketLocationConstraint, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput,
    GetBucketLocationInput, GetBucketLocationOutput, HeadBucketInput, HeadBucketOutput, ListBucketsInput,
    ListBucketsOutput, Owner,
};
use s3s::{S3ErrorCode, S3Response, S3Result, s3_error};

use crate::attributes::timestamp;
use crate::backend::Backend;
use crate::errors::{self, blocking};
use crate::query::Query;

/// The region whose buckets have no location constraint, and where making one's own bucket again is
/// no error.
const FIRST_REGION: &str = "us-east-1";

/// A bucket's configuration has a location at the most, and this is far above it.
const LARGEST_CONFIGURATION: usize = 64 << 10;

const TAGS: &[u8] = b"<Tags>";

pub(crate) async fn list_buckets(
    backend: &Backend,
    input: ListBucketsInput,
) -> S3Result<S3Response<ListBucketsOutput>> {
    let objects = Arc::clone(&backend.objects);
    let mut buckets = blocking(move || objects.buckets()).await?;
    let prefix = input.prefix.clone().unwrap_or_default();
    let after = input.continuation_token.unwrap_or_default();
    buckets.retain(|bucket| bucket.name.starts_with(&prefix) && bucket.name > after);
    let most = input.max_buckets.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let more = buckets.len() > most;
    buckets.truncate(most);
    let continuation_token = if more { buckets.last().map(|bucket| bucket.name.clone()) } else { None };
    let region = &backend.options.region;
    let listed = buckets.into_iter().map(|bucket| Bucket {
        bucket_region: Some(region.clone()),
        creation_date: Some(timestamp(bucket.created_ms)),
        name: Some(bucket.name),
    });
    let account = backend.options.account.clone();
    Ok(S3Response::new(ListBucketsOutput {
        buckets: Some(listed.collect()),
        continuation_token,
        owner: Some(Owner { display_name: None, id: Some(account) }),
        prefix: input.prefix,
    }))
}

pub(crate) async fn create_bucket(
    backend: &Backend,
    input: CreateBucketInput,
) -> S3Result<S3Response<CreateBucketOutput>> {
    let asked =
        input.create_bucket_configuration.as_ref().and_then(|configuration| configuration.location_constraint.as_ref());
    check_location(&backend.options.region, asked.map(BucketLocationConstraint::as_str))?;
    if input
        .create_bucket_configuration
        .as_ref()
        .is_some_and(|asked| asked.bucket.is_some() || asked.location.is_some())
    {
        return Err(s3_error!(NotImplemented, "There are no directory buckets: leave out Bucket and Location."));
    }
    let objects = Arc::clone(&backend.objects);
    let location = format!("/{}", input.bucket);
    match blocking(move || objects.create_bucket(&input.bucket)).await {
        Err(error)
            if *error.code() == S3ErrorCode::BucketAlreadyOwnedByYou && backend.options.region == FIRST_REGION => {}
        result => result?,
    }
    Ok(S3Response::new(CreateBucketOutput { location: Some(location) }))
}

/// The framework does not read a new bucket's tags, so that their sender would take them for set.
///
/// # Errors
/// The request has some.
pub(crate) async fn refuse_tags(request: &mut Request<Body>) -> Result<(), Response<Body>> {
    let path = request.uri().path().trim_matches('/');
    // A presigned address has its signature in its query; any other parameter makes it another
    // operation.
    let is_bare = Query::of(request.uri().query()).names().all(|name| name.starts_with("X-Amz-") || name == "x-id");
    if *request.method() != Method::PUT || !is_bare || path.is_empty() || path.contains('/') {
        return Ok(());
    }
    let Ok(configuration) = request.body_mut().store_all_limited(LARGEST_CONFIGURATION).await else {
        let message = "The XML you provided was not well-formed or did not validate against our published schema";
        return Err(errors::document(StatusCode::BAD_REQUEST, "MalformedXML", message));
    };
    if configuration.windows(TAGS.len()).any(|window| window == TAGS) {
        let message = "A new bucket's tags are not read: create it without, and set them by PutBucketTagging.";
        return Err(errors::document(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message));
    }
    Ok(())
}

/// Buckets are in the server's region: its name is the constraint, but for the first region, which
/// has none.
fn check_location(region: &str, asked: Option<&str>) -> S3Result<()> {
    let asked = asked.filter(|asked| !asked.is_empty());
    match asked {
        None if region == FIRST_REGION => Ok(()),
        Some(asked) if asked == region && region != FIRST_REGION => Ok(()),
        Some(FIRST_REGION) if region == FIRST_REGION => Err(s3_error!(
            InvalidLocationConstraint,
            "The specified location-constraint is not valid: leave it out in us-east-1"
        )),
        asked => Err(s3_error!(
            IllegalLocationConstraintException,
            "The {} location constraint is incompatible for the region specific endpoint this request was sent to: \
             this server is in {}.",
            asked.unwrap_or("unspecified"),
            region
        )),
    }
}

pub(crate) async fn head_bucket(backend: &Backend, input: HeadBucketInput) -> S3Result<S3Response<HeadBucketOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_bucket(&input.bucket).await?;
    Ok(S3Response::new(HeadBucketOutput {
        bucket_region: Some(backend.options.region.clone()),
        ..HeadBucketOutput::default()
    }))
}

pub(crate) async fn delete_bucket(
    backend: &Backend,
    input: DeleteBucketInput,
) -> S3Result<S3Response<DeleteBucketOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.delete_bucket(&input.bucket)).await?;
    Ok(S3Response::new(DeleteBucketOutput {}))
}

pub(crate) async fn get_bucket_location(
    backend: &Backend,
    input: GetBucketLocationInput,
) -> S3Result<S3Response<GetBucketLocationOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_bucket(&input.bucket).await?;
    let region = backend.options.region.clone();
    let location_constraint = (region != FIRST_REGION).then(|| BucketLocationConstraint::from(region));
    Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_in_the_servers_region() {
        for (region, asked, expected) in [
            ("us-east-1", None, None),
            ("us-east-1", Some(""), None),
            ("us-east-1", Some("us-east-1"), Some("InvalidLocationConstraint")),
            ("us-east-1", Some("eu-west-1"), Some("IllegalLocationConstraintException")),
            ("eu-west-1", Some("eu-west-1"), None),
            ("eu-west-1", None, Some("IllegalLocationConstraintException")),
            ("eu-west-1", Some("us-east-1"), Some("IllegalLocationConstraintException")),
        ] {
            let found = check_location(region, asked).err().map(|error| error.code().as_str().to_owned());
            assert_eq!(found.as_deref(), expected, "{region} {asked:?}");
        }
    }
}
