//! An operation that progresses by itself, as Python waits for it.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyOSError, prelude::*};
use shoal_comm::Error;

use super::error::exception;

/// How long a wait goes on before it looks whether the user pressed Ctrl-C.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// An operation that progresses by itself.
#[pyclass(frozen)]
#[derive(Debug)]
pub(super) struct Work(pub(super) shoal_comm::Work);

#[pymethods]
impl Work {
    /// Waits until it is done, at most `timeout` seconds if given. Whether it is done; raises what
    /// it failed with.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = timeout
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(|timeout| Instant::now() + timeout);
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

    /// From which rank the message came, if it is one that was received.
    fn source(&self) -> Option<usize> {
        self.0.source()
    }

    /// What it failed with, if it is done and failed.
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.0.wait_for(Duration::ZERO)?.err().map(|error| exception(py, &error))
    }
}

/// Reports to Python that operations are done, in the order in which they were handed over, which
/// is the order in which those of one group end.
///
/// A callback may wait for a later operation's report, so the thread that runs one is not the
/// thread that waits for the next operation: before a callback begins, another thread is there to
/// take over.
#[derive(Debug, Default)]
pub(super) struct Reporter(Mutex<Option<Sender<Report>>>);

type Report = (shoal_comm::Work, Py<PyAny>);

/// What the threads of one reporter share.
#[derive(Debug)]
struct Reports {
    /// Held by the thread that waits for the next operation, until its callback begins.
    queue: Mutex<Receiver<Report>>,
    /// Threads that run no callback.
    free: AtomicUsize,
}

/// More threads than these that run no callback end.
const MAX_FREE_THREADS: usize = 2;

impl Reporter {
    /// Calls `then` when the work is done, with what it failed with or none.
    pub(super) fn report(&self, work: shoal_comm::Work, then: Py<PyAny>) -> PyResult<()> {
        let mut sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let (new, receiver) = mpsc::channel::<Report>();
            let reports = Arc::new(Reports { queue: Mutex::new(receiver), free: AtomicUsize::new(0) });
            reports.add_thread().map_err(|error| no_thread(&error))?;
            *sender = Some(new);
        }
        if let Some(sender) = &*sender {
            // A thread receives as long as there is a sender.
            let _ = sender.send((work, then));
        }
        Ok(())
    }
}

impl Reports {
    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        self.free.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(self);
        spawn(move || shared.work()).inspect_err(|_| {
            self.free.fetch_sub(1, Ordering::SeqCst);
        })
    }

    fn work(self: &Arc<Self>) {
        loop {
            let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok((work, then)) = queue.recv() else { return };
            let result = work.wait();
            let begins = || {
                if self.free.fetch_sub(1, Ordering::SeqCst) == 1 {
                    // Without another thread later reports wait for this callback, as they would
                    // with one thread.
                    let _refused = self.add_thread();
                }
                // With Python's lock held, so that callbacks begin in order.
                drop(queue);
            };
            report(result, then, begins);
            if self.free.fetch_add(1, Ordering::SeqCst) >= MAX_FREE_THREADS {
                self.free.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
    }
}

/// Calls `then` when the work is done, from a thread of its own: for messages, which end in no
/// order.
pub(super) fn report_apart(work: shoal_comm::Work, then: Py<PyAny>) -> PyResult<()> {
    spawn(move || report(work.wait(), then, || ())).map_err(|error| no_thread(&error))
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("shoal-comm-report".to_owned()).spawn(body).map(drop)
}

fn no_thread(error: &io::Error) -> PyErr {
    PyOSError::new_err(format!("cannot start a thread that reports when an operation is done: {error}"))
}

fn report(result: Result<(), Error>, then: Py<PyAny>, begins: impl FnOnce()) {
    // None where the interpreter is ending: no callback is left to run.
    let _ended = Python::try_attach(|py| {
        begins();
        let error = result.err().map(|error| exception(py, &error));
        let called = then.call1(py, (error,));
        if let Err(error) = called {
            error.write_unraisable(py, Some(then.bind(py)));
        }
        drop(then);
    });
}
