//! Safe, typed calls.

#![expect(unsafe_code, reason = "slices become the addresses that the seam takes")]

use std::{marker::PhantomData, ptr, time::Duration};

use crate::{Call, Element, Error, Kind, Memory, Plain, ProcessGroup, ReduceOp, Work};

/// Safe, typed calls on a [`ProcessGroup`]. Lengths are in elements; wrong ones are refused with
/// [`Error::Config`] before anything is done.
pub trait ProcessGroupExt: ProcessGroup {
    /// Every rank's `buffer` becomes the reduction of all.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn all_reduce<T: Element>(&self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = in_place(Kind::AllReduce(op), buffer);
        // SAFETY: the buffer is borrowed mutably until `run` returns, and has the call's length.
        unsafe { self.run(&call) }
    }

    /// `recv` becomes the reduction of all ranks' `send`, of the same length.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn all_reduce_into<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let kind = Kind::AllReduce(op);
        lengths(kind, send.len(), recv.len())?;
        // SAFETY: both are borrowed until `run` returns, and have the call's length.
        unsafe { self.run(&Call::new(kind, T::DTYPE, address(send), address_mut(recv), send.len())) }
    }

    /// The root's `buffer` becomes the reduction of all; the others' stay as they are.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn reduce<T: Element>(&self, buffer: &mut [T], op: ReduceOp, root: usize) -> Result<(), Error> {
        let call = in_place(Kind::Reduce { op, root }, buffer);
        // SAFETY: as for all-reduce.
        unsafe { self.run(&call) }
    }

    /// `recv` becomes this rank's piece of the reduction of all ranks' `send`, which has as many
    /// pieces as there are ranks.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn reduce_scatter<T: Element>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let kind = Kind::ReduceScatter(op);
        lengths(kind, send.len(), recv.len() * self.size())?;
        // SAFETY: both are borrowed until `run` returns; lengths were compared.
        unsafe { self.run(&Call::new(kind, T::DTYPE, address(send), address_mut(recv), recv.len())) }
    }

    /// The same with pieces of `counts[r]` elements for rank r.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn reduce_scatter_uneven<T: Element>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let kind = Kind::ReduceScatter(op);
        lengths(kind, send.len(), counts.iter().sum())?;
        let call = Call::new(kind, T::DTYPE, address(send), address_mut(recv), recv.len());
        // SAFETY: both are borrowed until `run` returns; `send` was compared here, `recv` is by
        // `Call::check`.
        unsafe { self.run(&Call { counts: Some(counts.into()), ..call }) }
    }

    /// `recv` becomes all ranks' `send`, in rank order.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn all_gather<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        lengths(Kind::AllGather, send.len() * self.size(), recv.len())?;
        // SAFETY: both are borrowed until `run` returns; lengths were compared.
        unsafe { self.run(&Call::new(Kind::AllGather, T::DTYPE, address(send), address_mut(recv), send.len())) }
    }

    /// The same with pieces of `counts[r]` elements of rank r.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn all_gather_uneven<T: Element>(&self, send: &[T], recv: &mut [T], counts: &[usize]) -> Result<(), Error> {
        lengths(Kind::AllGather, counts.iter().sum(), recv.len())?;
        let call = Call::new(Kind::AllGather, T::DTYPE, address(send), address_mut(recv), send.len());
        // SAFETY: both are borrowed until `run` returns; `recv` was compared here, `send` is by
        // `Call::check`.
        unsafe { self.run(&Call { counts: Some(counts.into()), ..call }) }
    }

    /// Every rank's `buffer` becomes the root's.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn broadcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let call = in_place(Kind::Broadcast { root }, buffer);
        // SAFETY: as for all-reduce.
        unsafe { self.run(&call) }
    }

    /// The root's `recv` becomes all ranks' `send`, in rank order; elsewhere `recv` may be empty.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn gather<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<(), Error> {
        let kind = Kind::Gather { root };
        if self.rank() == root {
            lengths(kind, send.len() * self.size(), recv.len())?;
        }
        // SAFETY: both are borrowed until `run` returns; lengths were compared where they count.
        unsafe { self.run(&Call::new(kind, T::DTYPE, address(send), address_mut(recv), send.len())) }
    }

    /// `recv` becomes this rank's piece of the root's `send`; elsewhere `send` may be empty.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn scatter<T: Element>(&self, send: &[T], recv: &mut [T], root: usize) -> Result<(), Error> {
        let kind = Kind::Scatter { root };
        if self.rank() == root {
            lengths(kind, send.len(), recv.len() * self.size())?;
        }
        // SAFETY: both are borrowed until `run` returns; lengths were compared where they count.
        unsafe { self.run(&Call::new(kind, T::DTYPE, address(send), address_mut(recv), recv.len())) }
    }

    /// `recv` becomes this rank's piece of every rank's `send`, in rank order.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn all_to_all<T: Element>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let len = send.len() / self.size();
        lengths(Kind::AllToAll, len * self.size(), send.len())?;
        lengths(Kind::AllToAll, send.len(), recv.len())?;
        // SAFETY: both are borrowed until `run` returns; lengths were compared.
        unsafe { self.run(&Call::new(Kind::AllToAll, T::DTYPE, address(send), address_mut(recv), len)) }
    }

    /// The same with pieces of `to[r]` elements for rank r and `from[r]` elements from rank r.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn all_to_all_uneven<T: Element>(
        &self,
        send: &[T],
        to: &[usize],
        recv: &mut [T],
        from: &[usize],
    ) -> Result<(), Error> {
        lengths(Kind::AllToAll, to.iter().sum(), send.len())?;
        lengths(Kind::AllToAll, from.iter().sum(), recv.len())?;
        if to.len() != self.size() || from.len() != self.size() {
            return Err(Error::Config {
                problem: format!("all-to-all: one count for each of {} ranks, please", self.size()),
            });
        }
        let call = Call::new(Kind::AllToAll, T::DTYPE, address(send), address_mut(recv), 0);
        // SAFETY: both are borrowed until `run` returns; lengths were compared.
        unsafe { self.run(&Call { counts: Some([to, from].concat().into()), ..call }) }
    }

    /// Gives `buffer` to rank `to`, which receives as many elements with the same tag. A small
    /// message waits for nobody; a large one may wait until the other receives.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn send<T: Element>(&self, buffer: &[T], to: usize, tag: u32) -> Result<(), Error> {
        // SAFETY: borrowed until `run` returns, with the call's length.
        unsafe {
            self.run(&Call::new(Kind::Send { to, tag }, T::DTYPE, address(buffer), ptr::null_mut(), buffer.len()))
        }
    }

    /// Takes `buffer` from rank `from`: the oldest of its messages with that tag. Those with other
    /// tags wait for a receive of theirs.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn recv<T: Element>(&self, buffer: &mut [T], from: usize, tag: u32) -> Result<(), Error> {
        // SAFETY: borrowed mutably until `run` returns, with the call's length.
        unsafe {
            self.run(&Call::new(Kind::Recv { from, tag }, T::DTYPE, ptr::null(), address_mut(buffer), buffer.len()))
        }
    }

    /// Takes `buffer` from any other rank: the first message with that tag that comes; whose it
    /// was.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn recv_any<T: Element>(&self, buffer: &mut [T], tag: u32) -> Result<usize, Error> {
        let call = Call::new(Kind::RecvAny { tag }, T::DTYPE, ptr::null(), address_mut(buffer), buffer.len());
        // SAFETY: borrowed mutably until the work is over, which is waited for here, with the
        // call's length.
        let work = unsafe { self.start(call)? };
        work.wait()?;
        Ok(work.source().expect("a message has a sender"))
    }

    /// Nobody goes on before all have come.
    ///
    /// # Errors
    /// As for [`ProcessGroup::run`].
    fn barrier(&self) -> Result<(), Error> {
        // SAFETY: a barrier touches no memory.
        unsafe { self.run(&Call::barrier()) }
    }

    /// Begins an in-place all-reduce of a buffer that it owns until [`Pending::wait`].
    ///
    /// # Errors
    /// As for [`ProcessGroup::start`].
    fn start_all_reduce<T: Plain, B: Buffer<T>>(&self, buffer: B, op: ReduceOp) -> Result<Pending<B>, Error> {
        begin(self, Kind::AllReduce(op), buffer)
    }

    /// Begins a broadcast of a buffer that it owns until [`Pending::wait`].
    ///
    /// # Errors
    /// As for [`ProcessGroup::start`].
    fn start_broadcast<T: Plain, B: Buffer<T>>(&self, buffer: B, root: usize) -> Result<Pending<B>, Error> {
        begin(self, Kind::Broadcast { root }, buffer)
    }

    /// Begins to give a buffer to rank `to`; it owns it until [`Pending::wait`].
    ///
    /// # Errors
    /// As for [`ProcessGroup::start`].
    fn start_send<T: Plain, B: Buffer<T>>(&self, buffer: B, to: usize, tag: u32) -> Result<Pending<B>, Error> {
        begin(self, Kind::Send { to, tag }, buffer)
    }

    /// Begins to take a buffer from rank `from`; it owns it until [`Pending::wait`].
    ///
    /// # Errors
    /// As for [`ProcessGroup::start`].
    fn start_recv<T: Plain, B: Buffer<T>>(&self, buffer: B, from: usize, tag: u32) -> Result<Pending<B>, Error> {
        begin(self, Kind::Recv { from, tag }, buffer)
    }

    /// Begins to take a buffer from any other rank; it owns it until [`Pending::wait_from`], which
    /// says whose it was.
    ///
    /// # Errors
    /// As for [`ProcessGroup::start`].
    fn start_recv_any<T: Plain, B: Buffer<T>>(&self, buffer: B, tag: u32) -> Result<Pending<B>, Error> {
        begin(self, Kind::RecvAny { tag }, buffer)
    }
}

