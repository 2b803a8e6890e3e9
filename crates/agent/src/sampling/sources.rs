//! Reads an instance's counters from where the kernel has them.
//!
//! What is read of each process costs some microseconds. Where an instance has many and this
//! would be more than a small share of a core, processes are read less often than the group's
//! counters.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::param::{clock_ticks_per_second, page_size};
use shoal_link::Limits;
use shoal_sandbox::{CgroupLayout, GroupDirs, group_of};

use super::nvml::Nvml;
use super::reading::{ProcessKey, ProcessReading, Processes, Reading, Scale};
use super::texts;
use crate::stacks::descendants;

/// Processes are read for no more than one part in this many of the time,
const SHARE: u32 = 400;
/// and in this many where the profiler is on, which may request ten samples a second.
const PROFILER_SHARE: u32 = 40;
/// A process whose variables name no rank is looked at again for this many readings: it may be
/// about to become another program.
const RANK_LOOKS: u32 = 3;

/// An instance's sources.
pub(super) struct Sources {
    first: u32,
    group: Option<GroupDirs>,
    /// It has a network of its own; all others' traffic would be the machine's.
    has_network: bool,
    gpus: Option<Nvml>,
    volume_bytes: Arc<AtomicU64>,
    started: Instant,
    ranks: BTreeMap<ProcessKey, Known>,
    processes: Processes,
    /// When they may be read again.
    processes_due: Instant,
}

/// What is known of a process's rank.
#[derive(Clone, Copy)]
struct Known {
    rank: Option<u32>,
    looks: u32,
}

impl Sources {
    /// Of the instance whose first process this is.
    pub(super) fn of(first: u32, limits: &Limits, volume_bytes: Arc<AtomicU64>) -> Self {
        let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
        let now = Instant::now();
        Self {
            first,
            group: group_of(first),
            has_network: network("self") != network(&first.to_string()),
            gpus: Nvml::load(&limits.gpus),
            volume_bytes,
            started: now,
            ranks: BTreeMap::new(),
            processes: Processes::default(),
            processes_due: now,
        }
    }

    /// What percentages are of.
    pub(super) fn scale(limits: &Limits) -> Scale {
        Scale {
            cores: limits.cpus,
            memory_bytes: limits.memory_bytes.max(1),
            volume_bytes: limits.disk_bytes.filter(|bytes| *bytes > 0),
            page_bytes: page_size() as u64,
            ticks_per_second: clock_ticks_per_second(),
        }
    }

    /// Reads all of them now; more of them, more often, for the profiler.
    pub(super) fn read(&mut self, is_profiled: bool) -> Reading {
        let file = |path: &Path| fs::read_to_string(path).ok();
        let mut reading = Reading { at: self.started.elapsed(), ..Reading::default() };
        if let Some(group) = &self.group {
            let number = |text: String| text.trim().parse::<u64>().ok();
            let (usage, cpu) = match group.layout {
                CgroupLayout::V1 => ("memory.usage_in_bytes", "cpuacct.usage"),
                CgroupLayout::V2 => ("memory.current", "cpu.stat"),
            };
            let inactive = file(&group.memory.join("memory.stat")).map_or(0, |text| texts::inactive_file(&text));
            reading.group_memory =
                file(&group.memory.join(usage)).and_then(number).map(|bytes| bytes.saturating_sub(inactive));
            reading.group_cpu =
                group.cpu.as_ref().and_then(|cpu_dir| file(&cpu_dir.join(cpu))).and_then(|text| match group.layout {
                    CgroupLayout::V1 => number(text).map(Duration::from_nanos),
                    CgroupLayout::V2 => texts::group_cpu(&text),
                });
            if group.layout == CgroupLayout::V2 {
                reading.group_io = file(&group.memory.join("io.stat")).map(|text| texts::group_io(&text));
                reading.group_io_wait = file(&group.memory.join("io.pressure")).and_then(|text| texts::io_wait(&text));
            }
        }
        if self.has_network {
            let text = file(Path::new(&format!("/proc/{}/net/dev", self.first)));
            reading.network = text.map(|text| texts::network(&text));
        }
        reading.gpus = self.gpus.as_ref().map(Nvml::read).unwrap_or_default();
        reading.volume_bytes = Some(self.volume_bytes.load(Ordering::Relaxed));
        let begun = Instant::now();
        if begun >= self.processes_due {
            let all = Arc::new(self.read_processes(&reading));
            self.processes = Processes { at: reading.at, all };
            self.processes_due = begun + begun.elapsed() * if is_profiled { PROFILER_SHARE } else { SHARE };
        }
        reading.processes = self.processes.clone();
        reading
    }

    fn read_processes(&mut self, group: &Reading) -> BTreeMap<ProcessKey, ProcessReading> {
        let listed = self.group.as_ref().and_then(|group| fs::read_to_string(group.memory.join("cgroup.procs")).ok());
        let pids: Vec<u32> = match listed {
            Some(list) => list.lines().filter_map(|pid| pid.parse().ok()).collect(),
            None => [vec![self.first], descendants(self.first)].concat(),
        };
        let mut found = BTreeMap::new();
        for pid in pids {
            let text = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
            // One that has ended meanwhile.
            let Some(stat) = text("stat").and_then(|text| texts::Stat::parse(&text)) else { continue };
            let key = (pid, stat.start);
            let io = if group.group_io.is_none() { text("io").and_then(|text| texts::process_io(&text)) } else { None };
            let pages = match group.group_memory {
                None => text("statm").and_then(|text| texts::own_and_shared_pages(&text)),
                Some(_) => None,
            };
            found.insert(key, ProcessReading { stat, io, pages, rank: self.rank(key) });
        }
        self.ranks.retain(|key, _| found.contains_key(key));
        found
    }

    fn rank(&mut self, key: ProcessKey) -> Option<u32> {
        let known = self.ranks.entry(key).or_insert(Known { rank: None, looks: 0 });
        if known.rank.is_none() && known.looks < RANK_LOOKS {
            known.looks += 1;
            known.rank = fs::read(format!("/proc/{}/environ", key.0)).ok().and_then(|environ| texts::rank(&environ));
        }
        known.rank
    }
}
