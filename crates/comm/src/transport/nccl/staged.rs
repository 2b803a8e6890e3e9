//! An operation's memory where the GPU reaches it: where it lies, or a copy.

#![expect(unsafe_code, reason = "calls are addresses")]

use super::device::{Place, Scratch, Stream};
use crate::{Call, Error};

/// The memory of one call as NCCL gets it.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    stream: &'a Stream,
    /// What was copied to the GPU lives here.
    _scratch: Vec<Scratch<'a>>,
    /// From the GPU to where the caller wants it.
    back: Option<(*const u8, *mut u8, usize)>,
}

impl<'a> Staged<'a> {
    /// Memory of the GPU stays where it is, if its elements are aligned; other memory is copied.
    /// The GPU's context is current.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`]: `gives` bytes at `send` and `gets` at `recv` are the
    /// call's.
    pub(super) unsafe fn new(call: &Call, (gives, gets): (usize, usize), stream: &'a Stream) -> Result<Self, Error> {
        let (send, recv) = (call.send, call.recv);
        let stays = |address: *const u8, bytes: usize| -> Result<bool, Error> {
            let aligned = address.addr().is_multiple_of(call.dtype.size());
            Ok(bytes == 0 || aligned && stream.device().place(address)? == Place::Device)
        };
        let (mut staged, mut back) = ((send, recv), None);
        let mut scratch = Vec::new();
        // SAFETY: the caller's promise: all that is copied from here is the call's.
        unsafe {
            if overlap((send.addr(), gives), (recv.addr(), gets)) {
                if !stays(send, gives)? || !stays(recv, gets)? {
                    let start = send.addr().min(recv.addr());
                    let end = (send.addr() + gives).max(recv.addr() + gets);
                    let copy = Scratch::new(stream, end - start)?;
                    let (at_send, at_recv) = (send.addr() - start, recv.addr() - start);
                    stream.copy(send, copy.address().add(at_send), gives)?;
                    staged = (copy.address().add(at_send), copy.address().add(at_recv));
                    back = Some((staged.1.cast_const(), recv, gets));
                    scratch.push(copy);
                }
            } else {
                if !stays(send, gives)? {
                    let copy = Scratch::new(stream, gives)?;
                    stream.copy(send, copy.address(), gives)?;
                    staged.0 = copy.address();
                    scratch.push(copy);
                }
                if !stays(recv, gets)? {
                    let copy = Scratch::new(stream, gets)?;
                    staged.1 = copy.address();
                    back = Some((staged.1.cast_const(), recv, gets));
                    scratch.push(copy);
                }
            }
        }
        Ok(Self { send: staged.0, recv: staged.1, stream, _scratch: scratch, back })
    }

    /// Gives the caller what NCCL wrote.
    ///
    /// # Safety
    /// As for [`Staged::new`], and the operation is done.
    pub(super) unsafe fn bring_back(self) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.back.map_or(Ok(()), |(from, to, bytes)| unsafe { self.stream.copy(from, to, bytes) })
    }
}

/// Whether two stretches of memory have bytes in common.
fn overlap((one, len): (usize, usize), (other, other_len): (usize, usize)) -> bool {
    len > 0 && other_len > 0 && one < other + other_len && other < one + len
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn stretches_overlap_where_they_share_a_byte() {
        assert!(overlap((100, 10), (100, 10)));
        assert!(overlap((100, 10), (109, 1)) && overlap((109, 1), (100, 10)));
        assert!(!overlap((100, 10), (110, 5)) && !overlap((110, 5), (100, 10)));
        assert!(!overlap((100, 10), (105, 0)) && !overlap((105, 0), (100, 10)));
    }
}
