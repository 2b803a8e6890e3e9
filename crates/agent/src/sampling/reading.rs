//! Counters of an instance at one moment, and the sample that two of them give. Pure.
//!
//! Processor time of processes is summed with that of their children that have ended, so what a
//! process used before its end is not lost, as long as it was waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shoal_link::{SampleColumn, metric};

use super::texts::{Stat, Transferred};

/// A process, also if its pid is used again.
pub(super) type ProcessKey = (u32, u64);

/// Counters of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessReading {
    pub(super) stat: Stat,
    /// Unknown where the machine does not show it, and not read where the group has it.
    pub(super) io: Option<Transferred>,
    /// Resident pages that it has for itself, and those that it may share; likewise.
    pub(super) pages: Option<(u64, u64)>,
    pub(super) rank: Option<u32>,
}

/// A GPU at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GpuReading {
    /// Its number on the machine.
    pub(super) index: u32,
    /// Percent of the driver's last period in which it was busy.
    pub(super) utilization: f64,
    /// Percent of its memory.
    pub(super) memory: f64,
}

/// Processes at one moment, which may be an earlier one than that of the other counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Processes {
    /// By the clock of [`Reading::at`].
    pub(super) at: Duration,
    pub(super) all: Arc<BTreeMap<ProcessKey, ProcessReading>>,
}

/// All that was read at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Reading {
    /// By a clock that does not jump.
    pub(super) at: Duration,
    /// Processor time of the control group.
    pub(super) group_cpu: Option<Duration>,
    /// Bytes of the control group, without files that were not used for long.
    pub(super) group_memory: Option<u64>,
    /// What the control group has read and written.
    pub(super) group_io: Option<Transferred>,
    /// How long some of its processes waited for disks.
    pub(super) group_io_wait: Option<Duration>,
    /// Of the instance's own network.
    pub(super) network: Option<Transferred>,
    /// All of the instance.
    pub(super) processes: Processes,
    pub(super) gpus: Vec<GpuReading>,
    /// Bytes that it has written on its volume and not removed.
    pub(super) volume_bytes: Option<u64>,
}

/// What percentages are of, and what the machine counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    /// Cores that the instance counts on.
    pub(super) cores: u32,
    /// What the instance may use.
    pub(super) memory_bytes: u64,
    /// What it may write.
    pub(super) volume_bytes: Option<u64>,
    pub(super) page_bytes: u64,
    pub(super) ticks_per_second: u64,
}

/// What the instance did between two readings; empty if no time has passed. All values are finite
/// and not negative.
pub(super) fn sample(before: &Reading, after: &Reading, scale: &Scale) -> Vec<(SampleColumn, f64)> {
    let seconds = after.at.saturating_sub(before.at).as_secs_f64();
    if seconds <= 0.0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut put = |name: &str, value: Option<f64>| {
        found.extend(value.filter(|it| it.is_finite()).map(|value| (SampleColumn::of_instance(name), value)));
    };
    // Not again what was sampled before.
    let processes = Some((&before.processes, &after.processes)).filter(|(before, after)| after.at > before.at);
    let group_cpu = before.group_cpu.zip(after.group_cpu);
    let group_cpu = group_cpu.map(|(before, after)| 100.0 * after.saturating_sub(before).as_secs_f64() / seconds);
    put(metric::CPU, group_cpu.or_else(|| processes.map(|(before, after)| scale.cpu(before, after, |_| true))));
    put(metric::CORES, Some(f64::from(scale.cores)));
    let memory = after.group_memory.or_else(|| processes.map(|(_, after)| resident(after, scale)));
    put(metric::MEMORY, memory.map(|bytes| 100.0 * bytes as f64 / scale.memory_bytes as f64));
    put(metric::MEMORY_BYTES, memory.map(|bytes| bytes as f64));
    let used = after.volume_bytes.zip(scale.volume_bytes);
    put(metric::DISK, used.map(|(used, limit)| 100.0 * used as f64 / limit as f64));
    let disk = rates(before.group_io, after.group_io, seconds);
    let disk = disk.or_else(|| processes.and_then(|(before, after)| process_rates(before, after)));
    put(metric::DISK_READ, disk.map(|(read, _)| read));
    put(metric::DISK_WRITE, disk.map(|(_, written)| written));
    let network = rates(before.network, after.network, seconds);
    put(metric::NETWORK_RECEIVE, network.map(|(received, _)| received));
    put(metric::NETWORK_SEND, network.map(|(_, sent)| sent));
    for gpu in &after.gpus {
        let column = |name: &str| SampleColumn { gpu: Some(gpu.index), ..SampleColumn::of_instance(name) };
        found.push((column(metric::GPU), gpu.utilization));
        found.push((column(metric::GPU_MEMORY), gpu.memory));
    }
    found.extend(processes.map(|(before, after)| of_ranks(before, after, scale)).unwrap_or_default());
    found
}

