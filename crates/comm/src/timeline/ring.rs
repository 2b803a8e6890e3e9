//! The last operations of one thread. One thread writes, without locks; another may read at any
//! time.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::{Event, Way, op_code};
use crate::{DType, Kind, ReduceOp};

/// Events that are kept, and the one that is being written.
const CAPACITY: usize = 1 << 14;
/// Words of an event: a cache line.
const WORDS: usize = 8;

/// The last operations of one thread.
#[derive(Debug)]
pub(super) struct Ring {
    /// Events ever written.
    count: AtomicU64,
    slots: Box<[[AtomicU64; WORDS]]>,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self { count: AtomicU64::new(0), slots: (0..CAPACITY).map(|_| Default::default()).collect() }
    }

    /// Keeps an event in place of the oldest. Only one thread at a time does this.
    #[inline]
    pub(super) fn push(&self, event: &Event) {
        let count = self.count.load(Ordering::Relaxed);
        // Whoever sees a word of this event also sees the count of those before, and so that the
        // slot is being overwritten.
        fence(Ordering::Release);
        let slot = &self.slots[count as usize % CAPACITY];
        for (word, value) in slot.iter().zip(pack(event)) {
            word.store(value, Ordering::Relaxed);
        }
        self.count.store(count + 1, Ordering::Release);
    }

    /// The events that are kept, oldest first, and how many are not any more.
    pub(super) fn events(&self) -> (Vec<Event>, u64) {
        let before = self.count.load(Ordering::Acquire);
        let oldest = before.saturating_sub(CAPACITY as u64);
        let words: Vec<_> = (oldest..before)
            .map(|number| std::array::from_fn(|i| self.slots[number as usize % CAPACITY][i].load(Ordering::Relaxed)))
            .collect();
        fence(Ordering::Acquire);
        // The event that is being written now, which is not counted yet, overwrites one more.
        let after = self.count.load(Ordering::Relaxed);
        let lost = (after + 1).saturating_sub(CAPACITY as u64).min(before);
        (words[(lost - oldest) as usize..].iter().map(unpack).collect(), lost)
    }
}

/// An event as words: times, number, bytes, epoch, the kind with its rank and tag, the rest.
#[inline]
fn pack(event: &Event) -> [u64; WORDS] {
    let Event { called, begun, ended, number, epoch, bytes, kind, dtype, way, failed, group } = *event;
    let (code, rank, tag) = match kind {
        Kind::AllReduce(_) => (0, 0, 0),
        Kind::Reduce { root, .. } => (1, root, 0),
        Kind::ReduceScatter(_) => (2, 0, 0),
        Kind::AllGather => (3, 0, 0),
        Kind::Broadcast { root } => (4, root, 0),
        Kind::Gather { root } => (5, root, 0),
        Kind::Scatter { root } => (6, root, 0),
        Kind::AllToAll => (7, 0, 0),
        Kind::Send { to, tag } => (8, to, tag),
        Kind::Recv { from, tag } => (9, from, tag),
        Kind::RecvAny { tag } => (11, 0, tag),
        Kind::Barrier => (10, 0, 0),
    };
    let rest = code
        | op_code(kind.op()) << 4
        | (dtype as u64) << 8
        | (way as u64) << 16
        | u64::from(failed) << 24
        | u64::from(group) << 32;
    [called, begun, ended, number, bytes, epoch, rank as u64 | u64::from(tag) << 32, rest]
}

fn unpack(words: &[u64; WORDS]) -> Event {
    let [called, begun, ended, number, bytes, epoch, with, rest] = *words;
    let (rank, tag) = (with as u32 as usize, (with >> 32) as u32);
    let byte = |shift: u32| (rest >> shift) as u8 as usize;
    // Every event that is read was written whole by `pack`.
    let op = ReduceOp::ALL.get((byte(0) >> 4).wrapping_sub(1)).copied().unwrap_or(ReduceOp::Sum);
    let kind = match rest & 0xf {
        0 => Kind::AllReduce(op),
        1 => Kind::Reduce { op, root: rank },
        2 => Kind::ReduceScatter(op),
        3 => Kind::AllGather,
        4 => Kind::Broadcast { root: rank },
        5 => Kind::Gather { root: rank },
        6 => Kind::Scatter { root: rank },
        7 => Kind::AllToAll,
        8 => Kind::Send { to: rank, tag },
        9 => Kind::Recv { from: rank, tag },
        11 => Kind::RecvAny { tag },
        _ => Kind::Barrier,
    };
    let dtype = DType::ALL.into_iter().find(|dtype| *dtype as usize == byte(8)).unwrap_or(DType::U8);
    let way = Way::ALL.get(byte(16)).copied().unwrap_or_default();
    Event {
        called,
        begun,
        ended,
        number,
        epoch,
        bytes,
        kind,
        dtype,
        way,
        failed: byte(24) == 1,
        group: (rest >> 32) as u32,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn event(number: u64) -> Event {
        let kinds = [
            Kind::AllReduce(ReduceOp::Max),
            Kind::Reduce { op: ReduceOp::Product, root: 3 },
            Kind::ReduceScatter(ReduceOp::Sum),
            Kind::AllGather,
            Kind::Broadcast { root: 70_000 },
            Kind::Gather { root: 1 },
            Kind::Scatter { root: 2 },
            Kind::AllToAll,
            Kind::Send { to: 5, tag: u32::MAX },
            Kind::Recv { from: 6, tag: 0 },
            Kind::RecvAny { tag: 7 },
            Kind::Barrier,
        ];
        Event {
            called: number,
            begun: number + 1,
            ended: number + 2,
            number: !number,
            epoch: number >> 1,
            bytes: number << 20,
            kind: kinds[number as usize % kinds.len()],
            dtype: DType::ALL[number as usize % 10],
            way: Way::ALL[number as usize % Way::ALL.len()],
            failed: number % 3 == 1,
            group: number as u32 * 7,
        }
    }

    #[test]
    fn the_last_events_come_back_whole() {
        let ring = Ring::new();
        assert_eq!(ring.events(), (Vec::new(), 0));
        let total = CAPACITY as u64 + 100;
        (0..total).for_each(|number| ring.push(&event(number)));
        let (events, lost) = ring.events();
        assert_eq!((events.len(), lost), (CAPACITY - 1, 101));
        assert!(events.iter().zip(101..).all(|(got, number)| *got == event(number)));
    }

    #[test]
    fn a_reader_sees_whole_events_while_another_thread_writes() {
        let (ring, done) = (Ring::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..8 * CAPACITY as u64).for_each(|number| ring.push(&event(number)));
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let (events, lost) = ring.events();
                for (got, number) in events.iter().zip(lost..) {
                    assert_eq!(*got, event(number), "event {number}, {lost} lost");
                }
            }
        });
    }
}
