//! Which receive gets which message.
//!
//! Receives are posted in the order of their calls, and a message goes to the first that names its
//! tag and its sender or any. What nobody waits for is kept, in the order in which it comes, and
//! given to the first receive that names it. There is no thread for this: whoever waits for a
//! rank's message takes from the wire what comes of that rank, for others too. Bytes go straight to
//! the receive's memory where it was posted before.
//!
//! What is kept is bounded: while there is as much as [`ROOM`] of one sender's, its next message
//! that nobody waits for is left on the wire, with all behind it, until somebody receives it or one
//! that is kept. So a sender that nobody listens to waits, and senders of other tags behind it do;
//! a receive whose time ends meanwhile says so.

#![expect(unsafe_code, reason = "calls are addresses")]

use std::{
    collections::VecDeque,
    fmt::Write as _,
    io::ErrorKind,
    slice,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Call, Error, Kind, Work,
    guard::{Backoff, Guard, Pace},
    timeline::{Since, Track},
    transport::wire::{Label, Wire},
};

/// Bytes of one sender's messages that may be kept before the next one waits on the wire.
pub(super) const ROOM: usize = 64 << 20;
/// What a message that is kept counts beside its bytes.
const ENTRY: usize = 128;
/// Above so many bytes looking again and again would take the cores from those who have work.
const LONG: usize = 1 << 20;

/// One receive, from its call to its end.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) call: Call,
    pub(super) number: u64,
    label: Label,
    then: Option<Then>,
    came: OnceLock<usize>,
    /// The message that was kept for it is of another type or length: its sender and number.
    unfit: OnceLock<(usize, u64)>,
}

/// What is done when the message of a receive that progresses by itself is there.
#[derive(Debug)]
pub(super) struct Then {
    pub(super) work: Work,
    pub(super) track: Track,
    pub(super) since: Since,
    pub(super) epoch: u64,
}

// SAFETY: who posts a slot promises that its memory is the slot's until it is over; whoever holds
// the inlet that fills it, or its own poster, writes it.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    fn from(&self) -> Option<usize> {
        self.call.kind.peer()
    }

    fn wants(&self, from: usize, label: Label) -> bool {
        self.label.tag == label.tag && self.from().is_none_or(|wanted| wanted == from)
    }

    fn finish(&self, from: usize, wire: &dyn Wire) {
        let _ = self.came.set(from);
        if let Some(Then { work, track, since, epoch }) = &self.then {
            track.record(&self.call, self.number, *epoch, *since, wire.way(from), false);
            work.received(from);
        }
    }
}

/// A message that nobody waited for when it began to come.
#[derive(Debug)]
struct Kept {
    id: u64,
    from: usize,
    number: u64,
    label: Label,
    bytes: Vec<u8>,
    is_whole: bool,
    /// A receive was posted before all of it had come.
    claim: Option<Arc<Slot>>,
}

#[derive(Debug, Default)]
struct Matching {
    posted: VecDeque<Arc<Slot>>,
    kept: VecDeque<Kept>,
    /// By sender: what it has in `kept`.
    used: Vec<usize>,
    begun: u64,
}

/// What comes of one sender.
#[derive(Debug, Default)]
struct Inlet {
    /// Messages that have begun.
    count: u64,
    /// One that has no place yet.
    held: Option<Label>,
    current: Option<Current>,
    /// The receive that was being filled is over, with an error.
    is_closed: bool,
}

/// The message that is coming.
#[derive(Debug)]
struct Current {
    target: *mut u8,
    len: usize,
    done: usize,
    whose: Whose,
}

// SAFETY: the target is memory of a slot, or of a message that is kept until it is whole; both are
// reached by who holds the inlet alone.
unsafe impl Send for Current {}

#[derive(Debug)]
enum Whose {
    Slot(Arc<Slot>),
    Kept(u64),
}

/// What a look at a sender's messages came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Moved,
    Nothing,
    /// The next message waits on the wire for room.
    Held,
}

