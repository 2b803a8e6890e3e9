//! Taking the instances of a managed spot training away: an operation of ours beside SageMaker's, `Shoal.InterruptTrainingJob`, as AWS leaves that to
//! its capacity.

/// What `X-Amz-Target` says; the input is `{"TrainingJobName": ..}`, and the answer is empty.
pub const INTERRUPT_TRAINING_JOB: &str = "Shoal.InterruptTrainingJob";
