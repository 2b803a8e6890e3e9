//! What went wrong in a process group, as Python exceptions: one class for each thing that a
//! program may want to tell apart.

use pyo3::{create_exception, exceptions::PyRuntimeError, prelude::*};
use shoal_comm::{At, Error};

create_exception!(
    shoal.comm,
    CommError,
    PyRuntimeError,
    "A process group's operation failed. `operation`, `number` and `ranks` say where and with whom."
);
create_exception!(shoal.comm, PeerDied, CommError, "A rank's process is gone.");
create_exception!(
    shoal.comm,
    PeerHung,
    CommError,
    "A rank has given no sign of life for longer than the heartbeat allows."
);
create_exception!(
    shoal.comm,
    DeadlineExceeded,
    CommError,
    "The operation's time was over; `ranks` have not come or not finished."
);
create_exception!(shoal.comm, PeerGaveUp, CommError, "Another rank gave up; the group cannot go on.");
create_exception!(shoal.comm, Disagreement, CommError, "The ranks called different things.");
create_exception!(shoal.comm, RendezvousError, CommError, "The ranks could not find each other, or one may not join.");
create_exception!(
    shoal.comm,
    ConfigError,
    CommError,
    "A mistake of the caller or the configuration; the group goes on."
);
create_exception!(shoal.comm, Revoked, CommError, "The group was re-formed; this one is of the past.");

/// A mistake of the caller.
pub(super) fn wrong(problem: String) -> Error {
    Error::Config { problem }
}

/// Adds the exceptions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CommError", py.get_type::<CommError>())?;
    module.add("PeerDied", py.get_type::<PeerDied>())?;
    module.add("PeerHung", py.get_type::<PeerHung>())?;
    module.add("DeadlineExceeded", py.get_type::<DeadlineExceeded>())?;
    module.add("PeerGaveUp", py.get_type::<PeerGaveUp>())?;
    module.add("Disagreement", py.get_type::<Disagreement>())?;
    module.add("RendezvousError", py.get_type::<RendezvousError>())?;
    module.add("ConfigError", py.get_type::<ConfigError>())?;
    module.add("Revoked", py.get_type::<Revoked>())
}

/// The exception that says the same. `ranks`: those at fault, by their numbers in the group;
/// `operation` and `number`: what this rank called, if it was an operation.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let text = error.to_string();
    // A group that is broken says why: by the kind of what broke it.
    let mut first = error;
    while let Error::Broken { cause } = first {
        first = cause;
    }
    let (exception, at, ranks): (PyErr, Option<&At>, Vec<usize>) = match first {
        Error::PeerDied { rank, at, .. } => (PeerDied::new_err(text), Some(at), vec![*rank]),
        Error::PeerHung { rank, at, .. } => (PeerHung::new_err(text), Some(at), vec![*rank]),
        Error::Deadline { waiting_for, at, .. } => (DeadlineExceeded::new_err(text), Some(at), waiting_for.clone()),
        Error::PeerGaveUp { rank, at, .. } => (PeerGaveUp::new_err(text), Some(at), vec![*rank]),
        Error::Disagreement { calls, .. } => {
            (Disagreement::new_err(text), None, calls.iter().map(|(rank, _)| *rank).collect())
        }
        Error::Rendezvous { .. } | Error::Secret { .. } | Error::Version { .. } => {
            (RendezvousError::new_err(text), None, Vec::new())
        }
        Error::Config { .. } => (ConfigError::new_err(text), None, Vec::new()),
        Error::Revoked { .. } => (Revoked::new_err(text), None, Vec::new()),
        _ => (CommError::new_err(text), None, Vec::new()),
    };
    let value = exception.value(py);
    let said = value
        .setattr("ranks", ranks)
        .and_then(|()| value.setattr("operation", at.map(|at| at.operation.as_str())))
        .and_then(|()| value.setattr("number", at.map(|at| at.number)));
    match said {
        Ok(()) => exception,
        Err(error) => error,
    }
}
