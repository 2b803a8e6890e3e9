//! Process groups for Python: `shoal._native.Group` is `shoal_comm::ProcessGroup` on addresses.
//! What people use is `shoal.torch`, which hands over tensors; this half knows nothing of torch.

mod compress;
mod error;
mod group;
mod home;
mod memory;
mod parameter_server;
mod store;
mod work;

pub(crate) use self::{
    error::{CommError, exception},
    group::Group,
    home::Home,
    memory::Memory,
    work::LOOK,
};
use pyo3::prelude::*;

/// Adds the classes and exceptions to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Group>()?;
    module.add_class::<compress::Compressor>()?;
    module.add_class::<Memory>()?;
    module.add_class::<parameter_server::ParameterServer>()?;
    module.add_class::<work::Work>()?;
    error::register(module)
}
