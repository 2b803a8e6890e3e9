//! A process group on addresses.

#![expect(unsafe_code, reason = "memory of other libraries comes as addresses")]

use std::{
    collections::HashMap,
    env, mem,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use pyo3::prelude::*;
use shoal_comm::{Call, DType, Error, Kind, ProcessGroup, ReduceOp, rendezvous};

use super::{
    error::{exception, wrong},
    home::Home,
    memory::Memory,
    store::Store,
    work::{Reporter, Work, report_apart},
};

/// A process group. Operations take addresses; whoever calls them answers for the memory there:
/// that it is as long as the operation says, and that nobody touches it until the operation is
/// done.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Group {
    /// None once it is closed.
    group: RwLock<Option<Arc<dyn ProcessGroup>>>,
    rank: usize,
    size: usize,
    reporter: Reporter,
    home: Home,
}

/// An operation as it comes from Python.
#[derive(FromPyObject)]
struct Operation {
    /// `"all_reduce"` and so on.
    kind: String,
    /// `"f32"` and so on.
    dtype: String,
    /// `"sum"` and so on, where it reduces.
    op: Option<String>,
    /// The root, or the other rank of a message.
    peer: usize,
    tag: u32,
    send: usize,
    recv: usize,
    len: usize,
    counts: Option<Vec<usize>>,
    /// Seconds.
    deadline: Option<f64>,
}

impl Operation {
    fn call(self) -> Result<Call, Error> {
        let op = || match &self.op {
            Some(name) => ReduceOp::ALL
                .into_iter()
                .find(|op| op.name() == name)
                .ok_or_else(|| wrong(format!("there is no reduction {name:?}"))),
            None => Err(wrong(format!("{} needs a reduction", self.kind))),
        };
        let (peer, tag) = (self.peer, self.tag);
        let kind = match self.kind.as_str() {
            "all_reduce" => Kind::AllReduce(op()?),
            "reduce" => Kind::Reduce { op: op()?, root: peer },
            "reduce_scatter" => Kind::ReduceScatter(op()?),
            "all_gather" => Kind::AllGather,
            "broadcast" => Kind::Broadcast { root: peer },
            "gather" => Kind::Gather { root: peer },
            "scatter" => Kind::Scatter { root: peer },
            "all_to_all" => Kind::AllToAll,
            "send" => Kind::Send { to: peer, tag },
            "recv" => Kind::Recv { from: peer, tag },
            "recv_any" => Kind::RecvAny { tag },
            "barrier" => Kind::Barrier,
            other => return Err(wrong(format!("there is no operation {other:?}"))),
        };
        let dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == self.dtype);
        let dtype = dtype.ok_or_else(|| wrong(format!("there is no element type {:?}", self.dtype)))?;
        let (send, recv) =
            (std::ptr::with_exposed_provenance(self.send), std::ptr::with_exposed_provenance_mut(self.recv));
        let deadline = self.deadline.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(Call { counts: self.counts.map(Into::into), deadline, ..Call::new(kind, dtype, send, recv, self.len) })
    }
}

#[pymethods]
impl Group {
    /// Forms the group. `settings` has what is not to be taken from the environment, by the
    /// environment's names (`RANK`, `SHOAL_COMM_HEARTBEAT`, ...). With a `store` (torch's) the
    /// ranks meet there, else as the settings say; `place` is where it is, for messages, and
    /// `server` its `HOST:PORT`, if it has one. Blocks until all have come.
    #[staticmethod]
    #[pyo3(signature = (settings, store=None, place="", server=""))]
    fn join(
        py: Python<'_>,
        settings: HashMap<String, String>,
        store: Option<Py<PyAny>>,
        place: &str,
        server: &str,
    ) -> PyResult<Self> {
        let meeting =
            store.map(|store| rendezvous::Meeting::Store(Arc::new(Store::new(store, place.to_owned(), server))));
        let lookup = move |name: &str| settings.get(name).cloned().or_else(|| env::var(name).ok());
        let joined = py.detach(move || {
            let config = match meeting {
                Some(meeting) => rendezvous::Config::read_at(meeting, lookup)?,
                None => rendezvous::Config::read(lookup)?,
            };
            shoal_comm::join(config)
        });
        joined.map(Self::new).map_err(|error| exception(py, &error))
    }

