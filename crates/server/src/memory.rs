//! The memory of this machine, where instances hold what they use and not what their type has
//! (`shoal_plane::Packing::Use`): what each attempt uses is measured and reported to the core, with
//! what the machine lacks. What is ended then, and that the oldest attempt is not, is the core's
//! decision.
//!
//! Measured is what `/proc` shows of the processes, at each turn of the watch (half a second). A
//! program that takes more than the margin between two looks can be faster. For that all instances
//! have a limit in common where the machine allows control groups (`shoal_sandbox::Together`), so
//! that the kernel looks among them alone, and it is told who goes first
//! (`shoal_launch::Launcher::end_first`): the same order as the core's.

use std::{collections::BTreeMap, fs, sync::Arc};

use shoal_launch::Launcher;
use shoal_plane::{AttemptId, Capacity, Command, Node, Packing};
use shoal_runtime::warm_pool;

use crate::{
    attempts::{Attempt, Attempts},
    core::Core,
    machines::Machines,
};

/// Of all memory for instances, a sixteenth is the margin in which attempts are ended before there
/// is none.
const MARGIN_PART: u64 = 16;

/// What measures memory.
pub(crate) struct Memory {
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) core: Core,
    pub(crate) machines: Machines,
    pub(crate) capacity: Capacity,
}

impl Memory {
    /// Measures what attempts use, and has the core end some if the machine lacks memory.
    pub(crate) fn weigh(&self, ranked: &mut Ranked) {
        let attempts = self.attempts.all();
        if self.capacity.packing == Packing::Promise || attempts.is_empty() {
            return;
        }
        let by_allocation = self.launcher.memory(&Vec::from_iter(attempts.iter().map(|attempt| &attempt.allocation)));
        // What instances are measured to use beyond their limits is not theirs.
        let limit =
            |attempt: &Attempt| attempt.plan.assignments.iter().map(|assignment| assignment.limits.memory_bytes).sum();
        let of_attempt = |attempt: &Arc<Attempt>| {
            let measured = *by_allocation.get(&attempt.allocation.id)?;
            Some((attempt.plan.attempt.clone(), measured.min(limit(attempt))))
        };
        let used: BTreeMap<_, _> = attempts.iter().filter_map(of_attempt).collect();
        let machine = Machine::parse(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        // What is measured here is of this machine alone.
        let node = self.capacity.node(Node::LOCAL);
        let lacking = node.map_or(0, |node| lacking(node.memory_bytes, used.values().sum(), machine));
        if lacking > 0 {
            // Instances that wait for an attempt are the first to go.
            self.machines.send(warm_pool::Event::CapacityNeeded);
        }
        let lacking = [(Node::LOCAL.to_owned(), lacking)].into();
        if let Err(refusal) = self.core.tell(Command::MemoryMeasured { used, lacking }) {
            tracing::warn!("{refusal}");
        }
        self.rank(self.core.memory_order(), ranked);
    }

    /// Has the kernel end them in this order, if it must. Said twice, since a process that began
    /// while it was said may have missed it.
    fn rank(&self, order: Vec<AttemptId>, ranked: &mut Ranked) {
        if ranked.order != order {
            *ranked = Ranked { order, times: 0 };
        }
        if ranked.times < 2 {
            let attempts = Vec::from_iter(ranked.order.iter().filter_map(|attempt| self.attempts.get(attempt)));
            self.launcher.end_first(&Vec::from_iter(attempts.iter().map(|attempt| &attempt.allocation)));
            ranked.times += 1;
        }
    }
}

/// What the kernel was told last.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    order: Vec<AttemptId>,
    times: u32,
}

/// Bytes that attempts must give back: what they use beyond the memory for instances less its
/// margin, or what the machine has less than the margin. They use no more than the whole machine
/// does.
fn lacking(memory_bytes: u64, used: u64, machine: Option<Machine>) -> u64 {
    let margin = memory_bytes / MARGIN_PART;
    let over = |used: u64| used.saturating_sub(memory_bytes - margin);
    machine.map_or(over(used), |machine| over(used.min(machine.used)).max(margin.saturating_sub(machine.available)))
}

/// Bytes of the machine's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Machine {
    /// What it has for new needs.
    available: u64,
    /// What it cannot have back by writing files out; with what is swapped out.
    used: u64,
}

impl Machine {
    /// Reads `/proc/meminfo`.
    fn parse(meminfo: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
        };
        let available = bytes("MemAvailable")?;
        let swapped = bytes("SwapTotal").unwrap_or(0).saturating_sub(bytes("SwapFree").unwrap_or(0));
        Some(Self { available, used: bytes("MemTotal")?.saturating_sub(available) + swapped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_machine_lacks_memory_by_what_is_used_and_by_what_is_left() {
        let margin = GIB;
        let machine = |available, used| Some(Machine { available, used });
        for (used, machine, expected) in [
            (4 * GIB, machine(12 * GIB, 8 * GIB), 0),
            (15 * GIB, machine(GIB, 16 * GIB), 0),
            // More is used than instances may have, though the machine has more.
            (16 * GIB, machine(40 * GIB, 20 * GIB), GIB),
            // What is measured of instances cannot be: the whole machine uses less.
            (16 * GIB, machine(12 * GIB, 5 * GIB), 0),
            (99 * GIB, machine(40 * GIB, 16 * GIB), GIB),
            // Others on the machine use it up.
            (4 * GIB, machine(GIB / 4, 20 * GIB), margin - GIB / 4),
            (16 * GIB, machine(0, 20 * GIB), GIB),
            // A machine that does not say.
            (16 * GIB, None, GIB),
        ] {
            assert_eq!(lacking(16 * GIB, used, machine), expected, "{used} {machine:?}");
        }
        let text =
            "MemTotal:  4096 kB\nMemFree: 9 kB\nMemAvailable:   1024 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n";
        assert_eq!(Machine::parse(text), Some(Machine { available: 1 << 20, used: 4 << 20 }));
        assert_eq!(Machine::parse("MemTotal:  9 kB\n"), None);
    }
}
