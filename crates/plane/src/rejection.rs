//! Why a command is refused.

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
    /// `ValidationException`.
    #[error(
        "The training job {0} is no managed spot training, and only that can be interrupted: set \
         EnableManagedSpotTraining and MaxWaitTimeInSeconds when you create it"
    )]
    NotSpot(String),
    /// `ValidationException`: its programs do not run.
    #[error(
        "The training job {name} cannot be interrupted now, as no program of it runs (its secondary status is \
         {secondary}): try again when it trains"
    )]
    NothingToInterrupt {
        /// Training job's name.
        name: String,
        /// As AWS spells it.
        secondary: &'static str,
    },
    /// `ValidationException`: the others would be too few.
    #[error(
        "{wanted} instances of the training job {name} cannot be interrupted now, only {dispensable}: a job keeps the \
         number of instances of its tag \
         shoal:min-instances, all without the tag, and all before each of its programs has run"
    )]
    NotDispensable {
        /// Training job's name.
        name: String,
        /// Number that can be.
        dispensable: usize,
        /// Number requested.
        wanted: usize,
    },
    /// `ValidationException`: the catalogue has no such instance type.
    #[error("{0}")]
    UnknownInstanceType(String),
    /// `ResourceInUse`.
    #[error("A hyperparameter tuning job with the name, {0}, already exists. Choose a different name.")]
    TuningNameTaken(String),
    /// `ResourceNotFound`.
    #[error("Amazon SageMaker can't find a tuning job called {0}. Type another name.")]
    TuningNotFound(String),
    /// `ValidationException`.
    #[error("The request was rejected because the hyperparameter tuning job is in status {0}.")]
    TuningAlreadyEnded(&'static str),
    /// `ValidationException`.
    #[error("MaxParallelTrainingJobs must be at least 1: to run no more trials, stop the hyperparameter tuning job")]
    NoParallel,
    /// `ResourceLimitExceeded`: can never run here (a GPU that the machine lacks, more memory than
    /// there is, more than a quota).
    #[error("{0}")]
    NeverFits(String),
}
