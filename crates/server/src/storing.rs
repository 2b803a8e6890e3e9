//! Stores a finished job's artifacts. What a full disk lacks space for is tried again by
//! `shoal_runtime::lanes`, until the job is stopped; what is to be encrypted under a key that
//! cannot be had, or is for a bucket elsewhere that does not take it, also after that.

use std::{path::PathBuf, sync::Arc};

use shoal_plane::{AttemptId, Host};
use shoal_runtime::steps::{Outcome, WritePolicy};
use shoal_store::{Attributes, DataDir, Objects, PutCondition, RESERVE_STEP_BYTES, ResourceKind, Rows};

use crate::{
    artifacts,
    attempts::{Plan, run_dir},
    error_chain::describe,
    requests,
};

/// The hook's mark of a complete output; it may be empty.
const END_OF_TENSORS: &str = "training_job_end.ts";

/// Where artifacts come from and go.
pub(crate) struct Storing {
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) data_dir: Arc<DataDir>,
    pub(crate) runs: PathBuf,
}

impl Storing {
    /// # Errors
    /// Why they cannot be stored.
    pub(crate) fn store(
        &self,
        job: &str,
        attempt: &AttemptId,
        number: u32,
        hosts: &[Host],
        write: WritePolicy,
    ) -> Result<Outcome, String> {
        let request = requests::of_training_job(&*self.rows, job)?;
        let dir = run_dir(&self.runs, attempt);
        let needed = artifacts::sent_bytes(&dir, hosts);
        let no_space = |has_written| {
            let reason = format!("no space left: they have {needed} bytes as sent");
            Ok(Outcome::Delayed { reason, has_written })
        };
        let is_stopping = self.is_stopping(job);
        // The outcome of a job that is being stopped waits for no space.
        let is_last = is_stopping || write == WritePolicy::Always;
        if !is_last && (write == WritePolicy::IfStopping || !self.data_dir.has_room(needed)) {
            return no_space(false);
        }
        // An attempt that resumes from a checkpoint and is stopped before that has no model: the
        // job's model is the previous attempt's.
        let may_be_stored = needed == 0 && number > 1;
        let store = || match may_be_stored && artifacts::has_model(&self.objects, &request.output, job)? {
            true => Ok(()),
            false => artifacts::store(&self.objects, &dir, hosts, &request.output, job),
        };
        let stored = match store() {
            Err(error) if error.is_full() && !is_last => return no_space(true),
            // Space may never come, and who is asked again may well answer.
            Err(error)
                if (error.is_without_key() || error.is_of_bucket_elsewhere()) && write != WritePolicy::Always =>
            {
                return Ok(Outcome::Delayed { reason: describe(&error), has_written: false });
            }
            // The artifacts of a job that is being stopped may be small.
            Err(error) if error.is_full() && is_stopping && needed <= RESERVE_STEP_BYTES => {
                self.data_dir.with_step(store)
            }
            stored => stored,
        };
        stored.map(|()| Outcome::Done).map_err(|error| describe(&error))
    }

    /// Marks the tensors of a job that is over as complete: readers wait for the mark. The job is
    /// the same without it.
    pub(crate) fn end_tensors(&self, plan: &Plan) {
        let Some((bucket, prefix)) = &plan.tensors else { return };
        if self.rows.resource(ResourceKind::TRAINING_JOB, &plan.job).is_ok_and(|row| row.is_some_and(|row| !row.ended))
        {
            return;
        }
        let key = format!("{prefix}{END_OF_TENSORS}");
        let write = || {
            let writer = self.objects.seal(self.objects.writer_to_the_last()?, bucket, None)?;
            self.objects.commit(writer, bucket, &key, &Attributes::default(), &PutCondition::Always)
        };
        if let Err(error) = write() {
            tracing::warn!(
                "training job {}: its tensors in {bucket}/{prefix} have no end mark: {}",
                plan.job,
                describe(&error)
            );
        }
    }

