//! Why a training failed, as its failure file says it.

use std::path::PathBuf;

use shoal_contract::ConfigError;
use thiserror::Error;

use super::data::DataError;
use super::ffi::api::XGBoostError;
use super::ffi::matrix::MatrixError;
use crate::{HyperparameterError, LibraryError};

/// The end of a failed training.
#[derive(Debug, Error)]
pub(super) enum Failure {
    /// The user's mistake.
    #[error("ClientError: {0}")]
    User(String),
    /// The user's mistake in the hyperparameters.
    #[error("ClientError: {0}")]
    Hyperparameters(#[from] HyperparameterError),
    /// The user's mistake in the data.
    #[error("ClientError: {0}")]
    Data(#[from] DataError),
    /// The files under `/opt/ml/input/config` are not those of a training job.
    #[error("{0}{cause}", cause = cause(.0))]
    Config(#[from] ConfigError),
    /// No XGBoost on this machine.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The library refused the user's data or parameters.
    #[error("ClientError: {0}")]
    Refused(String),
    /// The library failed.
    #[error("XGB train call failed with exception:\n{0}")]
    XGBoost(String),
    /// The library failed to talk to the other hosts.
    #[error("the hosts lost each other:\n{0}")]
    Group(String),
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The stop request cannot be waited for.
    #[error("cannot handle SIGTERM: {source}")]
    Signals {
        /// Why.
        source: std::io::Error,
    },
    /// The first host cannot be the meeting point.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Address and port.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// Another host ended, so this one had to.
    #[error("{0}")]
    Lost(#[from] super::roll::Loss),
}

/// Parts of the library's messages that mean that the user can mend it, as the image sorts them.
const USER_MISTAKES: [&str; 12] = [
    "label must be in [0,1] for logistic regression",
    "label must be in [0, num_class)",
    "feature_names mismatch",
    "Check failed: preds.size() == info.labels_.size()",
    "the dataset only contains pos or neg samples",
    "base_score must be in (0,1)",
    "label must be nonnegative",
    "label must be positive",
    "should be greater equal to",
    "Invalid Parameter format",
    "exceed bound",
    "Invalid Input:",
];

impl From<XGBoostError> for Failure {
    fn from(error: XGBoostError) -> Self {
        // The library reports failures of its collective as lists of such places.
        if error.0.contains("\n- [") {
            Self::Group(error.0)
        } else if USER_MISTAKES.iter().any(|part| error.0.contains(part)) {
            Self::Refused(error.0)
        } else {
            Self::XGBoost(error.0)
        }
    }
}

impl From<MatrixError> for Failure {
    fn from(error: MatrixError) -> Self {
        match error {
            MatrixError::Data(error) => error.into(),
            MatrixError::XGBoost(error) => error.into(),
        }
    }
}

/// The cause of an error, to stand after it: a failure file has no chain.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map(|source| format!(": {source}")).unwrap_or_default()
}
