//! GPipe and 1F1B. Both are idle for (p - 1) / (m + p - 1) of the time; 1F1B keeps min(m, p - i) activations at stage i instead of m.

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
    let list = |stage: usize| {
        let ahead = (ranks - stage - 1).min(micros);
        let mut list: Vec<_> = (0..ahead).map(|micro| Action::new(stage, micro, Forward)).collect();
        for micro in 0..micros {
            if micro + ahead < micros {
                list.push(Action::new(stage, micro + ahead, Forward));
            }
            list.push(Action::new(stage, micro, Backward));
        }
        list
    };
    (0..ranks).map(list).collect()
}
