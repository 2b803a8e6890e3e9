//! A parameter server's worker and server of one rank, on addresses.

#![expect(unsafe_code, reason = "memory of other libraries comes as addresses")]

use std::{
    slice,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use pyo3::prelude::*;
use shoal_comm::{
    Error,
    server::{Consistency, Push, Server, Spec, Worker, start},
};

use super::{error::exception, group::Group};

/// How long a wait goes on before it looks whether the user pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(200);

/// What this rank is. Let go of without `end`, its worker is lost to the others: a program that comes to its end has said so.
#[pyclass(frozen)]
#[derive(Debug)]
pub(super) struct ParameterServer {
    worker: Mutex<Option<Worker>>,
    server: Mutex<Option<Server>>,
    patience: Duration,
}

fn wrong(problem: String) -> Error {
    Error::Config { problem }
}

fn consistency(name: &str, bound: u64) -> Result<Consistency, Error> {
    match name {
        "synchronous" => Ok(Consistency::Synchronous),
        "bounded" => Ok(Consistency::Bounded(bound)),
        "unbounded" => Ok(Consistency::Unbounded),
        other => Err(wrong(format!("there is no consistency {other:?}: it is \"synchronous\", \"unbounded\", or a number of steps"))),
    }
}

#[pymethods]
impl ParameterServer {
    /// Starts it; all ranks of the group call this with the same. `bound` counts where `consistency` is "bounded"; `patience` is in seconds.
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
        let patience =
            Duration::try_from_secs_f64(patience).map_err(|error| refused(wrong(format!("patience of {patience} s: {error}"))))?;
        let consistency = self::consistency(consistency, bound).map_err(refused)?;
        let spec = Spec { patience: LOOK, ..Spec::new(tensors, servers, workers, consistency) };
        let role = group.with(py, |group| start(group, &spec))?;
        Ok(Self { worker: Mutex::new(role.worker), server: Mutex::new(role.server), patience })
    }

    /// Adds to a tensor or, to `assign`, replaces it: by the `len` f32 at `address`. The caller answers for the memory there.
    fn push(&self, py: Python<'_>, name: &str, address: usize, len: usize, assign: bool) -> PyResult<()> {
        self.work(py, |worker| {
            // SAFETY: whoever calls this answers for the memory (the method says so).
            let values = unsafe { values(address, len)? };
            worker.push(name, values, if assign { Push::Assign } else { Push::Add })
        })
    }

    /// Reads a tensor into the `len` f32 at `address`. The caller answers for the memory there.
    fn pull(&self, py: Python<'_>, name: &str, address: usize, len: usize) -> PyResult<()> {
        self.work(py, |worker| {
            // SAFETY: as for `push`.
            let into = unsafe { values(address, len)? };
            worker.pull(name, into)
        })
    }

    /// The clock goes on. Gives it, and the workers that were lost.
    fn advance(&self, py: Python<'_>) -> PyResult<(u64, Vec<usize>)> {
        let end = Instant::now().checked_add(self.patience);
        loop {
            let advanced = self.work(py, |worker| match worker.advance() {
                Ok(advanced) => Ok(Some((advanced.clock, advanced.lost))),
                Err(Error::Deadline { .. }) if end.is_none_or(|end| Instant::now() < end) => Ok(None),
                Err(Error::Deadline { waiting_for, at, .. }) => {
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

    /// This rank's worker is done. A server is waited for until all workers have ended or were lost: gives which were lost, and why.
    fn end(&self, py: Python<'_>) -> PyResult<Vec<(usize, PyErr)>> {
        let worker = lock(&self.worker).take();
        let told = py.detach(|| worker.map_or(Ok(()), Worker::end));
        let lost = self.serve(py)?;
        told.map_err(|error| exception(py, &error))?;
        Ok(lost)
    }

    /// This rank's worker cannot go on: the others are told that it is lost, and go on without it.
    fn give_up(&self, py: Python<'_>) {
        let (worker, server) = (lock(&self.worker).take(), lock(&self.server).take());
        py.detach(|| {
            if let Some(worker) = worker {
                worker.give_up();
            }
            drop(server);
        });
    }
}

impl ParameterServer {
    fn work<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut Worker) -> Result<T, Error> + Send) -> PyResult<T> {
        let done = py.detach(|| match &mut *lock(&self.worker) {
            Some(worker) => work(worker),
            None => Err(wrong("parameter server: this rank is no worker, or has ended".to_owned())),
        });
        done.map_err(|error| exception(py, &error))
    }

    fn serve(&self, py: Python<'_>) -> PyResult<Vec<(usize, PyErr)>> {
        while !py.detach(|| lock(&self.server).as_ref().is_none_or(|server| server.wait_for(LOOK))) {
            py.check_signals()?;
        }
        let server = lock(&self.server).take();
        let outcome = py.detach(|| server.map(Server::join));
        let lost = outcome.map(|outcome| outcome.lost).unwrap_or_default();
        Ok(lost.into_iter().map(|(rank, why)| (rank, exception(py, &why))).collect())
    }
}

impl Drop for ParameterServer {
    fn drop(&mut self) {
        if let Some(worker) = lock(&self.worker).take() {
            worker.give_up();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// There are `len` f32 at `address`, which nobody else touches while these live; nothing is there for none.
unsafe fn values<'a>(address: usize, len: usize) -> Result<&'a mut [f32], Error> {
    if len == 0 {
        return Ok(&mut []);
    }
    if address == 0 || !address.is_multiple_of(align_of::<f32>()) {
        return Err(wrong(format!("{len} f32 at address {address}: give memory of float32")));
    }
    // SAFETY: whoever calls this answers for the memory; it is aligned and not null.
    Ok(unsafe { slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<f32>(address), len) })
}
