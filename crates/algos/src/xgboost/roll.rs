//! Calling the roll.

use thiserror::Error;

/// Another host ended, and how.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{host} {how}")]
pub(super) struct Loss {
    pub(super) host: String,
    pub(super) how: String,
}
