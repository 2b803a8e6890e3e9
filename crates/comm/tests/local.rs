//! Ranks that are threads of one process, against the conformance suite.

use shoal_comm::{conformance, threads};

#[test]
fn results() {
    for size in 1..=8 {
        conformance::results(&threads, size);
    }
}

#[test]
fn order() {
    conformance::order(&threads);
}

#[test]
fn failures() {
    conformance::failures(&threads);
}

#[test]
fn messages() {
    conformance::messages(&threads);
}
