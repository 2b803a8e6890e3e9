//! One rank's part of what a group of ranks shares: its flags, and memory through which others read
//! what it gives.
//!
//! Only the owner writes it. Layout, in bytes from its start (all in lines of 128 bytes, because
//! processors fetch lines in pairs):

#![expect(unsafe_code, reason = "the parts are reached by offsets in mapped memory")]

use std::sync::atomic::AtomicU8;

use super::flag::Flag;
use crate::staging::STAGE;

const LINE: usize = 128;
/// Two lines, taken in turns: come to an operation, with what it gives (at most [`INLINE`] bytes)
/// or where its memory is.
const ARRIVAL: usize = 0;
/// Done with an operation, or with steps of it.
const DONE: usize = 2 * LINE;
/// Steps given to the stage.
const STAGED: usize = 3 * LINE;
/// Steps whose results are in the results.
const REDUCED: usize = 4 * LINE;
/// Two places for groups that are split off: number, where the control is.
const SPLITS: usize = 5 * LINE;
/// A byte of each rank: it has left the group, and reaches into this control no more. Written by
/// that rank, unlike all else.
const LEFT: usize = 7 * LINE;
/// Steps of the measurement when the group is made.
const PROBE: usize = 3072;
/// What rank 0 measured.
const TOLD: usize = PROBE + LINE;
/// The cores that this rank may use.
const CORES: usize = TOLD + LINE;
const SLOTS: usize = 4096;
/// The most ranks that a group of one host can have.
pub(super) const MOST_RANKS: usize = 2048;
const _: () = assert!(LEFT + MOST_RANKS <= PROBE && CORES + LINE <= SLOTS && MOST_RANKS * size_of::<u64>() <= SLOT);
const STAGES: usize = SLOTS + 2 * TURNS;
const RESULTS: usize = STAGES + 4 * STAGE;
const MAILBOXES: usize = RESULTS + 2 * STAGE;
/// Less stays at one of two places, whose lines are at hand.
const IN_TURNS: usize = 4 << 10;
/// All stages.
pub(super) const ROUND: usize = 4 * STAGE;
/// What the slots of every other operation have together. Places are taken in turns: a line that
/// others have read long ago is written faster than one that they have read just now.
const TURNS: usize = 512 << 10;

/// What rank 0 says of the machine, and what follows.
pub(super) type Told = [u64; 10];

/// Words of bits for cores, of which there are at most 960.
pub(super) const CORE_WORDS: usize = LINE / 8 - 1;

/// What travels in the flag's own line.
pub(super) const INLINE: usize = 56;
/// What a slot holds at most; an operation that gives no more is done in one step.
pub(super) const SLOT: usize = 16 << 10;
/// Parts of a message that can be under way to one receiver.
pub(super) const PARCELS: usize = 4;
/// What a part holds.
pub(super) const PARCEL: usize = 32 << 10;
const MAILBOX: usize = 2 * LINE + PARCELS * (LINE + PARCEL);

/// The bytes of a rank's control in a group of `n`.
pub(super) const fn bytes(n: usize) -> usize {
    MAILBOXES + n * MAILBOX
}

/// Whole lines.
const fn lines(bytes: usize) -> usize {
    bytes.next_multiple_of(LINE)
}

/// One rank's control, mapped here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Control {
    address: *mut u8,
    /// Slots are taken in turns; the same on all ranks.
    turns: bool,
}

// SAFETY: the mapping lives as long as the transport, and what is reached through it are atomics,
// or memory that flags guard.
unsafe impl Send for Control {}
// SAFETY: as above.
unsafe impl Sync for Control {}

impl Control {
    /// # Safety
    /// `bytes(n)` bytes at `address`, aligned to 128 and at first zero, stay mapped as long as this
    /// is used.
    pub(super) const unsafe fn new(address: *mut u8) -> Self {
        Self { address, turns: false }
    }

    /// Whether slots are taken in turns.
    pub(super) const fn with_turns(self, turns: bool) -> Self {
        Self { turns, ..self }
    }

    /// The flag at an offset.
    #[inline]
    fn flag(&self, offset: usize) -> &Flag {
        // SAFETY: within the mapping and aligned; an atomic may be reached by anybody.
        unsafe { &*self.address.add(offset).cast::<Flag>() }
    }