/// What the profiler's rules judge of a sample and of the readings that it is of; `None` where the
/// sample has no processor time.
pub(super) fn judged(
    sample: &[(SampleColumn, f64)],
    before: &Reading,
    after: &Reading,
    at_ms: u64,
) -> Option<shoal_rules::Reading> {
    let of_instance = |name: &str| {
        let column = |column: &SampleColumn| column.metric == name && column.gpu.is_none() && column.rank.is_none();
        sample.iter().find(|(it, _)| column(it)).map(|(_, value)| *value)
    };
    let of_gpus = |name: &str| {
        let values = sample.iter().filter(|(column, _)| column.gpu.is_some() && column.metric == name);
        Vec::from_iter(values.map(|(_, value)| *value))
    };
    let cores = of_instance(metric::CORES)?.max(1.0);
    // It may use more cores than it counts on while others leave them to it.
    let used = (of_instance(metric::CPU)? / cores).min(100.0);
    let seconds = after.at.saturating_sub(before.at).as_secs_f64();
    let waited = before.group_io_wait.zip(after.group_io_wait);
    let io_wait = waited.map(|(before, after)| 100.0 * after.saturating_sub(before).as_secs_f64() / seconds);
    let loaders = after.processes.all.values().filter(|process| process.stat.is_data_loader).count();
    Some(shoal_rules::Reading {
        at_ms,
        host: String::new(),
        cpu: vec![used; cores as usize],
        io_wait: io_wait.filter(|percent| percent.is_finite()).map(|percent| percent.min(100.0)),
        memory: of_instance(metric::MEMORY).unwrap_or(0.0),
        gpu: of_gpus(metric::GPU),
        gpu_memory: of_gpus(metric::GPU_MEMORY),
        data_loaders: u32::try_from(loaders).ok().filter(|count| *count > 0),
    })
}

/// Processor time and resident memory of each rank's processes.
fn of_ranks(before: &Processes, after: &Processes, scale: &Scale) -> Vec<(SampleColumn, f64)> {
    let mut resident = BTreeMap::<u32, u64>::new();
    for process in after.all.values() {
        if let Some(rank) = process.rank {
            *resident.entry(rank).or_default() += process.stat.resident_pages * scale.page_bytes;
        }
    }
    let mut found = Vec::new();
    for (rank, bytes) in resident {
        let column = |name: &str| SampleColumn { rank: Some(rank), ..SampleColumn::of_instance(name) };
        found.push((column(metric::CPU), scale.cpu(before, after, |process| process.rank == Some(rank))));
        found.push((column(metric::MEMORY_BYTES), bytes as f64));
    }
    found
}

impl Scale {
    /// Percent of a core that these processes used.
    fn cpu(&self, before: &Processes, after: &Processes, counts: impl Fn(&ProcessReading) -> bool) -> f64 {
        let ticks = |processes: &Processes| -> u64 {
            let processes = processes.all.values().filter(|process| counts(process));
            processes.map(|process| process.stat.ticks + process.stat.reaped_ticks).sum()
        };
        let used = ticks(after).saturating_sub(ticks(before)) as f64 / self.ticks_per_second.max(1) as f64;
        100.0 * used / after.since(before)
    }
}

impl Processes {
    fn since(&self, before: &Self) -> f64 {
        self.at.saturating_sub(before.at).as_secs_f64()
    }
}

/// Bytes in memory by the processes' own numbers: what they may share counts once, for the process
/// that has most of it.
fn resident(processes: &Processes, scale: &Scale) -> u64 {
    let pages = |process: &ProcessReading| process.pages.unwrap_or((process.stat.resident_pages, 0));
    let own: u64 = processes.all.values().map(|process| pages(process).0).sum();
    let shared = processes.all.values().map(|process| pages(process).1).max().unwrap_or(0);
    (own + shared) * scale.page_bytes
}

fn rates(before: Option<Transferred>, after: Option<Transferred>, seconds: f64) -> Option<(f64, f64)> {
    let (before, after) = before.zip(after)?;
    let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
    Some((rate(before.inward, after.inward), rate(before.outward, after.outward)))
}

