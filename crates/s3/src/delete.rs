//! Removing objects and versions of them. What does not exist counts as removed, as in S3.

use std::sync::Arc;

use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETagCondition,
    Error, ObjectIdentifier, Timestamp, TimestampFormat,
};
use s3s::{S3Response, S3Result, s3_error};
use shoal_store::{DeleteCondition, Deletion, Objects};

use crate::backend::Backend;
use crate::errors::{blocking, from_store};
use crate::refusals;

/// S3 never removes more at once.
const LARGEST_BATCH: usize = 1000;

/// Bytes of a key; in paths the framework sees to it.
const LONGEST_KEY: usize = 1024;

pub(crate) async fn delete_object(
    backend: &Backend,
    input: DeleteObjectInput,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    let condition = DeleteCondition {
        exists: input.if_match.is_some(),
        etag: input.if_match.as_ref().and_then(ETagCondition::as_etag).map(|etag| etag.value().to_owned()),
        size: input.if_match_size.map(size_of).transpose()?,
        modified_s: input.if_match_last_modified_time.as_ref().map(seconds_of),
    };
    let version = input.version_id;
    refusals::version_of(version.as_deref())?;
    let objects = Arc::clone(&backend.objects);
    let deletion =
        blocking(move || objects.delete_if(&input.bucket, &input.key, version.as_deref(), &condition)).await?;
    Ok(S3Response::new(DeleteObjectOutput {
        delete_marker: deletion.is_marker.then_some(true),
        version_id: deletion.version.shown().map(str::to_owned),
        ..DeleteObjectOutput::default()
    }))
}

pub(crate) async fn delete_objects(
    backend: &Backend,
    input: DeleteObjectsInput,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    backend.check_owner(input.expected_bucket_owner.as_deref())?;
    backend.check_bucket(&input.bucket).await?;
    if !(1..=LARGEST_BATCH).contains(&input.delete.objects.len()) {
        return Err(s3_error!(MalformedXML, "1 to 1000 objects can be removed at once"));
    }
    let quiet = input.delete.quiet.unwrap_or_default();
    let objects = Arc::clone(&backend.objects);
    let (deleted, errors) = blocking(move || {
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            let done = delete_one(&objects, &input.bucket, &object);
            match done {
                Ok(deletion) => {
                    let marker = deletion.version.shown().filter(|_| deletion.is_marker);
                    deleted.push(DeletedObject {
                        key: Some(object.key),
                        version_id: object.version_id,
                        delete_marker: deletion.is_marker.then_some(true),
                        delete_marker_version_id: marker.map(str::to_owned),
                    });
                }
                Err(error) => {
                    errors.push(Error {
                        code: Some(error.code().as_str().to_owned()),
                        message: error.message().map(str::to_owned),
                        key: Some(object.key),
                        version_id: object.version_id,
                    });
                }
            }
        }
        Ok((deleted, errors))
    })
    .await?;
    let deleted = if quiet { Vec::new() } else { deleted };
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: Some(deleted),
        errors: Some(errors),
        ..DeleteObjectsOutput::default()
    }))
}

fn delete_one(objects: &Objects, bucket: &str, object: &ObjectIdentifier) -> S3Result<Deletion> {
    usable(&object.key)?;
    refusals::version_of(object.version_id.as_deref())?;
    let condition = DeleteCondition {
        exists: object.e_tag.is_some(),
        etag: object.e_tag.as_ref().map(|etag| etag.value().to_owned()),
        size: object.size.map(size_of).transpose()?,
        modified_s: object.last_modified_time.as_ref().map(seconds_of),
    };
    objects.delete_if(bucket, &object.key, object.version_id.as_deref(), &condition).map_err(from_store)
}

/// Without a key, it would be the bucket that is removed.
fn usable(key: &str) -> S3Result<()> {
    match key.len() {
        0 => Err(s3_error!(UserKeyMustBeSpecified, "User key must have a length greater than 0.")),
        1..=LONGEST_KEY => Ok(()),
        _ => Err(s3_error!(KeyTooLongError, "Your key is too long")),
    }
}

fn size_of(size: i64) -> S3Result<u64> {
    u64::try_from(size).map_err(|_| s3_error!(InvalidArgument, "The size of an object is not negative."))
}

/// Times before the epoch are no object's.
fn seconds_of(time: &Timestamp) -> u64 {
    let mut text = Vec::new();
    let written = time.format(TimestampFormat::EpochSeconds, &mut text).is_ok();
    let seconds = String::from_utf8(text).ok().filter(|_| written);
    seconds.and_then(|text| text.split('.').next()?.parse().ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_batches_have_a_length() {
        let code = |key: &str| usable(key).err().map(|error| error.code().as_str().to_owned());
        assert_eq!(code("").as_deref(), Some("UserKeyMustBeSpecified"));
        assert_eq!(code(&"k".repeat(1025)).as_deref(), Some("KeyTooLongError"));
        assert_eq!((code("k"), code(&"k".repeat(1024))), (None, None));
    }
}
