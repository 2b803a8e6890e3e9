//! Successive halving and Hyperband by hand.

use shoal_tuner::{Ask, Direction, Outcome, Rng, Study, TrialId, TrialState, Verdict};

use crate::world::{Turn, run, study};

const GO: [(TrialId, Verdict); 0] = [];

/// Starts a trial and reports its values from epoch 1 on; the last answer.
fn reports(study: &mut Study, values: &[f64]) -> Vec<(TrialId, Verdict)> {
    let Ask::Start(start) = study.ask() else { panic!("nothing to start") };
    let mut verdicts = Vec::new();
    for (epoch, &value) in (1..).zip(values) {
        verdicts = study.report(start.trial, epoch, &[value]);
    }
    verdicts
}

#[test]
fn stopping_form_by_hand() {
    let mut study = study(r#"{"kind":"asha","form":"stopping","max_resource":9}"#, Direction::Minimize, None, 1);
    // The first goes on, the second only if it is better; from the third on it must be in the best
    // third.
    assert_eq!(reports(&mut study, &[5.0]), GO);
    assert_eq!(reports(&mut study, &[6.0]), [(1, Verdict::Stop)]);
    assert_eq!(reports(&mut study, &[5.0]), [(2, Verdict::Stop)], "of equals the earlier is better");
    assert_eq!(reports(&mut study, &[4.0]), GO);
    assert_eq!(reports(&mut study, &[4.5]), [(4, Verdict::Stop)], "of five one");
    assert_eq!(reports(&mut study, &[4.4]), GO, "of six two");
    assert_eq!(reports(&mut study, &[f64::NAN]), [(6, Verdict::Stop)]);
    // Nothing is judged between rungs: 3 is the next, and 9 the end.
    assert_eq!(study.report(0, 2, &[99.0]), GO);
    assert_eq!(study.report(0, 3, &[2.0]), GO);
    for resource in 4..=8 {
        assert_eq!(study.report(0, resource, &[99.0]), GO);
    }
    assert_eq!(study.report(0, 9, &[1.5]), [(0, Verdict::Stop)]);
    let whole = &study.history().trials()[0];
    assert_eq!((whole.state, whole.value()), (TrialState::Completed, Some(1.5)));
    assert_eq!(study.history().trials()[1].state, TrialState::Stopped);
}

fn resumed(study: &mut Study) -> (TrialId, u32, Option<u32>) {
    match study.ask() {
        Ask::Resume { trial, from, to } => (trial, from, to),
        other => panic!("{other:?}"),
    }
}

#[test]
fn promotion_form_by_hand() {
    let mut study = study(r#"{"kind":"asha","max_resource":9}"#, Direction::Minimize, None, 1);
    let pause = |trial| [(trial, Verdict::Pause)];
    assert_eq!(reports(&mut study, &[5.0]), pause(0));
    assert_eq!(reports(&mut study, &[6.0]), pause(1));
    // The third is not the best third, but makes the first so.
    assert_eq!(reports(&mut study, &[7.0]), pause(2));
    assert_eq!(resumed(&mut study), (0, 1, Some(3)));
    // Nobody else is promotable: a new one. Best at once: it goes on without a pause.
    assert_eq!(reports(&mut study, &[4.0]), [(3, Verdict::Continue { to: Some(3) })]);
    assert_eq!(study.report(0, 2, &[0.0]), GO);
    assert_eq!(study.report(0, 3, &[3.0]), pause(0));
    assert_eq!(study.report(3, 3, &[2.0]), pause(3), "it skipped epoch 2");
    // Five at the lowest rung: still one, who went already. Two at the next.
    assert_eq!(reports(&mut study, &[8.0]), pause(4));
    assert_eq!(reports(&mut study, &[9.0]), pause(5), "six: two, and both went");
    assert_eq!(reports(&mut study, &[3.0]), [(6, Verdict::Continue { to: Some(3) })]);
    // The highest rung first.
    assert_eq!(study.report(6, 3, &[2.5]), pause(6));
    assert_eq!(resumed(&mut study), (3, 3, Some(9)));
    assert_eq!(study.report(3, 9, &[1.0]), [(3, Verdict::Stop)]);
    assert_eq!(study.history().trials()[3].value(), Some(1.0));
}

/// Every new trial is better than all before: without the delay all go on, with it every third.
#[test]
fn delayed_promotion_cannot_be_starved() {
    let spec = |delayed| format!(r#"{{"kind":"asha","max_resource":9,"delayed":{delayed}}}"#);
    let went = |delayed| {
        let mut study = study(&spec(delayed), Direction::Minimize, None, 1);
        let world =
            run(&mut study, 4, 9, 400, |_, trial, epoch| Turn::Says(-f64::from(trial) - f64::from(epoch) / 100.0));
        let came = |resource| world.at.values().filter(|&&at| at >= resource).count();
        (came(1), came(2), came(4))
    };
    let (all, third, ninth) = went(true);
    assert!(third <= all / 3 + 1 && ninth <= third / 3 + 1 && ninth >= 5, "{all} {third} {ninth}");
    let (all, third, _) = went(false);
    assert!(third > all * 2 / 3, "{all} {third}");
}

/// Thirty trials of at most 100 units in one bracket use a quarter of what all in full would, in
/// whatever order they come, and three come to their end.
#[test]
fn delayed_promotion_bounds_what_thirty_trials_use() {
    let spec = |delayed| {
        format!(r#"{{"kind":"hyperband","min_resource":11,"max_resource":100,"brackets":1,"delayed":{delayed}}}"#)
    };
    let used = |delayed, value: fn(u64, u32) -> f64, seed| {
        let mut study = study(&spec(delayed), Direction::Minimize, Some(30), seed);
        let world = run(&mut study, 4, 100, 3001, |_, trial, _| Turn::Says(value(seed, trial)));
        (world.units.values().sum::<u32>(), world.at.values().filter(|&&at| at == 100).count())
    };
    let orders: [fn(u64, u32) -> f64; 3] = [
        |seed, trial| Rng::new(seed, u64::from(trial)).unit(),
        |_, trial| -f64::from(trial),
        |_, trial| f64::from(trial),
    ];
    for value in orders {
        for seed in 0..20 {
            assert_eq!(used(true, value, seed), (30 * 11 + 10 * (33 - 11) + 3 * (100 - 33), 3), "seed {seed}");
        }
    }
    assert!(used(false, orders[1], 0).0 > 2000, "each better than all before");
}

#[test]
fn a_dead_trial_leaves_its_place_to_others() {
    let mut study = study(r#"{"kind":"asha","max_resource":9}"#, Direction::Minimize, None, 1);
    for value in [1.0, 2.0, 3.0] {
        reports(&mut study, &[value]);
    }
    // The best of three fails after its promotion: the next best is now in the best third.
    assert_eq!(resumed(&mut study).0, 0);
    study.end(0, Outcome::Failed);
    assert_eq!(resumed(&mut study).0, 1);
    // It ends by itself before its rung: nobody waits for it.
    study.end(1, Outcome::Completed { values: vec![0.5] });
    assert!(matches!(study.ask(), Ask::Start(_)));
    // What is paused may be stopped from outside.
    study.end(2, Outcome::Stopped);
    // One of six is dead and among the best two: the other place is to be had.
    for value in [2.5, 2.2, 2.6] {
        reports(&mut study, &[value]);
    }
    assert_eq!(resumed(&mut study).0, 5);
}

/// Trials that are resumed from an older checkpoint say again what they said.
#[test]
fn what_is_said_twice_counts_once() {
    let mut study = study(r#"{"kind":"asha","max_resource":9}"#, Direction::Minimize, None, 1);
    for value in [1.0, 2.0, 3.0] {
        reports(&mut study, &[value]);
    }
    assert_eq!(resumed(&mut study), (0, 1, Some(3)));
    assert_eq!(study.report(0, 2, &[0.9]), GO);
    let before = study.records().len();
    assert_eq!(study.report(0, 1, &[77.0]), GO);
    assert_eq!(study.report(0, 2, &[88.0]), GO);
    assert_eq!(study.records().len(), before);
    assert_eq!(study.history().trials()[0].at(1), Some(1.0));
    assert_eq!(study.report(0, 3, &[0.8]), [(0, Verdict::Pause)]);
    // It ran on before the pause reached it: it waits still, and where it waits has not changed.
    assert_eq!(study.report(0, 4, &[0.7]), [(0, Verdict::Pause)]);
}

/// 30 trials in three rungs: the best is trained to the end, though no third of the highest rung is
/// a whole trial.
#[test]
fn when_trials_run_out_the_best_one_is_trained_to_the_end() {
    for spec in [r#"{"kind":"asha","max_resource":81}"#, r#"{"kind":"hyperband","max_resource":81}"#] {
        let mut study = study(spec, Direction::Minimize, Some(12), 1);
        let world =
            run(&mut study, 4, 81, 10_000, |_, trial, epoch| Turn::Says(f64::from(trial + 1) / f64::from(epoch)));
        assert!(!world.stuck);
        let whole: Vec<u32> = world.at.iter().filter(|(_, at)| **at == 81).map(|(trial, _)| *trial).collect();
        assert_eq!(whole.len(), 1, "{spec}");
    }
}

/// Of what is spent the lowest bracket has about half.
#[test]
fn brackets_have_their_shares() {
    for form in ["stopping", "promotion"] {
        let spec = format!(r#"{{"kind":"hyperband","form":"{form}","max_resource":81}}"#);
        let mut study = study(&spec, Direction::Minimize, None, 5);
        let world = run(&mut study, 4, 81, 40_000, |study, trial, epoch| {
            let x = study.space().number(&study.history().trials()[trial as usize].config, "x").unwrap();
            Turn::Says(x + 1.0 / f64::from(epoch))
        });
        let mut spent = [0.0; 4];
        for (trial, units) in &world.units {
            spent[study.history().trials()[*trial as usize].bracket as usize] += f64::from(*units) / 40_000.0;
        }
        for (share, bound) in spent.iter().zip([8.0, 4.0, 2.0, 1.0].map(|part| part / 15.0)) {
            assert!((share - bound).abs() < 0.03, "{form}: {spent:?}");
        }
    }
}
