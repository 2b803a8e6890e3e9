//! The flags of shared memory in a model: every order in which two ranks can go on, and everything
//! that they may then see.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p shoal-comm --test loom`; a part of
//! `cargo xtask ci`. Memory that flags guard is a cell that loom watches: that two ranks reach it
//! at the same time, or that one reads what it need not see, is an error. The models go as `flat`,
//! `staged` and `messages` do.

#![cfg(loom)]

use loom::{cell::UnsafeCell, sync::Arc, thread};

#[path = "../src/transport/shm/flag.rs"]
mod flag;

use flag::Flag;

const SIGNATURE: u64 = 0x1234_5678_9abc_def0;

/// What one rank writes and the other reads.
struct Control {
    arrival: [Flag; 2],
    done: Flag,
    staged: Flag,
    taken: Flag,
    memory: [UnsafeCell<u64>; 2],
}

impl Control {
    fn new() -> Self {
        let cell = || UnsafeCell::new(u64::MAX);
        Self {
            arrival: [Flag::new(), Flag::new()],
            done: Flag::new(),
            staged: Flag::new(),
            taken: Flag::new(),
            memory: [cell(), cell()],
        }
    }

    #[expect(unsafe_code, reason = "loom watches the access")]
    fn write(&self, place: u64, value: u64) {
        // SAFETY: whether this is the only access is what the model checks.
        self.memory[place as usize & 1].with_mut(|cell| unsafe { *cell = value });
    }

    #[expect(unsafe_code, reason = "loom watches the access")]
    fn read(&self, place: u64) -> u64 {
        // SAFETY: whether nobody writes is what the model checks.
        self.memory[place as usize & 1].with(|cell| unsafe { *cell })
    }
}

fn wait(mut ready: impl FnMut() -> bool) {
    while !ready() {
        thread::yield_now();
    }
}

/// Both ranks in a model, each with its own control and the other's.
fn both(part: fn(rank: u64, own: &Control, other: &Control)) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let controls = Arc::new([Control::new(), Control::new()]);
        let of_thread = Arc::clone(&controls);
        let thread = thread::spawn(move || part(1, &of_thread[1], &of_thread[0]));
        part(0, &controls[0], &controls[1]);
        thread.join().expect("no panic");
    });
}

/// Short operations: two slots taken in turns are enough, though nobody says that it has read.
#[test]
fn slots_in_turns() {
    both(|rank, own, other| {
        for seq in 0..3 {
            own.write(seq, 10 * seq + rank);
            own.arrival[seq as usize & 1].arrive(seq, SIGNATURE);
            wait(|| other.arrival[seq as usize & 1].has_arrived(seq, SIGNATURE) == Some(true));
            assert_eq!(other.read(seq), 10 * seq + 1 - rank);
        }
    });
}

/// Long operations on registered memory: both come, each writes its share of the other's memory,
/// and both are done before either reads.
#[test]
fn shares_and_done() {
    both(|rank, own, other| {
        for seq in 0..2 {
            // Both places are this rank's memory: one for each rank's share.
            own.arrival[seq as usize & 1].arrive(seq, SIGNATURE);
            wait(|| other.arrival[seq as usize & 1].has_arrived(seq, SIGNATURE).is_some());
            own.write(rank, seq);
            other.write(rank, seq);
            own.done.advance(seq, 0);
            wait(|| other.done.has_done(seq, 0));
            assert_eq!((own.read(0), own.read(1)), (seq, seq));
        }
    });
}

/// Steps through two stages: a stage is given again only after all are done with the step that was
/// in it.
#[test]
fn stages_in_turns() {
    both(|rank, own, other| {
        let count = 3;
        let give = |k: u64| {
            own.write(k, 10 * k + rank);
            own.staged.advance(0, k as usize + 1);
        };
        give(0);
        for k in 0..count {
            if k + 1 < count {
                if k > 0 {
                    wait(|| other.done.has_done(0, k as usize));
                }
                give(k + 1);
            }
            wait(|| other.staged.has_done(0, k as usize + 1));
            assert_eq!(other.read(k), 10 * k + 1 - rank);
            own.done.advance(0, k as usize + 1);
        }
    });
}

/// A mailbox of two parcels: the sender fills one again only when it was taken.
#[test]
fn parcels_in_turns() {
    both(|rank, own, other| {
        for number in 0..4_u64 {
            if rank == 0 {
                wait(|| number < 2 || other.taken.has_done(number - 2, 1));
                own.write(number, number);
                own.staged.advance(number, 1);
            } else {
                wait(|| other.staged.has_done(number, 1));
                assert_eq!(other.read(number), number);
                own.taken.advance(number, 1);
            }
        }
    });
}

/// The model sees what would be wrong: one slot instead of two.
#[test]
#[should_panic(expected = "Causality violation")]
fn one_slot_is_not_enough() {
    both(|rank, own, other| {
        for seq in 0..3 {
            own.write(0, rank);
            own.arrival[seq as usize & 1].arrive(seq, SIGNATURE);
            wait(|| other.arrival[seq as usize & 1].has_arrived(seq, SIGNATURE).is_some());
            other.read(0);
        }
    });
}
