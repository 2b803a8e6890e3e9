//! Ten per cent behind the best at the same epoch: four trials of eight epochs.

use shoal_tuner::{Direction, Study};

use crate::world::{Turn, World, run, study};

/// Accuracy of trials 1 to 4 after each epoch.
const CURVES: [[f64; 8]; 4] = [
    [0.48, 0.57, 0.64, 0.70, 0.72, 0.73, 0.73, 0.73],
    [0.46, 0.50, 0.58, 0.66, 0.74, 0.80, 0.82, 0.83],
    [0.42, 0.46, 0.53, 0.56, 0.58, 0.59, 0.60, 0.60],
    [0.50, 0.60, 0.70, 0.80, 0.84, 0.87, 0.89, 0.90],
];

fn curves(study: &mut Study, workers: usize, order: [usize; 4]) -> World {
    run(study, workers, 8, 1000, |_, trial, epoch| Turn::Says(CURVES[order[trial as usize]][epoch as usize - 1]))
}

fn units(world: &World) -> Vec<u32> {
    world.units.values().copied().collect()
}

#[test]
fn in_parallel_eleven_epochs() {
    for spec in [r#"{"kind":"behind"}"#, r#"{"kind":"behind","percent":10.0,"min_resource":1,"last_one_stops":true}"#] {
        let mut study = study(spec, Direction::Maximize, Some(4), 1);
        let world = curves(&mut study, 4, [0, 1, 2, 3]);
        assert_eq!(units(&world), [4, 2, 1, 4], "trials 1 to 4");
        assert_eq!(world.last, Some(3), "the winner is trial 4");
    }
}

#[test]
fn taking_turns_on_one_machine_needs_no_more_epochs() {
    let mut study =
        study(r#"{"kind":"round_robin","width":4,"rule":{"kind":"behind"}}"#, Direction::Maximize, Some(4), 1);
    let world = curves(&mut study, 1, [0, 1, 2, 3]);
    assert_eq!(units(&world), [4, 2, 1, 4]);
    assert_eq!(study.history().trials()[3].resource(), 4);
}

fn orders() -> Vec<[usize; 4]> {
    let all = (0..256).map(|code| [code / 64, code / 16 % 4, code / 4 % 4, code % 4]);
    all.filter(|order| (0..4).all(|trial| order.contains(&trial))).collect()
}

/// Epochs of all orders, one trial after the other.
fn in_sequence(spec: &str) -> Vec<u32> {
    let total = |order| units(&curves(&mut study(spec, Direction::Maximize, Some(4), 1), 1, order)).iter().sum();
    orders().into_iter().map(total).collect()
}

#[test]
fn in_sequence_the_expected_number_of_epochs() {
    let with = in_sequence(r#"{"kind":"behind"}"#);
    assert_eq!(with.len(), 24);
    // 470 / 24 = 19.583
    assert_eq!(with.iter().sum::<u32>(), 470);
    assert_eq!((with.iter().min(), with.iter().max()), (Some(&15), Some(&28)));
    // 500 / 24 = 20.833
    let without = in_sequence(r#"{"kind":"behind","last_one_stops":false}"#);
    assert_eq!(without.iter().sum::<u32>(), 500);
}

#[test]
fn for_a_minimum_it_is_the_other_way_round() {
    let mut study = study(r#"{"kind":"behind","percent":50,"last_one_stops":false}"#, Direction::Minimize, None, 1);
    let losses = [1.0, 1.49, 1.51, f64::NAN];
    let world = run(&mut study, 4, 2, 8, |_, trial, _| Turn::Says(losses[trial as usize % 4]));
    assert_eq!((world.units[&0], world.units[&1], world.units[&2], world.units[&3]), (2, 2, 1, 1));
}
