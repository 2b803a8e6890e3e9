//! [`Slurm`] on a real cluster: the one that Slurm's commands find (`SLURM_CONF`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::Duration;

use shoal_launch::{Slurm, SlurmOptions, conformance};

/// Says where a cluster is, whose nodes share the directory for temporary files with this machine.
const CLUSTER: &str = "SHOAL_TEST_SLURM";

#[test]
fn conforms() {
    if std::env::var_os(CLUSTER).is_none() {
        eprintln!("skipped: needs a Slurm cluster: {CLUSTER}=1 SLURM_CONF=.. (cargo xtask test starts one)");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options =
        SlurmOptions { target: "cluster".into(), interval: Duration::from_millis(100), ..SlurmOptions::default() };
    conformance::check(&Slurm::new(options), dir.path());
}
