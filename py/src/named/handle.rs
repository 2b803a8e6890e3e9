//! Python's handle of a submitted operation.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyIndexError, prelude::*, types::PyTuple};
use shoal_comm::named::{self, Failure, Outcome};

use super::{Slot, error::failed, wrong};
use crate::comm::{LOOK, Memory};

/// What an external operation's callback raised.
pub(super) type Thrown = Arc<Slot>;

/// A submitted operation.
#[pyclass(frozen, name = "NamedHandle")]
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) handle: named::Handle,
    pub(super) thrown: Option<Thrown>,
}

#[pymethods]
impl Handle {
    /// Waits until it is done, at most `timeout` seconds if given, and says whether it is done;
    /// raises what it failed with.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let Some(timeout) = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok()) else {
            return self.drive(py).map(|()| true);
        };
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now()).min(LOOK);
            if py.detach(|| self.handle.wait(Some(left))).map_err(|failure| self.raise(py, &failure))? {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    /// Whether it is done, successfully or not.
    fn done(&self) -> bool {
        self.handle.is_done()
    }

    /// What it failed with, if it is done and failed.
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.handle.result()?.err().map(|failure| self.raise(py, failure))
    }

    /// Memory and shape of an output that the engine allocated.
    fn output<'py>(&self, py: Python<'py>, index: usize) -> PyResult<(Memory, Bound<'py, PyTuple>)> {
        let outcome = self.outcome(py)?;
        let (memory, shape) = outcome.outputs.get(index).and_then(Option::as_ref).ok_or_else(|| {
            PyIndexError::new_err(format!(
                "tensor {index} is where the caller said, or is none: the engine allocated nothing for it"
            ))
        })?;
        Ok((Memory(Arc::clone(memory)), PyTuple::new(py, shape)?))
    }

    /// Of an alltoall: rows received from each rank.
    fn received_splits(&self, py: Python<'_>) -> PyResult<Option<Vec<usize>>> {
        self.outcome(py).map(|it| it.received.clone())
    }

    /// Of a join: the rank that joined last.
    fn last_joined(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.outcome(py).map(|it| it.last_joined)
    }
}

impl Handle {
    /// Waits, and runs the cycles unless another thread does.
    pub(super) fn drive(&self, py: Python<'_>) -> PyResult<()> {
        if self.handle.is_done() {
            return self.handle.wait(None).map(drop).map_err(|failure| self.raise(py, &failure));
        }
        py.detach(|| self.handle.wait(None)).map(drop).map_err(|failure| self.raise(py, &failure))
    }

    fn outcome(&self, py: Python<'_>) -> PyResult<&Outcome> {
        match self.handle.result() {
            None => Err(wrong(py, "the operation is not done yet: wait for it first".to_owned())),
            Some(Ok(outcome)) => Ok(outcome),
            Some(Err(failure)) => Err(self.raise(py, failure)),
        }
    }

    /// The failure as an exception; of an external operation, what its callback raised.
    fn raise(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        let thrown = self.thrown.as_ref().filter(|_| matches!(failure, Failure::External { .. }));
        let thrown = thrown
            .and_then(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|it| it.clone_ref(py)));
        thrown.unwrap_or_else(|| failed(py, failure))
    }
}
