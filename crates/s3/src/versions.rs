//! ListObjectVersions of a bucket without versioning: each object is the only version of its key.

use std::sync::Arc;

use s3s::dto::{ListObjectVersionsInput, ListObjectVersionsOutput, ObjectVersion, ObjectVersionStorageClass, Owner};
use s3s::{S3Response, S3Result, s3_error};

use crate::attributes;
use crate::backend::Backend;
use crate::errors::blocking;
use crate::key_encoding::Encoding;
use crate::list::page_size;
use crate::refusals::ONLY_VERSION;
use crate::storage_class;

pub(crate) async fn list_object_versions(
    backend: &Backend,
    input: ListObjectVersionsInput,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let encoding = Encoding::of(input.encoding_type)?;
    let max_keys = page_size(input.max_keys)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let marker = given(&input.key_marker);
    if given(&input.version_id_marker).is_some() && marker.is_none() {
        return Err(s3_error!(InvalidArgument, "A version-id marker cannot be specified without a key marker."));
    }
    let objects = Arc::clone(&backend.objects);
    let (bucket, prefix, delimiter) =
        (input.bucket.clone(), input.prefix.clone().unwrap_or_default(), input.delimiter.clone());
    let most = usize::try_from(max_keys).expect("a page size is not negative");
    // A key has no version after its only one, so both markers together lead past the key, too.
    let page = blocking(move || objects.list(&bucket, &prefix, marker.as_deref(), delimiter.as_deref(), most)).await?;
    let owner = Owner { display_name: None, id: Some(backend.options.account.clone()) };
    let last_is_key = page.next.as_ref().is_some_and(|next| page.objects.last().is_some_and(|last| last.key == *next));
    let versions = page.objects.into_iter().map(|meta| ObjectVersion {
        e_tag: Some(attributes::etag(&meta)),
        is_latest: Some(true),
        last_modified: Some(attributes::timestamp(meta.modified_ms)),
        owner: Some(owner.clone()),
        size: Some(attributes::signed(meta.size)),
        storage_class: Some(ObjectVersionStorageClass::from(storage_class::of(&meta.attributes))),
        version_id: Some(ONLY_VERSION.to_owned()),
        key: Some(encoding.text(meta.key)),
        ..ObjectVersion::default()
    });
    Ok(S3Response::new(ListObjectVersionsOutput {
        versions: Some(versions.collect()),
        common_prefixes: Some(encoding.common(page.common_prefixes)),
        is_truncated: Some(page.next.is_some()),
        next_version_id_marker: last_is_key.then(|| ONLY_VERSION.to_owned()),
        next_key_marker: page.next.map(|next| encoding.text(next)),
        name: Some(input.bucket),
        prefix: Some(encoding.text(input.prefix.unwrap_or_default())),
        delimiter: input.delimiter.map(|delimiter| encoding.text(delimiter)),
        key_marker: Some(encoding.text(input.key_marker.unwrap_or_default())),
        version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
        max_keys: Some(max_keys),
        encoding_type: encoding.named(),
        ..ListObjectVersionsOutput::default()
    }))
}
