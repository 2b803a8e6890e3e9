//! Who the program is, inside and outside, and the constants of the house it lives in.

use nix::unistd::{Gid, Uid};

/// The program's user and group id inside an instance.
pub(crate) const PROGRAM_ID: u32 = 1000;

/// The program's user and group id on the machine when root starts it: above 16 bits, where
/// distributions put people and services, and below 100000, where they begin to hand out ranges for
/// containers. It owns nothing but what an instance was given to write.
pub(crate) const UNPRIVILEGED_ID: u32 = 97_770;

/// The program's user name inside an instance.
pub const USER: &str = "shoal";

/// The program's home directory inside an instance: private, writable, gone with the instance.
/// Callers put it into `HOME`.
pub const HOME: &str = "/home/shoal";

/// Port of the listener that an instance hands out ([`crate::Sandbox::listener`]), on its own
/// 127.0.0.1.
pub const FORWARDER_PORT: u16 = 9777;

/// Port of the second listener, which an instance has on request
/// ([`crate::SandboxSpec::has_proxy`]), on its own 127.0.0.1.
pub const PROXY_PORT: u16 = 9778;

/// What the ids of the user namespace around the program's map to on the machine: `(user, group)`.
pub(crate) fn mapped_ids(rootless: bool) -> (u32, u32) {
    if rootless { (Uid::effective().as_raw(), Gid::effective().as_raw()) } else { (UNPRIVILEGED_ID, UNPRIVILEGED_ID) }
}
