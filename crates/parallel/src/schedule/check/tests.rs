use super::*;
use crate::{random::Rng, schedule::Pipeline};

const ALL: [Pipeline; 6] = [
    Pipeline::Gpipe,
    Pipeline::OneForwardOneBackward,
    Pipeline::Interleaved { chunks: 2 },
    Pipeline::Interleaved { chunks: 3 },
    Pipeline::ZeroBubble,
    Pipeline::Dynamic { active: None },
];

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

/// Every p and m up to sizes beyond which nothing new happens.
fn each(mut look: impl FnMut(f64, f64, usize, usize)) {
    for p in 1..=6 {
        for m in 1..=18 {
            look(p as f64, m as f64, p, m);
        }
    }
}

#[test]
fn all_schedules_are_whole_and_run_with_any_durations() {
    let mut rng = Rng::new(8);
    each(|_, _, p, m| {
        for pipeline in ALL {
            let Ok(schedule) = pipeline.schedule(p, m) else {
                assert!(matches!(pipeline, Pipeline::Interleaved { .. }) && m % p > 0);
                continue;
            };
            let mut random = || (0..schedule.stages).map(|_| 0.1 + rng.unit()).collect::<Vec<f64>>();
            let durations = Durations { forward: random(), input: random(), weight: random(), transfer: 0.3 };
            let timing = schedule.check(&durations).unwrap();
            let stage = |s: usize| durations.forward[s] + durations.input[s] + durations.weight[s];
            for (rank, busy) in timing.busy.iter().enumerate() {
                let work: f64 = (rank..schedule.stages).step_by(p).map(stage).sum();
                assert!(near(*busy, work * m as f64) && timing.total >= *busy - 1e-9);
            }
            let counted: usize = schedule.ranks.iter().map(Vec::len).sum();
            let parts = if pipeline == Pipeline::ZeroBubble { 3 } else { 2 };
            assert_eq!(counted, parts * schedule.stages * m);
        }
    });
}

/// GPipe, section 2.3; Narayanan et al. 2021, sections 2.2.1 and 2.2.2.
#[test]
fn idle_time_and_activations_are_those_of_the_papers() {
    each(|p, m, ranks, micros| {
        let ideal = (p - 1.0) / (m + p - 1.0);
        let gpipe = Pipeline::Gpipe.schedule(ranks, micros).unwrap().check(&Durations::uniform(1.0, 1.0, 1.0)).unwrap();
        assert!(near(gpipe.idle, ideal) && gpipe.activations.iter().all(|held| *held == micros));
        let flush = Pipeline::OneForwardOneBackward.schedule(ranks, micros).unwrap();
        let flush = flush.check(&Durations::uniform(1.0, 1.0, 1.0)).unwrap();
        assert!(near(flush.idle, ideal) && near(flush.total, 3.0 * (m + p - 1.0)));
        assert!(flush.activations.iter().enumerate().all(|(stage, held)| *held == micros.min(ranks - stage)));
        for chunks in 2..=4 {
            let Ok(schedule) = (Pipeline::Interleaved { chunks }).schedule(ranks, micros) else { continue };
            let timing = schedule.check(&Durations::uniform(1.0, 1.0, 1.0)).unwrap();
            let v = chunks as f64;
            assert!(near(timing.idle, (p - 1.0) / (v * m + p - 1.0)), "p {p} m {m} v {v}: {}", timing.idle);
            if micros >= 2 * ranks {
                // 1 + (p - 1) / (p v) times that of 1F1B, in parts of a v-th (Korthikanti et al.,
                // 2022, section 5).
                assert_eq!(timing.activations[0], ranks * chunks + ranks - 1);
            }
        }
    });
    // Worked: p = 4, m = 8 is 27 % idle; with two chunks 15.8 %.
    let idle =
        |pipeline: Pipeline| pipeline.schedule(4, 8).unwrap().check(&Durations::uniform(1.0, 1.0, 1.0)).unwrap().idle;
    assert!(
        near(idle(Pipeline::OneForwardOneBackward), 3.0 / 11.0)
            && near(idle(Pipeline::Interleaved { chunks: 2 }), 3.0 / 19.0)
    );
}

