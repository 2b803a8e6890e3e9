//! Stores a finished job's artifacts. What a full disk lacks space for is tried again by
//! `shoal_runtime::lanes`, until the job is stopped; what is to be encrypted under a key that
//! cannot be had, also after that.

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
        let is_stored = needed == 0 && number > 1 && artifacts::has_model(&self.objects, &request.output, job);
        let store =
            || if is_stored { Ok(()) } else { artifacts::store(&self.objects, &dir, hosts, &request.output, job) };
        let stored = match store() {
            Err(error) if error.is_full() && !is_last => return no_space(true),
            // Space may never come, and who is asked again may well answer.
            Err(error) if (error.is_without_key() || error.is_away()) && write != WritePolicy::Always => {
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
