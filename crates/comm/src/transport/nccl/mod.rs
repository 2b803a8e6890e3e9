//! Data between GPUs by NCCL; what ranks have to say to each other beside it goes over TCP.
//!
//! While the GPUs work on a collective, the ranks compare over TCP what they called
//! ([`Nccl::meet`]): so an operation that ranks disagree on, a rank that does not come and one that
//! is gone are known by name, as over every transport, and the GPU's part is ended. Messages have a
//! communicator for each sender and receiver, made with their first long one; short ones go over
//! TCP, where the sender need not wait.
//!
//! Memory of the GPU is used where it is. Other memory, and elements that are not aligned, go
//! through a copy on the GPU. NCCL orders nothing with the caller's own streams: what writes the
//! memory must be done before the call, and the result is there when it returns.

mod communicator;
mod device;
mod library;
mod staged;
mod steps;

use std::{
    collections::BTreeMap,
    fmt, slice,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use cudarc::nccl::sys::ncclUniqueId;

use self::{
    communicator::{Communicator, Seat},
    device::{Device, Place, Stream},
    library::Library,
    staged::Staged,
};
use super::{Transport, tcp::Tcp, wire::Wire};
use crate::{
    Call, DType, Error, Kind, Memory,
    guard::{Alarm, Guard, Stall, Terms},
    node::Node,
};

/// Up to so many bytes a message goes over TCP.
const SHORT: usize = 16 * 1024;

/// The number, on the connections for TCP, of the operation that hands out the id.
const FIRST: u64 = u64::MAX - 1;

/// One rank's GPU in a group.
pub(crate) struct Nccl {
    rank: usize,
    /// All ranks.
    members: Vec<usize>,
    epoch: u64,
    library: &'static Library,
    collectives: Communicator,
    /// By sender and receiver.
    pairs: Mutex<BTreeMap<(usize, usize), Arc<Communicator>>>,
    /// For copies beside the collectives.
    copies: Stream,
    meeting: Tcp,
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nccl of rank {} on {:?}", self.rank, self.copies.device())
    }
}

/// How many GPUs groups over NCCL can have in this process.
///
/// # Errors
/// None: NCCL's library, CUDA's driver or a GPU is missing. Says which, where it was looked for,
/// and what to do.
pub fn gpus() -> Result<usize, Error> {
    library::library()?;
    device::count()
}

/// Whether this process could join with that GPU; asked before it meets the others.
pub(crate) fn check(device: usize) -> Result<(), Error> {
    library::library()?;
    Device::open(device).map(drop)
}

impl Nccl {
    /// Connects the GPUs of all nodes of a group of that epoch; `device` is this rank's.
    pub(crate) fn connect(
        node: &Arc<Node>,
        nodes: &[usize],
        epoch: u64,
        device: usize,
        alarm: &Alarm,
        end: Instant,
    ) -> Result<Self, Error> {
        let meeting = Tcp::open(node, nodes, epoch, alarm, end)?;
        Self::of(meeting, &Device::open(device)?, epoch, alarm, end)
    }

    /// The same where all ranks are connected already.
    fn of(meeting: Tcp, device: &Arc<Device>, epoch: u64, alarm: &Alarm, end: Instant) -> Result<Self, Error> {
        let library = library::library()?;
        let (rank, size) = (meeting.rank(), meeting.size());
        let mut id = if rank == 0 { library.unique_id()? } else { ncclUniqueId { internal: [0; 128] } };
        let call = id_call(Kind::Broadcast { root: 0 }, &mut id, 128);
        let limit = end.saturating_duration_since(Instant::now());
        let stall = Stall::default();
        let guard =
            Guard::new(&call, rank, FIRST, &Terms { epoch, alarm, limit, spins: 0, stall: &stall, watch: None });
        if size > 1 {
            #[expect(unsafe_code, reason = "calls are addresses")]
            // SAFETY: the id lives here and has the call's length.
            unsafe {
                meeting.execute(&call, FIRST, &guard)?;
            };
        }
        let others = (0..size).filter(|other| *other != rank).collect();
        let connected = Communicator::connect(library, device, id, Seat { rank, size }, others, &guard);
        let collectives = connected.map_err(|error| match error {
            Error::Deadline { milliseconds, .. } => Error::rendezvous(format!(
                "rank {rank}: NCCL has not connected the GPUs of {size} ranks after {:.0} s: can the hosts reach each \
                 other by the interface that NCCL chose? Set NCCL_SOCKET_IFNAME to the right one; NCCL_DEBUG=INFO \
                 shows what it does",
                milliseconds as f64 / 1e3
            )),
            other => other,
        })?;
        let copies = Stream::new(device)?;
        Ok(Self {
            rank,
            members: (0..size).collect(),
            epoch,
            library,
            collectives,
            pairs: Mutex::default(),
            copies,
            meeting,
        })
    }

