//! Stored requests of training jobs and tuning jobs: read from their rows, and converted from the
//! rows of earlier database formats.

use shoal_store::{Batch, Journal, ResourceKind, ResourceRow, RowChange, Rows, StoreError};
use shoal_wire::{CreateTrainingJob, CreateTuningJob, Error, Stored, TuningDefinition};

use crate::{Image, Images, options::known_image_of};

/// Rows that are converted in one transaction.
const ROWS_PER_BATCH: usize = 200;

/// The request of a training job's row.
///
/// # Errors
/// `InternalFailure`, see [`Stored::restore`].
pub(crate) fn training_job(row: &ResourceRow) -> Result<CreateTrainingJob, Error> {
    CreateTrainingJob::restore(&row.spec, &row.request)
}

/// The request of a training job of this name.
///
/// # Errors
/// There is none, or it cannot be read.
pub(crate) fn of_training_job(rows: &dyn Rows, job: &str) -> Result<CreateTrainingJob, String> {
    with_creator(rows, job).map(|(request, _)| request)
}

/// The same with its creator.
///
/// # Errors
/// As [`of_training_job`].
pub(crate) fn with_creator(rows: &dyn Rows, job: &str) -> Result<(CreateTrainingJob, Option<String>), String> {
    let row = rows
        .resource(ResourceKind::TRAINING_JOB, job)
        .map_err(|error| error.to_string())?
        .ok_or_else(|| format!("no row of training job {job}"))?;
    let request = training_job(&row).map_err(|error| format!("training job {job}: {}", error.message))?;
    Ok((request, row.creator))
}

/// The request of a tuning job's row, with ranges for its parameters of Autotune.
///
/// # Errors
/// `InternalFailure`, see [`Stored::restore`].
pub(crate) fn tuning_job(row: &ResourceRow) -> Result<CreateTuningJob, Error> {
    CreateTuningJob::restore(&row.spec, &row.request)
}

/// Stores what the server needs of each request that an earlier version stored as JSON alone. A
/// request that this version refuses is left as it is: its job fails, and no other.
///
/// # Errors
/// The storage's.
pub(crate) fn convert(journal: &mut dyn Journal, rows: &dyn Rows, images: &dyn Images) -> Result<(), StoreError> {
    for names in rows.without_spec()?.chunks(ROWS_PER_BATCH) {
        let mut batch = Batch::default();
        for (kind, name) in names {
            let Some(row) = rows.resource(*kind, name)? else { continue };
            match converted(&row, images) {
                Ok(spec) => batch.rows.push(RowChange::Put(Box::new(ResourceRow { spec, ..row }))),
                Err(error) => {
                    tracing::error!("{} {name}: its request is not accepted any more: {}", kind.name(), error.message);
                }
            }
        }
        if !batch.rows.is_empty() {
            journal.append(&batch)?;
        }
    }
    Ok(())
}

fn converted(row: &ResourceRow, images: &dyn Images) -> Result<Vec<u8>, Error> {
    let raw = serde_json::from_slice(&row.request).map_err(|error| Error::validation(error.to_string()))?;
    if row.kind == ResourceKind::TUNING_JOB {
        let mut request = CreateTuningJob::from_raw(raw)?;
        resolve_auto_ranges(&mut request, images);
        Ok(request.to_stored())
    } else {
        Ok(CreateTrainingJob::from_raw(raw)?.to_stored())
    }
}

/// Gives parameters of Autotune their ranges.
pub(crate) fn resolve_auto_ranges(request: &mut CreateTuningJob, images: &dyn Images) {
    let autotune = request.autotune;
    let settled = |definition: TuningDefinition| {
        let tunable = match known_image_of(images, &definition.training) {
            Some(Image::Builtin(algorithm)) if autotune => algorithm.tunable,
            _ => Vec::new(),
        };
        definition.with_auto_ranges(&tunable, autotune)
    };
    request.definitions = std::mem::take(&mut request.definitions).into_iter().map(settled).collect();
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shoal_store::SqliteJournal;

    use super::*;
    use crate::tuning::tests::{Host, request};

    fn job_request(mode: &str) -> Value {
        json!({
            "TrainingJobName": "job",
            "RoleArn": "arn:aws:iam::123456789012:role/tests",
            "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": mode, "ContainerEntrypoint": ["true"]},
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        })
    }

    fn old_row(kind: ResourceKind, name: &str, request: Vec<u8>) -> ResourceRow {
        ResourceRow { request, ..ResourceRow::new(kind, name) }
    }

    #[test]
    fn rows_of_earlier_formats_are_converted_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        let rows = journal.rows();
        let (job, tuning) = (ResourceKind::TRAINING_JOB, ResourceKind::TUNING_JOB);
        let autotune = json!({"Autotune": {"Mode": "Enabled"}});
        let mut old = vec![
            old_row(job, "refused", job_request("Telepathy").to_string().into_bytes()),
            old_row(job, "damaged", b"{".to_vec()),
            old_row(tuning, "tune", request("Random", &autotune)),
        ];
        old.extend(
            (0..2 * ROWS_PER_BATCH)
                .map(|number| old_row(job, &format!("job-{number:03}"), job_request("File").to_string().into_bytes())),
        );
        let put = |row: &ResourceRow| RowChange::Put(Box::new(row.clone()));
        journal.append(&Batch { rows: old.iter().map(put).collect(), ..Batch::default() }).unwrap();
        for _ in ["first start", "second start"] {
            convert(&mut journal, &rows, &Host).unwrap();
            assert_eq!(rows.without_spec().unwrap(), [(job, "damaged".to_owned()), (job, "refused".to_owned())]);
        }
        for row in &old[2..] {
            let now = rows.resource(row.kind, &row.name).unwrap().unwrap();
            assert_eq!(ResourceRow { spec: Vec::new(), ..now.clone() }, *row, "nothing else changes");
            if row.kind == tuning {
                assert_eq!(tuning_job(&now).unwrap().definitions[0].ranges.len(), 2);
            } else {
                assert_eq!(training_job(&now).unwrap().algorithm.entrypoint, ["true"]);
            }
        }
        let refused = rows.resource(job, "refused").unwrap().unwrap();
        assert!(training_job(&refused).unwrap_err().message.contains("this one refuses it"));
    }

    /// Whatever the rules have become, a request that was accepted is read: from its typed value,
    /// never from its JSON.
    #[test]
    fn a_stored_request_is_not_judged_again() {
        let accepted = CreateTrainingJob::from_raw(job_request("File")).unwrap();
        let row = ResourceRow {
            spec: accepted.to_stored(),
            ..old_row(ResourceKind::TRAINING_JOB, "job", job_request("Telepathy").to_string().into_bytes())
        };
        assert_eq!(training_job(&row).unwrap().algorithm, accepted.algorithm);
    }
}
