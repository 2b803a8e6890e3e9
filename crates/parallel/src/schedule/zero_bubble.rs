//! ZB-H1: 1F1B in which stage i puts off each gradient of the weights by i micro-batches, so that
//! gradients of inputs reach the stages before sooner and the last stages fill their end with what
//! was put off. All stages then hold at most as much as the first one does in 1F1B; the idle time
//! is (p - 1)(f + b - w) instead of (p - 1)(f + b + w).

use super::{
    Action,
    Work::{Input, Weight},
    flush::alternating,
};

pub(super) fn h1(ranks: usize, micros: usize) -> Vec<Vec<Action>> {
    let list = |stage: usize| {
        let mut list = alternating(ranks, micros, stage, |list, micro| {
            list.push(Action::new(stage, micro, Input));
            if micro >= stage {
                list.push(Action::new(stage, micro - stage, Weight));
            }
        });
        list.extend((micros.saturating_sub(stage)..micros).map(|micro| Action::new(stage, micro, Weight)));
        list
    };
    (0..ranks).map(list).collect()
}
