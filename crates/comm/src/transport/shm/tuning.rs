//! Which protocol runs for which size.

use std::fs;

use crate::Kind;

/// The most that goes through slots.
pub(super) const MOST_FLAT: usize = 16 << 10;

/// Sizes at which protocols change, in bytes. The same on all ranks of a host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tuning {
    /// What any rank gives at most to an operation that goes through slots.
    flat: usize,
    /// What is staged in one step.
    pub(super) stage: usize,
    /// The last-level cache.
    pub(super) cache: usize,
}

impl Tuning {
    /// For `n` ranks on this machine.
    pub(super) fn of_machine(n: usize) -> Self {
        Self { flat: (16 << 10) / n, stage: 1 << 20, cache: last_level_cache() }
    }

    /// What any rank gives at most to an operation of this kind that goes through slots.
    pub(super) fn flat(&self, kind: Kind) -> usize {
        match kind {
            // Everybody reads everything.
            Kind::AllReduce(_) => self.flat,
            _ => MOST_FLAT,
        }
    }

    pub(super) fn plan(&self, n: usize) -> String {
        let Self { flat, stage, cache } = self;
        format!(
            "shared memory, {n} ranks; by the bytes that a rank gives:\n\
             up to {} in the flag's own line, one flag\n\
             up to {flat} (all-reduce) or {MOST_FLAT} (others) through slots, one flag\n\
             beyond, registered memory: directly, each rank its share, two flags; past the caches where all ranks' bytes exceed {cache}\n\
             beyond, other memory: through stages, {stage} a step\n",
            super::control::INLINE,
        )
    }
}

/// The bytes of the last-level cache; 32 MiB where the system does not say.
fn last_level_cache() -> usize {
    let size = |index: u32| {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok().map(|kilobytes| kilobytes << 10)
    };
    size(3).or_else(|| size(2)).unwrap_or(32 << 20)
}
