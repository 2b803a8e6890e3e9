//! What this machine has, for the defaults of capacity.

use std::{fs, path::Path};

/// Memory that is left to the machine itself.
const RESERVE_BYTES: u64 = 512 << 20;

/// Cores that this process may use.
pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Memory that instances may have in all, in whole MiB: what the machine (or our own control group)
/// has, less a reserve. `root` is `/` but in tests.
pub(super) fn memory(root: &Path) -> u64 {
    let total = meminfo(&fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default()).unwrap_or(1 << 30);
    let limits = ["sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let limit = limits
        .iter()
        .find_map(|path| fs::read_to_string(root.join(path)).ok()?.trim().parse().ok())
        .unwrap_or(u64::MAX);
    let usable = total.min(limit).saturating_sub(RESERVE_BYTES).max(256 << 20);
    usable >> 20 << 20
}

fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// NVIDIA devices, `nvidia0`, `nvidia1`, ...
pub(super) fn gpus(dev: &Path) -> usize {
    let number = |name: &str| {
        name.strip_prefix("nvidia").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    fs::read_dir(dev)
        .map_or(0, |entries| entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(number)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_the_smaller_of_machine_and_group() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
        fs::write(root.path().join("proc/meminfo"), "MemTotal:        4194304 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!(memory(root.path()), (4 << 30) - RESERVE_BYTES);
        fs::write(root.path().join("sys/fs/cgroup/memory.max"), "max\n").unwrap();
        assert_eq!(memory(root.path()), (4 << 30) - RESERVE_BYTES);
        fs::write(root.path().join("sys/fs/cgroup/memory.max"), "2147483648\n").unwrap();
        assert_eq!(memory(root.path()), (2 << 30) - RESERVE_BYTES);
    }

    #[test]
    fn gpus_are_device_files() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(dev.path().join(name), "").unwrap();
        }
        assert_eq!(gpus(dev.path()), 2);
    }
}
