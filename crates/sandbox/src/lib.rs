//! An instance on this machine: namespaces, cgroups, mounts, init, limits. The only place with
//! `nix` and its unsafe.
//!
//! A [`Network`] is a private bridge of one training job; a [`Sandbox`] is one instance on it. Both
//! vanish with the process that made them, whatever kills it. What this machine allows is probed
//! once ([`Support::probe`]) and used honestly: full isolation as root or rootless, or plain
//! processes on loopback addresses.
//!
//! The binary that uses this crate must call [`reexec_entry`] first thing in `main`: helpers are
//! the same executable started again under another argv.
//!
//! # How an instance is made
//!
//! Two user namespaces are nested. The *outer* one is where mounts and the network are made: the
//! machine's own when we are root, else one in which our user id is root. The *inner* one is where
//! the program lives, as an unprivileged user who owns none of the namespaces around it. A helper
//! does its privileged work in the outer one, becomes process 1 of the instance, enters the inner
//! one for good, and only then starts the program.
//!
//! # Where no namespaces are allowed
//!
//! Instances are plain processes: mounts stay where they are on the machine ([`Support::path_of`]
//! says where), names do not resolve, ports are shared. What remains: limits, where control groups
//! can be made; an end of the whole tree; output and exit.

mod addresses;
mod cgroup;
mod confined;
mod error;
mod guest;
mod hub;
mod init;
mod instance;
mod mounts;
mod netlink;
mod network;
mod plain;
mod privileges;
mod probe;
mod program;
mod reexec;
mod remove;
mod root;
mod sandbox;
mod seccomp;
mod spawn;
mod spec;
mod support;
mod sweep;
mod talk;
mod users;
mod writers;
mod zygote;
mod zygote_talk;

pub use cgroup::{CgroupLayout, GroupDirs, group_of};
pub use confined::Confined;
pub use error::SandboxError;
pub use guest::{Guest, GuestEnd, Terminal};
pub use network::Network;
pub use reexec::reexec_entry;
pub use remove::remove_tree;
pub use root::give;
pub use sandbox::{Control, Sandbox};
pub use spec::{Exit, Mount, OutOfMemory, SandboxSpec, Together};
pub use support::{Isolation, Support};
pub use sweep::sweep;
pub use users::{FORWARDER_PORT, HOME, PROXY_PORT, USER};
pub use writers::is_being_written;
pub use zygote::{Ran, Zygote, line_of_zygote, serve as serve_as_zygote};
