//! Whole histories of a server in memory: the real control core and the real machines around
//! attempts (`shoal_runtime`), in an environment of agents, processes, connections, a disk and
//! clients that do what the real ones do, in a time of their own. A seed decides all: which
//! training jobs come, what their programs do, and what goes wrong and when.
//!
//! What goes wrong: the server crashes before and after every journal record, between a record and
//! its action, before every step of an action and between an action and its answer; the journal
//! refuses, the disk is full; messages are lost with their connections, come late or twice; what
//! machines request is performed late and in any order; the clock jumps; and in lethal histories
//! agents die or are stopped, launches and uploads fail, and the server stays away for longer than
//! the agents' lease.
//!
//! After every event the whole state is checked and compared with a fold of the journal; nobody
//! runs twice; nothing that was acknowledged is lost. At the end every job has ended and nothing is
//! left. The outcome must be that of the same seed without faults; `outcome` says what may differ
//! where somebody died.
//!
//! Where to look: `scenario` has the jobs, `faults` what goes wrong, `state` what there is, as
//! data, `world` all of it at one moment. Above it, `server` has the core's turns and what performs
//! the requests of the machines, `agent` the agents, `network`, `clients` and `tuning` the rest of
//! what acts, `place_checks` what must hold of gangs that lose and gain instances, `node_checks`
//! what must hold of nodes, `memory` how much is used and what must hold of that; `history` hands
//! each event to whom it concerns. `bug` has the errors of a driver that the simulation must find.
//! Nothing here decides what machines decide: of the server it has only what steps do to its disk,
//! processes and links.

mod agent;
mod bug;
mod clients;
mod coverage;
mod faults;
mod history;
mod marks;
mod memory;
mod network;
mod node_checks;
mod outcome;
mod place_checks;
mod random;
mod scenario;
mod seed;
mod server;
mod state;
mod tuning;
mod world;

pub use bug::Bug;
pub use coverage::Coverage;
pub use outcome::SimRun;
pub use seed::{check, found};