/// The receives and messages of one rank of a group.
#[derive(Debug)]
pub(super) struct Inbox {
    rank: usize,
    room: usize,
    /// By sender.
    inlets: Vec<Mutex<Inlet>>,
    /// Taken within an inlet or by itself, for a moment.
    matching: Mutex<Matching>,
    /// Receives that were called, by sender; the last counts those from any.
    called: Vec<AtomicU64>,
    /// What this rank called where a message did not fit: sender, number, and the call.
    disputed: OnceLock<(usize, u64, String)>,
}

impl Inbox {
    pub(super) fn new(rank: usize, size: usize, room: usize) -> Self {
        Self {
            rank,
            room,
            inlets: (0..size).map(|_| Mutex::default()).collect(),
            matching: Mutex::new(Matching { used: vec![0; size], ..Matching::default() }),
            called: (0..=size).map(|_| AtomicU64::new(0)).collect(),
            disputed: OnceLock::new(),
        }
    }

    /// A receive that was called now.
    pub(super) fn slot(&self, call: &Call, epoch: u64, then: Option<Then>) -> Arc<Slot> {
        let number = self.called[call.kind.peer().unwrap_or(self.inlets.len())].fetch_add(1, Ordering::Relaxed);
        let (came, unfit) = (OnceLock::new(), OnceLock::new());
        Arc::new(Slot { call: call.clone(), number, label: Label::of(call, epoch), then, came, unfit })
    }

    /// What this rank called for the message of that number.
    pub(super) fn recall(&self, sender: usize, number: u64) -> Option<String> {
        self.disputed.get().filter(|(from, of, _)| (*from, *of) == (sender, number)).map(|(_, _, call)| call.clone())
    }

    fn matching(&self) -> MutexGuard<'_, Matching> {
        self.matching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a receive have its message from now on.
    ///
    /// # Safety
    /// As for [`crate::ProcessGroup::run`], until the slot is done or [`Inbox::withdraw`] was
    /// called.
    pub(super) unsafe fn post(&self, slot: &Arc<Slot>, wire: &dyn Wire) {
        let mut matching = self.matching();
        let Some(place) =
            matching.kept.iter().position(|kept| kept.claim.is_none() && slot.wants(kept.from, kept.label))
        else {
            matching.posted.push_back(Arc::clone(slot));
            return;
        };
        let kept = &mut matching.kept[place];
        if kept.label != slot.label {
            let _ = slot.unfit.set((kept.from, kept.number));
        } else if kept.is_whole {
            let kept = matching.remove(place);
            drop(matching);
            // SAFETY: the caller's promise; the label has the length of both.
            unsafe { kept.give(slot, wire) };
        } else {
            kept.claim = Some(Arc::clone(slot));
        }
    }

    /// Takes a receive back: nobody touches its memory any more.
    pub(super) fn withdraw(&self, slot: &Arc<Slot>) {
        let mut matching = self.matching();
        matching.posted.retain(|posted| !Arc::ptr_eq(posted, slot));
        for kept in &mut matching.kept {
            kept.claim.take_if(|claim| Arc::ptr_eq(claim, slot));
        }
        drop(matching);
        for from in self.sources(slot) {
            let mut inlet = self.inlets[from].lock().unwrap_or_else(PoisonError::into_inner);
            if inlet
                .current
                .take_if(|current| matches!(&current.whose, Whose::Slot(of) if Arc::ptr_eq(of, slot)))
                .is_some()
            {
                inlet.is_closed = true;
            }
        }
    }

    fn sources(&self, slot: &Slot) -> Vec<usize> {
        let size = self.inlets.len();
        // Whoever is first has its turn first, so it is another one each time.
        let first = slot.number as usize;
        let any = || (0..size).map(|place| (first + place) % size).filter(|from| *from != self.rank).collect();
        slot.from().map_or_else(any, |from| vec![from])
    }

