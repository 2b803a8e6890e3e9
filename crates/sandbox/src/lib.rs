//! An instance on this machine: namespaces, cgroups, mounts, init, limits. The only place with `nix` and its unsafe.
//!
//! A [`Network`] is a private bridge of one training job; a [`Sandbox`] is one instance on it. Both vanish with the process
//! that made them, whatever kills it. What this machine allows is probed once ([`Support::probe`]) and used honestly: full isolation as
//! root or rootless, or plain processes on loopback addresses.
//!
//! The binary that uses this crate must call [`reexec_entry`] first thing in `main`: helpers are the same executable started
//! again under another argv.

mod network;
mod spec;
mod support;

pub use network::Network;
pub use spec::{Exit, Mount, SandboxSpec};
pub use support::{Isolation, Support};
