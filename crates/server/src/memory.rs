//! The machine's memory, where instances hold what they use and not what their type has (`shoal_plane::Packing::Use`): what each attempt uses is
//! measured and reported to the core, with what the machine lacks. What is ended then, and that the oldest attempt is not, is the core's decision.
//!
//! Measured is what `/proc` shows of the processes, at each turn of the watch (half a second). A program that takes more than the margin between two
//! looks can be faster: then the kernel ends what it takes for the largest, and instances before this server (`shoal_launch`).

use std::{collections::BTreeMap, fs};

use shoal_plane::{Command, Packing};

use crate::effects::World;

/// Of all memory for instances, a sixteenth is the margin in which attempts are ended before there is none.
const MARGIN_PART: u64 = 16;

impl World {
    /// Measures what attempts use, and has the core end some if the machine lacks memory.
    pub(crate) fn weigh(&self) {
        let attempts = self.attempts.all();
        if self.capacity.packing == Packing::Promise || attempts.is_empty() {
            return;
        }
        let by_allocation = self.launcher.memory(&Vec::from_iter(attempts.iter().map(|attempt| &attempt.allocation)));
        let of_attempt = |id: &str, allocation: &str| Some((id.to_owned(), *by_allocation.get(allocation)?));
        let used: BTreeMap<_, _> =
            attempts.iter().filter_map(|attempt| of_attempt(&attempt.plan.attempt, &attempt.allocation.id)).collect();
        let lacking =
            lacking(self.capacity.memory_bytes, used.values().sum(), available(&fs::read_to_string("/proc/meminfo").unwrap_or_default()));
        if lacking > 0 {
            // Instances that wait for an attempt are the first to go.
            self.make_room();
        }
        if let Err(refusal) = self.core.tell(Command::MemoryMeasured { used, lacking }) {
            tracing::warn!("{refusal}");
        }
    }
}

/// Bytes that attempts must give back: what they use beyond the memory for instances less its margin, or what the machine has less than the margin.
fn lacking(memory_bytes: u64, used: u64, available: Option<u64>) -> u64 {
    let margin = memory_bytes / MARGIN_PART;
    let over = used.saturating_sub(memory_bytes - margin);
    over.max(available.map_or(0, |available| margin.saturating_sub(available)))
}

/// Memory that the machine has for new needs, from `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_machine_lacks_memory_by_what_is_used_and_by_what_is_left() {
        let margin = GIB;
        for (used, available, expected) in [
            (4 * GIB, Some(12 * GIB), 0),
            (15 * GIB, Some(GIB), 0),
            // More is used than instances may have, though the machine has more.
            (16 * GIB, Some(40 * GIB), GIB),
            // Others on the machine use it up.
            (4 * GIB, Some(GIB / 4), margin - GIB / 4),
            (16 * GIB, Some(0), GIB),
            // A machine that does not say.
            (16 * GIB, None, GIB),
        ] {
            assert_eq!(lacking(16 * GIB, used, available), expected, "{used} {available:?}");
        }
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:   1024 kB\n"), Some(1 << 20));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
    }
}
