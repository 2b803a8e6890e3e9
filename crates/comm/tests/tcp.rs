//! Ranks over TCP connections, against the conformance suite: each a thread with its own port,
//! control connections and sockets.

use std::{sync::Arc, time::Duration};

use shoal_comm::{ProcessGroup, conformance, rendezvous::Carrier};

fn world(size: usize) -> Vec<Arc<dyn ProcessGroup>> {
    // A heartbeat that no loaded machine misses: these tests are about other failures.
    conformance::joined(size, &|_, config| {
        config.heartbeat(Duration::from_secs(60)).carrier(Carrier::Tcp).address([127, 0, 0, 1].into())
    })
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

#[test]
fn long_vectors() {
    for size in [2, 3, 4] {
        conformance::long(&world, size);
    }
}

#[test]
fn messages() {
    conformance::messages(&world);
}
