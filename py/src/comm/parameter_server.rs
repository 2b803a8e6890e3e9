//! A parameter server's worker and server of one rank, on addresses.

#![expect(unsafe_code, reason = "memory of other libraries comes as addresses")]

use std::{
    mem, ptr, slice,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use pyo3::prelude::*;
use shoal_comm::{
    Error,
    server::{Consistency, Push, Server, Spec, Worker, start},
};

use super::{
    error::{exception, wrong},
    group::Group,
    home::Home,
    work::LOOK,
};

/// What it is called in messages.
const WHAT: &str = "parameter server";

/// What this rank is. Let go of without `end`, its worker has given up: a program that comes to its
/// end has said so.
#[pyclass(frozen)]
#[derive(Debug)]
pub(super) struct ParameterServer {
    worker: Mutex<Option<Worker>>,
    server: Mutex<Option<Server>>,
    patience: Duration,
    home: Home,
}

fn consistency(name: &str, bound: u64) -> Result<Consistency, Error> {
    match name {
        "synchronous" => Ok(Consistency::Synchronous),
        "bounded" => Ok(Consistency::Bounded(bound)),
        "unbounded" => Ok(Consistency::Unbounded),
        other => Err(wrong(format!(
            "there is no consistency {other:?}: it is \"synchronous\", \"unbounded\", or a number of steps"
        ))),
    }
}

#[pymethods]
impl ParameterServer {
    /// Starts it; all ranks of the group call this with the same. `bound` counts where
    /// `consistency` is "bounded"; `patience` is in seconds.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "one call for Python's keywords")]
    fn start(
        py: Python<'_>,
        group: &Group,
        tensors: Vec<(String, usize)>,
        servers: Vec<usize>,
        workers: Vec<usize>,
        consistency: &str,
        bound: u64,
        patience: f64,
    ) -> PyResult<Self> {
        let refused = |error: Error| exception(py, &error);
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|error| refused(wrong(format!("patience of {patience} s: {error}"))))?;
        let consistency = self::consistency(consistency, bound).map_err(refused)?;
        let spec = Spec { patience: LOOK, ..Spec::new(tensors, servers, workers, consistency) };
        let role = group.with(py, |group| start(group, &spec))?;
        Ok(Self { worker: Mutex::new(role.worker), server: Mutex::new(role.server), patience, home: Home::new() })
    }

    /// Adds to a tensor or, to `assign`, replaces it: by the `len` f32 at `address`. The caller
    /// answers for the memory there.
    fn push(&self, py: Python<'_>, name: &str, address: usize, len: usize, assign: bool) -> PyResult<()> {
        self.work(py, |worker| {
            check(address, len)?;
            let values = if len == 0 {
                &[]
            } else {
                // SAFETY: whoever calls this answers for the memory (the method says so), which is
                // aligned.
                unsafe { slice::from_raw_parts(ptr::with_exposed_provenance::<f32>(address), len) }
            };
            worker.push(name, values, if assign { Push::Assign } else { Push::Add })
        })
    }

    /// Reads a tensor into the `len` f32 at `address`. The caller answers for the memory there.
    fn pull(&self, py: Python<'_>, name: &str, address: usize, len: usize) -> PyResult<()> {
        self.work(py, |worker| {
            check(address, len)?;
            let into = if len == 0 {
                &mut []
            } else {
                // SAFETY: as for `push`; nobody else touches it until this is done.
                unsafe { slice::from_raw_parts_mut(ptr::with_exposed_provenance_mut::<f32>(address), len) }
            };
            worker.pull(name, into)
        })
    }

    /// The clock goes on. Gives it, and the workers that were lost.
    fn advance(&self, py: Python<'_>) -> PyResult<(u64, Vec<usize>)> {
        let end = Instant::now().checked_add(self.patience);
        loop {
            let advanced = self.work(py, |worker| match worker.advance() {
                Ok(advanced) => Ok(Some((advanced.clock, advanced.lost))),
                Err(Error::Deadline { .. }) if worker.is_waiting() && end.is_none_or(|end| Instant::now() < end) => {
                    Ok(None)
                }
                Err(Error::Deadline { waiting_for, at, .. }) if worker.is_waiting() => {
                    let milliseconds = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
                    Err(Error::Deadline { waiting_for, milliseconds, at })
                }
                Err(error) => Err(error),
            })?;
            if let Some(advanced) = advanced {
                return Ok(advanced);
            }
            py.check_signals()?;
        }
    }

    /// This rank's worker is done. A server is waited for until all workers have ended or were
    /// lost: gives which were lost, and why.
    fn end(&self, py: Python<'_>) -> PyResult<Vec<(usize, PyErr)>> {
        self.home.check(WHAT).map_err(|error| exception(py, &error))?;
        let told = py.detach(|| {
            let worker = lock(&self.worker).take();
            worker.map_or(Ok(()), Worker::end)
        });
        let lost = self.serve(py)?;
        told.map_err(|error| exception(py, &error))?;
        Ok(lost)
    }

    /// This rank's worker cannot go on: the others are told.
    fn give_up(&self, py: Python<'_>) {
        py.detach(|| self.leave());
    }
}

impl ParameterServer {
    fn work<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Worker) -> Result<T, Error> + Send) -> PyResult<T> {
        let done = py.detach(|| {
            self.home.check(WHAT)?;
            match &mut *lock(&self.worker) {
                Some(worker) => work(worker),
                None => Err(wrong("parameter server: this rank is no worker, or has ended".to_owned())),
            }
        });
        done.map_err(|error| exception(py, &error))
    }

    /// Gives up what is left of it. A server goes on in its threads.
    fn leave(&self) {
        if !self.home.is_here() {
            // A lock that another thread held when this process was forked is never let go of here.
            let parts = (
                self.worker.try_lock().ok().and_then(|mut it| it.take()),
                self.server.try_lock().ok().and_then(|mut it| it.take()),
            );
            return mem::forget(parts);
        }
        if let Some(worker) = lock(&self.worker).take() {
            worker.give_up();
        }
        drop(lock(&self.server).take());
    }

    fn serve(&self, py: Python<'_>) -> PyResult<Vec<(usize, PyErr)>> {
        while !py.detach(|| lock(&self.server).as_ref().is_none_or(|server| server.wait_for(LOOK))) {
            py.check_signals()?;
        }
        let outcome = py.detach(|| {
            let server = lock(&self.server).take();
            server.map(Server::join)
        });
        let lost = outcome.map(|outcome| outcome.lost).unwrap_or_default();
        Ok(lost.into_iter().map(|(rank, why)| (rank, exception(py, &why))).collect())
    }
}

impl Drop for ParameterServer {
    fn drop(&mut self) {
        // Without the interpreter this thread has no lock of Python's, and its process is ending.
        if Python::try_attach(|py| py.detach(|| self.leave())).is_none() {
            self.leave();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// That `len` f32 can be at `address`.
fn check(address: usize, len: usize) -> Result<(), Error> {
    if len == 0 || (address != 0 && address.is_multiple_of(align_of::<f32>())) {
        return Ok(());
    }
    Err(wrong(format!("parameter server: {len} float32 at address {address} are not aligned to 4 bytes: copy them")))
}
