//! Memory for operations.

#![expect(unsafe_code, reason = "memory that the operating system and other processes share is reached by address")]

use std::{
    alloc::{self, Layout},
    any::Any,
    fmt,
    ptr::NonNull,
    slice,
};

use crate::{Error, Plain};

/// Bytes that a group gave ([`crate::ProcessGroup::alloc`]): zeroed, aligned to 4096, and
/// registered where the transport can do more with such memory than with other. Given back when
/// dropped.
///
/// After an operation on it has failed, other ranks may still write to it until the group is
/// re-formed: read nothing from it before.
pub struct Memory {
    address: NonNull<u8>,
    bytes: usize,
    /// Frees it.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: `Memory` owns its bytes like a `Vec<u8>`; its owner can be dropped by any thread.
unsafe impl Send for Memory {}
// SAFETY: a shared `Memory` only gives shared slices.
unsafe impl Sync for Memory {}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory of {} bytes at {:p}", self.bytes, self.address)
    }
}

/// What all memory is aligned to.
pub(crate) const ALIGNMENT: usize = 4096;

impl Memory {
    /// Memory that `owner` frees when it is dropped.
    ///
    /// # Safety
    /// `bytes` initialised bytes at `address`, aligned to 4096, are nobody else's until `owner` is
    /// dropped.
    pub(crate) unsafe fn new(address: NonNull<u8>, bytes: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self { address, bytes, _owner: owner }
    }

    /// Ordinary memory of this process.
    pub(crate) fn private(bytes: usize) -> Result<Self, Error> {
        struct Owner(NonNull<u8>, Layout);
        // SAFETY: the allocation is a plain block of memory, which any thread may free.
        unsafe impl Send for Owner {}
        // SAFETY: nothing is reached through a shared `Owner`.
        unsafe impl Sync for Owner {}
        impl Drop for Owner {
            fn drop(&mut self) {
                // SAFETY: allocated below with this layout, freed once.
                unsafe { alloc::dealloc(self.0.as_ptr(), self.1) }
            }
        }
        let refused = || Error::Config { problem: format!("cannot allocate {bytes} bytes of memory; ask for less") };
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: the layout is not empty.
        let address = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(refused)?;
        // SAFETY: just allocated, zeroed, aligned; the owner frees it.
        Ok(unsafe { Self::new(address, bytes, Box::new(Owner(address, layout))) })
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its address, for calls at the seam.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Its address, for calls at the seam.
    pub fn as_ptr(&self) -> *const u8 {
        self.address.as_ptr()
    }

    /// The bytes as elements; a rest that is less than an element is left out.
    pub fn as_slice<T: Plain>(&self) -> &[T] {
        // SAFETY: aligned to 4096, initialised, owned; every bit pattern is a `Plain`.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }

    /// The bytes as elements; a rest that is less than an element is left out.
    pub fn as_mut_slice<T: Plain>(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.address.as_ptr().cast(), self.bytes / size_of::<T>()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_zeroed_and_can_be_written() {
        let mut memory = Memory::private(10).unwrap();
        assert_eq!(memory.as_slice::<f32>(), [0.0, 0.0]);
        memory.as_mut_slice::<u8>()[9] = 7;
        assert_eq!(memory.as_slice::<u8>()[9], 7);
        assert!(Memory::private(usize::MAX - 5000).is_err());
    }
}