/// What the processes did; a process that is new did all of it since the last reading.
fn process_rates(before: &Processes, after: &Processes) -> Option<(f64, f64)> {
    let mut found = None::<(f64, f64)>;
    for (key, process) in &*after.all {
        let earlier = before.all.get(key).and_then(|process| process.io).unwrap_or_default();
        if let Some((read, written)) = rates(Some(earlier), process.io, after.since(before)) {
            let (all_read, all_written) = found.unwrap_or_default();
            found = Some((all_read + read, all_written + written));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale =
        Scale { cores: 2, memory_bytes: 1 << 30, volume_bytes: Some(1000), page_bytes: 4096, ticks_per_second: 100 };

    fn process(ticks: u64, reaped_ticks: u64, pages: u64, rank: Option<u32>) -> ProcessReading {
        let stat = Stat { ticks, reaped_ticks, start: 1, resident_pages: pages, is_data_loader: false };
        ProcessReading { stat, io: None, pages: None, rank }
    }

    fn reading(at_ms: u64, processes: &[(u32, ProcessReading)]) -> Reading {
        let all = Arc::new(processes.iter().map(|(pid, process)| ((*pid, 1), *process)).collect());
        let at = Duration::from_millis(at_ms);
        Reading { at, processes: Processes { at, all }, ..Reading::default() }
    }

    /// The value of a column, if it is there.
    fn value(found: &[(SampleColumn, f64)], name: &str, rank: Option<u32>) -> Option<f64> {
        found.iter().find(|(column, _)| column.metric == name && column.rank == rank).map(|(_, value)| *value)
    }

    #[test]
    fn processes_that_end_between_two_readings_are_counted_once() {
        // A child of 1 used 40 ticks until the first reading, 60 in all, and was waited for.
        let before = reading(1000, &[(1, process(5, 0, 10, None)), (2, process(40, 0, 90, None))]);
        let after = reading(3000, &[(1, process(5, 60, 10, None))]);
        let found = sample(&before, &after, &SCALE);
        assert_eq!(value(&found, metric::CPU, None), Some(10.0), "20 ticks in 2 s");
        assert_eq!(value(&found, metric::MEMORY_BYTES, None), Some(40_960.0));
        // One that no process waited for is missing, and nothing is negative.
        let found = sample(&before, &reading(3000, &[(1, process(6, 0, 10, None))]), &SCALE);
        assert_eq!(value(&found, metric::CPU, None), Some(0.0));
        assert_eq!(sample(&before, &before, &SCALE), [], "no time has passed");
        // Processes were not read again.
        let group_memory = Some(4096);
        let later = Reading { at: Duration::from_secs(4), group_memory, ..after };
        let found = sample(&reading(3000, &[]), &later, &SCALE);
        assert_eq!(
            found.iter().map(|(column, _)| column.metric.as_str()).collect::<Vec<_>>(),
            [metric::CORES, metric::MEMORY, metric::MEMORY_BYTES]
        );
    }

    #[test]
    fn a_group_is_more_exact_than_processes() {
        let transferred = |inward, outward| Some(Transferred { inward, outward });
        let group = |at_ms, cpu_ms, io| Reading {
            group_cpu: Some(Duration::from_millis(cpu_ms)),
            group_memory: Some(1 << 29),
            group_io: transferred(io, 10),
            network: transferred(5, io),
            volume_bytes: Some(250),
            ..reading(at_ms, &[(1, process(at_ms, 0, 99, None))])
        };
        let found = sample(&group(0, 100, 1000), &group(500, 1100, 2000), &SCALE);
        for (name, expected) in [
            (metric::CPU, 200.0),
            (metric::MEMORY, 50.0),
            (metric::MEMORY_BYTES, f64::from(1 << 29)),
            (metric::DISK, 25.0),
            (metric::DISK_READ, 2000.0),
            (metric::DISK_WRITE, 0.0),
            (metric::NETWORK_RECEIVE, 0.0),
            (metric::NETWORK_SEND, 2000.0),
        ] {
            assert_eq!(value(&found, name, None), Some(expected), "{name}");
        }
        // A group that was made again counts from 0.
        let found = sample(&group(0, 9000, 9000), &group(500, 10, 10), &SCALE);
        assert_eq!(value(&found, metric::CPU, None), Some(0.0));
    }

    #[test]
    fn without_a_group_the_processes_are_summed() {
        let with = |ticks, read, written, own, shared| ProcessReading {
            io: Some(Transferred { inward: read, outward: written }),
            pages: Some((own, shared)),
            ..process(ticks, 0, own + shared, None)
        };
        let before = reading(0, &[(1, with(0, 100, 100, 1, 50))]);
        let after = reading(1000, &[(1, with(10, 300, 100, 1, 50)), (2, with(20, 40, 60, 2, 30))]);
        let found = sample(&before, &after, &SCALE);
        assert_eq!(value(&found, metric::CPU, None), Some(30.0));
        assert_eq!(value(&found, metric::DISK_READ, None), Some(240.0));
        assert_eq!(value(&found, metric::DISK_WRITE, None), Some(60.0));
        assert_eq!(value(&found, metric::MEMORY_BYTES, None), Some(f64::from((1 + 2 + 50) * 4096)));
        assert_eq!(value(&found, metric::NETWORK_SEND, None), None, "no network of its own");
    }

    #[test]
    fn each_rank_has_its_own_processes() {
        let before = reading(0, &[(1, process(9, 0, 1, None)), (2, process(10, 0, 5, Some(4)))]);
        let after = reading(
            1000,
            &[
                (1, process(9, 0, 1, None)),
                (2, process(60, 0, 5, Some(4))),
                (3, process(25, 0, 2, Some(4))),
                (4, process(90, 0, 7, Some(5))),
            ],
        );
        let found = sample(&before, &after, &SCALE);
        assert_eq!(value(&found, metric::CPU, Some(4)), Some(75.0));
        assert_eq!(value(&found, metric::MEMORY_BYTES, Some(4)), Some(7.0 * 4096.0));
        assert_eq!(value(&found, metric::CPU, Some(5)), Some(90.0));
        assert_eq!(value(&found, metric::CPU, None), Some(165.0));
    }

    #[test]
    fn a_gpu_is_shown_as_its_driver_reports_it() {
        let gpus = vec![GpuReading { index: 2, utilization: 87.0, memory: 12.5 }];
        let found = sample(&reading(0, &[]), &Reading { gpus, ..reading(10, &[]) }, &SCALE);
        let gpu: Vec<_> = found.iter().filter(|(column, _)| column.gpu == Some(2)).collect();
        assert_eq!(
            gpu.iter().map(|(column, value)| (column.metric.as_str(), *value)).collect::<Vec<_>>(),
            [(metric::GPU, 87.0), (metric::GPU_MEMORY, 12.5)]
        );
    }

    #[test]
    fn rules_judge_shares_of_the_cores_that_the_instance_counts_on() {
        let loader = |stat: Stat| Stat { is_data_loader: true, ..stat };
        let with = |at_ms, cpu_ms, wait_ms: Option<u64>, loaders: u32| {
            let of = |pid| {
                let process = process(0, 0, 1, Some(pid));
                (pid, if pid <= loaders { ProcessReading { stat: loader(process.stat), ..process } } else { process })
            };
            Reading {
                group_cpu: Some(Duration::from_millis(cpu_ms)),
                group_memory: Some(1 << 28),
                group_io_wait: wait_ms.map(Duration::from_millis),
                gpus: [(3, 10.0), (5, 90.0)]
                    .map(|(index, utilization)| GpuReading { index, utilization, memory: 7.0 })
                    .into(),
                ..reading(at_ms, &[1, 2, 3].map(of))
            }
        };
        let judge =
            |before: &Reading, after: &Reading| judged(&sample(before, after, &SCALE), before, after, 77).unwrap();
        let found = judge(&with(0, 0, Some(100), 0), &with(1000, 500, Some(350), 2));
        assert_eq!((found.at_ms, found.cpu, found.io_wait, found.memory), (77, vec![25.0; 2], Some(25.0), 25.0));
        assert_eq!((found.gpu, found.gpu_memory), (vec![10.0, 90.0], vec![7.0; 2]));
        assert_eq!(found.data_loaders, Some(2));
        // It was given more than its share, and its machine does not say how long it waits.
        let found = judge(&with(0, 0, None, 0), &with(1000, 3500, None, 0));
        assert_eq!((found.cpu, found.io_wait, found.data_loaders), (vec![100.0; 2], None, None));
        let processes = Processes { at: Duration::from_secs(1), ..Processes::default() };
        let same = |at| Reading { at: Duration::from_secs(at), processes: processes.clone(), ..Reading::default() };
        assert_eq!(judged(&sample(&same(1), &same(2), &SCALE), &same(1), &same(2), 0), None, "no processor time");
    }
}
