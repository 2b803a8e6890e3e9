//! Memory of processes and their descendants, as `/proc` shows it; the same as root, rootless, and
//! without control groups.
//!
//! Forks share their parent's memory, and ranks what they map together, so the resident memory of a
//! tree's processes may be many times what the tree uses. The kernel gives each process its share
//! (`smaps_rollup`), but walks all its pages for that, with the process's memory map locked: about
//! 60 ms for each resident GiB. So only trees are weighed in which several processes hold much, and
//! no oftener than costs a tenth of a core. Between two weighings a tree uses the same part of its
//! resident memory as at the last one.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// What the processes of a tree beside its largest may hold for the tree not to be weighed.
const LITTLE_BYTES: u64 = 64 << 20;
/// Between two weighings of all trees, as a multiple of what the last ones took.
const PAUSE: u32 = 10;

/// What one weighing of all trees may take: it holds up the look for dead agents and missing
/// memory. Whom it does not come to uses as much of what it has resident as the others.
const MOST_TIME: Duration = Duration::from_millis(100);

/// What matters of `/proc/PID/status`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Status {
    parent: i32,
    /// Anonymous and shared memory that is resident, and what is swapped out, in bytes.
    bytes: u64,
}

impl Status {
    fn parse(text: &str) -> Option<Self> {
        let parent = text.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        let bytes =
            ["RssAnon", "RssShmem", "VmSwap"].map(|name| kilobytes(text, name).unwrap_or(0)).iter().sum::<u64>() << 10;
        Some(Self { parent, bytes })
    }
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// A process's share of anonymous and shared memory, in bytes, from its `smaps_rollup`: what n
/// processes have is an n-th for each.
fn share(rollup: &str) -> Option<u64> {
    Some(
        ["Pss_Anon", "Pss_Shmem", "SwapPss"].into_iter().map(|name| kilobytes(rollup, name)).sum::<Option<u64>>()?
            << 10,
    )
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
        Self::of(
            pids.filter_map(|pid| {
                Some((pid, Status::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)?))
            })
            .collect(),
        )
    }

    fn of(all: BTreeMap<i32, Status>) -> Self {
        let mut children = BTreeMap::<i32, Vec<i32>>::new();
        for (pid, status) in &all {
            children.entry(status.parent).or_default().push(*pid);
        }
        Self { all, children }
    }

    /// A process and all its descendants.
    pub(crate) fn family(&self, root: i32) -> Vec<i32> {
        let (mut family, mut next) = (Vec::new(), vec![root]);
        while let Some(pid) = next.pop() {
            family.push(pid);
            next.extend(self.children.get(&pid).into_iter().flatten());
        }
        family
    }

    /// The same, each with what it has resident.
    fn tree(&self, root: i32) -> Vec<(i32, u64)> {
        self.family(root).into_iter().map(|pid| (pid, self.all.get(&pid).map_or(0, |status| status.bytes))).collect()
    }
}

/// The last weighings of trees, by their roots.
#[derive(Debug, Default)]
pub(crate) struct Scale {
    trees: BTreeMap<i32, Weighed>,
    next: Option<Instant>,
}

/// What a tree was weighed to use, and what its processes had resident then, in bytes.
#[derive(Debug, Clone, Copy)]
struct Weighed {
    used: u64,
    resident: u64,
}

impl Scale {
    /// Bytes that each of these processes and all its descendants use.
    pub(crate) fn memory(&mut self, roots: &[i32]) -> BTreeMap<i32, u64> {
        let weigh = |pid, resident| {
            fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
                .ok()
                .and_then(|text| share(&text))
                .unwrap_or(resident)
        };
        let begin = Instant::now();
        let is_due = self.next.is_none_or(|next| next <= begin);
        let mut spent = Duration::ZERO;
        // What those that were weighed use, and have resident.
        let (mut used, mut weighed) = (0, 0);
        let found = self.used(&Processes::look(), roots, is_due, |pid, resident| {
            if spent > MOST_TIME && weighed > 0 {
                return part(resident, used, weighed);
            }
            let begin = Instant::now();
            let share = weigh(pid, resident);
            spent += begin.elapsed();
            (used, weighed) = (used + share, weighed + resident);
            share
        });
        if is_due {
            self.next = Some(Instant::now() + PAUSE * spent);
        }
        found
    }

