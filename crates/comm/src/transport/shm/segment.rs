//! Memory of one rank that all ranks of a host map: a file without a name, and a heap in it.

#![expect(unsafe_code, reason = "mappings are made and reached by address")]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use super::control::{self, Control};
use crate::{Error, Memory, memory::ALIGNMENT};

/// What addresses of mappings, and of large pieces of the heap, are multiples of. Elsewhere the
/// same all-reduce of 64 KiB to 256 KiB took twice as long (AMD EPYC, pages of 4 KiB): neighbouring
/// pages share an entry of the processor's page cache only where address and place in memory are
/// aligned alike.
const HUGE: usize = 2 << 20;

/// A file in memory, mapped here. It vanishes with the last process that has it.
#[derive(Debug)]
pub(crate) struct Segment {
    address: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: the mapping belongs to nobody in particular; whoever reaches into it follows the flags.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// A new one of this size; its pages come when they are touched.
    pub(crate) fn create(bytes: usize) -> Result<Self, Error> {
        let refused = |source| Error::io("cannot make shared memory (memfd_create)", source);
        // SAFETY: the name is a string that ends with a zero.
        let fd = unsafe { libc::memfd_create(c"shoal-comm".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(refused(io::Error::last_os_error()));
        }
        // SAFETY: just opened, and nobody else's.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(bytes as u64).map_err(refused)?;
        Self::map(file.into())
    }

    /// Maps one that another rank has made.
    pub(crate) fn map(file: OwnedFd) -> Result<Self, Error> {
        let refused = |source| Error::io("cannot map shared memory", source);
        let file = File::from(file);
        let bytes = file.metadata().map_err(refused)?.len() as usize;
        // Room for an address at a multiple of `HUGE`; what is before and after it goes back.
        let room = bytes.checked_add(HUGE).ok_or_else(|| refused(io::Error::from(io::ErrorKind::OutOfMemory)))?;
        let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (protection, shared) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED);
        // SAFETY: a new mapping at an address that the system chooses.
        let begin = unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, reserved, -1, 0) };
        if begin == libc::MAP_FAILED {
            return Err(refused(io::Error::last_os_error()));
        }
        let begin = begin.cast::<u8>();
        let before = begin.align_offset(HUGE);
        let wanted = begin.wrapping_add(before);
        // SAFETY: the ranges are parts of what was just mapped, and nobody has reached into it.
        let address = unsafe {
            if before > 0 {
                libc::munmap(begin.cast(), before);
            }
            let end = wanted.wrapping_add(bytes.next_multiple_of(ALIGNMENT));
            let after = begin.addr() + room - end.addr();
            if after > 0 {
                libc::munmap(end.cast(), after & !(ALIGNMENT - 1));
            }
            libc::mmap(wanted.cast(), bytes, protection, shared, file.as_raw_fd(), 0)
        };
        if address == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: still the room that was reserved.
            unsafe { libc::munmap(wanted.cast(), bytes) };
            return Err(refused(error));
        }
        let address = NonNull::new(address.cast()).ok_or_else(|| refused(io::Error::other("mapped at address 0")))?;
        Ok(Self { address, bytes, file: file.into() })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// For the other ranks.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Makes pages present, so that memory that is not there is an error here and not a signal
    /// later.
    fn reserve(&self, offset: usize, bytes: usize) -> io::Result<()> {
        // SAFETY: a call on our own file.
        let result = unsafe { libc::fallocate(self.file.as_raw_fd(), 0, offset as libc::off_t, bytes as libc::off_t) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Gives pages back; they read as zeros from then on, unless this says no.
    fn release(&self, offset: usize, bytes: usize) -> bool {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: a call on our own file.
        unsafe { libc::fallocate(self.file.as_raw_fd(), mode, offset as libc::off_t, bytes as libc::off_t) == 0 }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped above with this length; nothing reaches into it any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// Memory to give out in a rank's own segment: pages, first fit. What is given back is given to the
/// system at once, so that all that is given out is zero.
#[derive(Debug)]
pub(super) struct Heap {
    segment: Arc<Segment>,
    /// Offset and bytes, by offset, neighbours joined.
    free: Mutex<Vec<(usize, usize)>>,
    /// Controls of groups that this rank has left and others perhaps not yet: offset, bytes, ranks.
    retired: Mutex<Vec<(usize, usize, usize)>>,
}

impl Heap {
    /// All of the segment from `start` on.
    pub(super) fn new(segment: Arc<Segment>, start: usize) -> Self {
        let start = start.next_multiple_of(ALIGNMENT);
        let free = vec![(start, segment.bytes() - start)];
        Self { segment, free: Mutex::new(free), retired: Mutex::default() }
    }

    pub(super) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<Memory, Error> {
        let refused = |why: String| Error::Config {
            problem: format!("cannot allocate {bytes} bytes of registered memory: {why}"),
        };
        let pages = bytes.max(1).checked_next_multiple_of(ALIGNMENT).ok_or_else(|| refused("too many".to_owned()))?;
        self.sweep();
        let offset = self
            .take(pages, pages.next_power_of_two().min(HUGE))
            .ok_or_else(|| refused(format!("the heap of {} bytes is full", self.segment.bytes())))?;
        if let Err(error) = self.segment.reserve(offset, pages) {
            self.give_back(offset, pages);
            return Err(refused(error.to_string()));
        }
        struct Owner(Arc<Heap>, usize, usize);
        impl Drop for Owner {
            fn drop(&mut self) {
                self.0.give_back(self.1, self.2);
            }
        }
        // SAFETY: within the segment, which the owner keeps mapped.
        let address = unsafe { self.segment.address.add(offset) };
        // SAFETY: the range is given out once, zero (fresh or released pages), aligned, until the
        // owner gives it back.
        Ok(unsafe { Memory::new(address, bytes, Box::new(Owner(Arc::clone(self), offset, pages))) })
    }

    /// Room for the control of a group of `n` ranks: its offset.
    pub(super) fn alloc_control(&self, n: usize) -> Result<usize, Error> {
        self.sweep();
        let bytes = control::bytes(n).next_multiple_of(ALIGNMENT);
        self.take(bytes, HUGE).ok_or_else(|| Error::Config {
            problem: format!(
                "no room for the control of a group of {n} ranks: the heap of {} bytes is full",
                self.segment.bytes()
            ),
        })
    }

    /// This rank has left the group whose control is at `offset`; it is given back when the others
    /// have, too.
    pub(super) fn retire(&self, offset: usize, n: usize) {
        let bytes = control::bytes(n).next_multiple_of(ALIGNMENT);
        self.retired.lock().unwrap_or_else(PoisonError::into_inner).push((offset, bytes, n));
    }

    fn sweep(&self) {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        retired.retain(|(offset, bytes, n)| {
            // SAFETY: the control is within the segment and not given back yet.
            let control = unsafe { Control::new(self.segment.address().add(*offset)) };
            let all_left = (0..*n).all(|rank| control.left(rank).load(Ordering::Acquire) != 0);
            if all_left {
                self.give_back(*offset, *bytes);
            }
            !all_left
        });
    }

    /// Takes pages that begin at a multiple of `alignment`.
    fn take(&self, pages: usize, alignment: usize) -> Option<usize> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |(offset, bytes): &(usize, usize)| offset.next_multiple_of(alignment) - offset + pages <= *bytes;
        let place = free.iter().position(fits)?;
        let (offset, bytes) = free.remove(place);
        let taken = offset.next_multiple_of(alignment);
        let rest = [(taken + pages, offset + bytes - taken - pages), (offset, taken - offset)];
        rest.into_iter().filter(|(_, bytes)| *bytes > 0).for_each(|part| free.insert(place, part));
        Some(taken)
    }

    fn give_back(&self, offset: usize, pages: usize) {
        // Pages that would not be zero are given out no more.
        if !self.segment.release(offset, pages) {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let place = free.partition_point(|(other, _)| *other < offset);
        free.insert(place, (offset, pages));
        if place + 1 < free.len() && offset + pages == free[place + 1].0 {
            free[place].1 += free.remove(place + 1).1;
        }
        if place > 0 && free[place - 1].0 + free[place - 1].1 == offset {
            free[place - 1].1 += free.remove(place).1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_out_is_zero_and_what_is_given_back_is_joined() {
        let heap = Arc::new(Heap::new(Arc::new(Segment::create(1 << 20).unwrap()), 100));
        let whole = heap.free.lock().unwrap().clone();
        let mut memories: Vec<_> = (1..6).map(|i| heap.alloc(i * 3000).unwrap()).collect();
        memories.iter_mut().for_each(|memory| memory.as_mut_slice::<u8>().fill(1));
        memories.remove(3);
        memories.remove(1);
        let again = heap.alloc(5000).unwrap();
        assert!(again.as_slice::<u8>().iter().all(|byte| *byte == 0));
        assert!(heap.alloc(1 << 20).is_err());
        drop((memories, again));
        assert_eq!(*heap.free.lock().unwrap(), whole);
    }

    #[test]
    fn two_mappings_are_one_memory() {
        let segment = Segment::create(8192).unwrap();
        let other = Segment::map(segment.file().try_clone_to_owned().unwrap()).unwrap();
        // SAFETY: both mappings have 8192 bytes, and this thread alone uses them.
        let seen = unsafe {
            segment.address().add(5000).write(42);
            other.address().add(5000).read()
        };
        assert_eq!((seen, other.bytes()), (42, 8192));
    }
}
