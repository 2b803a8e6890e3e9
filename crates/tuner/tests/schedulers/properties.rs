//! What holds for every scheduler over random histories: trials that fail, end early, say what is
//! no number, and skip resources.

use shoal_tuner::{Direction, Rng, Study, TrialState, Verdict};

use crate::world::{Turn, World, run, study};

/// Scheduler, where nobody may be stopped before, the greatest resource.
const SCHEDULERS: [(&str, u32, u32); 11] = [
    (r#"{"kind":"none"}"#, 9, 9),
    (r#"{"kind":"median","min_resource":3}"#, 3, 9),
    (r#"{"kind":"behind","percent":5.0,"min_resource":2}"#, 2, 9),
    (r#"{"kind":"asha","form":"stopping","min_resource":2,"eta":2,"max_resource":27}"#, 2, 27),
    (r#"{"kind":"asha","max_resource":27}"#, 1, 27),
    (r#"{"kind":"asha","max_resource":20,"min_resource":2,"delayed":true}"#, 2, 20),
    (r#"{"kind":"asha","max_resource":5,"min_resource":5}"#, 5, 5),
    (r#"{"kind":"hyperband","form":"stopping","max_resource":27,"brackets":4}"#, 1, 27),
    (r#"{"kind":"hyperband","max_resource":27}"#, 1, 27),
    (r#"{"kind":"round_robin","width":5,"rule":{"kind":"asha","form":"stopping","max_resource":9}}"#, 1, 9),
    (r#"{"kind":"pbt","population":5,"interval":2,"max_resource":9}"#, 2, 9),
];

/// What trials do, mostly: fall with the units towards a level of their own.
fn turn(rng: &mut Rng, trial: u32, unit: u32) -> Turn {
    match rng.below(60) {
        0 => Turn::Fails,
        1 => Turn::Says(f64::NAN),
        2 => Turn::Ends(1.0),
        _ => Turn::Says(Rng::new(5, u64::from(trial)).unit() + 1.0 / f64::from(unit) + 0.1 * rng.normal()),
    }
}

fn histories(mut check: impl FnMut(&str, u32, u32, &Study, &World)) {
    for (spec, min, max) in SCHEDULERS {
        for seed in 0..30 {
            let mut study = study(spec, Direction::Minimize, (seed % 3 > 0).then_some(25), seed);
            let mut rng = Rng::new(seed, 99);
            let workers = 1 + rng.index(6);
            let world = run(&mut study, workers, max, 1500, |_, trial, unit| turn(&mut rng, trial, unit));
            check(spec, min, max, &study, &world);
        }
    }
}

#[test]
fn no_trial_is_stopped_too_early_or_runs_too_far_and_nobody_waits_for_nothing() {
    histories(|spec, min, max, study, world| {
        assert!(!world.stuck, "{spec}: a worker waits though nothing runs");
        assert!(world.at.values().all(|&at| at <= max), "{spec}: {world:?}");
        for trial in study.history().trials() {
            // Copies begin further on.
            let early = trial.resource() < min;
            let by_itself = matches!(trial.state, TrialState::Failed | TrialState::Completed | TrialState::Running);
            assert!(!early || by_itself, "{spec}: stopped or paused at {}: {trial:?}", trial.resource());
        }
        let started = study.history().trials().len();
        if let Some(most) = study.spec().max_trials {
            assert!(started <= most as usize, "{spec}");
            let left = study.history().live().filter(|(_, trial)| trial.state == TrialState::Running).count();
            assert_eq!(left, study.history().running(), "{spec}");
        }
    });
}

/// Of those who came to a rung at most the best third went on, each in the best third when it went.
#[test]
fn only_the_best_part_is_promoted() {
    for seed in 0..20 {
        let mut study = study(r#"{"kind":"asha","max_resource":27}"#, Direction::Minimize, None, seed);
        let mut rng = Rng::new(seed, 7);
        run(&mut study, 4, 27, 3000, |_, _, _| Turn::Says(rng.normal()));
        let mut rungs: Vec<Vec<(f64, u32)>> = vec![Vec::new(); 3];
        let check = |rung: &[(f64, u32)], trial: u32| {
            let mut sorted = rung.to_vec();
            sorted.sort_by(|one, other| one.partial_cmp(other).unwrap());
            let top = &sorted[..sorted.len() / 3];
            assert!(top.iter().any(|it| it.1 == trial), "trial {trial} went on from {sorted:?}");
        };
        for record in study.records() {
            match record {
                shoal_tuner::Record::Reported { trial, resource, values, verdicts } => {
                    let Some(rung) = [1, 3, 9].iter().position(|level| level == resource) else { continue };
                    rungs[rung].push((values[0], *trial));
                    if let [(_, Verdict::Continue { .. })] = verdicts[..] {
                        check(&rungs[rung], *trial);
                    }
                }
                shoal_tuner::Record::Asked { answer: shoal_tuner::Ask::Resume { trial, from, .. }, .. } => {
                    check(&rungs[[1, 3, 9].iter().position(|level| level == from).unwrap()], *trial);
                }
                _ => {}
            }
        }
        assert!(rungs[2].len() > 10);
    }
}

/// A study that is restored anywhere goes on as the other did, and the same events give the same
/// study.
#[test]
fn a_restored_study_is_its_continuation() {
    for (spec, _, max) in SCHEDULERS {
        for seed in 0..4 {
            let (mut one, mut other) =
                (study(spec, Direction::Minimize, Some(40), seed), study(spec, Direction::Minimize, Some(40), seed));
            let (mut rng, mut same) = (Rng::new(seed, 1), Rng::new(seed, 1));
            run(&mut one, 3, max, 400, |_, trial, unit| turn(&mut rng, trial, unit));
            run(&mut other, 3, max, 400, |_, trial, unit| turn(&mut same, trial, unit));
            // As text: what is no number equals nothing.
            assert_eq!(format!("{:?}", one.records()), format!("{:?}", other.records()), "{spec}");

            // The records again, the second half of them decided anew by a restored study.
            let records = one.records().to_vec();
            let half = records.len() / 2;
            let mut again = study(spec, Direction::Minimize, Some(40), seed);
            for record in &records[..half] {
                again.replay(record.clone()).unwrap();
            }
            let text = serde_json::to_string(&again.snapshot()).unwrap();
            let mut again = Study::restore(serde_json::from_str(&text).unwrap()).unwrap();
            for record in &records[half..] {
                match record {
                    shoal_tuner::Record::Asked { answer, .. } => assert_eq!(&again.ask(), answer, "{spec}"),
                    shoal_tuner::Record::Reported { trial, resource, values, verdicts } => {
                        assert_eq!(&again.report(*trial, *resource, values), verdicts, "{spec}");
                    }
                    shoal_tuner::Record::Ended { trial, outcome, verdicts } => {
                        assert_eq!(&again.end(*trial, outcome.clone()), verdicts, "{spec}");
                    }
                    shoal_tuner::Record::Injected { .. } => {}
                }
            }
        }
    }
}
