//! The XGBoost built-in as instances run it: real processes, the real library, real data. A test
//! that lacks the library or the data is skipped by name, with the reason.
#![expect(clippy::unwrap_used, reason = "tests")]

mod cluster;
mod data;
mod debugger;
mod faults;
mod fetch;
mod peer;
mod resume;
mod single;
mod together;
mod turns;

/// Not a test of its own: the process of an instance. See [`cluster::start`].
#[test]
fn instance() {
    cluster::become_instance();
}

/// Not a test of its own either: a process that fetches the library.
#[test]
fn fetcher() {
    fetch::become_fetcher();
}
