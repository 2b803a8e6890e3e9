use super::*;
use crate::model::{HostStacks, HostUse, RankSteps, Series, SlowStep, StepPoint};

/// A healthy training of ten minutes: 10 ms a step, all of it computing.
fn healthy(ranks: u32) -> Profile {
    let rank = |rank| RankSteps {
        host: format!("algo-{}", rank + 1),
        rank,
        steps: 50_000,
        first_s: 2.0,
        total_s: 500.0,
        waiting_s: 5.0,
        communicating_s: if ranks > 1 { 10.0 } else { 0.0 },
        p50_ms: 10.0,
        p95_ms: 11.0,
        max_ms: 15.0,
        points: (0..60).map(|at| StepPoint { at_s: f64::from(at) * 10.0, mean_ms: 10.0, max_ms: 15.0 }).collect(),
        ..RankSteps::default()
    };
    let host = |rank: u32| HostUse {
        host: format!("algo-{}", rank + 1),
        cores: 4.0,
        series: vec![series("CPUUtilization", |_| 350.0), series("MemoryUtilization", |_| 40.0)],
    };
    Profile {
        job: "j".to_owned(),
        end_s: 600.0,
        hosts: (0..ranks).map(host).collect(),
        ranks: (0..ranks).map(rank).collect(),
        ..Profile::default()
    }
}

fn series(metric: &str, of: impl Fn(f64) -> f64) -> Series {
    let point = |at: u32| {
        let at = f64::from(at);
        (at * 10.0, of(at), of(at))
    };
    Series { metric: metric.to_owned(), points: (0..60).map(point).collect(), ..Series::default() }
}

fn gpu(metric: &str, value: f64) -> Series {
    Series { gpu: Some(0), ..series(metric, |_| value) }
}

#[test]
fn a_healthy_training_has_no_findings() {
    assert_eq!(findings(&healthy(1)), []);
    assert_eq!(findings(&healthy(4)), []);
    assert_eq!(findings(&Profile::default()), []);
}

/// A fault, the title of the finding that is due, and parts of its sentences.
type Case = (&'static str, fn(&mut Profile), &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "waits for data, with processors free",
        |it| {
            it.ranks[1].waiting_s = 300.0;
            it.ranks[0].waiting_s = 200.0;
            it.hosts.iter_mut().for_each(|host| host.series[0] = series("CPUUtilization", |_| 250.0));
        },
        "Steps wait for data",
        &["50 % of the steps' time", "rank 1 (algo-2) waits longest, for 60 %", "num_workers=4"],
    ),
    (
        "waits for data, with processors full",
        |it| it.ranks.iter_mut().for_each(|rank| rank.waiting_s = 250.0),
        "Steps wait for data",
        &["50 % of the steps' time", "The processors are full"],
    ),
    (
        "communication",
        |it| it.ranks.iter_mut().for_each(|rank| rank.communicating_s = 200.0),
        "Steps wait for other ranks",
        &["40 % of the steps' time", "4.0 ms a step", "gradient accumulation"],
    ),
    (
        "a rank that computes longer",
        |it| {
            it.ranks[0].communicating_s = 210.0;
            it.hosts[1].series[0] = series("CPUUtilization", |_| 390.0);
        },
        "Rank 1 is slower than the others",
        &[
            "of rank 1 (algo-2) takes 9.8 ms",
            "where 5.8 ms are usual",
            "It computes longer: 9.7 ms a step, the others 5.7 ms",
        ],
    ),
    (
        "a rank that waits for its data",
        |it| {
            it.ranks[0].communicating_s = 210.0;
            it.ranks[1].waiting_s = 205.0;
        },
        "Rank 1 is slower than the others",
        &["It waits for its data: 4.1 ms a step, the others 0.1 ms."],
    ),
    (
        "regular slow steps",
        |it| {
            let rank = &mut it.ranks[0];
            (rank.slow_steps, rank.slow_s) = (500, 50.0);
            let slow = |step, ms| SlowStep { step, ms, ..SlowStep::default() };
            rank.slow = (1..6).flat_map(|at| [slow(100 * at, 110.0), slow(100 * at + 37, 25.0)]).collect();
        },
        "Some steps take much longer than usual",
        &["500 of 50000 steps", "together 10 % of the time", "with 110 ms. They come every 100 steps.", "checkpoint"],
    ),
    (
        "slow steps that wait for data",
        |it| {
            let rank = &mut it.ranks[0];
            (rank.slow_steps, rank.slow_s) = (20, 50.0);
            rank.slow = [7, 9, 1000]
                .map(|step| SlowStep { step, ms: 2500.0, waiting_ms: 2400.0, ..SlowStep::default() })
                .to_vec();
        },
        "Some steps take much longer than usual",
        &["with 2.5 s.", "They wait for data"],
    ),
    (
        "a late start",
        |it| it.ranks[0].first_s = 90.0,
        "The first step comes late",
        &["It began 90.0 s after the program's start, 15 % of the time."],
    ),
    (
        "steps that become slower",
        |it| it.ranks[0].points.iter_mut().skip(40).for_each(|point| point.mean_ms = 15.0),
        "Steps become slower",
        &["took 10 ms on average in the second quarter of the training, and 15 ms"],
    ),
    (
        "very short steps",
        |it| it.ranks.iter_mut().for_each(|rank| rank.p50_ms = 0.8),
        "Steps are very short",
        &["A step takes 0.8 ms", "larger batch"],
    ),
    (
        "idle GPUs with memory to spare",
        |it| {
            let gpus = vec![gpu("GPUUtilization", 20.0), gpu("GPUMemoryUtilization", 30.0)];
            it.hosts.iter_mut().for_each(|host| host.series.clone_from(&gpus));
        },
        "GPUs are idle much of the time",
        &["used for 20 % of the time", "30 % of their memory", "larger batch"],
    ),
    (
        "GPUs that wait for full processors",
        |it| it.hosts[0].series.push(gpu("GPUUtilization", 20.0)),
        "GPUs are idle much of the time",
        &["while the processors are full (88 %)"],
    ),
    (
        "idle processors",
        |it| it.hosts.iter_mut().for_each(|host| host.series[0] = series("CPUUtilization", |_| 100.0)),
        "Processors are idle",
        &["use 25 % of their processors", "torch.set_num_threads(4)"],
    ),
    (
        "full memory",
        |it| it.hosts[1].series[1] = series("MemoryUtilization", |at| if at < 3.0 { 20.0 } else { 93.0 }),
        "Memory is nearly full",
        &["algo-2 used up to 93 %"],
    ),
    (
        "growing memory",
        |it| it.hosts[1].series[1] = series("MemoryUtilization", |at| 20.0 + at),
        "Memory grows all the time",
        &["That of algo-2 grows by", "would be full in"],
    ),
    (
        "full GPU memory",
        |it| it.hosts[0].series.push(gpu("GPUMemoryUtilization", 97.0)),
        "GPU memory is nearly full",
        &["GPU 0 of algo-1 used up to 97 %"],
    ),
    (
        "a full volume",
        |it| it.hosts[0].series.push(series("DiskUtilization", |_| 91.0)),
        "The volume is nearly full",
        &["algo-1 used up to 91 %", "VolumeSizeInGB"],
    ),
    (
        "data in stacks, without steps",
        |it| {
            it.ranks.clear();
            let folded = "python train.py;<module> (train.py);__next__ (torch/utils/data/dataloader.py) 97\n\
                          python train.py;<module> (train.py);step (train.py) 3\npython worker;work (worker.py) 900\n";
            it.stacks = vec![HostStacks { host: "algo-2".to_owned(), folded: folded.to_owned() }];
        },
        "The program waits for its data",
        &["97 % of 100 sampled stacks of python train.py (algo-2)", "num_workers"],
    ),
    (
        "uneven instances without steps",
        |it| {
            it.ranks.clear();
            it.hosts[1].series[0] = series("CPUUtilization", |_| 200.0);
        },
        "Instances do not do the same amount of work",
        &["algo-1 uses 88 % of its processors on average, algo-2 only 50 %"],
    ),
];

