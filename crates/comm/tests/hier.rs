//! Ranks of several hosts with several ranks each, against the conformance suite. Hosts are names
//! that the ranks are told; the ranks of one share memory, and speak TCP with the others.

use std::sync::Arc;
use std::time::Duration;

use shoal_comm::{ProcessGroup, ProcessGroupExt, ReduceOp, conformance};

/// Rank r is on host `hosts[r]`.
fn world(hosts: &[usize]) -> Vec<Arc<dyn ProcessGroup>> {
    // A heartbeat that no loaded machine misses: these tests are about other failures.
    conformance::joined(hosts.len(), &|rank, config| {
        config.heartbeat(Duration::from_secs(60)).host(format!("host {}", hosts[rank])).address([127, 0, 0, 1].into())
    })
}

fn results(hosts: &[usize]) {
    let make = |_| world(hosts);
    assert!(make(0)[0].plan().contains("shared memory within, TCP across"), "{}", make(0)[0].plan());
    conformance::results_in_fixed_order(&make, hosts.len());
}

#[test]
fn two_hosts_with_two_ranks() {
    results(&[0, 0, 1, 1]);
}

#[test]
fn three_ranks_and_one() {
    results(&[0, 0, 0, 1]);
}

#[test]
fn one_rank_and_three() {
    results(&[0, 1, 1, 1]);
}

#[test]
fn three_hosts_with_two_ranks() {
    results(&[0, 0, 1, 1, 2, 2]);
}

#[test]
fn two_hosts_with_four_ranks() {
    results(&[0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn hosts_whose_ranks_do_not_follow_each_other() {
    results(&[0, 1, 0, 1, 1]);
}

#[test]
fn long_vectors() {
    conformance::long(&|_| world(&[0, 0, 1, 1]), 4);
    conformance::long(&|_| world(&[0, 1, 0, 0]), 4);
}

#[test]
fn order() {
    conformance::order(&|size| world(&[0, 0, 1, 1][..size]));
    conformance::order(&|size| world(&[0, 1, 1, 0][..size]));
}

#[test]
fn messages() {
    conformance::messages(&|size| world(&[0, 0, 1, 1][..size]));
    conformance::messages(&|size| world(&[0, 1, 1, 0][..size]));
}

#[test]
fn failures() {
    conformance::failures(&|size| world(&[0, 0, 1, 1][..size]));
    conformance::failures(&|size| world(&[0, 1, 0, 1][..size]));
}

/// Values of which every order of adding gives other bits: groups of the same shape give the same,
/// groups of another shape may not.
#[test]
fn the_order_follows_from_the_shape() {
    let sum = |hosts: &[usize]| {
        let ranks: Vec<_> = world(hosts)
            .into_iter()
            .map(|group| {
                std::thread::spawn(move || {
                    let mut vector: Vec<_> =
                        (0..30_000).map(|i| ((i * 7 + group.rank() * 13) as f32).sin().exp2()).collect();
                    group.all_reduce(&mut vector, ReduceOp::Sum).expect("all are there");
                    vector.into_iter().map(f32::to_bits).collect::<Vec<_>>()
                })
            })
            .collect();
        let results: Vec<_> = ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        assert!(results.iter().all(|result| *result == results[0]), "all ranks have the same bits");
        results[0].clone()
    };
    assert_eq!(sum(&[0, 0, 1, 1]), sum(&[5, 5, 3, 3]));
    assert_ne!(sum(&[0, 0, 1, 1]), sum(&[0, 1, 2, 3]), "pairs first is another order than that of the ranks");
}
