//! What the processor and the system say of themselves.

use std::fs;

use super::choice::{Processor, Vendor};

/// This machine's; 1 MiB and 32 MiB of caches where the system does not say.
pub(super) fn processor() -> Processor {
    let second = cache(2).unwrap_or(1 << 20);
    Processor { vendor: vendor(), second, last: cache(3).or_else(|| cache(2)).unwrap_or(32 << 20) }
}

/// Bytes of a cache of the first core.
fn cache(index: u32) -> Option<usize> {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
    text.trim().strip_suffix('K')?.parse::<usize>().ok().map(|kilobytes| kilobytes << 10)
}

#[cfg(target_arch = "x86_64")]
fn vendor() -> Vendor {
    let leaf = std::arch::x86_64::__cpuid(0);
    let name: Vec<_> = [leaf.ebx, leaf.edx, leaf.ecx].into_iter().flat_map(u32::to_le_bytes).collect();
    if name == b"AuthenticAMD" { Vendor::Amd } else { Vendor::Other }
}

#[cfg(not(target_arch = "x86_64"))]
fn vendor() -> Vendor {
    Vendor::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vendor_is_the_systems() {
        let Ok(text) = fs::read_to_string("/proc/cpuinfo") else { return };
        assert_eq!(processor().vendor == Vendor::Amd, text.contains("AuthenticAMD"));
        assert!(processor().second >= 64 << 10 && processor().last >= processor().second, "{:?}", processor());
    }
}