#[test]
fn each_fault_is_found_with_its_values_and_what_to_try() {
    for (fault, plant, title, parts) in CASES {
        let mut profile = healthy(2);
        plant(&mut profile);
        let all = findings(&profile);
        let found = all.iter().find(|it| it.title == *title).unwrap_or_else(|| panic!("{fault}: {all:#?}"));
        let sentences = format!("{} {}", found.text, found.advice);
        for part in *parts {
            assert!(sentences.contains(part), "{fault}: {part:?} is not in {sentences:?}");
        }
        assert!((0.0..=1.0).contains(&found.share), "{fault}: {}", found.share);
    }
}

#[test]
fn the_start_is_judged_once_there_is_more_than_that() {
    let late = |status: &str, end_s: f64| {
        let mut profile = healthy(1);
        profile.ranks[0].first_s = 19.0;
        profile.ranks[0].points.clear();
        (profile.status, profile.end_s) = (status.to_owned(), end_s);
        findings(&profile).iter().any(|it| it.title == "The first step comes late")
    };
    assert!(!late("InProgress", 30.0), "it imports torch");
    assert!(late("Completed", 30.0));
}

#[test]
fn the_costliest_come_first_and_ten_are_enough() {
    let mut profile = healthy(2);
    for (_, plant, ..) in CASES.iter().filter(|case| !case.0.contains("without steps")) {
        plant(&mut profile);
    }
    profile.ranks[0].communicating_s = 280.0;
    let all = findings(&profile);
    assert_eq!(all.len(), 10, "{all:#?}");
    assert!(all.is_sorted_by(|a, b| a.share >= b.share));
}

#[test]
fn numbers_are_readable() {
    let shown = [0.02, 0.5, 9.94, 10.2, 1500.0, 600_000.0, 7_200_000.0].map(time);
    assert_eq!(shown, ["20 us", "0.5 ms", "9.9 ms", "10 ms", "1.5 s", "10 min", "2.0 h"]);
    assert_eq!([0.0123, 0.5].map(percent), ["1.2 %", "50 %"]);
}