impl<G: ProcessGroup + ?Sized> ProcessGroupExt for G {}

/// Memory that an operation can own while it progresses by itself. Its elements stay where they are
/// when it is moved.
///
/// # Safety
/// `elements` gives the same address each time, also after the buffer itself was moved, until it is
/// dropped or used otherwise.
pub unsafe trait Buffer<T: Plain>: Send + 'static {
    /// The elements.
    fn elements(&mut self) -> &mut [T];
}

// SAFETY: a vector's elements are on the heap and stay there when the vector is moved.
unsafe impl<T: Plain> Buffer<T> for Vec<T> {
    fn elements(&mut self) -> &mut [T] {
        self
    }
}

// SAFETY: `Memory` is an address of bytes that stay where they are.
unsafe impl<T: Plain> Buffer<T> for Memory {
    fn elements(&mut self) -> &mut [T] {
        self.as_mut_slice()
    }
}

/// An operation that progresses by itself and owns its buffer. Dropped, it goes on, and the buffer
/// is freed when it is done.
#[derive(Debug)]
pub struct Pending<B> {
    work: Work,
    buffer: PhantomData<fn() -> B>,
}

impl<B: Send + 'static> Pending<B> {
    /// Whether it is done, well or not.
    pub fn is_done(&self) -> bool {
        self.work.is_done()
    }

    /// Waits until it is done and gives the buffer back, with the result in it if all went well.
    ///
    /// # Errors
    /// Beside the buffer: as for [`ProcessGroup::run`].
    pub fn wait(self) -> (B, Result<(), Error>) {
        let result = self.work.wait();
        (self.buffer(), result)
    }

    /// The same for a message that is received, with the rank that it came from.
    ///
    /// # Errors
    /// Beside the buffer: as for [`ProcessGroup::run`].
    ///
    /// # Panics
    /// It is no receive.
    pub fn wait_from(self) -> (B, Result<usize, Error>) {
        let result = self.work.wait();
        (self.buffer(), result.map(|()| self.work.source().expect("only messages that are received have a sender")))
    }

    /// Waits at most this long for the end; `Err` is the operation itself, which goes on.
    ///
    /// # Errors
    /// It is not done yet.
    pub fn wait_for(self, time: Duration) -> Result<(B, Result<(), Error>), Self> {
        match self.work.wait_for(time) {
            Some(result) => Ok((self.buffer(), result)),
            None => Err(self),
        }
    }

    fn buffer(&self) -> B {
        let kept = self.work.take_kept().and_then(|kept| kept.downcast::<B>().ok());
        *kept.expect("the buffer is kept until it is taken here, once, after the end")
    }
}

