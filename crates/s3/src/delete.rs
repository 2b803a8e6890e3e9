//! Removing objects. What does not exist counts as removed, as in S3.

use std::sync::Arc;

use s3s::dto::{DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error};
use s3s::{S3Response, S3Result, s3_error};

use crate::errors::{blocking, from_store};
use crate::operations::Operations;

/// S3 never removes more at once.
const LARGEST_BATCH: usize = 1000;

/// Bytes of a key; in paths the framework sees to it.
const LONGEST_KEY: usize = 1024;

pub(crate) async fn delete_object(front: &Operations, input: DeleteObjectInput) -> S3Result<S3Response<DeleteObjectOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    let objects = Arc::clone(&front.objects);
    blocking(move || objects.delete(&input.bucket, &input.key)).await?;
    Ok(S3Response::new(DeleteObjectOutput::default()))
}

pub(crate) async fn delete_objects(front: &Operations, input: DeleteObjectsInput) -> S3Result<S3Response<DeleteObjectsOutput>> {
    front.check_owner(input.expected_bucket_owner.as_deref())?;
    front.check_bucket(&input.bucket).await?;
    if !(1..=LARGEST_BATCH).contains(&input.delete.objects.len()) {
        return Err(s3_error!(MalformedXML, "1 to 1000 objects can be removed at once"));
    }
    let quiet = input.delete.quiet.unwrap_or_default();
    let objects = Arc::clone(&front.objects);
    let (deleted, errors) = blocking(move || {
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            let done = match object.key.len() {
                ..=LONGEST_KEY => objects.delete(&input.bucket, &object.key).map_err(from_store),
                _ => Err(s3_error!(KeyTooLongError, "Your key is too long")),
            };
            match done {
                Ok(_) => deleted.push(DeletedObject { key: Some(object.key), ..DeletedObject::default() }),
                Err(error) => {
                    errors.push(Error {
                        code: Some(error.code().as_str().to_owned()),
                        message: error.message().map(str::to_owned),
                        key: Some(object.key),
                        version_id: None,
                    });
                }
            }
        }
        Ok((deleted, errors))
    })
    .await?;
    let deleted = if quiet { Vec::new() } else { deleted };
    Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), ..DeleteObjectsOutput::default() }))
}
