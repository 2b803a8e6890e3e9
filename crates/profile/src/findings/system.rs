//! Findings about what instances use: processors, GPUs, memory, disks.

use super::steps::cpu_share;
use super::{Finding, Shares, percent, time};
use crate::model::{HostUse, Profile, Series, mean};

const CPU: &str = "CPUUtilization";
const GPU: &str = "GPUUtilization";
const GPU_MEMORY: &str = "GPUMemoryUtilization";
const MEMORY: &str = "MemoryUtilization";
const DISK: &str = "DiskUtilization";

/// Samples from which on they are judged.
const ENOUGH: usize = 5;
/// Of memory, from which on it is nearly full.
const NEARLY: f64 = 90.0;

pub(super) fn findings(profile: &Profile) -> Vec<Finding> {
    let gpu = mean(profile.hosts.iter().filter_map(|host| host.mean(GPU)));
    let all = [
        gpu.and_then(|gpu| idle_gpus(profile, gpu)),
        if gpu.is_none() { idle_processors(profile) } else { None },
        memory(profile),
        gpu_memory(profile),
        disk(profile),
        uneven(profile),
    ];
    all.into_iter().flatten().collect()
}

fn idle_gpus(profile: &Profile, gpu: f64) -> Option<Finding> {
    if gpu >= 50.0 {
        return None;
    }
    let cpu = cpu_share(profile).unwrap_or(0.0);
    let memory = mean(profile.hosts.iter().filter_map(|host| host.mean(GPU_MEMORY)));
    let is_waiting = Shares::of(profile).is_some_and(|shares| shares.waiting >= 0.2);
    let (why, advice) = if cpu >= 0.85 {
        (
            format!(" while the processors are full ({})", percent(cpu)),
            "The processors are the bottleneck: move preprocessing to the GPU or before the training, or take \
             instances with more cores for each GPU.",
        )
    } else if is_waiting {
        (" while steps wait for data".to_owned(), "Load data faster, as above; the GPUs follow.")
    } else if memory.is_some_and(|memory| memory < 60.0) {
        (
            format!(" and {:.0} % of their memory", memory.unwrap_or(0.0)),
            "Try a larger batch: there is memory for it. Mixed precision, torch.compile and fewer transfers between \
             processor and GPU (.item(), .cpu() in each step) help, too; or a smaller GPU.",
        )
    } else {
        (
            String::new(),
            "Try mixed precision, torch.compile, and fewer transfers between processor and GPU (.item(), .cpu() in \
             each step).",
        )
    };
    Some(Finding {
        title: "GPUs are idle much of the time".to_owned(),
        text: format!("They are used for {gpu:.0} % of the time on average{why}."),
        advice: advice.to_owned(),
        share: 0.9 * (1.0 - gpu / 100.0),
    })
}

fn idle_processors(profile: &Profile) -> Option<Finding> {
    let cpu = cpu_share(profile)?;
    let host = profile.hosts.iter().find(|host| host.cores >= 2.0 && is_enough(host.own(CPU)))?;
    (cpu < 0.5).then(|| Finding {
        title: "Processors are idle".to_owned(),
        text: format!("Instances use {} of their processors on average.", percent(cpu)),
        advice: format!(
            "Let the framework use all {0:.0} cores (torch.set_num_threads({0:.0}), OMP_NUM_THREADS, a boosting library's nthread, \
             one rank for each few cores), load data beside the training, or take smaller instances.",
            host.cores
        ),
        share: 0.5 * (1.0 - cpu),
    })
}

fn is_enough(series: Option<&Series>) -> bool {
    series.is_some_and(|series| series.points.len() >= ENOUGH)
}

/// The host whose metric is greatest, and that value.
fn greatest<'a>(profile: &'a Profile, metric: &str) -> Option<(&'a HostUse, &'a Series, f64)> {
    let of = |host: &'a HostUse| {
        let all = host.series.iter().filter(|it| it.metric == metric && it.rank.is_none());
        all.filter_map(move |series| Some((host, series, series.high()?))).max_by(|a, b| a.2.total_cmp(&b.2))
    };
    profile.hosts.iter().filter_map(of).max_by(|a, b| a.2.total_cmp(&b.2))
}

