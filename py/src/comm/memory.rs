//! Registered memory as an array that other libraries view without a copy (DLPack).

#![expect(unsafe_code, reason = "DLPack is a C structure with addresses")]

use std::{
    ffi::{CStr, c_void},
    ptr::NonNull,
    sync::Arc,
};

use pyo3::{ffi, prelude::*, types::PyCapsule};

/// Bytes that a group gave. `torch.from_dlpack` views them as a tensor of `uint8`, which keeps them
/// alive.
#[pyclass(frozen)]
#[derive(Debug)]
pub(crate) struct Memory(pub(crate) Arc<shoal_comm::Memory>);

#[pymethods]
impl Memory {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Where it is.
    #[getter]
    fn address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// The CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// The bytes as a one-dimensional array of `uint8`. There is nothing to convert, so what a
    /// consumer may wish for means nothing.
    #[pyo3(signature = (**_wishes))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        _wishes: Option<&Bound<'py, pyo3::types::PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let address = self.0.as_ptr().cast_mut().cast();
        let length = i64::try_from(self.0.len())?;
        let mut lent = Box::new(Lent {
            tensor: Managed::new(address),
            shape: [length],
            stride: [1],
            _memory: Arc::clone(&self.0),
        });
        lent.tensor.tensor.shape = lent.shape.as_mut_ptr();
        lent.tensor.tensor.strides = lent.stride.as_mut_ptr();
        let lent = Box::into_raw(lent);
        // SAFETY: just made by a box; the tensor is its first field.
        unsafe { (*lent).tensor.context = lent.cast() };
        let pointer = NonNull::new(lent.cast()).expect("a box has an address");
        // SAFETY: the pointer is a DLManagedTensor, which is what the name promises, and the
        // destructor gives it back unless a consumer took it.
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, NAME, Some(unused)) }
    }
}

/// How a capsule is called that nobody has consumed.
const NAME: &CStr = c"dltensor";
/// kDLCPU.
const CPU: i32 = 1;

/// `DLManagedTensor` of DLPack's dlpack.h.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What a consumer holds.
#[repr(C)]
struct Lent {
    tensor: Managed,
    shape: [i64; 1],
    stride: [i64; 1],
    _memory: Arc<shoal_comm::Memory>,
}

impl Managed {
    fn new(data: *mut c_void) -> Self {
        let tensor = Tensor {
            data,
            device_type: CPU,
            device: 0,
            dimensions: 1,
            // Unsigned integers (kDLUInt) of eight bits.
            code: 1,
            bits: 8,
            lanes: 1,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        Self { tensor, context: std::ptr::null_mut(), deleter: Some(give_back) }
    }
}

/// The consumer is done; from any thread.
unsafe extern "C" fn give_back(managed: *mut Managed) {
    // SAFETY: the context is the box that `__dlpack__` made, and a consumer calls this once.
    drop(unsafe { Box::from_raw((*managed).context.cast::<Lent>()) });
}

/// A capsule goes away: gives the tensor back if nobody consumed it (who does renames the capsule).
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with the capsule that it is the destructor of; a capsule of this
    // name holds what `__dlpack__` put into it.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            give_back(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