/// Begins an operation on a buffer that the work keeps.
fn begin<T: Plain, B: Buffer<T>>(
    group: &(impl ProcessGroup + ?Sized),
    kind: Kind,
    buffer: B,
) -> Result<Pending<B>, Error> {
    let mut buffer = Box::new(buffer);
    let call = in_place(kind, buffer.elements());
    // SAFETY: the elements stay where they are and are reached by nobody until the work is done:
    // the work keeps the buffer, and gives it back only then. If `start` refuses, nothing was
    // begun.
    let work = unsafe { group.start(call)? };
    work.keep(buffer);
    Ok(Pending { work, buffer: PhantomData })
}

fn in_place<T: Element>(kind: Kind, buffer: &mut [T]) -> Call {
    let address = address_mut(buffer);
    Call::new(kind, T::DTYPE, address.cast_const(), address, buffer.len())
}

fn address<T>(slice: &[T]) -> *const u8 {
    slice.as_ptr().cast()
}

fn address_mut<T>(slice: &mut [T]) -> *mut u8 {
    slice.as_mut_ptr().cast()
}

fn lengths(kind: Kind, one: usize, other: usize) -> Result<(), Error> {
    if one == other {
        return Ok(());
    }
    let problem = format!("{kind}: the buffers' lengths do not fit: {one} elements on one side, {other} on the other");
    Err(Error::Config { problem })
}
