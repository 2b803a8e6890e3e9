//! One GPU by CUDA's driver: its context, streams, memory, and where an address lies.

#![expect(unsafe_code, reason = "the driver takes addresses")]

use std::{
    ffi::{c_int, c_void},
    fmt,
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::Arc,
};

use cudarc::driver::{
    result::{self, DriverError, device, primary_ctx, stream},
    sys,
};

use crate::{Error, Memory, memory::ALIGNMENT};

/// One GPU of this process.
pub(super) struct Device {
    ordinal: usize,
    name: String,
    handle: sys::CUdevice,
    /// The primary context, which the CUDA runtime and PyTorch use, too: their memory is reached
    /// here.
    context: sys::CUcontext,
}

// SAFETY: a context may be used by any thread in which it is current, and the driver locks by
// itself.
unsafe impl Send for Device {}
// SAFETY: as above; nothing here changes after it was made.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} ({})", self.ordinal, self.name)
    }
}

/// How many GPUs this process sees.
///
/// # Errors
/// No driver, or one that does not work: what to do.
pub(super) fn count() -> Result<usize, Error> {
    let advice = "install NVIDIA's driver, or start the container with its GPUs (--gpus all); or use another transport \
                  (SHOAL_COMM_TRANSPORT=auto)";
    // SAFETY: loads a library whose initialisation does nothing but to set up its own memory.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::config(format!(
            "a group over NCCL needs CUDA's driver, and libcuda.so.1 is neither in LD_LIBRARY_PATH nor in the system's \
             library directories: {advice}"
        )));
    }
    let count = result::init().and_then(|()| device::get_count());
    match count.map(usize::try_from) {
        Ok(Ok(count)) if count > 0 => Ok(count),
        Ok(_) => {
            Err(Error::config(format!("a group over NCCL needs a GPU, and CUDA sees none{}: {advice}", visible())))
        }
        Err(error) => Err(Error::config(format!(
            "a group over NCCL needs a GPU, and CUDA says {}{}: {advice}",
            said(error),
            visible()
        ))),
    }
}

/// What limits the GPUs that a process sees.
fn visible() -> String {
    std::env::var("CUDA_VISIBLE_DEVICES")
        .map_or_else(|_| String::new(), |list| format!(" (CUDA_VISIBLE_DEVICES is {list:?})"))
}

fn said(error: DriverError) -> String {
    let text = |name: Result<&std::ffi::CStr, DriverError>| {
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    format!("{} ({})", text(error.error_name()), text(error.error_string()))
}

impl Device {
    /// The GPU of that number, from 0.
    ///
    /// # Errors
    /// There is no driver, or no such GPU: what to do.
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>, Error> {
        let count = count()?;
        if ordinal >= count {
            return Err(Error::config(format!(
                "GPU {ordinal} is asked for, and this process sees {count}, numbered from 0{}: each rank of a machine \
                 needs its own GPU, by \
                 Carrier::Nccl or LOCAL_RANK; start no more ranks than there are",
                visible()
            )));
        }
        let failed = |error| Error::io(format!("open GPU {ordinal}"), std::io::Error::other(said(error)));
        let handle = device::get(c_int::try_from(ordinal).expect("less than the count")).map_err(failed)?;
        let name = device::get_name(handle).map_err(failed)?;
        // SAFETY: the handle comes from the driver; released when this is dropped.
        let context = unsafe { primary_ctx::retain(handle) }.map_err(failed)?;
        Ok(Arc::new(Self { ordinal, name, handle, context }))
    }

    /// What the driver refused on this GPU.
    fn failure(&self, what: &str, error: DriverError) -> Error {
        Error::io(format!("{self:?}: {what}"), std::io::Error::other(said(error)))
    }

    /// Makes this GPU's context the thread's until what is given is dropped.
    pub(super) fn enter(&self) -> Result<Entered<'_>, Error> {
        // SAFETY: the context lives as long as this.
        unsafe { sys::cuCtxPushCurrent_v2(self.context) }
            .result()
            .map_err(|error| self.failure("make it current", error))?;
        Ok(Entered { _device: self, not_send: PhantomData })
    }

    /// Where an address lies.
    ///
    /// # Errors
    /// In the memory of another GPU.
    pub(super) fn place(&self, address: *const u8) -> Result<Place, Error> {
        if address.is_null() {
            return Ok(Place::Host);
        }
        let ask = |attribute| {
            let mut value: c_int = 0;
            // SAFETY: these attributes are numbers of 32 bits or less; an address that CUDA does
            // not know is an error.
            unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address.addr() as u64) }
                .result()
                .map(|()| value)
        };
        use sys::CUpointer_attribute_enum as Attribute;
        // Any GPU reaches managed memory.
        if ask(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED).is_ok_and(|managed| managed & 0xff != 0) {
            return Ok(Place::Device);
        }
        if !ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            .is_ok_and(|kind| kind == sys::CUmemorytype::CU_MEMORYTYPE_DEVICE as c_int)
        {
            return Ok(Place::Host);
        }
        match ask(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
            Ok(owner) if usize::try_from(owner) != Ok(self.ordinal) => Err(Error::config(format!(
                "the address {address:p} is memory of GPU {owner}, and this rank's group is on GPU {}: copy it there, \
                 or join with that GPU",
                self.ordinal
            ))),
            _ => Ok(Place::Device),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once, in `open`. Whether it can be released now changes nothing.
        let _ = unsafe { primary_ctx::release(self.handle) };
    }
}