/// Qi et al., table 2: the idle time is (p - 1)(f + b - w), and no stage holds more than 1F1B's
/// first one.
#[test]
fn zb_h1_is_idle_for_a_third_of_1f1b() {
    each(|p, m, ranks, micros| {
        let schedule = Pipeline::ZeroBubble.schedule(ranks, micros).unwrap();
        for (f, b, w) in [(1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (2.0, 2.0, 1.0)] {
            let timing = schedule.check(&Durations::uniform(f, b, w)).unwrap();
            assert!(timing.activations.iter().all(|held| *held <= micros.min(ranks)), "{:?}", timing.activations);
            if micros >= 2 * ranks {
                let bubble = timing.total - m * (f + b + w);
                assert!(near(bubble, (p - 1.0) * (f + b - w)), "p {p} m {m} f {f} b {b} w {w}: {bubble}");
            }
        }
    });
}

#[test]
fn smps_interleaved_keeps_few_micro_batches_under_way() {
    each(|p, m, ranks, micros| {
        for active in [1, 2, ranks, ranks + 2] {
            let schedule = Pipeline::Dynamic { active: Some(active) }.schedule(ranks, micros).unwrap();
            let timing = schedule.check(&Durations::uniform(1.0, 1.0, 1.0)).unwrap();
            assert!(timing.activations.iter().all(|held| *held <= active.min(micros)));
            if active == 1 {
                // One micro-batch after the other.
                assert!(near(timing.total, 3.0 * p * m));
            }
            if active >= ranks {
                assert!(timing.total <= 3.0 * (m + p - 1.0) + p, "{} for p {p} m {m}", timing.total);
            }
        }
    });
    assert_eq!(Pipeline::Dynamic { active: Some(0) }.schedule(2, 2).unwrap_err().field, "active_microbatches");
}

#[test]
fn what_cannot_be_interleaved_is_refused_with_what_can() {
    let error = (Pipeline::Interleaved { chunks: 2 }).schedule(4, 6).unwrap_err();
    assert_eq!((error.field, error.nearest.as_slice()), ("microbatches", [4, 8].as_slice()));
    assert_eq!(Pipeline::Gpipe.schedule(0, 6).unwrap_err().field, "pipeline");
    assert_eq!(Pipeline::Gpipe.schedule(2, 0).unwrap_err().field, "microbatches");
}

/// One change to a right schedule, and the fault that it must be taken for.
#[test]
fn faults_are_found() {
    let times = Durations::uniform(1.0, 1.0, 1.0);
    let action = |stage, micro, work| Action { stage, micro, work };
    let right = Pipeline::OneForwardOneBackward.schedule(2, 2).unwrap();
    let broken = |change: &dyn Fn(&mut Schedule)| {
        let mut schedule = right.clone();
        change(&mut schedule);
        schedule.check(&times).unwrap_err()
    };
    assert_eq!(broken(&|it| it.ranks[0].swap(0, 3)), Fault::Early { rank: 0, action: action(0, 1, Work::Backward) });
    assert_eq!(
        broken(&|it| {
            it.ranks[1].pop();
        }),
        Fault::Missing(action(1, 1, Work::Backward))
    );
    assert_eq!(
        broken(&|it| it.ranks[1].push(action(1, 0, Work::Forward))),
        Fault::Twice { rank: 1, action: action(1, 0, Work::Forward) }
    );
    assert_eq!(
        broken(&|it| it.ranks[1].push(action(0, 0, Work::Weight))),
        Fault::Misplaced { rank: 1, action: action(0, 0, Work::Weight) }
    );
    // Rank 0 waits for a gradient of micro-batch 0, rank 1 for the activations of micro-batch 1
    // first.
    let deadlock = broken(&|it| {
        it.ranks[0] = vec![
            action(0, 0, Work::Forward),
            action(0, 0, Work::Backward),
            action(0, 1, Work::Forward),
            action(0, 1, Work::Backward),
        ];
        it.ranks[1] = vec![
            action(1, 1, Work::Forward),
            action(1, 0, Work::Forward),
            action(1, 0, Work::Backward),
            action(1, 1, Work::Backward),
        ];
    });
    assert_eq!(deadlock, Fault::Deadlock { rank: 0, action: action(0, 0, Work::Backward) });
}

/// Any order of a right schedule's actions either runs or is refused: nothing hangs and nothing is
/// overlooked.
#[test]
fn shuffled_schedules_run_or_are_refused() {
    let mut rng = Rng::new(9);
    let mut faults = 0;
    for _ in 0..500 {
        let pipeline = rng.pick(&ALL);
        let mut schedule = pipeline.schedule(rng.from(2, 3), 6).unwrap();
        for list in &mut schedule.ranks {
            for _ in 0..rng.from(0, 2) {
                let at = rng.from(1, list.len() - 1);
                list.swap(at - 1, at);
            }
        }
        match schedule.check(&Durations::uniform(1.0, 1.0, 1.0)) {
            Ok(timing) => assert!(timing.total >= timing.busy.iter().copied().fold(0.0, f64::max)),
            Err(Fault::Early { .. } | Fault::Deadlock { .. }) => faults += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!((20..480).contains(&faults), "{faults}");
}
