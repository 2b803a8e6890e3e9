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
fn order() {
    conformance::order(&world);
}

#[test]
fn failures() {
    conformance::failures(&world);
}
