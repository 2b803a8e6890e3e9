//! Memory of processes and their descendants, as `/proc` shows it; the same as root, rootless, and without control groups.

use std::collections::BTreeMap;
use std::fs;

/// What matters of `/proc/PID/status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Status {
    parent: i32,
    /// Anonymous and shared memory that is resident, and what is swapped out, in bytes.
    bytes: u64,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_start_matches(':').trim());
        let kilobytes = |name: &str| field(name).and_then(|value| value.trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0);
        let bytes = ["RssAnon", "RssShmem", "VmSwap"].map(kilobytes).iter().sum::<u64>() << 10;
        Some(Self { parent: field("PPid")?.parse().ok()?, bytes })
    }
}

/// All processes that can be seen, at about one moment.
pub(crate) struct Processes {
    all: BTreeMap<i32, Status>,
    children: BTreeMap<i32, Vec<i32>>,
}

impl Processes {
    pub(crate) fn look() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        Self::of(pids.filter_map(|pid| Some((pid, Status::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)?))).collect())
    }

    fn of(all: BTreeMap<i32, Status>) -> Self {
        let mut children = BTreeMap::<i32, Vec<i32>>::new();
        for (pid, status) in &all {
            children.entry(status.parent).or_default().push(*pid);
        }
        Self { all, children }
    }

    /// Memory of a process and of all its descendants, in bytes.
    pub(crate) fn memory(&self, root: i32) -> u64 {
        let (mut bytes, mut next) = (0, vec![root]);
        while let Some(pid) = next.pop() {
            bytes += self.all.get(&pid).map_or(0, |status| status.bytes);
            next.extend(self.children.get(&pid).into_iter().flatten());
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_that_of_all_that_it_started() {
        let text = "Name:\ta\nPPid:\t7\nVmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t  700 kB\nRssShmem:\t  20 kB\nVmSwap:\t  3 kB\n";
        assert_eq!(Status::parse(text), Some(Status { parent: 7, bytes: 123 << 10 }));
        // A kernel thread has none.
        assert_eq!(Status::parse("Name:\tk\nPPid:\t2\n"), Some(Status { parent: 2, bytes: 0 }));
        let of = |pairs: &[(i32, i32, u64)]| {
            pairs.iter().map(|(pid, parent, bytes)| (*pid, Status { parent: *parent, bytes: *bytes })).collect()
        };
        let processes = Processes::of(of(&[(1, 0, 1), (10, 1, 2), (11, 10, 4), (12, 11, 8), (20, 1, 16)]));
        assert_eq!((processes.memory(10), processes.memory(20), processes.memory(99)), (14, 16, 0));
        assert!(Processes::look().memory(std::process::id().cast_signed()) > 0);
    }
}
