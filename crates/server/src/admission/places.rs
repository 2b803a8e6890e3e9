//! Places in S3 of which a job reads its script and to which it writes.

use shoal_store::{ForeignFault, Objects, StoreError, check_tree};
use shoal_wire::{CreateTrainingJob, Error, Output, S3Uri};

use crate::{
    channels::{self, ChannelError},
    internal::internal,
};

/// The script that the request brings is there.
pub(super) fn source(objects: &Objects, request: &CreateTrainingJob) -> Result<(), Error> {
    let Some(uri) = request.script.as_ref().and_then(|script| script.source.as_ref()) else { return Ok(()) };
    match objects.get(&uri.bucket, &uri.prefix) {
        Ok(Some(meta)) => check_tree(&[("source", &meta)])
            .map_err(|error| Error::validation(format!("hyperParameters.sagemaker_submit_directory: {uri}: {error}"))),
        Ok(None) | Err(StoreError::NoSuchBucket(_)) => Err(Error::validation(format!(
            "hyperParameters.sagemaker_submit_directory: there is no object {uri}; upload the script's archive \
             (sourcedir.tar.gz) first, as the \
             SDKs do"
        ))),
        Err(error) => Err(internal(&error)),
    }
}

/// What is to be restored is a tree, in a bucket that takes more.
pub(super) fn checkpoints(objects: &Objects, uri: &S3Uri) -> Result<(), Error> {
    bucket(objects, "checkpointConfig.s3Uri", uri)?;
    let found = channels::checkpoints_of(objects, uri, &|| false).map_err(|error| match error {
        ChannelError::Store(error) => internal(&error),
        error => Error::validation(format!("checkpointConfig.s3Uri: {error}")),
    })?;
    let entries: Vec<_> = found.iter().map(|(path, meta)| (path.as_str(), meta)).collect();
    check_tree(&entries).map_err(|error| Error::validation(format!("checkpointConfig.s3Uri: below {uri} {error}")))
}

/// The model can be written there, under the key that is asked for.
pub(super) fn output(objects: &Objects, output: &Output) -> Result<(), Error> {
    if let Some(id) = &output.kms_key_id {
        let known = objects.keys().find(id);
        known.map_err(|error| Error::validation(format!("Invalid value at 'outputDataConfig.kmsKeyId': {error}.")))?;
        if objects.passthrough(&output.s3_output_path.bucket).is_some() {
            return Err(Error::validation(format!(
                "Invalid value at 'outputDataConfig.kmsKeyId': the S3 bucket \"{}\" shows one of another store, whose \
                 objects are under no key of this server; leave it out.",
                output.s3_output_path.bucket
            )));
        }
    }
    bucket(objects, "outputDataConfig.s3OutputPath", &output.s3_output_path)
}

/// Objects can be written there.
pub(super) fn bucket(objects: &Objects, field: &str, uri: &S3Uri) -> Result<(), Error> {
    match objects.bucket(&uri.bucket) {
        Ok(Some(_)) if objects.passthrough(&uri.bucket).is_some_and(|shown| shown.is_read_only) => {
            Err(Error::validation(format!(
                "{field}: the S3 bucket \"{}\" is read-only on this server; choose another",
                uri.bucket
            )))
        }
        Ok(Some(_)) => match objects.passthrough(&uri.bucket).map(|shown| shown.bucket.list("", None, None, 1)) {
            // A store that is away may be back when the job has something to write.
            Some(Err(StoreError::Foreign(error))) if error.fault != ForeignFault::Away => {
                Err(Error::validation(format!("{field}: {error}")))
            }
            _ => Ok(()),
        },
        Ok(None) => Err(Error::validation(format!(
            "{field}: the S3 bucket \"{}\" does not exist; create it first (aws s3 mb s3://{})",
            uri.bucket, uri.bucket
        ))),
        Err(error) => Err(internal(&error)),
    }
}
