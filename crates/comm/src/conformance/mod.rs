//! The suite that every transport passes, against a naive reference.
//!
//! A transport gives a way to make a world: `n` groups, rank r's at index r. Each rank is then
//! played by a thread of this process, which for a transport between processes means that every
//! rank maps and connects by itself.

#![allow(clippy::unwrap_used, reason = "a suite panics where something does not hold")]

mod cases;
mod failures;
mod flight;
mod messages;
mod reference;

use std::{sync::Arc, thread};

use self::cases::Wanted;
use crate::{
    DType, Kind, ProcessGroup,
    rendezvous::{Config, LocalStore, Meeting},
};

/// Makes a world of so many ranks, one group for each.
pub type MakeWorld<'a> = &'a dyn Fn(usize) -> Vec<Arc<dyn ProcessGroup>>;

/// A world of ranks that meet as processes do, each a thread of this process; `change` sets what
/// rank's configuration needs for the transport.
///
/// # Panics
/// A rank cannot join.
pub fn joined(size: usize, change: &(dyn Fn(usize, Config) -> Config + Sync)) -> Vec<Arc<dyn ProcessGroup>> {
    let store = Arc::new(LocalStore::default());
    thread::scope(|scope| {
        let join = |rank| {
            let config = change(rank, Config::new(rank, size, Meeting::Store(Arc::clone(&store) as Arc<_>)));
            scope.spawn(|| crate::join(config).expect("all come"))
        };
        let ranks: Vec<_> = (0..size).map(join).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

/// Everything that must hold whatever the medium, for worlds of 1 to 8 ranks.
///
/// # Panics
/// Where the transport does not conform; the message says which operation.
pub fn check(make: MakeWorld<'_>) {
    for size in 1..=8 {
        results(make, size);
    }
    order(make);
    messages(make);
    failures(make);
}

/// All operations, types, lengths and kinds of memory in a world of `size` ranks, compared with the
/// reference.
///
/// # Panics
/// Where a result is not the reference's, bit for bit.
pub fn results(make: MakeWorld<'_>, size: usize) {
    let cases = cases::all(size);
    play(make(size), |group| cases.iter().for_each(|case| case.check(group, Wanted::Exact)));
}

/// The same for a transport that reduces in a fixed order of its own: floating results are as near
/// to the reference's as another order allows, and have the same bits on all ranks and in a second
/// world.
///
/// # Panics
/// Where a result is not so.
pub fn results_in_fixed_order(make: MakeWorld<'_>, size: usize) {
    let cases = cases::all(size);
    for _ in 0..2 {
        play(make(size), |group| cases.iter().for_each(|case| case.check(group, Wanted::Near)));
    }
}

/// The same for a transport that does not have every operation of every type: those that `has`
/// says, by kind and type of elements.
///
/// # Panics
/// Where a result is not so.
pub fn results_of(make: MakeWorld<'_>, size: usize, has: &(dyn Fn(Kind, DType) -> bool + Sync)) {
    let cases: Vec<_> = cases::all(size).into_iter().filter(|case| case.is_among(has)).collect();
    for _ in 0..2 {
        play(make(size), |group| cases.iter().for_each(|case| case.check(group, Wanted::Near)));
    }
}

/// Vectors of several MiB in a world of `size` ranks, twice: as [`results_in_fixed_order`].
///
/// # Panics
/// Where a result is not so.
pub fn long(make: MakeWorld<'_>, size: usize) {
    let cases = cases::long(size);
    for _ in 0..2 {
        play(make(size), |group| cases.iter().for_each(|case| case.check(group, Wanted::Near)));
    }
}

/// Several operations in flight, asynchronous ones among blocking ones, messages crossing each
/// other, groups that are split off.
///
/// # Panics
/// Where an operation has another's result, or none.
pub fn order(make: MakeWorld<'_>) {
    [1, 2, 4].into_iter().for_each(|size| order_in(make, size));
}

/// The same for a world of `size` ranks.
///
/// # Panics
/// As for [`order`].
pub fn order_in(make: MakeWorld<'_>, size: usize) {
    play(make(size), flight::many_in_flight);
    play(make(size), flight::crossing_messages);
    play(make(size), flight::parts_of_the_group);
}

/// Receives that choose by tag and take from any rank: in every order, short and long, while others
/// wait; and what they say when nothing fits.
///
/// # Panics
/// Where a receive gets another message than the oldest that it names, or waits for one that it
/// does not.
pub fn messages(make: MakeWorld<'_>) {
    for size in [2, 4] {
        play(make(size), messages::tags_choose);
        play(make(size), messages::others_wait);
        play(make(size), messages::from_any);
    }
    messages::lengths_differ(make);
    messages::nothing_fits(make);
    messages::senders_leave(make);
}

/// Ranks that call different things, do not come, or are gone: errors that say so, and a group
/// re-formed without them.
///
/// # Panics
/// Where a rank hangs, or gets an error that does not name who and what.
pub fn failures(make: MakeWorld<'_>) {
    failures::different_calls(make);
    failures::nobody_comes(make);
    failures::gone(make);
    failures::bad_calls(make);
}

/// Each rank in a thread; none is gone before all are done.
fn play(world: Vec<Arc<dyn ProcessGroup>>, part: impl Fn(&dyn ProcessGroup) + Sync) {
    let kept = world.clone();
    play_and_leave(world, part);
    drop(kept);
}

/// Each rank in a thread; one that is done is gone.
fn play_and_leave(world: Vec<Arc<dyn ProcessGroup>>, part: impl Fn(&dyn ProcessGroup) + Sync) {
    let part = &part;
    thread::scope(|scope| {
        let threads: Vec<_> = world.into_iter().map(|group| scope.spawn(move || part(&*group))).collect();
        let panics: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().err()).collect();
        // The first to panic is the reason; the others lost a peer.
        if let Some(panic) = panics.into_iter().next() {
            std::panic::resume_unwind(panic);
        }
    });
}
