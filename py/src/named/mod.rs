//! Operations by name for Python: `shoal._native.NamedEngine` is `shoal_comm::named::Engine` on
//! addresses; programs use `shoal.named`.

#![expect(unsafe_code, reason = "memory of other libraries comes as addresses")]

mod error;
mod handle;

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::prelude::*;
use shoal_comm::{
    DType, Error,
    named::{Action, Buffer, Callback, Engine, Failure, Part, Reduction, Request},
};

use self::{
    error::failed,
    handle::{Handle, Thrown},
};
use crate::comm::{Group, Home, exception};

/// Adds the classes and exceptions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NamedEngine>()?;
    module.add_class::<Handle>()?;
    error::register(module)
}

/// Does operations by name. Tensors are addresses; the caller answers for the memory there until
/// the operation is done.
#[pyclass(frozen, weakref)]
#[derive(Debug)]
struct NamedEngine {
    engine: mem::ManuallyDrop<Engine>,
    home: Home,
}

/// Name, address to send from, address to receive at, shape, type.
type Tensor<'py> = (Bound<'py, pyo3::types::PyString>, usize, usize, Vec<usize>, Bound<'py, pyo3::types::PyString>);

fn wrong(py: Python<'_>, problem: String) -> PyErr {
    exception(py, &Error::Config { problem })
}

fn dtype(name: &str) -> Result<DType, String> {
    DType::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| format!("there is no element type {name:?}"))
}

#[pymethods]
impl NamedEngine {
    /// Joins the world that the settings describe, or takes that of `group`, and starts. `number`
    /// counts the engines that this process has started.
    #[staticmethod]
    #[pyo3(signature = (settings, number, group=None))]
    fn start(py: Python<'_>, settings: HashMap<String, String>, number: u64, group: Option<&Group>) -> PyResult<Self> {
        let given = match group {
            Some(group) => Some(group.take(py)?),
            None => None,
        };
        let engine = py.detach(move || {
            let lookup = |name: &str| settings.get(name).cloned();
            let world = match given {
                Some(world) => world,
                None => shoal_comm::named::join(&lookup, number)?,
            };
            Engine::start(world, &lookup)
        });
        let engine = engine.map_err(|error| exception(py, &error))?;
        Ok(Self { engine: mem::ManuallyDrop::new(engine), home: Home::new() })
    }

    #[getter]
    fn rank(&self) -> usize {
        self.engine.rank()
    }

    #[getter]
    fn size(&self) -> usize {
        self.engine.size()
    }

    #[getter]
    fn local_rank(&self) -> usize {
        self.engine.place().local.0
    }

    #[getter]
    fn local_size(&self) -> usize {
        self.engine.place().local.1
    }

    #[getter]
    fn cross_rank(&self) -> usize {
        self.engine.place().cross.0
    }

    #[getter]
    fn cross_size(&self) -> usize {
        self.engine.place().cross.1
    }

    #[getter]
    fn homogeneous(&self) -> bool {
        self.engine.place().homogeneous
    }

    /// Submits an operation; with `wait` it is done when this returns.
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    #[pyo3(signature = (kind, tensors, *, op="sum", prescale=1.0, postscale=1.0, root=0, splits=None, set=0, grouped=false, keep=None, wait=false))]
    fn submit(
        &self,
        py: Python<'_>,
        kind: &str,
        tensors: Vec<Tensor<'_>>,
        op: &str,
        prescale: f64,
        postscale: f64,
        root: usize,
        splits: Option<Vec<usize>>,
        set: u32,
        grouped: bool,
        keep: Option<Py<PyAny>>,
        wait: bool,
    ) -> PyResult<Handle> {
        let say = |problem: String| wrong(py, problem);
        let action = Action::ALL.into_iter().find(|it| it.name() == kind && *it != Action::External);
        let action = action.ok_or_else(|| say(format!("there is no operation {kind:?}")))?;
        let reduction = Reduction::ALL
            .into_iter()
            .find(|it| it.name() == op)
            .ok_or_else(|| say(format!("there is no reduction {op:?}")))?;
        if tensors.len() > 1 && !grouped {
            return Err(say(format!(
                "{kind} of {} tensors: say grouped=True, or submit each by itself",
                tensors.len()
            )));
        }
        let mut request = Request::new(action, "");
        let mut buffers = Vec::with_capacity(tensors.len());
        for (name, send, recv, shape, kind) in tensors {
            request.parts.push(Part { name: name.to_str()?.into(), dtype: dtype(kind.to_str()?).map_err(say)?, shape });
            buffers.push(Buffer {
                send: std::ptr::with_exposed_provenance(send),
                recv: std::ptr::with_exposed_provenance_mut(recv),
            });
        }
        request.name = match request.parts.first() {
            _ if action == Action::Join => "join".into(),
            Some(first) => Arc::clone(&first.name),
            None => action.name().into(),
        };
        if matches!(action, Action::Barrier | Action::Join) {
            request.parts.clear();
            buffers.clear();
        }
        request.reduction = reduction;
        (request.prescale, request.postscale, request.root, request.splits) = (prescale, postscale, root, splits);
        self.begin(py, set, request, buffers, None, keep, wait)
    }