    #[inline]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: every offset below is within the mapping.
        unsafe { self.address.add(offset) }
    }

    #[inline]
    pub(super) fn arrival(&self, seq: u64) -> &Flag {
        self.flag(ARRIVAL + (seq & 1) as usize * LINE)
    }

    /// What comes with the arrival: [`INLINE`] bytes.
    #[inline]
    pub(super) fn inline(&self, seq: u64) -> *mut u8 {
        self.at(ARRIVAL + (seq & 1) as usize * LINE + 8)
    }

    /// Steps of the measurement that this rank has done.
    pub(super) fn probe(&self) -> &Flag {
        self.flag(PROBE)
    }

    /// What rank 0 has measured: whether it is there, and where.
    pub(super) fn told(&self) -> (&Flag, *mut Told) {
        (self.flag(TOLD), self.at(TOLD + 8).cast())
    }

    /// The cores that this rank may use, a bit for each: whether they are there, and where.
    pub(super) fn cores(&self) -> (&Flag, *mut [u64; CORE_WORDS]) {
        (self.flag(CORES), self.at(CORES + 8).cast())
    }

    pub(super) fn done(&self) -> &Flag {
        self.flag(DONE)
    }

    pub(super) fn staged(&self) -> &Flag {
        self.flag(STAGED)
    }

    pub(super) fn reduced(&self) -> &Flag {
        self.flag(REDUCED)
    }

    /// The place of a group that is split off: a flag that has arrived when the offset beside it
    /// counts.
    pub(super) fn split(&self, id: u64) -> (&Flag, *mut u64) {
        let offset = SPLITS + (id & 1) as usize * LINE;
        (self.flag(offset), self.at(offset + 8).cast())
    }

    /// Whether rank `rank` has left.
    pub(super) fn left(&self, rank: usize) -> &AtomicU8 {
        // SAFETY: within the mapping; an atomic may be reached by anybody.
        unsafe { &*self.address.add(LEFT + rank).cast::<AtomicU8>() }
    }

    /// The place of so many bytes among those of a room.
    #[inline]
    const fn turn(number: u64, bytes: usize, room: usize) -> usize {
        let each = if bytes == 0 { LINE } else { lines(bytes) };
        let places = room / each;
        if places > 1 { number as usize % places * each } else { 0 }
    }

    /// Where operation `seq` gives so many bytes, at most [`SLOT`]: not where the operation before
    /// did, which others may still read.
    #[inline]
    pub(super) fn slot(&self, seq: u64, bytes: usize) -> *mut u8 {
        let room = if bytes < IN_TURNS || !self.turns { 0 } else { TURNS };
        self.at(SLOTS + (seq & 1) as usize * TURNS + Self::turn(seq >> 1, bytes, room))
    }

    /// Where step `k` of operation `seq` is given, if a step has so many bytes, at most [`STAGE`],
    /// and there are others: neither the step before nor the operation before is overwritten.
    /// Places are taken in turns in `room` bytes, at most two stages; each operation may have its
    /// own.
    pub(super) fn stage(&self, seq: u64, k: usize, bytes: usize, others: bool, room: usize) -> *mut u8 {
        let each = if others { 2 * lines(bytes) } else { bytes };
        self.at(STAGES + (seq & 1) as usize * 2 * STAGE + Self::turn(seq >> 1, each, room) + (k & 1) * lines(bytes))
    }

    /// Where the result of step `k` is, likewise. All have left the operation before when the first
    /// is given.
    pub(super) fn result(&self, seq: u64, k: usize, bytes: usize, others: bool, room: usize) -> *mut u8 {
        let each = if others { 2 * lines(bytes) } else { bytes };
        self.at(RESULTS + Self::turn(seq, each, room) + (k & 1) * lines(bytes))
    }

    /// How many parts this rank has sent to rank `to`.
    pub(super) fn sent(&self, to: usize) -> &Flag {
        self.flag(MAILBOXES + to * MAILBOX)
    }

    /// How many parts this rank has taken from rank `from`.
    pub(super) fn taken(&self, from: usize) -> &Flag {
        self.flag(MAILBOXES + from * MAILBOX + LINE)
    }

    /// A part on its way to rank `to`: what it says of itself, and its bytes.
    pub(super) fn parcel(&self, to: usize, number: u64) -> (*mut [u64; 2], *mut u8) {
        let offset = MAILBOXES + to * MAILBOX + 2 * LINE + (number as usize % PARCELS) * (LINE + PARCEL);
        (self.at(offset).cast(), self.at(offset + LINE))
    }
}
