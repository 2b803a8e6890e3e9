//! What the simulated world consists of, as data. Those that act on it are above, and reach each
//! other by the world that they share.

pub(crate) mod agent;
pub(crate) mod clients;
pub(crate) mod disk;
pub(crate) mod events;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod nodes;
pub(crate) mod places;
pub(crate) mod processes;
pub(crate) mod server;