    /// Whether a client or a time limit stops the job: its instances may have ended in any way.
    fn is_stopping(&self, job: &str) -> bool {
        self.rows
            .resource(ResourceKind::TRAINING_JOB, job)
            .is_ok_and(|row| row.is_none_or(|row| row.status != "InProgress"))
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, os::unix::fs::FileExt, sync::Mutex};

    use serde_json::json;
    use shoal_store::{
        Batch, ForeignBucket, ForeignError, ForeignFault, Journal, Listing, NewForeign, ObjectMeta, Passthrough,
        ResourceRow, RowChange, SqliteJournal, StoreError, Version,
    };
    use shoal_wire::{CreateTrainingJob, Stored};

    use super::*;
    use crate::parts::{self, PartsWriter};

    /// A bucket elsewhere with one object at most, and what is wrong with it.
    #[derive(Debug, Default)]
    struct Elsewhere {
        content: Mutex<Option<Vec<u8>>>,
        fault: Mutex<Option<ForeignFault>>,
    }

    impl Elsewhere {
        fn check(&self) -> Result<(), StoreError> {
            match *self.fault.lock().unwrap() {
                Some(fault) => Err(ForeignError { fault, text: format!("the store is {fault:?}") }.into()),
                None => Ok(()),
            }
        }
    }

    impl ForeignBucket for Elsewhere {
        fn location(&self) -> String {
            "s3://theirs".to_owned()
        }

        fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
            self.check()?;
            let size = self.content.lock().unwrap().as_ref().map(|content| content.len() as u64);
            Ok(size.map(|size| ObjectMeta {
                key: key.to_owned(),
                size,
                etag: "0".to_owned(),
                modified_ms: 0,
                id: String::new(),
                attributes: Attributes::default(),
                version: Version::default(),
                passthrough: None,
            }))
        }

        fn list(&self, _: &str, _: Option<&str>, _: Option<&str>, _: usize) -> Result<Listing, StoreError> {
            unreachable!("storing lists nothing")
        }

        fn read(&self, _: &ObjectMeta, _: u64, _: usize) -> Result<Option<Vec<u8>>, StoreError> {
            unreachable!("storing reads nothing")
        }

        fn fetch(&self, _: &ObjectMeta, _: &File, _: &dyn Fn() -> bool) -> Result<bool, StoreError> {
            unreachable!("storing reads nothing")
        }

        fn put(&self, object: NewForeign<'_>) -> Result<String, StoreError> {
            self.check()?;
            let mut content = vec![0; usize::try_from(object.size).unwrap()];
            object.file.read_exact_at(&mut content, 0).unwrap();
            *self.content.lock().unwrap() = Some(content);
            Ok("0".to_owned())
        }

