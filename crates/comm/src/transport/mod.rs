//! How data moves: one implementation a folder.

pub(crate) mod direct;
pub(crate) mod hier;
pub(crate) mod local;
#[cfg(feature = "nccl")]
pub(crate) mod nccl;
pub(crate) mod pull;
pub(crate) mod shm;
pub(crate) mod tcp;
pub(crate) mod wire;

use std::{fmt, sync::Arc};

use self::wire::Wire;
use crate::{Call, Error, Memory, guard::Guard};

/// Moves the data of one group's operations.
///
/// Collectives are executed one after the other, in the same order on all ranks; `seq` counts them
/// from 0. Messages (send, recv) come beside them from other threads, by the transport's [`Wire`].
/// Different peers and directions run at the same time, so a transport keeps the state of each
/// apart.
///
/// A transport without a wire executes messages, too: those of one peer and direction one after the
/// other, with a `seq` of their own from 0, from ranks that are named, in the order in which they
/// were sent. A small send should not wait for its receiver, a large one may.
///
/// Every rank checks the others' signatures ([`Call::signature`]) where it meets them, and returns
/// [`Guard::dispute`] where they differ. The call was checked ([`Call::check`],
/// [`Transport::check`]) and the group has at least two ranks, unless the transport [serves
/// one](Transport::serves_one).
#[expect(unsafe_code, reason = "calls are addresses")]
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// Does one operation.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`].
    unsafe fn execute(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error>;

    /// How messages go, where receives choose among them by tag and may take one from any rank.
    fn wire(&self) -> Option<&dyn Wire>;

    /// Refuses what this transport cannot do, before the call has its turn: the group goes on.
    fn check(&self, _call: &Call) -> Result<(), Error> {
        Ok(())
    }

    /// Whether operations of a group of one rank come here, too: their memory may be such as the
    /// processor does not reach.
    fn serves_one(&self) -> bool {
        false
    }

    /// Memory for operations: zeroed, aligned to 4096.
    fn alloc(&self, bytes: usize) -> Result<Memory, Error>;

    /// The same among some ranks, named by their numbers here and numbered anew in the order given;
    /// this rank is one of them. `id` is the same on all members, and no other group has it.
    fn split(&self, members: &[usize], id: u64, guard: &Guard<'_>) -> Result<Arc<dyn Transport>, Error>;

    /// Which algorithm runs for which operation and size, for people.
    fn plan(&self) -> String;

    /// Pauses of the processor that are worth waiting before the core is given to others.
    fn spins(&self) -> u32;
}
