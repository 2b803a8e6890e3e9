//! Ranks over TCP connections, against the conformance suite: each a thread with its own port, control connections and sockets.

use std::sync::Arc;
use std::time::Duration;

use shoal_comm::rendezvous::{Carrier, Config, LocalStore, Meeting};
use shoal_comm::{ProcessGroup, conformance, join};

fn world(size: usize) -> Vec<Arc<dyn ProcessGroup>> {
    let store = Arc::new(LocalStore::default());
    let ranks: Vec<_> = (0..size)
        .map(|rank| {
            // A heartbeat that no loaded machine misses: these tests are about other failures.
            let config = Config::new(rank, size, Meeting::Store(store.clone())).heartbeat(Duration::from_secs(60));
            let config = config.carrier(Carrier::Tcp).address([127, 0, 0, 1].into());
            std::thread::spawn(move || join(config).expect("all come"))
        })
        .collect();
    ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
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
    for size in [3, 4] {
        conformance::long(&world, size);
    }
}
