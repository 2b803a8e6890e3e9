//! The server's own faults, as clients get them.

use shoal_store::{ForeignFault, StoreError};
use shoal_wire::{Error, ErrorCode};

use crate::error_chain::describe;

/// A fault of the server's own, or of a bucket that shows one of another store.
pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Error {
    match error.downcast_ref::<StoreError>() {
        Some(StoreError::Foreign(foreign)) if foreign.fault == ForeignFault::Away => {
            Error::new(ErrorCode::ServiceUnavailable, foreign.to_string())
        }
        Some(StoreError::Foreign(foreign)) => Error::validation(foreign.to_string()),
        _ => Error::new(ErrorCode::InternalFailure, describe(error)),
    }
}

/// Runs what may wait for the disk off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(internal(&error)))
}
