//! Whose limit it was for which the kernel killed something, under version 1 of control groups,
//! which counts the killed only.
//!
//! A group's descriptor hears of each time that memory ran out in the group or in one above it. So
//! it was the group's own limit if the group heard of more than the one above.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Hears from its making on.
#[derive(Debug)]
pub(super) struct Witness {
    own: Listener,
    above: Option<Listener>,
}

impl Witness {
    /// Of a group, and of the one above that has a limit, too.
    pub(super) fn of(group: &Path, above: Option<&Path>) -> io::Result<Self> {
        Ok(Self { above: above.map(Listener::of).transpose()?, own: Listener::of(group)? })
    }

    /// Whether the group has reached its own limit.
    pub(super) fn saw_own(&self) -> bool {
        let above = self.above.as_ref().map_or(0, Listener::heard);
        self.own.heard() > above
    }
}

#[derive(Debug)]
struct Listener {
    events: EventFd,
    heard: AtomicU64,
}

impl Listener {
    fn of(group: &Path) -> io::Result<Self> {
        let events = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let source = File::open(group.join("memory.oom_control"))?;
        fs::write(group.join("cgroup.event_control"), format!("{} {}", events.as_raw_fd(), source.as_raw_fd()))?;
        Ok(Self { events, heard: AtomicU64::new(0) })
    }

    /// How often memory has run out.
    fn heard(&self) -> u64 {
        // Nothing to read is nothing new.
        let new = self.events.read().unwrap_or(0);
        self.heard.fetch_add(new, Ordering::Relaxed) + new
    }
}