        fn remove(&self, _: &str) -> Result<(), StoreError> {
            unreachable!("storing removes nothing")
        }
    }

    /// A job whose model goes to such a bucket.
    fn with_job(theirs: &Arc<Elsewhere>) -> (tempfile::TempDir, Storing) {
        let temp = tempfile::tempdir().unwrap();
        let data_dir = DataDir::open(&temp.path().join("data")).unwrap();
        let shown = Passthrough { bucket: theirs.clone(), is_read_only: false };
        let objects = Objects::open(&data_dir).unwrap().with_passthrough([("team".to_owned(), shown)].into(), 0);
        let mut journal = SqliteJournal::open(&data_dir.journal_path()).unwrap();
        let request = json!({
            "TrainingJobName": "job",
            "RoleArn": "arn:aws:iam::123456789012:role/tests",
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]
            },
            "OutputDataConfig": {"S3OutputPath": "s3://team/out"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        });
        let row = ResourceRow {
            status: "InProgress".to_owned(),
            spec: CreateTrainingJob::from_raw(request.clone()).unwrap().to_stored(),
            request: request.to_string().into_bytes(),
            ..ResourceRow::new(ResourceKind::TRAINING_JOB, "job")
        };
        journal.append(&Batch { rows: vec![RowChange::Put(Box::new(row))], ..Batch::default() }).unwrap();
        let storing = Storing {
            rows: Arc::new(journal.rows()),
            objects: Arc::new(objects.unwrap()),
            data_dir: Arc::new(data_dir),
            runs: temp.path().join("runs"),
        };
        (temp, storing)
    }

    const HOST: Host = Host(1);

    /// What storing the artifacts of the job's attempt of this number ends in.
    fn stored(storing: &Storing, number: u32, write: WritePolicy) -> Result<Outcome, String> {
        storing.store("job", &format!("attempt-{number}").into(), number, &[HOST], write)
    }

    fn is_delayed(outcome: &Result<Outcome, String>, why: &str) -> bool {
        matches!(outcome, Ok(Outcome::Delayed { reason, has_written: false }) if reason.contains(why))
    }

    fn send(storing: &Storing, number: u32) {
        let dir = run_dir(&storing.runs, &format!("attempt-{number}").into());
        let path = parts::path(&dir, HOST, shoal_link::Artifact::Model);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        PartsWriter::open(&path, 0).unwrap().append(1, b"the model").unwrap();
    }

    /// An attempt that resumed and was stopped at once has no model, and nothing of it is written
    /// while it is not known whether there is one.
    #[test]
    fn the_model_of_the_previous_attempt_outlives_a_store_that_fails() {
        let theirs = Arc::new(Elsewhere::default());
        let (_temp, storing) = with_job(&theirs);
        send(&storing, 1);
        assert_eq!(stored(&storing, 1, WritePolicy::IfSpace), Ok(Outcome::Done));
        let model = theirs.content.lock().unwrap().clone();
        let mut text = String::new();
        model.as_deref().unwrap().take(9).read_to_string(&mut text).unwrap();
        assert_eq!(text, "the model");
        for fault in [ForeignFault::Away, ForeignFault::Refused, ForeignFault::Unsupported] {
            *theirs.fault.lock().unwrap() = Some(fault);
            let outcome = stored(&storing, 2, WritePolicy::IfSpace);
            let why = format!(
                "could not find out whether s3://team/out/job/output/model.tar.gz is there: the store is {fault:?}"
            );
            match fault {
                ForeignFault::Unsupported => assert_eq!(outcome, Err(why)),
                _ => assert!(is_delayed(&outcome, &why), "{outcome:?}"),
            }
            assert!(stored(&storing, 2, WritePolicy::Always).is_err());
        }
        *theirs.fault.lock().unwrap() = None;
        assert_eq!(stored(&storing, 2, WritePolicy::IfSpace), Ok(Outcome::Done));
        assert_eq!(*theirs.content.lock().unwrap(), model);
    }

    #[test]
    fn a_model_waits_for_the_keys_and_the_bucket_of_a_store_elsewhere() {
        let theirs = Arc::new(Elsewhere::default());
        let (_temp, storing) = with_job(&theirs);
        send(&storing, 1);
        use ForeignFault::{Away, NoBucket, ReadOnly, Refused, Rejected, Unsupported};
        for fault in [Away, Refused, NoBucket, Rejected, ReadOnly, Unsupported] {
            *theirs.fault.lock().unwrap() = Some(fault);
            let outcome = stored(&storing, 1, WritePolicy::IfSpace);
            let waits = is_delayed(&outcome, &format!("the store is {fault:?}"));
            assert_eq!(waits, !matches!(fault, ReadOnly | Unsupported), "{outcome:?}");
            let last = stored(&storing, 1, WritePolicy::Always);
            assert!(last.as_ref().is_err_and(|why| why.contains(&format!("the store is {fault:?}"))), "{last:?}");
        }
        *theirs.fault.lock().unwrap() = None;
        assert_eq!(stored(&storing, 1, WritePolicy::IfSpace), Ok(Outcome::Done));
        assert!(theirs.content.lock().unwrap().is_some());
    }
}
