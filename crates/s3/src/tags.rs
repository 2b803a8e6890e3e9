//! Tags of objects (in a header, in a document, and alone) and of buckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use s3s::dto::{
    DeleteBucketTaggingInput, DeleteBucketTaggingOutput, DeleteObjectTaggingInput, DeleteObjectTaggingOutput,
    GetBucketTaggingInput, GetBucketTaggingOutput, GetObjectTaggingInput, GetObjectTaggingOutput,
    PutBucketTaggingInput, PutBucketTaggingOutput, PutObjectTaggingInput, PutObjectTaggingOutput, Tag,
};
use s3s::{S3Response, S3Result, s3_error};

use crate::backend::Backend;
use crate::errors::{blocking, custom};
use crate::percent;

/// S3's limits; lengths are counted in characters.
const MAX_OBJECT_TAGS: usize = 10;
const MAX_BUCKET_TAGS: usize = 50;
const LONGEST_KEY: usize = 128;
const LONGEST_VALUE: usize = 256;

pub(crate) async fn get_object_tagging(
    backend: &Backend,
    input: GetObjectTaggingInput,
) -> S3Result<S3Response<GetObjectTaggingOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let meta = backend.object(input.bucket, input.key, input.version_id).await?;
    let (tags, version) = (meta.attributes.tags, meta.version);
    let tag_set = tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect();
    Ok(S3Response::new(GetObjectTaggingOutput { tag_set, version_id: version.shown().map(str::to_owned) }))
}

pub(crate) async fn put_object_tagging(
    backend: &Backend,
    input: PutObjectTaggingInput,
) -> S3Result<S3Response<PutObjectTaggingOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let pairs =
        input.tagging.tag_set.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
    let tags = checked(pairs, MAX_OBJECT_TAGS)?;
    let objects = Arc::clone(&backend.objects);
    let version =
        blocking(move || objects.set_tags(&input.bucket, &input.key, input.version_id.as_deref(), &tags)).await?;
    Ok(S3Response::new(PutObjectTaggingOutput { version_id: version.shown().map(str::to_owned) }))
}

pub(crate) async fn delete_object_tagging(
    backend: &Backend,
    input: DeleteObjectTaggingInput,
) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    let none = BTreeMap::new();
    let version =
        blocking(move || objects.set_tags(&input.bucket, &input.key, input.version_id.as_deref(), &none)).await?;
    Ok(S3Response::new(DeleteObjectTaggingOutput { version_id: version.shown().map(str::to_owned) }))
}

pub(crate) async fn get_bucket_tagging(
    backend: &Backend,
    input: GetBucketTaggingInput,
) -> S3Result<S3Response<GetBucketTaggingOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    let tags = blocking(move || objects.bucket_tags(&input.bucket)).await?;
    if tags.is_empty() {
        return Err(s3_error!(NoSuchTagSet, "The TagSet does not exist"));
    }
    let tag_set = tags.into_iter().map(|(key, value)| Tag { key: Some(key), value: Some(value) }).collect();
    Ok(S3Response::new(GetBucketTaggingOutput { tag_set }))
}

pub(crate) async fn put_bucket_tagging(
    backend: &Backend,
    input: PutBucketTaggingInput,
) -> S3Result<S3Response<PutBucketTaggingOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let pairs =
        input.tagging.tag_set.into_iter().map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
    let tags = checked(pairs, MAX_BUCKET_TAGS)?;
    set_bucket_tags(backend, input.bucket, tags).await?;
    Ok(S3Response::new(PutBucketTaggingOutput::default()))
}

pub(crate) async fn delete_bucket_tagging(
    backend: &Backend,
    input: DeleteBucketTaggingInput,
) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    set_bucket_tags(backend, input.bucket, BTreeMap::new()).await?;
    Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
}

async fn set_bucket_tags(backend: &Backend, bucket: String, tags: BTreeMap<String, String>) -> S3Result<()> {
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.set_bucket_tags(&bucket, &tags)).await
}

/// The header `x-amz-tagging`, written like a query string: `kind=raw&owner=me`.
pub(crate) fn of_header(header: Option<&str>) -> S3Result<BTreeMap<String, String>> {
    let pairs = header.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let decode = |text: &str| percent::decode(&text.replace('+', " "));
        decode(key).zip(decode(value)).ok_or_else(|| {
            s3_error!(
                InvalidArgument,
                "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag \
                 name duplicates."
            )
        })
    });
    checked(pairs.collect::<S3Result<Vec<_>>>()?, MAX_OBJECT_TAGS)
}

/// Tags that an object can have.
pub(crate) fn of_object(pairs: impl IntoIterator<Item = (String, String)>) -> S3Result<BTreeMap<String, String>> {
    checked(pairs, MAX_OBJECT_TAGS)
}

fn checked(pairs: impl IntoIterator<Item = (String, String)>, most: usize) -> S3Result<BTreeMap<String, String>> {
    let mut tags = BTreeMap::new();
    for (key, value) in pairs {
        if key.is_empty() || key.chars().count() > LONGEST_KEY {
            return Err(s3_error!(
                InvalidTag,
                "The TagKey you have provided is invalid: it needs 1 to 128 characters."
            ));
        }
        if value.chars().count() > LONGEST_VALUE {
            return Err(s3_error!(
                InvalidTag,
                "The TagValue you have provided is invalid: it may have 256 characters."
            ));
        }
        if key.starts_with("aws:") {
            return Err(s3_error!(InvalidTag, "Your TagKey cannot be prefixed with aws:"));
        }
        if tags.insert(key, value).is_some() {
            return Err(s3_error!(InvalidTag, "Cannot provide multiple Tags with the same key"));
        }
    }
    if tags.len() > most {
        let message = if most == MAX_OBJECT_TAGS {
            "Object tags cannot be greater than 10"
        } else {
            "Bucket tag count cannot be greater than 50"
        };
        return Err(custom("BadRequest", StatusCode::BAD_REQUEST, message));
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_or_refused() {
        let eleven = (0..11).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join("&");
        let long = format!("{}=v", "k".repeat(129));
        for (header, expected) in [
            ("", Ok(vec![])),
            ("a=1&b=2", Ok(vec![("a", "1"), ("b", "2")])),
            ("a%20b=x+y%26&c", Ok(vec![("a b", "x y&"), ("c", "")])),
            ("a=1&a=2", Err("InvalidTag")),
            ("=1", Err("InvalidTag")),
            ("aws:x=1", Err("InvalidTag")),
            ("a=%ff", Err("InvalidArgument")),
            (&long, Err("InvalidTag")),
            (&eleven, Err("BadRequest")),
        ] {
            let read = of_header(Some(header)).map_err(|error| error.code().as_str().to_owned());
            let owned = |pairs: Vec<(&str, &str)>| {
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
            };
            assert_eq!(read, expected.map(owned).map_err(str::to_owned), "{header}");
        }
    }
}
