//! A process that works for an instance outside of it, within its limits.

use nix::unistd::Pid;

use crate::cgroup::{Cgroup, Place};
use crate::{SandboxError, SandboxSpec, Support};

/// A control group with the limits of an instance. Who is still in it when it is dropped is killed.
#[derive(Debug)]
pub struct Confined(Option<Cgroup>);

impl Confined {
    /// Of an instance's description the id, which no other group may have, and the limits count.
    /// Where this machine lets us make no control group there are no limits.
    ///
    /// # Errors
    /// The machine refuses a limit.
    pub fn make(spec: &SandboxSpec, support: &Support) -> Result<Self, SandboxError> {
        let place = support.cgroup.and_then(Place::find);
        Ok(Self(place.map(|place| Cgroup::make(&place, spec)).transpose()?))
    }

    /// Takes a process of ours in; what it starts afterwards is born there.
    ///
    /// # Errors
    /// The machine refuses it.
    pub fn add(&self, pid: u32) -> Result<(), SandboxError> {
        self.0.as_ref().map_or(Ok(()), |group| group.add(Pid::from_raw(pid.cast_signed())))
    }
}
