//! The seam: what every process group can do.

use std::{fmt, sync::Arc, time::Duration};

use crate::{Call, Error, Memory, Work};

/// A fixed set of ranks that do operations together, each rank calling the same ones in the same
/// order.
///
/// Operations of a group are done in the order in which they were called, blocking and asynchronous
/// ones alike. Messages between two ranks (send, recv) are apart from that order. Those that one
/// rank sends to another go in the order of their calls, and wait for nothing else. A receive gets
/// the oldest message with its tag of the rank that it names, or the first from any, and waits for
/// no other receive; those that name the same message get theirs in the order of their calls. (Over
/// NCCL: see there.)
///
/// Results are the same bits on all ranks, and the same from run to run: an element is reduced in a
/// fixed order, which follows from the call, the number of ranks, the transport and who is on which
/// host, never from the timing. It is the order of the ranks in shared memory and over TCP, but for
/// long vectors over TCP among more than two ranks (see [`ProcessGroup::plan`]); over hosts with
/// several ranks each, first the ranks of each host are reduced, then the hosts.
///
/// Between GPUs (see [`crate::rendezvous::Carrier::Nccl`]) the order is NCCL's.
///
/// The safe, typed calls are in [`crate::ProcessGroupExt`].
#[expect(unsafe_code, reason = "the seam takes addresses, because device memory and foreign buffers have no slices")]
pub trait ProcessGroup: Send + Sync + fmt::Debug {
    /// This rank's number, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// How often the group was re-formed.
    fn epoch(&self) -> u64;

    /// Does an operation on the caller's own thread, after those that were called before it.
    ///
    /// # Safety
    /// The call's addresses are valid for [`Call::extent`] until this returns, and nobody else
    /// touches what it writes or writes what it reads.
    ///
    /// # Errors
    /// What went wrong, and with which rank. The contents of `recv` are undefined then; `send` is
    /// as it was, unless the call was in place.
    unsafe fn run(&self, call: &Call) -> Result<(), Error>;

    /// Begins an operation that progresses without the caller.
    ///
    /// # Safety
    /// As for [`ProcessGroup::run`], until the work is done (not only until it is dropped).
    ///
    /// # Errors
    /// The call is refused. What goes wrong later is the work's result.
    unsafe fn start(&self, call: Call) -> Result<Work, Error>;

    /// Memory for operations, registered where the transport has such: operations between
    /// registered memory of all ranks need no copies.
    ///
    /// # Errors
    /// There is not enough.
    fn alloc(&self, bytes: usize) -> Result<Memory, Error>;

    /// A group of some of the ranks, which are numbered anew in the order given. All ranks of this
    /// group call it with the same list; those that it does not name get none.
    ///
    /// # Errors
    /// The list names a rank twice or one that does not exist; or as for [`ProcessGroup::run`].
    fn split(&self, ranks: &[usize]) -> Result<Option<Arc<dyn ProcessGroup>>, Error>;

    /// The group of those that live, under the next epoch, numbered anew in their order; called by
    /// all that live after an operation failed. Operations of this group return [`Error::Revoked`]
    /// from then on.
    ///
    /// # Errors
    /// The living could not agree in time.
    fn shrink(&self) -> Result<Arc<dyn ProcessGroup>, Error>;

    /// The group of the survivors and of newcomers behind them, under the next epoch. Newcomers are
    /// processes that were started with [`joins`](crate::rendezvous::Config::joins) and wait at the
    /// meeting place; they join in the order of their arrival. Waits at most `patience` until there
    /// are `size` ranks, then goes on with those that are there. All survivors call it, after a
    /// failure or without one; ranks stay in order, so rank 0 is the oldest.
    ///
    /// # Errors
    /// The survivors could not agree in time, the meeting place cannot be reached, or the group
    /// takes no newcomers (threads, groups that were split off).
    fn grow(&self, size: usize, patience: Duration) -> Result<Arc<dyn ProcessGroup>, Error>;

    /// The number of processes that wait at the meeting place for [`ProcessGroup::grow`]. For rank
    /// 0, which has the meeting place.
    ///
    /// # Errors
    /// The meeting place cannot be reached.
    fn newcomers(&self) -> Result<usize, Error>;

    /// Like [`ProcessGroup::shrink`], but with replacements for those that died, who take their
    /// numbers. Waits at most `patience` for them.
    ///
    /// # Errors
    /// No replacement came in time, or the transport takes none.
    fn rejoin(&self, patience: Duration) -> Result<Arc<dyn ProcessGroup>, Error>;

    /// This rank gives up: operations in progress fail on all ranks with this reason. Without
    /// effect if the group is broken already.
    fn give_up(&self, why: &str);

    /// Which algorithm and protocol runs for which operation and size, for people.
    fn plan(&self) -> String;
}
