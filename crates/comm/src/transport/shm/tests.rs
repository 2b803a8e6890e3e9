//! Operations of all lengths follow each other, so that places in turn, of one and of several
//! steps, come to lie across each other; past the caches and through them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Shm,
    choice::{Choice, candidates},
    connect,
    segment::Segment,
    trial::Patience,
};
use crate::{
    Error, ProcessGroup, ProcessGroupExt, ReduceOp, guard::Alarm, staging::Order, threads::world, transport::Transport,
};

/// Numbers that follow from the seed alone.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What rank `rank` has at `i` in operation `number`.
fn value(rank: usize, number: u64, i: usize) -> i64 {
    (rank as i64 + 1) * 1000 + (number as i64 * 31 + i as i64) % 977
}

fn one_rank(group: &dyn ProcessGroup, seed: u64) {
    let (rank, n) = (group.rank(), group.size());
    let mut state = seed;
    for number in 0..120 {
        // As many short ones as long ones: from an element to three stages.
        let most = 1_u64 << (next(&mut state) % 19);
        let len = (next(&mut state) % most + 1) as usize * n;
        let piece = len / n;
        let own: Vec<i64> = (0..len).map(|i| value(rank, number, i)).collect();
        let sum = |i: usize| (0..n).map(|other| value(other, number, i)).sum::<i64>();
        let mut got = vec![0; len];
        let is_right = match next(&mut state) % 4 {
            0 => {
                group.all_reduce_into(&own, &mut got, ReduceOp::Sum).expect("all come");
                (0..len).all(|i| got[i] == sum(i))
            }
            1 => {
                group.reduce_scatter(&own, &mut got[..piece], ReduceOp::Sum).expect("all come");
                (0..piece).all(|i| got[i] == sum(rank * piece + i))
            }
            2 => {
                group.all_gather(&own[..piece], &mut got).expect("all come");
                (0..len).all(|i| got[i] == value(i / piece, number, i % piece))
            }
            _ => {
                let root = number as usize % n;
                got.copy_from_slice(&own);
                group.broadcast(&mut got, root).expect("all come");
                (0..len).all(|i| got[i] == value(root, number, i))
            }
        };
        assert!(is_right, "seed {seed}: operation {number} of {len} elements on rank {rank} of {n}");
    }
}

fn all_ranks(groups: &[Arc<dyn ProcessGroup>], seed: u64) {
    std::thread::scope(|scope| {
        for group in groups {
            scope.spawn(move || one_rank(&**group, seed));
        }
    });
}

/// As after a slow write.
fn slow(shm: Shm) -> Shm {
    let shm = shm.with_turns();
    shm.writes.found_slow();
    shm
}

#[test]
fn places_in_turn_are_overwritten_by_nobody_too_early() {
    for seed in 0..4 {
        for ranks in [2, 3] {
            let groups = if seed % 2 == 0 {
                world(ranks, |n, epoch| connect(n, epoch, Shm::with_turns))
            } else {
                world(ranks, |n, epoch| connect(n, epoch, slow))
            };
            all_ranks(&groups.expect("shared memory"), seed);
        }
    }
}

/// All ranks' parts, before anything is known of the machine.
fn parts(ranks: usize) -> Vec<Shm> {
    all_parts(ranks, 0)
}

fn all_parts(ranks: usize, epoch: u64) -> Vec<Shm> {
    let made: Vec<_> = (0..ranks).map(|_| Segment::create(64 << 20).expect("memory")).collect();
    let map = |segment: &Segment| {
        Arc::new(Segment::map(segment.file().try_clone_to_owned().expect("a descriptor")).expect("memory"))
    };
    (0..ranks).map(|rank| Shm::new(rank, made.iter().map(map).collect(), epoch).expect("room")).collect()
}

fn patience(alarm: &Alarm) -> Patience<'_> {
    Patience { alarm, limit: Duration::from_secs(60) }
}

fn calibrated(shm: Shm, order: Order) -> Shm {
    shm.calibrated(order, patience(&Alarm::default()), &|_| Ok(())).expect("all come")
}

