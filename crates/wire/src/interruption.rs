//! Taking instances of a training job away: an operation of ours beside SageMaker's,
//! `Shoal.InterruptTrainingJob`, as AWS leaves that to its capacity.

/// The operation's `X-Amz-Target`; the answer is empty.
pub const INTERRUPT_TRAINING_JOB: &str = "Shoal.InterruptTrainingJob";
