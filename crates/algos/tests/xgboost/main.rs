//! The XGBoost built-in as instances run it: real processes, the real library, real data.

mod cluster;
mod single;

/// Not a test of its own: the process of an instance. See [`cluster::start`].
#[test]
fn instance() {
    cluster::become_instance();
}
