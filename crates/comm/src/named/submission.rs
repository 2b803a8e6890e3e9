//! What a rank submits: a request with the memory of its tensors.

use std::{sync::Arc, time::Instant};

use super::{
    error::Failure,
    handle::{Handle, Outcome},
    request::Request,
};

/// A tensor's memory.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// Address to send from; may be null where this rank sends nothing.
    pub send: *const u8,
    /// Address to receive at; null: the engine allocates.
    pub recv: *mut u8,
}

#[expect(unsafe_code, reason = "buffers go to the thread that drives")]
// SAFETY: only addresses; the submitter promises that the memory stays valid and untouched.
unsafe impl Send for Buffer {}

/// An external operation: the caller's own function.
pub type Callback = Box<dyn FnOnce() -> Result<(), String> + Send>;
/// What a joined rank calls for another's external operation, with its name and signature.
pub type OnJoined = Arc<dyn Fn(&str, &str) -> Result<(), String> + Send + Sync>;

/// An operation that this rank has submitted.
pub(super) struct Submission {
    pub(super) request: Arc<Request>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) handle: Handle,
    pub(super) callback: Option<Callback>,
    pub(super) since: Instant,
}

/// An operation that is done, and what became of it.
pub(super) type Completed = (Submission, Result<Outcome, Failure>);