fn memory(profile: &Profile) -> Option<Finding> {
    let (host, series, high) = greatest(profile, MEMORY)?;
    let growth = growth(series);
    if high >= NEARLY {
        return Some(Finding {
            title: "Memory is nearly full".to_owned(),
            text: format!("{} used up to {high:.0} % of its memory; a program that needs more is ended.", host.host),
            advice:
                "Take an instance with more memory, a smaller batch, fewer processes that load data, or stream the \
                     data instead of keeping it."
                    .to_owned(),
            share: 0.35,
        });
    }
    let (per_hour, gained) = growth?;
    let left_h = (100.0 - high) / per_hour;
    (gained >= 10.0 && left_h < 24.0).then(|| Finding {
        title: "Memory grows all the time".to_owned(),
        text: format!(
            "That of {} grows by {per_hour:.0} percent points an hour, and would be full in {}.",
            host.host,
            time(3_600_000.0 * left_h)
        ),
        advice: "Look for what is kept: losses with their graph (use loss.item()), lists of outputs, caches of a \
                 dataset in each loading process."
            .to_owned(),
        share: 0.25,
    })
}

/// Percent points an hour, and in all, of what never falls much; none of what does.
fn growth(series: &Series) -> Option<(f64, f64)> {
    let points = &series.points;
    let parts: Option<Vec<f64>> =
        points.chunks(points.len().div_ceil(4).max(1)).map(|part| mean(part.iter().map(|it| it.1))).collect();
    let parts = parts.filter(|parts| parts.len() == 4 && points.len() >= 20)?;
    let gained = parts[3] - parts[1];
    let is_steady = parts[3] > parts[2] + 1.0 && parts[2] > parts[1] + 1.0;
    let hours = 0.5 * (points.last()?.0 - points.first()?.0) / 3600.0;
    (is_steady && hours > 0.0).then(|| (gained / hours, gained))
}

fn gpu_memory(profile: &Profile) -> Option<Finding> {
    let (host, series, high) = greatest(profile, GPU_MEMORY)?;
    (high >= 95.0).then(|| Finding {
        title: "GPU memory is nearly full".to_owned(),
        text: format!("GPU {} of {} used up to {high:.0} % of its memory.", series.gpu.unwrap_or(0), host.host),
        advice:
            "One longer sample may end the training: leave room by a smaller batch, activation checkpointing, mixed \
                 precision or sharded states (FSDP)."
                .to_owned(),
        share: 0.15,
    })
}

fn disk(profile: &Profile) -> Option<Finding> {
    let (host, _, high) = greatest(profile, DISK)?;
    (high >= 85.0).then(|| Finding {
        title: "The volume is nearly full".to_owned(),
        text: format!("{} used up to {high:.0} % of its volume.", host.host),
        advice: "Give the job more VolumeSizeInGB, or keep fewer checkpoints there.".to_owned(),
        share: 0.2,
    })
}

/// Instances that do not do the same, where no steps tell which rank is slow.
fn uneven(profile: &Profile) -> Option<Finding> {
    let used = |host: &HostUse| is_enough(host.own(CPU)).then(|| Some(host.mean(CPU)? / host.cores.max(1.0)))?;
    let mut all = Vec::from_iter(profile.hosts.iter().filter_map(|host| Some((used(host)?, host))));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((least, idle), (most, busy)) = (all.first()?, all.last()?);
    (profile.ranks.is_empty() && most - least >= 30.0).then(|| Finding {
        title: "Instances do not do the same amount of work".to_owned(),
        text: format!("{} uses {most:.0} % of its processors on average, {} only {least:.0} %.", busy.host, idle.host),
        advice: "Divide the data evenly (ShardedByS3Key divides by files: make these alike), and check that all ranks \
                 take part."
            .to_owned(),
        share: 0.5 * (most - least) / 100.0,
    })
}