    /// This rank's number, from 0.
    #[getter]
    fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// How often the group was re-formed.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |group| Ok(group.epoch()))
    }

    /// Does an operation on the caller's own thread, without Python's lock.
    fn run(&self, py: Python<'_>, operation: Operation) -> PyResult<()> {
        self.with(py, |group| {
            let call = operation.call()?;
            // SAFETY: whoever calls this answers for the addresses (the class says so).
            unsafe { group.run(&call) }
        })
    }

    /// Begins an operation that progresses without the caller. `keep` is kept at least until it is
    /// done: the objects that the memory is of.
    fn start(&self, py: Python<'_>, operation: Operation, keep: Py<PyAny>) -> PyResult<Work> {
        self.with(py, |group| {
            let call = operation.call()?;
            // SAFETY: as for `run`; `keep` is there so that Python can promise it until the end.
            let work = unsafe { group.start(call) }?;
            work.keep(Box::new(keep));
            Ok(Work(work))
        })
    }

    /// Calls `then` from another thread when the work is done, with the exception or None. `apart`:
    /// it is a message, which ends in no order with others.
    #[pyo3(signature = (work, then, apart=false))]
    fn tell(&self, work: &Work, then: Py<PyAny>, apart: bool) -> PyResult<()> {
        if apart { report_apart(work.0.clone(), then) } else { self.reporter.report(work.0.clone(), then) }
    }

    /// Memory for operations. All ranks call this in the same order with the same size.
    fn alloc(&self, py: Python<'_>, bytes: usize) -> PyResult<Memory> {
        self.with(py, |group| group.alloc(bytes)).map(|memory| Memory(Arc::new(memory)))
    }

    /// A group of some of the ranks, in the order given; all ranks call it. None for those that are
    /// not named.
    fn split(&self, py: Python<'_>, ranks: Vec<usize>) -> PyResult<Option<Self>> {
        self.with(py, move |group| group.split(&ranks)).map(|part| part.map(Self::new))
    }

    /// The group of those that live, under the next epoch.
    fn shrink(&self, py: Python<'_>) -> PyResult<Self> {
        self.with(py, |group| group.shrink()).map(Self::new)
    }

    /// The group with replacements for those that died, who are waited for at most `patience`
    /// seconds.
    fn rejoin(&self, py: Python<'_>, patience: f64) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|error| exception(py, &wrong(format!("patience of {patience} s: {error}"))))?;
        self.with(py, |group| group.rejoin(patience)).map(Self::new)
    }

    /// The group with newcomers behind those that live, `size` ranks in all if so many come within
    /// `patience` seconds.
    fn grow(&self, py: Python<'_>, size: usize, patience: f64) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(patience)
            .map_err(|error| exception(py, &wrong(format!("patience of {patience} s: {error}"))))?;
        self.with(py, |group| group.grow(size, patience)).map(Self::new)
    }

    /// How many processes wait to be taken in; for rank 0 to ask.
    fn newcomers(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |group| group.newcomers())
    }

    /// Which algorithm and protocol runs for which operation and size.
    fn plan(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |group| Ok(group.plan()))
    }

    /// Leaves the group. Operations that run go on to their end; others are refused from now on.
    fn close(&self, py: Python<'_>) {
        if self.home.is_here() {
            let group = self.group.write().unwrap_or_else(PoisonError::into_inner).take();
            py.detach(|| drop(group));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // To end it would end the other process's connections, and wait for threads that are
            // not here.
            mem::forget(self.group.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        }
    }
}

impl Group {
    fn new(group: Arc<dyn ProcessGroup>) -> Self {
        let (rank, size) = (group.rank(), group.size());
        Self { rank, size, group: RwLock::new(Some(group)), reporter: Reporter::default(), home: Home::new() }
    }

    /// The group itself, which is no longer this object's.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Arc<dyn ProcessGroup>> {
        let check = || {
            self.home.check("process group")?;
            let group = self.group.write().unwrap_or_else(PoisonError::into_inner).take();
            group.ok_or_else(|| wrong("this process group was closed; make a new one".to_owned()))
        };
        check().map_err(|error| exception(py, &error))
    }

    pub(super) fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&dyn ProcessGroup) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        self.home.check("process group").map_err(|error| exception(py, &error))?;
        let group = self.group.read().unwrap_or_else(PoisonError::into_inner).clone();
        let done = match group {
            Some(group) => py.detach(move || work(&*group)),
            None => Err(wrong("this process group was closed; make a new one".to_owned())),
        };
        done.map_err(|error| exception(py, &error))
    }
}
