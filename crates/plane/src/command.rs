//! What is asked of the core.

use crate::{JobStatus, MetricValue, RankEnd, TrainingSpec};

/// A wish or a report; [`crate::decide()`] says what follows from it.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// A validated request to train.
    CreateTrainingJob {
        /// Training job's name.
        name: String,
        /// Random, from outside; attempts are named `<uid>-<number>`.
        uid: String,
        /// What the core decides on.
        spec: TrainingSpec,
        /// An ended job of this name exists (the shell knows; live ones the core knows itself).
        name_taken: bool,
    },
    /// `StopTrainingJob`.
    StopTrainingJob {
        /// Training job's name.
        name: String,
        /// Status of an ended job of this name that is no longer in the hot state (the shell knows from its row).
        ended: Option<JobStatus>,
    },
    /// Time has passed: deadlines ([`crate::State::next_deadline`]).
    Tick,
    /// The launcher could not start an attempt's agents.
    LaunchFailed {
        /// Which.
        attempt: String,
        /// For the failure reason; one that starts with `ClientError: ` or `AlgorithmError: ` keeps its kind, anything else is an
        /// `InternalServerError`.
        reason: String,
    },
    /// An attempt's agents cannot be started yet, through no fault of theirs: the time to report counts from now on. Said again while that lasts.
    LaunchDelayed {
        /// Which.
        attempt: String,
        /// For the status message.
        reason: String,
    },
    /// An agent says something. Late, repeated and unknown reports are fine: they yield no event.
    InstanceReported {
        /// Which.
        attempt: String,
        /// Host number, from 1.
        host: u32,
        /// What.
        report: InstanceReport,
    },
    /// `model.tar.gz` (and `output.tar.gz`) of an attempt are stored.
    ArtifactsStored {
        /// Which.
        attempt: String,
    },
    /// They could not be stored.
    ArtifactsFailed {
        /// Which.
        attempt: String,
        /// For the failure reason.
        reason: String,
    },
    /// No process of the attempt is left; its capacity is free.
    Released {
        /// Which.
        attempt: String,
    },
}

/// What an agent (or its launcher) reports of one instance.
#[derive(Debug, Clone, PartialEq)]
pub enum InstanceReport {
    /// Channels are being mounted.
    Downloading,
    /// The training program runs.
    Training,
    /// The training program is over.
    RankEnded {
        /// How.
        end: RankEnd,
        /// Last value of every metric seen on this host.
        final_metrics: Vec<MetricValue>,
    },
    /// A checkpoint file is durable in the object store. Said again, it is a receipt again.
    CheckpointSaved {
        /// Below the checkpoint directory.
        path: String,
        /// Its length.
        bytes: u64,
        /// SHA-256 of its content, hexadecimal.
        sha256: String,
    },
    /// Artifacts are with the server.
    Uploaded,
    /// Our side failed: the instance could not be made, or its agent died.
    Lost {
        /// For the failure reason.
        reason: String,
    },
}

/// Why a command was refused. The shell maps it to AWS's error codes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// `ResourceInUse`.
    #[error("Job name must be unique within an AWS account and region, and a job with this name already exists ({0})")]
    NameTaken(String),
    /// `ValidationException`.
    #[error("Requested resource not found.")]
    NotFound,
    /// `ValidationException`.
    #[error("The request was rejected because the training job is in status {0}.")]
    AlreadyEnded(&'static str),
    /// `ValidationException`: the catalogue has no such instance type.
    #[error("{0}")]
    UnknownInstanceType(String),
    /// `ResourceLimitExceeded`: can never run here (a GPU that the machine lacks, more memory than there is).
    #[error("{0}")]
    NeverFits(String),
}
