//! GPipe and 1F1B. Both are idle for (p - 1) / (m + p - 1) of the time; 1F1B keeps min(m, p - i)
//! activations at stage i instead of m.

use super::{
    Action,
    Work::{Backward, Forward},
};

pub(super) fn gpipe(ranks: usize, micros: usize) -> Vec<Vec<Action>> {
    let list = |stage: usize| {
        let forwards = (0..micros).map(move |micro| Action::new(stage, micro, Forward));
        forwards.chain((0..micros).map(move |micro| Action::new(stage, micro, Backward))).collect()
    };
    (0..ranks).map(list).collect()
}

pub(super) fn one_forward_one_backward(ranks: usize, micros: usize) -> Vec<Vec<Action>> {
    (0..ranks)
        .map(|stage| alternating(ranks, micros, stage, |list, micro| list.push(Action::new(stage, micro, Backward))))
        .collect()
}

/// A stage's forwards as 1F1B orders them, with what `backward` puts behind each.
pub(super) fn alternating(
    ranks: usize,
    micros: usize,
    stage: usize,
    backward: impl Fn(&mut Vec<Action>, usize),
) -> Vec<Action> {
    let ahead = (ranks - stage - 1).min(micros);
    let mut list: Vec<_> = (0..ahead).map(|micro| Action::new(stage, micro, Forward)).collect();
    for micro in 0..micros {
        if micro + ahead < micros {
            list.push(Action::new(stage, micro + ahead, Forward));
        }
        backward(&mut list, micro);
    }
    list
}
