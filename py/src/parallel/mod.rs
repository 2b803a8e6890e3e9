//! Plans of distributed training for Python: `shoal_parallel` as it is. What people use is
//! `shoal.parallel`, which speaks Python; options and plans with parts of their own cross as JSON.

#![allow(clippy::needless_pass_by_value, reason = "PyO3 makes lists of Python's and hands them over")]

mod mesh;
mod plans;
mod steps;

use pyo3::{create_exception, exceptions::PyValueError, prelude::*};
use serde::{Serialize, de::DeserializeOwned};

create_exception!(
    shoal.parallel,
    Invalid,
    PyValueError,
    "A value that cannot be. `field` says which, `nearest` lists the nearest numbers that can stand there (empty where no list of numbers can say it)."
);

/// Adds the classes, functions and the exception to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Invalid", module.py().get_type::<Invalid>())?;
    mesh::register(module)?;
    steps::register(module)?;
    plans::register(module)
}

/// The exception that says the same.
fn invalid(py: Python<'_>, error: &shoal_parallel::Invalid) -> PyErr {
    let exception = Invalid::new_err(error.to_string());
    let value = exception.value(py);
    let described = value.setattr("field", error.field).and_then(|()| value.setattr("nearest", error.nearest.clone()));
    described.err().unwrap_or(exception)
}

/// Results that Python gets as they are.
trait OrInvalid<T> {
    fn or_invalid(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrInvalid<T> for Result<T, shoal_parallel::Invalid> {
    fn or_invalid(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| invalid(py, &error))
    }
}

/// What `shoal.parallel` wrote as JSON; a number of the wrong kind is the caller's.
fn read<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    // Nobody but us has seen the text, so a place in it says nothing.
    serde_json::from_str(json).map_err(|error| {
        PyValueError::new_err(error.to_string().split(" at line ").next().unwrap_or_default().to_owned())
    })
}

fn write(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}