    /// Waits until a posted receive has its message; whose it was.
    pub(super) fn wait(&self, slot: &Arc<Slot>, wire: &dyn Wire, guard: &Guard<'_>) -> Result<usize, Error> {
        if let Some((from, number)) = slot.unfit.get() {
            return Err(self.dispute(slot, *from, *number, guard));
        }
        if let Some(from) = slot.came.get() {
            return Ok(*from);
        }
        let done = match slot.from() {
            Some(from) => self.pump_until(slot, &[from], wire, guard),
            None => self.pump_until(slot, &self.sources(slot), wire, guard),
        };
        done.map_err(|error| {
            self.withdraw(slot);
            self.with_what_came(error, slot)
        })
    }

    fn pump_until(&self, slot: &Slot, sources: &[usize], wire: &dyn Wire, guard: &Guard<'_>) -> Result<usize, Error> {
        let awake = wire.awake(sources).map(|awake| if slot.label.bytes > LONG { Duration::ZERO } else { awake });
        let fresh = || if awake.is_some() { Backoff::asleep() } else { Backoff::default() };
        let (mut backoff, mut idle_since) = (fresh(), None);
        loop {
            let (mut has_moved, mut is_held) = (false, false);
            for from in sources {
                let progress = self.pump(*from, slot, wire, guard)?;
                has_moved |= progress == Progress::Moved;
                is_held |= progress == Progress::Held;
                if let Some(from) = slot.came.get() {
                    return Ok(*from);
                }
            }
            if has_moved {
                (backoff, idle_since) = (fresh(), None);
                continue;
            }
            if let Some(awake) = awake {
                guard.check()?;
                let now = Instant::now();
                if now.duration_since(*idle_since.get_or_insert(now)) < awake {
                    std::thread::yield_now();
                    continue;
                }
            }
            let missing = || {
                let there: Vec<_> = sources.iter().copied().filter(|from| !guard.alarm().has_left(*from)).collect();
                if there.is_empty() { sources.to_vec() } else { there }
            };
            match guard.turn(&mut backoff, &missing)? {
                // What is left on the wire would wake it at once.
                Pace::Sleep(time) if is_held => std::thread::sleep(time),
                Pace::Sleep(time) => wire.pause(sources, time),
                Pace::Again => {}
            }
        }
    }

    /// Takes what has come of that sender, until `slot` has its message. Another thread may be at
    /// it.
    fn pump(&self, from: usize, slot: &Slot, wire: &dyn Wire, guard: &Guard<'_>) -> Result<Progress, Error> {
        let mut inlet = match self.inlets[from].try_lock() {
            Ok(inlet) => inlet,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(Progress::Nothing),
        };
        let mut progress = Progress::Nothing;
        while !inlet.is_closed && slot.came.get().is_none() {
            let mut current = match inlet.current.take() {
                Some(current) => current,
                None => {
                    let Some(label) = inlet.held.map_or_else(|| wire.next(from, guard), |label| Ok(Some(label)))?
                    else {
                        break;
                    };
                    if inlet.held.is_none() {
                        inlet.held = Some(label);
                        inlet.count += 1;
                    }
                    let Some(current) = self.place(from, inlet.count - 1, label, guard)? else {
                        return Ok(Progress::Held);
                    };
                    inlet.held = None;
                    current
                }
            };
            let left = current.len - current.done;
            if left > 0 {
                // SAFETY: the target has room for the whole message, and is this one's as long as
                // the inlet is held.
                let taken = unsafe { wire.take(from, current.target.add(current.done), left, guard) };
                current.done += *taken.as_ref().unwrap_or(&0);
                if current.done < current.len {
                    inlet.current = Some(current);
                    return taken.map(|taken| if taken > 0 { Progress::Moved } else { progress });
                }
            }
            progress = Progress::Moved;
            self.complete(from, current.whose, wire);
        }
        Ok(progress)
    }