    fn device(&self) -> &Arc<Device> {
        self.copies.device()
    }

    /// Compares with all others what was called; nobody goes on before all have come. Unequal
    /// pieces of an all-to-all are known in pairs only, and compared so.
    fn meet(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let size = self.members.len();
        if size == 1 {
            return Ok(());
        }
        let guard = guard.step(&self.members);
        let Some(counts) = call.counts.as_ref().filter(|_| call.kind == Kind::AllToAll) else {
            #[expect(unsafe_code, reason = "calls are addresses")]
            // SAFETY: a barrier touches no memory.
            return unsafe { self.meeting.execute(&Call { deadline: call.deadline, ..Call::barrier() }, seq, &guard) };
        };
        let mine: Vec<_> = counts[..size].iter().map(|count| *count as u64).collect();
        let mut theirs = vec![0_u64; size];
        let exchange = Call::new(Kind::AllToAll, DType::I64, mine.as_ptr().cast(), theirs.as_mut_ptr().cast(), 1);
        #[expect(unsafe_code, reason = "calls are addresses")]
        // SAFETY: both lists live here and have an element for each rank.
        unsafe {
            self.meeting.execute(&exchange, seq, &guard)?;
        };
        let agree = (0..size).all(|from| theirs[from] == call.piece_from(from, size) as u64);
        if agree { Ok(()) } else { Err(guard.dispute()) }
    }

    /// # Safety
    /// As for [`Transport::execute`].
    #[expect(unsafe_code, reason = "calls are addresses")]
    unsafe fn collective(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let size = self.members.len();
        let _entered = self.device().enter()?;
        // SAFETY: the caller's promise.
        let staged = unsafe { Staged::new(call, call.extent(self.rank, size), self.collectives.stream())? };
        let steps = steps::plan(call, self.rank, size, staged.send, staged.recv)?;
        // SAFETY: the caller's promise, and what was staged is reached by the GPU.
        unsafe {
            self.collectives.perform(&steps, guard, || self.meet(call, seq, guard))?;
            staged.bring_back()
        }
    }

    /// # Safety
    /// As for [`Transport::execute`].
    #[expect(unsafe_code, reason = "calls are addresses")]
    unsafe fn message(
        &self,
        call: &Call,
        (sender, receiver): (usize, usize),
        seq: u64,
        guard: &Guard<'_>,
    ) -> Result<(), Error> {
        let _entered = self.device().enter()?;
        if call.len * call.dtype.size() <= SHORT {
            // SAFETY: the caller's promise.
            return unsafe { self.short_message(call, seq, guard) };
        }
        let sends = sender == self.rank;
        let pair = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get(&(sender, receiver)).cloned();
        // The first of a pair brings the id; the others only say that they come.
        let mut id =
            if sends && pair.is_none() { self.library.unique_id()? } else { ncclUniqueId { internal: [0; 128] } };
        let announced = id_call(call.kind, &mut id, if pair.is_none() { 128 } else { 0 });
        // SAFETY: the id lives here and has the call's length.
        unsafe { self.meeting.execute(&announced, seq, &guard.step(&self.members))? };
        let pair = match pair {
            Some(pair) => pair,
            None => {
                let (seat, peer) = if sends { (0, receiver) } else { (1, sender) };
                let pair = Communicator::connect(
                    self.library,
                    self.device(),
                    id,
                    Seat { rank: seat, size: 2 },
                    vec![peer],
                    guard,
                )?;
                let pair = Arc::new(pair);
                self.pairs.lock().unwrap_or_else(PoisonError::into_inner).insert((sender, receiver), Arc::clone(&pair));
                pair
            }
        };
        let kind = match call.kind {
            Kind::Send { tag, .. } => Kind::Send { to: 1, tag },
            Kind::Recv { tag, .. } => Kind::Recv { from: 0, tag },
            collective => collective,
        };
        let call = Call { kind, ..call.clone() };
        let (rank, size) = (usize::from(!sends), 2);
        // SAFETY: the caller's promise, and what was staged is reached by the GPU.
        unsafe {
            let staged = Staged::new(&call, call.extent(rank, size), pair.stream())?;
            pair.perform(&steps::plan(&call, rank, size, staged.send, staged.recv)?, guard, || Ok(()))?;
            staged.bring_back()
        }
    }

