//! Failures of operations by name as Python exceptions.

use pyo3::{create_exception, prelude::*};
use shoal_comm::named::Failure;

use crate::comm::{CommError, exception};

create_exception!(
    shoal.named,
    NamedError,
    CommError,
    "An operation by name failed. `tensors`: the names of its tensors."
);
create_exception!(
    shoal.named,
    Mismatch,
    NamedError,
    "The ranks submitted different operations under one name; other operations go on."
);
create_exception!(shoal.named, DuplicateName, NamedError, "An operation of that name is outstanding.");
create_exception!(shoal.named, ShutDown, NamedError, "The engine was shut down before the operation was done.");

/// Adds the exceptions to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("NamedError", py.get_type::<NamedError>())?;
    module.add("Mismatch", py.get_type::<Mismatch>())?;
    module.add("DuplicateName", py.get_type::<DuplicateName>())?;
    module.add("ShutDown", py.get_type::<ShutDown>())
}

/// The exception of a failure, with the names of its `tensors`; where the group failed, one of that
/// failure's kind.
pub(super) fn failed(py: Python<'_>, failure: &Failure) -> PyErr {
    let text = failure.to_string();
    let error = match failure {
        Failure::Mismatch { .. } => Mismatch::new_err(text),
        Failure::Duplicate { .. } => DuplicateName::new_err(text),
        Failure::ShutDown { .. } => ShutDown::new_err(text),
        Failure::Comm { error, .. } => {
            let error = exception(py, error);
            // The text of its kind, but with the tensors' names before it.
            let _ = error.value(py).setattr("args", (text,));
            error
        }
        _ => NamedError::new_err(text),
    };
    let value = error.value(py);
    if !matches!(failure, Failure::Comm { .. }) {
        let none = || py.None();
        let _ = value
            .setattr("ranks", Vec::<usize>::new())
            .and_then(|()| value.setattr("operation", none()))
            .and_then(|()| value.setattr("number", none()));
    }
    let _ = value.setattr("tensors", failure.tensors());
    error
}