    /// Where a message goes that begins: to the first receive that names it, or among those that
    /// are kept; none if there is no room.
    fn place(&self, from: usize, number: u64, label: Label, guard: &Guard<'_>) -> Result<Option<Current>, Error> {
        let mut matching = self.matching();
        if let Some(place) = matching.posted.iter().position(|slot| slot.wants(from, label)) {
            let slot = matching.posted.remove(place).expect("found above");
            if slot.label != label {
                drop(matching);
                return Err(self.dispute(&slot, from, number, guard));
            }
            return Ok(Some(Current { target: slot.call.recv, len: label.bytes, done: 0, whose: Whose::Slot(slot) }));
        }
        if matching.used[from] >= self.room {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(label.bytes).is_err() {
            return Err(Error::io(
                format!("keep a message of {} bytes until it is received", label.bytes),
                ErrorKind::OutOfMemory.into(),
            ));
        }
        bytes.resize(label.bytes, 0_u8);
        matching.begun += 1;
        let id = matching.begun;
        matching.used[from] += label.bytes + ENTRY;
        let target = bytes.as_mut_ptr();
        matching.kept.push_back(Kept { id, from, number, label, bytes, is_whole: false, claim: None });
        Ok(Some(Current { target, len: label.bytes, done: 0, whose: Whose::Kept(id) }))
    }

    /// All of a message has come.
    fn complete(&self, from: usize, whose: Whose, wire: &dyn Wire) {
        let id = match whose {
            Whose::Slot(slot) => return slot.finish(from, wire),
            Whose::Kept(id) => id,
        };
        let mut matching = self.matching();
        let Some(place) = matching.kept.iter().position(|kept| kept.id == id) else { return };
        matching.kept[place].is_whole = true;
        if let Some(slot) = matching.kept[place].claim.take() {
            let kept = matching.remove(place);
            drop(matching);
            // SAFETY: the slot's memory is its own until it was withdrawn, for which this inlet has
            // to be let go.
            unsafe { kept.give(&slot, wire) };
        }
    }

    /// A message and its receive do not fit.
    #[cold]
    fn dispute(&self, slot: &Slot, from: usize, number: u64, guard: &Guard<'_>) -> Error {
        let _ = self.disputed.set((from, number, slot.call.to_string()));
        guard.dispute_between(number, from, self.rank)
    }

    /// Says at the end of its time what has come instead.
    #[cold]
    fn with_what_came(&self, error: Error, slot: &Slot) -> Error {
        let Error::Deadline { waiting_for, milliseconds, mut at } = error else { return error };
        let matching = self.matching();
        for from in self.sources(slot) {
            let mut tags: Vec<_> = matching
                .kept
                .iter()
                .filter(|kept| kept.from == from && kept.claim.is_none())
                .map(|kept| kept.label.tag)
                .collect();
            tags.sort_unstable();
            tags.dedup();
            if let Some((first, more)) = tags.split_first() {
                let more = if more.is_empty() { String::new() } else { format!(" and {} other tags", more.len()) };
                let full =
                    if matching.used[from] >= self.room { ", as much as is kept: receive these first" } else { "" };
                let _ = write!(
                    at.operation,
                    "; rank {from} has sent messages of tag {first}{more} that nobody receives{full}"
                );
            }
        }
        Error::Deadline { waiting_for, milliseconds, at }
    }
}

impl Matching {
    fn remove(&mut self, place: usize) -> Kept {
        let kept = self.kept.remove(place).expect("a place that was found");
        self.used[kept.from] -= kept.label.bytes + ENTRY;
        kept
    }
}

impl Kept {
    /// # Safety
    /// The slot's memory may be written, and has this message's length.
    unsafe fn give(&self, slot: &Slot, wire: &dyn Wire) {
        if !self.bytes.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { slice::from_raw_parts_mut(slot.call.recv, self.bytes.len()) }.copy_from_slice(&self.bytes);
        }
        slot.finish(self.from, wire);
    }
}

/// Whether this is a receive.
pub(super) const fn receives(kind: Kind) -> bool {
    matches!(kind, Kind::Recv { .. } | Kind::RecvAny { .. })
}

#[cfg(test)]
mod tests;