    /// Submits an external operation, a function of the caller's.
    #[pyo3(signature = (name, signature, callback, *, set=0, joined=false, wait=false))]
    #[expect(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn submit_external(
        &self,
        py: Python<'_>,
        name: &str,
        signature: String,
        callback: Py<PyAny>,
        set: u32,
        joined: bool,
        wait: bool,
    ) -> PyResult<Handle> {
        let request = Request { signature, root: usize::from(joined), ..Request::new(Action::External, name) };
        let thrown = Thrown::default();
        let slot = Arc::clone(&thrown);
        let call: Callback = Box::new(move || {
            let called = Python::try_attach(|py| {
                let result = callback.call0(py);
                drop(callback);
                result.map(drop).map_err(|error| {
                    let text = error.to_string();
                    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    text
                })
            });
            called.unwrap_or_else(|| Err("the interpreter is ending".to_owned()))
        });
        self.begin(py, set, request, Vec::new(), Some((call, thrown)), None, wait)
    }

    /// Sets the function that this rank calls for the others' external operations while it has
    /// joined.
    fn on_joined(&self, callback: Option<Py<PyAny>>) {
        self.engine.on_joined(callback.map(|callback| {
            let then = move |name: &str, signature: &str| {
                let called = Python::try_attach(|py| {
                    callback.call1(py, (name, signature)).map(drop).map_err(|error| error.to_string())
                });
                called.unwrap_or_else(|| Err("the interpreter is ending".to_owned()))
            };
            Arc::new(then) as shoal_comm::named::OnJoined
        }));
    }

    /// A process set of these ranks.
    fn add_set(&self, py: Python<'_>, ranks: Vec<usize>) -> PyResult<u32> {
        self.with(py, move |engine| engine.add_set(&ranks))
    }

    /// Removes a set.
    fn remove_set(&self, py: Python<'_>, set: u32) -> PyResult<()> {
        self.with(py, |engine| engine.remove_set(set))
    }

    /// Ranks of each set.
    fn sets(&self) -> BTreeMap<u32, Vec<usize>> {
        self.engine.sets()
    }

    /// Begins a timeline.
    #[pyo3(signature = (path, mark_cycles=false))]
    fn timeline_start(&self, py: Python<'_>, path: &str, mark_cycles: bool) -> PyResult<()> {
        self.engine.timeline_start(path, mark_cycles).map_err(|error| exception(py, &error))
    }

    /// Ends it.
    fn timeline_stop(&self) {
        self.engine.timeline_stop();
    }

    /// Cycles of the world's set so far.
    fn cycles(&self) -> u64 {
        self.engine.cycles()
    }

    /// Leaves the world.
    fn shutdown(&self, py: Python<'_>) {
        if self.home.is_here() {
            py.detach(|| self.engine.shutdown());
        }
    }
}

impl Drop for NamedEngine {
    fn drop(&mut self) {
        // A forked process has none of its threads, and shares its connections with the parent.
        if self.home.is_here() {
            // SAFETY: it is not used after this.
            let engine = unsafe { mem::ManuallyDrop::take(&mut self.engine) };
            // A callback may need Python's lock while this waits for it.
            Python::try_attach(|py| py.detach(move || drop(engine)));
        }
    }
}

impl NamedEngine {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&Engine) -> Result<T, Failure> + Send) -> PyResult<T> {
        self.home.check("engine of operations by name").map_err(|error| exception(py, &error))?;
        py.detach(|| work(&self.engine)).map_err(|failure| failed(py, &failure))
    }

    #[expect(clippy::too_many_arguments, reason = "what makes an operation")]
    fn begin(
        &self,
        py: Python<'_>,
        set: u32,
        request: Request,
        buffers: Vec<Buffer>,
        external: Option<(Callback, Thrown)>,
        keep: Option<Py<PyAny>>,
        wait: bool,
    ) -> PyResult<Handle> {
        self.home.check("engine of operations by name").map_err(|error| exception(py, &error))?;
        let (callback, thrown) = external.map_or((None, None), |(callback, thrown)| (Some(callback), Some(thrown)));
        let keeps = keep.map(|it| Box::new(it) as Box<dyn std::any::Any + Send>);
        // Short, so with Python's lock. SAFETY: the caller answers for the addresses (the class
        // says so), and `keep` lets it.
        let handle = unsafe { self.engine.submit(set, request, buffers, callback, keeps, wait) }
            .map_err(|failure| failed(py, &failure))?;
        let handle = Handle { handle, thrown };
        if wait {
            handle.drive(py)?;
        }
        Ok(handle)
    }
}

/// What an external operation's callback raised.
type Slot = Mutex<Option<PyErr>>;