/// A GPU's context is this thread's.
#[derive(Debug)]
pub(super) struct Entered<'a> {
    _device: &'a Device,
    /// Contexts are of threads.
    not_send: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut context = ptr::null_mut();
        // SAFETY: takes back what was pushed when this was made, in the same thread.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut context) };
    }
}

/// Where an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Where this GPU reaches it.
    Device,
    /// Elsewhere.
    Host,
}

/// Memory that GPU and processor share, of which a page's start was given out.
struct Managed {
    block: sys::CUdeviceptr,
    device: Arc<Device>,
}

impl Drop for Managed {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: allocated in `Stream::alloc`, freed once.
            let _ = unsafe { result::memory_free(self.block) };
        }
    }
}

/// Work of a GPU, in order, and apart from what others do there.
pub(super) struct Stream {
    device: Arc<Device>,
    raw: sys::CUstream,
}

// SAFETY: a stream may be used by any thread, and the driver locks by itself.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream of {:?}", self.device)
    }
}

impl Stream {
    pub(super) fn new(device: &Arc<Device>) -> Result<Self, Error> {
        let _entered = device.enter()?;
        let raw =
            stream::create(stream::StreamKind::NonBlocking).map_err(|error| device.failure("make a stream", error))?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    pub(super) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its address, as NCCL takes it.
    pub(super) fn raw(&self) -> cudarc::nccl::sys::cudaStream_t {
        self.raw.cast()
    }

    /// Whether all its work is done.
    pub(super) fn is_done(&self) -> Result<bool, Error> {
        // SAFETY: the stream lives as long as this.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            sys::CUresult::CUDA_SUCCESS => Ok(true),
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            error => Err(self.device.failure("an operation of its stream", DriverError(error))),
        }
    }

    /// Copies bytes from anywhere to anywhere, and waits until that is done.
    ///
    /// # Safety
    /// Both are valid for that length, and nobody else touches what is written; the GPU's context
    /// is current.
    pub(super) unsafe fn copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<(), Error> {
        // SAFETY: the caller's promise; the driver finds out where each address lies.
        let copied = unsafe { sys::cuMemcpyAsync(to.addr() as u64, from.addr() as u64, bytes, self.raw) }.result();
        // SAFETY: the stream lives as long as this.
        copied
            .and_then(|()| unsafe { stream::synchronize(self.raw) })
            .map_err(|error| self.device.failure(&format!("copy {bytes} bytes"), error))
    }

    /// Memory that this GPU and the processor both reach: zeroed, aligned to 4096.
    pub(super) fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        let device = &self.device;
        let entered = device.enter()?;
        // SAFETY: the handle comes from the driver.
        let shares = unsafe {
            device::get_attribute(device.handle, sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)
        };
        if shares.map_err(|error| device.failure("ask what memory it shares", error))? == 0 {
            return Err(Error::config(format!(
                "{device:?} and the processor cannot use the same memory at the same time on this machine: give the \
                 group's calls addresses of the \
                 GPU's own memory instead"
            )));
        }
        let refused = |error| device.failure(&format!("allocate {bytes} bytes"), error);
        let padded = bytes
            .checked_add(ALIGNMENT)
            .ok_or_else(|| Error::config(format!("cannot allocate {bytes} bytes of memory; ask for less")))?;
        // SAFETY: freed by its owner.
        let block =
            unsafe { result::malloc_managed(padded, sys::CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL) }.map_err(refused)?;
        let owner = Managed { block, device: Arc::clone(device) };
        // SAFETY: the block is of that length, and nobody else has it yet; the stream lives as long
        // as this.
        unsafe { result::memset_d8_async(block, 0, padded, self.raw).and_then(|()| stream::synchronize(self.raw)) }
            .map_err(refused)?;
        drop(entered);
        let start = usize::try_from(block).expect("an address").next_multiple_of(ALIGNMENT);
        let address = NonNull::new(ptr::with_exposed_provenance_mut(start)).expect("what was allocated is not null");
        // SAFETY: `bytes` zeroed bytes from the first page within the block on; the owner frees
        // them.
        Ok(unsafe { Memory::new(address, bytes, Box::new(owner)) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: made in `new`, destroyed once; the driver waits for its work by itself.
            let _ = unsafe { stream::destroy(self.raw) };
        }
    }
}

/// Memory of the GPU for one operation of a stream.
#[derive(Debug)]
pub(super) struct Scratch<'a> {
    stream: &'a Stream,
    block: sys::CUdeviceptr,
}

impl<'a> Scratch<'a> {
    /// So many bytes, of which there is at least one; the GPU's context is current.
    pub(super) fn new(stream: &'a Stream, bytes: usize) -> Result<Self, Error> {
        // SAFETY: used on this stream only, and freed on it.
        let block = unsafe { result::malloc_async(stream.raw, bytes) };
        let block =
            block.map_err(|error| stream.device.failure(&format!("allocate {bytes} bytes for an operation"), error))?;
        Ok(Self { stream, block })
    }

    pub(super) fn address(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(self.block).expect("an address")).cast()
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        if let Ok(_entered) = self.stream.device.enter() {
            // SAFETY: allocated on this stream, freed once, after all that uses it.
            let _ = unsafe { result::free_async(self.block, self.stream.raw) };
        }
    }
}
