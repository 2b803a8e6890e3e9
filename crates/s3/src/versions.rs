//! Whether a bucket keeps versions, and lists of them.

use std::sync::Arc;

use s3s::dto::{
    BucketVersioningStatus, DeleteMarkerEntry, GetBucketVersioningInput, GetBucketVersioningOutput,
    ListObjectVersionsInput, ListObjectVersionsOutput, MFADelete, ObjectVersion, ObjectVersionStorageClass, Owner,
    PutBucketVersioningInput, PutBucketVersioningOutput,
};
use s3s::{S3Response, S3Result, s3_error};
use shoal_store::{ObjectMeta, VersionMeta, Versioning};

use crate::attributes;
use crate::backend::Backend;
use crate::errors::{blocking, custom};
use crate::key_encoding::Encoding;
use crate::list::page_size;
use crate::storage_class;

pub(crate) async fn put_bucket_versioning(
    backend: &Backend,
    input: PutBucketVersioningInput,
) -> S3Result<S3Response<PutBucketVersioningOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_bucket(&input.bucket).await?;
    let asked = input.versioning_configuration;
    if asked.mfa_delete.is_some_and(|mfa| mfa.as_str() != MFADelete::DISABLED) {
        return Err(s3_error!(NotImplemented, "There are no devices for MFA: leave out MfaDelete."));
    }
    let versioning = match asked.status.as_ref().map(BucketVersioningStatus::as_str) {
        Some(BucketVersioningStatus::ENABLED) => Versioning::Enabled,
        Some(BucketVersioningStatus::SUSPENDED) => Versioning::Suspended,
        _ => {
            return Err(custom(
                "IllegalVersioningConfigurationException",
                http::StatusCode::BAD_REQUEST,
                "The Versioning element must be specified: its Status is Enabled or Suspended",
            ));
        }
    };
    let objects = Arc::clone(&backend.objects);
    blocking(move || objects.set_versioning(&input.bucket, versioning)).await?;
    Ok(S3Response::new(PutBucketVersioningOutput::default()))
}

pub(crate) async fn get_bucket_versioning(
    backend: &Backend,
    input: GetBucketVersioningInput,
) -> S3Result<S3Response<GetBucketVersioningOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    let status = match blocking(move || objects.versioning(&input.bucket)).await? {
        Versioning::Never => None,
        Versioning::Enabled => Some(BucketVersioningStatus::ENABLED),
        Versioning::Suspended => Some(BucketVersioningStatus::SUSPENDED),
    };
    Ok(S3Response::new(GetBucketVersioningOutput {
        status: status.map(BucketVersioningStatus::from_static),
        ..GetBucketVersioningOutput::default()
    }))
}

pub(crate) async fn list_object_versions(
    backend: &Backend,
    input: ListObjectVersionsInput,
) -> S3Result<S3Response<ListObjectVersionsOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let encoding = Encoding::of(input.encoding_type)?;
    let max_keys = page_size(input.max_keys)?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (key_marker, id_marker) = (given(&input.key_marker), given(&input.version_id_marker));
    if id_marker.is_some() && key_marker.is_none() {
        return Err(s3_error!(InvalidArgument, "A version-id marker cannot be specified without a key marker."));
    }
    let objects = Arc::clone(&backend.objects);
    let (bucket, prefix, delimiter) =
        (input.bucket.clone(), input.prefix.clone().unwrap_or_default(), input.delimiter.clone());
    let most = usize::try_from(max_keys).expect("a page size is not negative");
    let page = blocking(move || {
        let after = key_marker.as_deref().map(|key| (key, id_marker.as_deref()));
        objects.list_versions(&bucket, &prefix, after, delimiter.as_deref(), most)
    });
    let page = page.await?;
    let owner = Owner { display_name: None, id: Some(backend.options.account.clone()) };
    let (mut versions, mut delete_markers) = (Vec::new(), Vec::new());
    for mut version in page.versions {
        match version.object.take() {
            Some(object) => versions.push(entry(encoding, version, &object, &owner)),
            None => delete_markers.push(DeleteMarkerEntry {
                is_latest: Some(version.noncurrent_ms.is_none()),
                last_modified: Some(attributes::timestamp(version.modified_ms)),
                owner: Some(owner.clone()),
                version_id: Some(version.version.id().to_owned()),
                key: Some(encoding.text(version.key)),
            }),
        }
    }
    let (next_key, next_id) = page.next.unzip();
    Ok(S3Response::new(ListObjectVersionsOutput {
        versions: Some(versions),
        delete_markers: Some(delete_markers),
        common_prefixes: Some(encoding.common(page.common_prefixes)),
        is_truncated: Some(next_key.is_some()),
        next_version_id_marker: next_id.flatten(),
        next_key_marker: next_key.map(|next| encoding.text(next)),
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

fn entry(encoding: Encoding, version: VersionMeta, object: &ObjectMeta, owner: &Owner) -> ObjectVersion {
    ObjectVersion {
        e_tag: Some(attributes::etag(object)),
        is_latest: Some(version.noncurrent_ms.is_none()),
        last_modified: Some(attributes::timestamp(object.modified_ms)),
        owner: Some(owner.clone()),
        size: Some(attributes::signed(object.size)),
        storage_class: Some(ObjectVersionStorageClass::from(storage_class::of(&object.attributes))),
        version_id: Some(version.version.id().to_owned()),
        key: Some(encoding.text(version.key)),
        ..ObjectVersion::default()
    }
}
