//! Ranks that share memory, each with mappings of its own, against the conformance suite.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;

use shoal_comm::{ProcessGroup, conformance, shared_memory};

fn world(size: usize) -> Vec<Arc<dyn ProcessGroup>> {
    shared_memory(size).unwrap()
}

#[test]
fn results() {
    for size in 1..=8 {
        conformance::results(&world, size);
    }
}

#[test]
fn long_vectors() {
    for size in [2, 3, 5] {
        conformance::long(&world, size);
    }
}

#[test]
fn order() {
    conformance::order(&world);
}

#[test]
fn failures() {
    conformance::failures(&world);
}

/// The same as processes come to it: they meet, shake hands and hand each other descriptors.
fn joined(size: usize) -> Vec<Arc<dyn ProcessGroup>> {
    let groups = conformance::joined(size, &|_, config| config);
    let plan = groups[0].plan();
    assert!(plan.contains("shared memory") && plan.contains("from rank to rank") || size == 1, "{plan}");
    assert!(groups.iter().all(|group| group.plan().lines().skip(1).eq(plan.lines().skip(1))), "all ranks choose alike");
    groups
}

#[test]
fn ranks_that_met_share_memory() {
    conformance::results(&joined, 3);
    conformance::order(&joined);
    conformance::failures(&joined);
}

#[test]
fn messages() {
    conformance::messages(&world);
}
