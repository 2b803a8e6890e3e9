//! All-reduces that send less, on addresses.

#![expect(unsafe_code, reason = "memory of other libraries comes as addresses")]

use std::{
    slice,
    sync::{Mutex, PoisonError},
};

use pyo3::prelude::*;
use shoal_comm::{
    Error, ReduceOp,
    compress::{Compressor as Compresses, Int8, PowerSgd, TopK},
};

use super::{error::exception, group::Group};

/// An all-reduce that sends less, with what it remembers of one vector that is reduced again and
/// again.
#[pyclass(frozen)]
#[derive(Debug)]
pub(super) struct Compressor(Mutex<Box<dyn Compresses>>);

impl Compressor {
    fn new(of: impl Compresses + 'static) -> Self {
        Self(Mutex::new(Box::new(of)))
    }
}

/// What a compressed all-reduce cost and left out: bytes that this rank must give, the same in f32,
/// norms of its input and of what of it was not passed on.
type Report = (u64, u64, f64, f64);

#[pymethods]
impl Compressor {
    /// 8-bit integers, rounded at random by this seed.
    #[staticmethod]
    fn int8(seed: u64) -> Self {
        Self::new(Int8::new(seed))
    }

    /// The largest share of the elements.
    #[staticmethod]
    fn top_k(py: Python<'_>, share: f64) -> PyResult<Self> {
        TopK::new(share).map(Self::new).map_err(|error| exception(py, &error))
    }

    /// Low rank; of a matrix of these rows and columns.
    #[staticmethod]
    fn power_sgd(py: Python<'_>, rank: usize, rows: usize, columns: usize) -> PyResult<Self> {
        PowerSgd::new(rank).map(|it| Self::new(it.with_shape(rows, columns))).map_err(|error| exception(py, &error))
    }

    /// `len` f32 at `address` become all ranks' average, as nearly as this can. The caller answers
    /// for the memory there, as for operations of a group.
    fn average(&self, py: Python<'_>, group: &Group, address: usize, len: usize) -> PyResult<Report> {
        if address == 0 || !address.is_multiple_of(align_of::<f32>()) {
            let problem = format!("{len} f32 at address {address}: give the address of a tensor of float32");
            return Err(exception(py, &Error::Config { problem }));
        }
        group.with(py, |group| {
            let mut compressor = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: whoever calls this answers for the memory (the method says so); it is aligned
            // and not null.
            let values =
                unsafe { slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<f32>(address), len) };
            let report = compressor.all_reduce(group, values, ReduceOp::Avg)?;
            Ok((report.wire_bytes, report.plain_bytes, report.input, report.lost))
        })
    }
}
