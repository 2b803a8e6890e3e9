//! The median rule by hand.

use shoal_tuner::{Ask, Direction, Outcome, Study, TrialId, Verdict};

use crate::world::study;

fn start(study: &mut Study) -> TrialId {
    let Ask::Start(start) = study.ask() else { panic!("nothing to start") };
    start.trial
}

/// Reports all, and says after which epoch the trial was stopped.
fn runs(study: &mut Study, values: &[f64]) -> Option<u32> {
    let trial = start(study);
    for (epoch, &value) in (1..).zip(values) {
        if study.report(trial, epoch, &[value]) == [(trial, Verdict::Stop)] {
            return Some(epoch);
        }
    }
    study.end(trial, Outcome::Completed { values: vec![values[values.len() - 1]] });
    None
}

/// AWS's text, without activation: running averages of the others, current value of this one.
#[test]
fn the_current_value_against_the_median_of_running_averages() {
    let mut study = study(r#"{"kind":"median","min_trials":1,"min_completed":0}"#, Direction::Minimize, None, 3);
    // Running averages at 1, 2, 3: 9, 6, 5.
    assert_eq!(runs(&mut study, &[9.0, 3.0, 3.0]), None);
    // At 2: 3.5 is better than 6, though it is worse than the other's value there. At 3: 5.0 is not
    // worse than 5.
    assert_eq!(runs(&mut study, &[5.0, 3.5, 5.0]), None);
    // Medians: at 1 of 9 and 5: 7; at 2 of 6 and 4.25: 5.125.
    assert_eq!(runs(&mut study, &[7.0, 5.126, 0.0]), Some(2));
    // At 1 of 9, 5, 7: 7. At 2 of 6, 4.25, 6.063: 6. At 3 of those who came there, 5 and 4.5: 4.75.
    assert_eq!(runs(&mut study, &[7.0, 6.0, 4.76]), Some(3));
    assert_eq!(runs(&mut study, &[f64::NAN]), Some(1));
}

#[test]
fn more_is_better_where_the_objective_is_maximised() {
    let mut study = study(r#"{"kind":"median","min_trials":1,"min_completed":0}"#, Direction::Maximize, None, 3);
    assert_eq!(runs(&mut study, &[0.5, 0.7]), None);
    assert_eq!(runs(&mut study, &[0.5, 0.59]), Some(2));
    assert_eq!(runs(&mut study, &[0.49]), Some(1));
}

#[test]
fn by_default_some_must_have_completed_and_come_as_far() {
    let mut study = study(r#"{"kind":"median"}"#, Direction::Minimize, None, 3);
    for _ in 0..2 {
        assert_eq!(runs(&mut study, &[1.0, 1.0]), None);
    }
    // Five came to epoch 1, but two have completed.
    let others: Vec<TrialId> = (0..3).map(|_| start(&mut study)).collect();
    for &other in &others {
        study.report(other, 1, &[1.0]);
    }
    let late = start(&mut study);
    assert_eq!(study.report(late, 1, &[5.0]), []);
    study.end(others[0], Outcome::Completed { values: vec![1.0] });
    // Three have completed, and six came to epoch 1.
    assert_eq!(runs(&mut study, &[5.0]), Some(1));
    // But only two came to epoch 2.
    assert_eq!(study.report(late, 2, &[5.0]), []);
}