#[test]
fn all_ranks_know_what_rank_0_measured() {
    for ranks in [2, 3, 5] {
        let machines: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> =
                parts(ranks).into_iter().map(|shm| scope.spawn(move || calibrated(shm, Order::Auto).machine)).collect();
            started.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        });
        assert!(machines.iter().all(|machine| *machine == machines[0]), "{machines:?}");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(machines[0].cores == cores && machines[0].link.bandwidth > 0.0, "{machines:?}");
        assert!(machines[0].link.latency <= 2e-6, "nothing that only waiting for a core explains: {machines:?}");
    }
}

#[test]
fn nobody_measures_for_ever_with_a_rank_that_does_not_come() {
    for missing in [0, 1, 2] {
        // Who waits for one that has given up is told, too, but not who waits for one that has only
        // not begun.
        let gave_up = AtomicBool::new(false);
        let told = |rank: usize| match rank == missing || gave_up.load(Ordering::Acquire) {
            true => {
                gave_up.store(true, Ordering::Release);
                Err(Error::Config { problem: format!("rank {rank} does not come") })
            }
            false => Ok(()),
        };
        let errors: Vec<_> = std::thread::scope(|scope| {
            let come = parts(3).into_iter().enumerate().filter(|(rank, _)| *rank != missing);
            let started: Vec<_> = come
                .map(|(_, shm)| {
                    scope.spawn(move || shm.calibrated(Order::Auto, patience(&Alarm::default()), &told).map(|_| ()))
                })
                .collect();
            started.into_iter().filter_map(|rank| rank.join().expect("no panic").err()).collect()
        });
        assert!(errors.iter().any(|error| error.to_string().contains(&format!("rank {missing} does"))), "{errors:?}");
    }
}

#[test]
fn all_ranks_choose_what_the_trial_found() {
    // A trial is for ranks with a core each; an order of rank 0's is everybody's.
    let fixed = Order::parse("stage=4096,room=65536,writes=past,large=past").expect("good");
    for (order, others) in [(Order::Measured, Order::Auto), (fixed, Order::Measured)] {
        let made = parts(2).into_iter().enumerate();
        let orders = made.map(|(rank, shm)| (shm, if rank == 0 { order } else { others }));
        let chosen: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = orders.map(|(shm, order)| scope.spawn(move || calibrated(shm, order))).collect();
            started
                .into_iter()
                .map(|rank| rank.join().expect("no panic"))
                .map(|shm| (shm.choice, shm.tried, shm.tuning.turns))
                .collect()
        });
        assert_eq!(chosen[0], chosen[1], "{order:?}");
        let (choice, tried, has_cores) = chosen[0];
        match order {
            Order::Measured => {
                assert_eq!(tried > 0, has_cores);
                let all = candidates(super::processor::processor().second);
                assert!(all.contains(&choice.short) && all.contains(&choice.long), "{choice:?}");
            }
            _ => assert_eq!((choice, tried), (Choice::begin(order, super::processor::processor()).0, 0)),
        }
    }
}

/// As if each candidate had been found, in groups one after the other; and a group that goes on
/// after a trial.
#[test]
fn every_choice_gives_the_same_results() {
    for (ranks, seed) in [(2, 5), (3, 6)] {
        for connect in [
            |n, epoch| in_turns(n, epoch, "stage=4096,room=0,writes=cached"),
            |n, epoch| in_turns(n, epoch, "stage=131072,room=2097152,writes=past,large=past"),
            |n, epoch| in_turns(n, epoch, "stage=1048576,room=300000"),
            |n, epoch| in_turns(n, epoch, "measured"),
        ] {
            all_ranks(&world(ranks, connect).expect("shared memory"), seed);
        }
    }
}

/// All ranks' parts as that order has them, on a machine with a core for each.
fn in_turns(ranks: usize, epoch: u64, order: &str) -> Result<Vec<Arc<dyn Transport>>, Error> {
    let order = Order::parse(order).expect("good");
    Ok(std::thread::scope(|scope| {
        let started: Vec<_> = all_parts(ranks, epoch)
            .into_iter()
            .map(|shm| scope.spawn(move || calibrated(shm, order).with_turns()))
            .collect();
        started.into_iter().map(|rank| Arc::new(rank.join().expect("no panic")) as Arc<dyn Transport>).collect()
    }))
}
