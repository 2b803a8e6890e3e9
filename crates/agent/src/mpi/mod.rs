//! Programs of MPI across instances: what `shoal mpi` is in a sandbox. `mpirun` wants to start a
//! daemon on each host, and usually has ssh for that. Here the first instance's program is
//! [`run()`], which runs `mpirun` and gives it [`start()`] in ssh's place; every other instance's
//! program is [`wait()`], which starts there what [`start()`] brings, and ends when the first says
//! that all is over, or is gone. [`rank()`] runs each rank's program, and knows how it ended.
//!
//! A job that loses and gains instances has Horovod's elastic launcher in `mpirun`'s place
//! ([`elastic()`]).
//!
//! Where there is no `mpirun`, the first instance has each start its ranks by itself (`own`):
//! libraries that only ask who they are need no MPI.
//!
//! They meet on the network that a job's instances have for themselves, and know each other by a
//! secret of the attempt.

use std::time::Duration;

mod blame;
mod elastic;
pub(crate) mod failure;
mod line;
mod own;
mod rank;
mod ranks;
mod run;
mod sdk_v3;
mod start;
mod traceback;
mod version;
mod wait;

pub use elastic::elastic;
pub(crate) use line::{SECRET, SECRET_OF_GROUPS, secret, secret_of_groups};
pub use rank::rank;
pub use run::run;
pub use sdk_v3::drive;
pub(crate) use sdk_v3::{OURS, driver};
pub use shoal_contract::Places;
use shoal_contract::Port;
pub use start::start;
pub use wait::wait;

/// Where every instance but the first listens.
fn port() -> u16 {
    let of_job = std::env::var("SHOAL_MPI_PORT").ok().and_then(|port| port.parse().ok());
    of_job.unwrap_or_else(|| Port::Mpi.number(None))
}

/// How often an instance, or a rank, is looked for that is not there yet.
const POLL: Duration = Duration::from_millis(20);

/// As shells tell of a process that SIGTERM has ended.
const TERMINATED: i32 = 128 + crate::outcome::SIGTERM;

/// To the log of the instance.
fn say(text: impl std::fmt::Display) {
    eprintln!("shoal mpi: {text}");
}
