//! Whether the best training job of a tuning job has a model: one that was stopped has what its
//! program had saved by then.

use shoal_plane::TuningView;
use shoal_store::{Objects, ResourceKind, Rows, StoreError};
use shoal_wire::{Error, OutputCompression, arn, stored_description};

use crate::{artifacts, internal::internal};

/// What its user should know if the best training job has an empty model artifact or none. One that
/// was deleted is not looked for.
///
/// # Errors
/// Rows or objects cannot be read.
pub(crate) fn warning(rows: &dyn Rows, objects: &Objects, view: &TuningView) -> Result<Option<String>, Error> {
    let Some(best) = &view.best else { return Ok(None) };
    let Some(row) = rows.resource(ResourceKind::TRAINING_JOB, &best.job).map_err(|error| internal(&error))? else {
        return Ok(None);
    };
    let output = stored_description(&row.spec)?.output;
    let has_model = match is_stored(objects, &output, &best.job) {
        Err(StoreError::NoSuchBucket(_)) => false,
        Err(StoreError::Foreign(error)) => {
            return Ok(Some(format!("Whether the best training job, {}, has a model is not known: {error}", best.job)));
        }
        stored => stored.map_err(|error| internal(&error))?,
    };
    Ok((!has_model).then(|| {
        let state = if row.status == "Stopped" {
            "was stopped before its program had saved \
             one"
        } else {
            "ended without one"
        };
        format!(
            "The best training job, {}, has no model: it {state}. A program that saves its model in /opt/ml/model at \
             each improvement, or when it receives \
             SIGTERM, leaves it however it ends; its checkpoints, if it writes any, are below its \
             CheckpointConfig.S3Uri",
            best.job
        )
    }))
}

fn is_stored(objects: &Objects, output: &shoal_wire::Output, job: &str) -> Result<bool, StoreError> {
    let bucket = &output.s3_output_path.bucket;
    let key = |file: &str| arn::output(&output.s3_output_path, job, file).prefix;
    Ok(match output.compression {
        OutputCompression::Gzip => {
            let archive = objects.get(bucket, &key("model.tar.gz"))?;
            archive.is_some_and(|archive| archive.size > artifacts::empty_archive().len() as u64)
        }
        OutputCompression::None => !objects.list(bucket, &key("model/"), None, None, 1)?.objects.is_empty(),
    })
}
