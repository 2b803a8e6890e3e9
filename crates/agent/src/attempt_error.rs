//! Why an instance does not go its way to the end.

use shoal_environments::EnvironmentError;
use shoal_sandbox::SandboxError;

use crate::instance::InstanceError;
use crate::outbox::Closed;
use crate::pack::PackError;

/// Why an instance does not go its way to the end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    /// It could not be made.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// What was saved before cannot be put into its checkpoint directory, or what it writes cannot
    /// be mirrored.
    #[error("could not {what}")]
    Mirror {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Its Python environment cannot be made.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// There are no threads to read its output or to wait for it.
    #[error("could not watch the program")]
    Watch(#[source] std::io::Error),
    /// The machine does not tell how the program ended.
    #[error("could not learn how the program ended")]
    Wait(#[source] SandboxError),
    /// The program found no space on the disk that all instances share.
    #[error("{0}")]
    NoSpace(String),
    /// A pipe of the program was not fed.
    #[error("ClientError: {host}: {reason}")]
    Unfed {
        /// The instance's name: the reason of the job begins so then.
        host: String,
        /// Why.
        reason: String,
    },
    /// The pipes of a channel could not be made.
    #[error("could not make the pipes of the job's channels")]
    Pipes(#[source] std::io::Error),
    /// There is no process to pack what it left behind.
    #[error("could not start the process that packs /opt/ml/model")]
    Packer(#[source] std::io::Error),
    /// What it left behind cannot be sent.
    #[error(transparent)]
    Pack(PackError),
    /// Another agent served this instance before, and has died with it.
    #[error("the agent of this instance was started again after an earlier one had died")]
    Successor,
    /// Nobody is there to hear of it.
    #[error(transparent)]
    Closed(#[from] Closed),
}

impl From<PackError> for AttemptError {
    fn from(error: PackError) -> Self {
        match error {
            PackError::Closed(closed) => Self::Closed(closed),
            error => Self::Pack(error),
        }
    }
}
