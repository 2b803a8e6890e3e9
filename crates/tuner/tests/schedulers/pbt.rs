//! Population based training.

use shoal_tuner::{Ask, Direction, Outcome, Study, TrialId, Verdict};

use crate::world::{Turn, run, study};

fn started(study: &mut Study) -> (TrialId, Option<(TrialId, u32)>, Option<u32>) {
    match study.ask() {
        Ask::Start(start) => (start.trial, start.origin.map(|origin| (origin.trial, origin.resource)), start.to),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_step_by_hand() {
    let mut study = study(
        r#"{"kind":"pbt","population":4,"interval":2,"max_resource":6,"resample":0.0}"#,
        Direction::Minimize,
        None,
        1,
    );
    for trial in 0..4 {
        assert_eq!(started(&mut study), (trial, None, Some(2)));
    }
    assert_eq!(study.ask(), Ask::Wait);
    for (trial, value) in [(0, 3.0), (1, 1.0), (2, 2.0)] {
        assert_eq!(study.report(trial, 1, &[9.0]), []);
        assert_eq!(study.report(trial, 2, &[value]), [(trial, Verdict::Continue { to: Some(4) })]);
    }
    // The fourth is the worst of four: the only best one is copied.
    assert_eq!(study.report(3, 2, &[f64::NAN]), [(3, Verdict::Stop)]);
    assert_eq!(started(&mut study), (4, Some((1, 2)), Some(4)));
    assert_eq!(study.ask(), Ask::Wait);
    let x = |trial: TrialId| study.space().number(&study.history().trials()[trial as usize].config, "x").unwrap();
    let factor = x(4) / x(1);
    assert!((factor - 0.8).abs() < 1e-12 || (factor - 1.2).abs() < 1e-12 || x(4) >= 1.0, "{factor}");
    // The copy goes on from there.
    assert_eq!(study.history().trials()[4].resource(), 2);
    assert_eq!(study.report(4, 3, &[0.5]), []);
    assert_eq!(study.report(4, 6, &[0.4]), [(4, Verdict::Stop)]);
    assert_eq!(study.history().trials()[4].value(), Some(0.4));
}

#[test]
fn who_came_first_is_compared_when_the_others_come() {
    let mut study =
        study(r#"{"kind":"pbt","population":4,"interval":1,"max_resource":3}"#, Direction::Minimize, None, 1);
    // One worker: the worst is the first to come to its end of the step.
    for (trial, value) in [(0, 9.0), (1, 1.0), (2, 2.0)] {
        assert_eq!(started(&mut study).0, trial);
        assert_eq!(study.report(trial, 1, &[value]), [(trial, Verdict::Pause)]);
    }
    assert_eq!(started(&mut study).0, 3);
    assert_eq!(study.report(3, 1, &[3.0]), [(0, Verdict::Stop), (3, Verdict::Pause)]);
    assert_eq!(started(&mut study).1, Some((1, 1)));
}

/// Members that fail, at any time, leave nobody waiting.
#[test]
fn failed_members_are_replaced_and_nobody_waits_for_them() {
    let mut study =
        study(r#"{"kind":"pbt","population":4,"interval":2,"max_resource":8}"#, Direction::Minimize, Some(40), 1);
    // All fail at first: new ones, for there is nobody to copy.
    for trial in 0..4 {
        assert_eq!(started(&mut study).0, trial);
        study.end(trial, Outcome::Failed);
    }
    assert_eq!(started(&mut study), (4, None, Some(2)));
    study.end(4, Outcome::Failed);
    let mut turns = 0_u32;
    let world = run(&mut study, 2, 8, 10_000, |_, trial, epoch| {
        turns += 1;
        if turns.is_multiple_of(7) { Turn::Fails } else { Turn::Says(f64::from(trial * 31 % 17) / f64::from(epoch)) }
    });
    assert!(!world.stuck);
    assert!(world.at.values().any(|at| *at == 8));
    assert_eq!(study.history().running(), 0);
}

/// A learning rate that must fall: no constant value does as well as a population that changes it.
#[test]
fn it_finds_a_schedule() {
    // State of a member: what its checkpoint holds. Each unit moves it towards 0 by its rate, or
    // past it.
    let best = |population: &str, trials: Option<u32>| {
        let mut study = study(population, Direction::Minimize, trials, 11);
        let mut state: std::collections::BTreeMap<(TrialId, u32), f64> = std::collections::BTreeMap::new();
        let mut best = f64::INFINITY;
        run(&mut study, 4, 40, 8 * 40, |study, trial, unit| {
            let known = &study.history().trials()[trial as usize];
            let rate = study.space().number(&known.config, "x").unwrap();
            let before = known
                .origin
                .filter(|_| known.reports.is_empty())
                .map_or((trial, unit - 1), |it| (it.trial, it.resource));
            // Above 1 / (1 + unit) it diverges from what it had.
            let limit = 1.0 / (1.0 + f64::from(unit) / 4.0);
            let old = state.get(&before).copied().unwrap_or(1.0);
            let new = old * (1.0 - rate).max(rate / limit - 1.0).max(0.01);
            state.insert((trial, unit), new);
            best = best.min(new);
            Turn::Says(new)
        });
        best
    };
    let alone = best(r#"{"kind":"none"}"#, Some(8));
    let population = best(r#"{"kind":"pbt","population":8,"interval":4,"max_resource":40}"#, None);
    assert!(population < alone / 20.0, "population {population:e}, each alone {alone:e}");
}