    /// A message over TCP.
    ///
    /// # Safety
    /// As for [`Transport::execute`].
    #[expect(unsafe_code, reason = "calls are addresses")]
    unsafe fn short_message(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        let bytes = call.len * call.dtype.size();
        let mut held = vec![0_u8; bytes];
        let sends = matches!(call.kind, Kind::Send { .. });
        let on_gpu = |address: *const u8| Ok(bytes > 0 && self.device().place(address)? == Place::Device);
        // SAFETY: the caller's promise; the copy has the same length.
        unsafe {
            if sends && on_gpu(call.send)? {
                self.copies.copy(call.send, held.as_mut_ptr(), bytes)?;
            } else if sends && bytes > 0 {
                held.copy_from_slice(slice::from_raw_parts(call.send, bytes));
            }
            let part = Call::new(call.kind, DType::U8, held.as_ptr(), held.as_mut_ptr(), bytes);
            self.meeting.execute(&part, seq, &guard.step(&self.members))?;
            if !sends && on_gpu(call.recv)? {
                self.copies.copy(held.as_ptr(), call.recv, bytes)?;
            } else if !sends && bytes > 0 {
                call.recv.copy_from_nonoverlapping(held.as_ptr(), bytes);
            }
        }
        Ok(())
    }
}

/// A call that gives or gets an id, or its first bytes.
fn id_call(kind: Kind, id: &mut ncclUniqueId, len: usize) -> Call {
    let address = id.internal.as_mut_ptr().cast::<u8>();
    Call::new(kind, DType::U8, address, address, len)
}

#[expect(unsafe_code, reason = "calls are addresses")]
impl Transport for Nccl {
    unsafe fn execute(&self, call: &Call, seq: u64, guard: &Guard<'_>) -> Result<(), Error> {
        match call.between(self.rank) {
            // SAFETY: the caller's promise.
            Some(pair) => unsafe { self.message(call, pair, seq, guard) },
            // SAFETY: the caller's promise.
            None => unsafe { self.collective(call, seq, guard) },
        }
    }

    /// Messages go to receives in the order in which they were sent.
    fn wire(&self) -> Option<&dyn Wire> {
        None
    }

    fn check(&self, call: &Call) -> Result<(), Error> {
        steps::how(call)?;
        let _entered = self.device().enter()?;
        self.device().place(call.send).and_then(|_| self.device().place(call.recv)).map(drop)
    }

    fn serves_one(&self) -> bool {
        true
    }

    fn alloc(&self, bytes: usize) -> Result<Memory, Error> {
        self.copies.alloc(bytes)
    }

    fn split(&self, members: &[usize], id: u64, guard: &Guard<'_>) -> Result<Arc<dyn Transport>, Error> {
        let end = Instant::now() + self.meeting.patience();
        let meeting = self.meeting.part(members, id, guard.alarm(), end)?;
        Ok(Arc::new(Self::of(meeting, self.device(), self.epoch, guard.alarm(), end)?))
    }

    fn plan(&self) -> String {
        format!(
            "{:?}: NCCL {} ({}), whose algorithms follow from its own tables (NCCL_DEBUG=INFO shows them)\n\
             what the ranks called is compared over TCP at the same time; barriers and messages up to {SHORT} bytes go \
             over TCP alone\n\
             memory of this GPU is used where it is, other memory through a copy on the GPU\n",
            self.device(),
            self.library.version_text(),
            self.library.from()
        )
    }

    fn spins(&self) -> u32 {
        0
    }
}
