//! The caller's handle of a submitted operation.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use super::error::Failure;
use crate::Memory;

/// An operation's result.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// For each tensor whose output the engine allocated: the memory and the shape.
    pub outputs: Vec<Option<(Arc<Memory>, Vec<usize>)>>,
    /// Of an all-to-all: rows received from each rank of the set.
    pub received: Option<Vec<usize>>,
    /// Of a join: the rank that joined last, as the world numbers it.
    pub last_joined: Option<usize>,
}

/// A submitted operation. Dropping the handle does not stop it.
#[derive(Clone)]
pub struct Handle {
    pub(super) shared: Arc<Shared>,
}

/// The engine that executes an operation: it imports handles, not the other way round.
pub(super) trait Engine: Send + Sync {
    /// Engine until it is done, or for `limit`. Without a limit the caller runs cycles itself when
    /// no other thread does.
    fn wait(&self, handle: &Handle, limit: Option<Duration>);
}

pub(super) struct Shared {
    result: OnceLock<Result<Outcome, Failure>>,
    /// What must live as long as the operation.
    keeps: Mutex<Option<Box<dyn Any + Send>>>,
    engine: Arc<dyn Engine>,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.shared.result.get())
    }
}

impl Handle {
    pub(super) fn new(engine: Arc<dyn Engine>, keeps: Option<Box<dyn Any + Send>>) -> Self {
        Self { shared: Arc::new(Shared { result: OnceLock::new(), keeps: Mutex::new(keeps), engine }) }
    }

    /// Completes the operation; the first result counts.
    pub(super) fn finish(&self, result: Result<Outcome, Failure>) {
        let _ = self.shared.result.set(result);
    }

    /// Whether it is done, successfully or not.
    pub fn is_done(&self) -> bool {
        self.shared.result.get().is_some()
    }

    /// Its result, if it is done.
    pub fn result(&self) -> Option<Result<&Outcome, &Failure>> {
        self.shared.result.get().map(Result::as_ref)
    }

    /// Engine until it is done, or for `limit`; whether it is done. Without a limit the caller runs
    /// cycles itself when no other thread does.
    ///
    /// # Errors
    /// What the operation failed with.
    pub fn wait(&self, limit: Option<Duration>) -> Result<bool, Failure> {
        if !self.is_done() {
            self.shared.engine.wait(self, limit);
        }
        match self.result() {
            None => Ok(false),
            Some(Ok(_)) => {
                drop(self.shared.keeps.lock().unwrap_or_else(PoisonError::into_inner).take());
                Ok(true)
            }
            Some(Err(failure)) => Err(failure.clone()),
        }
    }
}