    fn used(
        &mut self,
        processes: &Processes,
        roots: &[i32],
        is_due: bool,
        mut weigh: impl FnMut(i32, u64) -> u64,
    ) -> BTreeMap<i32, u64> {
        self.trees.retain(|root, _| roots.contains(root));
        let mut of_root = |root: &i32| {
            let tree = processes.tree(*root);
            let resident: u64 = tree.iter().map(|(_, bytes)| bytes).sum();
            let largest = tree.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            if resident - largest < LITTLE_BYTES {
                return resident;
            }
            if let Some(weighed) = self.trees.get(root).filter(|_| !is_due) {
                return part(resident, weighed.used, weighed.resident);
            }
            let used = tree.iter().map(|(pid, bytes)| weigh(*pid, *bytes)).sum();
            self.trees.insert(*root, Weighed { used, resident });
            used
        };
        roots.iter().map(|root| (*root, of_root(root))).collect()
    }
}

/// `used` of `resident`, scaled to `bytes` that are resident.
fn part(bytes: u64, used: u64, resident: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(used) / u128::from(resident)).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_of_a_process_is_that_of_all_that_it_started() {
        let text = "Name:\ta\nPPid:\t7\nVmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t  700 kB\nRssShmem:\t  20 \
                    kB\nVmSwap:\t  3 kB\n";
        assert_eq!(Status::parse(text), Some(Status { parent: 7, bytes: 123 << 10 }));
        assert_eq!(part(10, 3, 6), 5);
        // A kernel thread has none.
        assert_eq!(Status::parse("Name:\tk\nPPid:\t2\n"), Some(Status { parent: 2, bytes: 0 }));
        let processes = processes(&[(1, 0, 1), (10, 1, 2), (11, 10, 4), (12, 11, 8), (20, 1, 16)]);
        let never = |_, _| panic!("small trees are not weighed");
        assert_eq!(
            Scale::default().used(&processes, &[10, 20, 99], true, never),
            BTreeMap::from([(10, 14), (20, 16), (99, 0)])
        );
        let own = std::process::id().cast_signed();
        assert!(Scale::default().memory(&[own])[&own] > 0);
    }

    fn processes(all: &[(i32, i32, u64)]) -> Processes {
        Processes::of(
            all.iter().map(|(pid, parent, bytes)| (*pid, Status { parent: *parent, bytes: *bytes })).collect(),
        )
    }

    #[test]
    fn memory_that_processes_share_counts_once() {
        let rollup = "55e000-7ff000 ---p 00000000 00:00 0  [rollup]\nRss: 1648380 kB\nPss:  235889 kB\nPss_Anon:  100 \
                      kB\nPss_File:   234 kB\n\
                      Pss_Shmem:  20 kB\nSwap:  9 kB\nSwapPss:  3 kB\n";
        assert_eq!(share(rollup), Some(123 << 10));
        assert_eq!(share("Rss: 9 kB\nPss: 9 kB\n"), None, "a kernel that does not divide it");
        // A program of 700 MiB and six forks of it.
        let forked: Vec<_> = (1..=7).map(|pid| (pid, i32::from(pid > 1), 700 * MIB)).collect();
        let mut scale = Scale::default();
        let used = scale.used(&processes(&forked), &[1], false, |_, resident| resident / 7);
        assert_eq!(used[&1], 700 * MIB, "a tree that was never weighed is weighed at once");
        // Until the next weighing another fork uses what the others do.
        let grown: Vec<_> = forked.iter().copied().chain([(8, 1, 700 * MIB)]).collect();
        assert_eq!(scale.used(&processes(&grown), &[1], false, |_, _| panic!("not due"))[&1], 800 * MIB);
        assert_eq!(scale.used(&processes(&grown), &[1], true, |_, resident| resident / 8)[&1], 700 * MIB);
        // Without its forks it has what it has.
        assert_eq!(scale.used(&processes(&forked[..1]), &[1], false, |_, _| panic!("one process"))[&1], 700 * MIB);
    }
}
