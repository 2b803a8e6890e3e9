//! Why commands and edits have no effect, and how clients are answered.

use shoal_plane::Rejection;
use shoal_wire::{Error, ErrorCode};

/// Why a command had no effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The core refuses.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The journal could not be written: nothing has happened.
    #[error("the journal could not be written: {0}")]
    Journal(String),
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// A row's edit refuses.
    #[error(transparent)]
    Edit(#[from] Error),
}

/// The answer to a client.
pub(crate) fn refused(refusal: &Refusal) -> Error {
    if let Refusal::Edit(error) = refusal {
        return error.clone();
    }
    let message = refusal.to_string();
    let code = match refusal {
        Refusal::Rejected(Rejection::NameTaken(_) | Rejection::TuningNameTaken(_)) => ErrorCode::ResourceInUse,
        Refusal::Rejected(Rejection::TuningNotFound(_)) => ErrorCode::ResourceNotFound,
        Refusal::Rejected(Rejection::NeverFits(_)) => ErrorCode::ResourceLimitExceeded,
        Refusal::Rejected(
            Rejection::NotFound
            | Rejection::AlreadyEnded(_)
            | Rejection::NotSpot(_)
            | Rejection::NothingToInterrupt { .. }
            | Rejection::NotDispensable { .. }
            | Rejection::TuningAlreadyEnded(_)
            | Rejection::NoParallel
            | Rejection::UnknownInstanceType(_),
        ) => ErrorCode::ValidationException,
        Refusal::Edit(error) => error.code,
        Refusal::Journal(_) | Refusal::Stopping => ErrorCode::ServiceUnavailable,
    };
    Error::new(code, message)
}
