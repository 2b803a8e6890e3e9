//! The server's own faults, as clients get them.

use shoal_wire::{Error, ErrorCode};

use crate::error_chain::describe;

/// A fault of the server's own.
pub(crate) fn internal(error: &dyn std::error::Error) -> Error {
    Error::new(ErrorCode::InternalFailure, describe(error))
}

/// Runs what may wait for the disk off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(internal(&error)))
}
