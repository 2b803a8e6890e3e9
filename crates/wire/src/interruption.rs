//! Taking instances of a training job away: an operation of ours beside SageMaker's, `Shoal.InterruptTrainingJob`, as AWS leaves that to
//! its capacity.

use serde::Deserialize;

use crate::call::plain_inputs;

/// What `X-Amz-Target` says; the answer is empty.
pub const INTERRUPT_TRAINING_JOB: &str = "Shoal.InterruptTrainingJob";

/// An `InterruptTrainingJob`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct InterruptTrainingJob {
    /// Training job's name.
    pub training_job_name: String,
    /// Take this number of instances away, at least 1, and let the others continue. None: one of a job that can live with fewer, else all.
    pub instance_count: Option<std::num::NonZeroU32>,
}

plain_inputs!(InterruptTrainingJob);
