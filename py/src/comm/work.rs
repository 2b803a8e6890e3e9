//! An operation that progresses by itself, as Python waits for it.

use std::{
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyOSError, prelude::*};

use super::error::exception;

/// How long a wait goes on before it looks whether the user pressed Ctrl-C.
pub(super) const LOOK: Duration = Duration::from_millis(200);

/// An operation that progresses by itself.
#[pyclass(frozen)]
#[derive(Debug)]
pub(super) struct Work(pub(super) shoal_comm::Work);

#[pymethods]
impl Work {
    /// Waits until it is done, at most `timeout` seconds if given. Whether it is done; raises what it failed with.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).map(|timeout| Instant::now() + timeout);
        loop {
            let time = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()).min(LOOK));
            if let Some(result) = py.detach(|| self.0.wait_for(time)) {
                return result.map(|()| true).map_err(|error| exception(py, &error));
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(false);
            }
            py.check_signals()?;
        }
    }

    /// Whether it is done, well or not.
    fn done(&self) -> bool {
        self.0.is_done()
    }

    /// What it failed with, if it is done and failed.
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.0.wait_for(Duration::ZERO)?.err().map(|error| exception(py, &error))
    }
}

/// Tells Python when operations are done, from a thread of its own: in the order in which they were handed over, which is the order in which those of one group
/// end.
#[derive(Debug, Default)]
pub(super) struct Teller(Mutex<Option<Sender<Told>>>);

type Told = (shoal_comm::Work, Py<PyAny>);

impl Teller {
    /// Calls `then` when the work is done, with what it failed with or none.
    pub(super) fn tell(&self, work: shoal_comm::Work, then: Py<PyAny>) -> PyResult<()> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let (new, receiver) = mpsc::channel::<Told>();
            spawn(move || receiver.iter().for_each(tell))?;
            *sender = Some(new);
        }
        if let Some(sender) = &*sender {
            // The thread lives as long as there is a sender.
            let _ = sender.send((work, then));
        }
        Ok(())
    }
}

/// Calls `then` when the work is done, from a thread of its own: for messages, which end in no order.
pub(super) fn tell_apart(work: shoal_comm::Work, then: Py<PyAny>) -> PyResult<()> {
    spawn(move || tell((work, then)))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> PyResult<()> {
    let thread = thread::Builder::new().name("shoal-comm-told".to_owned()).spawn(body);
    thread.map(drop).map_err(|error| PyOSError::new_err(format!("cannot start a thread that says when an operation is done: {error}")))
}

fn tell((work, then): Told) {
    let result = work.wait();
    // None where the interpreter is ending: nobody is left to be told.
    let _ended = Python::try_attach(|py| {
        let error = result.err().map(|error| exception(py, &error));
        let called = then.call1(py, (error,));
        if let Err(error) = called {
            error.write_unraisable(py, Some(then.bind(py)));
        }
        drop(then);
    });
}
