//! Listing a bucket's objects, in both of S3's versions.

use std::sync::Arc;

use s3s::dto::{
    ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, Object, ObjectStorageClass, Owner,
};
use s3s::{S3Response, S3Result, s3_error};
use shoal_store::{Listing, ObjectMeta};

use crate::attributes;
use crate::backend::Backend;
use crate::errors::blocking;
use crate::key_encoding::Encoding;
use crate::storage_class;

/// S3 never lists more at once.
const LARGEST_PAGE: i32 = 1000;

pub(crate) async fn list_objects(
    backend: &Backend,
    input: ListObjectsInput,
) -> S3Result<S3Response<ListObjectsOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let encoding = Encoding::of(input.encoding_type)?;
    let max_keys = page_size(input.max_keys)?;
    let marker = input.marker.clone().filter(|marker| !marker.is_empty());
    let listing =
        read(backend, &input.bucket, input.prefix.as_deref(), marker, input.delimiter.as_deref(), max_keys).await?;
    let owner = backend.options.account.clone();
    Ok(S3Response::new(ListObjectsOutput {
        name: Some(input.bucket),
        prefix: Some(encoding.text(input.prefix.unwrap_or_default())),
        marker: Some(encoding.text(input.marker.unwrap_or_default())),
        max_keys: Some(max_keys),
        is_truncated: Some(listing.next.is_some()),
        // Without a delimiter the last key is the next marker, and AWS leaves the element out.
        next_marker: listing.next.filter(|_| input.delimiter.is_some()).map(|next| encoding.text(next)),
        contents: Some(listing.objects.into_iter().map(|meta| object(encoding, meta, Some(owner.clone()))).collect()),
        common_prefixes: Some(encoding.common(listing.common_prefixes)),
        delimiter: input.delimiter.map(|delimiter| encoding.text(delimiter)),
        encoding_type: encoding.named(),
        ..ListObjectsOutput::default()
    }))
}

pub(crate) async fn list_objects_v2(
    backend: &Backend,
    input: ListObjectsV2Input,
) -> S3Result<S3Response<ListObjectsV2Output>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let encoding = Encoding::of(input.encoding_type)?;
    let max_keys = page_size(input.max_keys)?;
    let start = match &input.continuation_token {
        Some(token) => Some(place_of(token)?),
        None => input.start_after.clone().filter(|start| !start.is_empty()),
    };
    let listing =
        read(backend, &input.bucket, input.prefix.as_deref(), start, input.delimiter.as_deref(), max_keys).await?;
    let owner = input.fetch_owner.unwrap_or_default().then(|| backend.options.account.clone());
    let count = listing.objects.len() + listing.common_prefixes.len();
    Ok(S3Response::new(ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: Some(encoding.text(input.prefix.unwrap_or_default())),
        max_keys: Some(max_keys),
        key_count: Some(i32::try_from(count).unwrap_or(LARGEST_PAGE)),
        continuation_token: input.continuation_token,
        is_truncated: Some(listing.next.is_some()),
        next_continuation_token: listing.next.as_deref().map(token_of),
        contents: Some(listing.objects.into_iter().map(|meta| object(encoding, meta, owner.clone())).collect()),
        common_prefixes: Some(encoding.common(listing.common_prefixes)),
        delimiter: input.delimiter.map(|delimiter| encoding.text(delimiter)),
        encoding_type: encoding.named(),
        start_after: input.start_after.map(|start| encoding.text(start)),
        ..ListObjectsV2Output::default()
    }))
}

async fn read(
    backend: &Backend,
    bucket: &str,
    prefix: Option<&str>,
    start_after: Option<String>,
    delimiter: Option<&str>,
    max_keys: i32,
) -> S3Result<Listing> {
    let objects = Arc::clone(&backend.objects);
    let (bucket, prefix) = (bucket.to_owned(), prefix.unwrap_or_default().to_owned());
    let delimiter = delimiter.map(str::to_owned);
    let most = usize::try_from(max_keys).expect("a page size is not negative");
    blocking(move || objects.list(&bucket, &prefix, start_after.as_deref(), delimiter.as_deref(), most)).await
}

pub(crate) fn page_size(asked: Option<i32>) -> S3Result<i32> {
    match asked {
        Some(negative) if negative < 0 => {
            Err(s3_error!(InvalidArgument, "Argument maxKeys must be an integer between 0 and 2147483647"))
        }
        asked => Ok(asked.unwrap_or(LARGEST_PAGE).min(LARGEST_PAGE)),
    }
}

fn object(encoding: Encoding, meta: ObjectMeta, owner: Option<String>) -> Object {
    Object {
        e_tag: Some(attributes::etag(&meta)),
        last_modified: Some(attributes::timestamp(meta.modified_ms)),
        size: Some(attributes::signed(meta.size)),
        storage_class: Some(ObjectStorageClass::from(storage_class::of(&meta.attributes))),
        owner: owner.map(|id| Owner { display_name: None, id: Some(id) }),
        key: Some(encoding.text(meta.key)),
        ..Object::default()
    }
}

/// Keys may hold what neither XML nor a URL can.
fn token_of(place: &str) -> String {
    base64_simd::URL_SAFE_NO_PAD.encode_to_string(place)
}

fn place_of(token: &str) -> S3Result<String> {
    let bytes = base64_simd::URL_SAFE_NO_PAD.decode_to_vec(token).ok();
    let place = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    place.ok_or_else(|| s3_error!(InvalidArgument, "The continuation token provided is incorrect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_its_place() {
        for place in ["", "a/b", "ö \u{1f600}\0"] {
            assert_eq!(place_of(&token_of(place)).unwrap(), place);
        }
        assert!(place_of("!").is_err());
    }
}
