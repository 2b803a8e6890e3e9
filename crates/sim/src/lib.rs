//! Whole histories of a server in memory: the real control core, and around it a shell, a launcher, agents and clients that do what the
//! real ones do, in a time of their own. A seed says all: which training jobs come, what their programs do, and what goes wrong and when.
//!
//! What goes wrong: the server crashes before and after every journal record, between a record and its action, in the middle of an action and
//! between an action and its answer; the journal refuses; messages are lost with their connections, come late or twice; the clock jumps;
//! and in lethal histories agents die, launches and uploads fail, and the server stays away for longer than the agents' lease.
//!
//! After every event the whole state is checked and compared with a fold of the journal; nobody runs twice; nothing that was acknowledged is
//! lost. At the end every job has ended and nothing is left. The outcome must be that of the same seed without faults; `outcome` says what
//! may differ where somebody died.
//!
//! Where to look: `scenario` has the jobs, `faults` what goes wrong, `shell`, `effects` and `links` the fake server (modelled after the server's core,
//! effects and agents), `agent` the fake agents, `disk` what outlives a crash, `memory` what attempts use of it, `bug` the errors that the simulation must find.

mod agent;
mod bug;
mod clients;
mod coverage;
mod disk;
mod effects;
mod faults;
mod launcher;
mod links;
mod memory;
mod outcome;
mod random;
mod scenario;
mod seed;
mod shell;
mod tuning;
mod world;

pub use bug::Bug;
pub use coverage::Coverage;
pub use seed::{check, find};
pub use world::SimRun;
