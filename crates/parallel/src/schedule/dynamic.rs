//! The order in which smp's `interleaved` pipeline comes to run, as a list: each rank takes a
//! backward pass as soon as one can run, otherwise the next forward pass; the first stage begins no
//! micro-batch while `active` are under way. Found by playing it with backward passes that take
//! twice as long as forward passes, so it is the same on every rank.

use super::{
    Action,
    Work::{Backward, Forward},
};
use crate::error::{Invalid, at_least_one};

pub(super) fn dynamic(ranks: usize, micros: usize, active: usize) -> Result<Vec<Vec<Action>>, Invalid> {
    at_least_one("active_microbatches", active)?;
    // When each pass ends, by stage and micro-batch.
    let mut forward = vec![vec![None; micros]; ranks];
    let mut backward = vec![vec![None; micros]; ranks];
    let mut free_at = vec![0_usize; ranks];
    let mut lists = vec![Vec::new(); ranks];
    let (mut now, mut left) = (0, 2 * ranks * micros);
    while left > 0 {
        for stage in 0..ranks {
            if free_at[stage] > now {
                continue;
            }
            let done = |ends: &[Option<usize>], micro: usize| ends[micro].is_some_and(|end| end <= now);
            // Micro-batches pass each stage in order, so only the first that is not begun can be
            // next.
            let next_backward = backward[stage].iter().position(Option::is_none).filter(|micro| {
                done(&forward[stage], *micro) && (stage + 1 == ranks || done(&backward[stage + 1], *micro))
            });
            let under_way = || {
                let begun = forward[0].iter().flatten().count();
                begun - backward[0].iter().flatten().filter(|end| **end <= now).count()
            };
            let next_forward = forward[stage]
                .iter()
                .position(Option::is_none)
                .filter(|micro| if stage == 0 { under_way() < active } else { done(&forward[stage - 1], *micro) });
            let (action, end) = match (next_backward, next_forward) {
                (Some(micro), _) => (Action::new(stage, micro, Backward), now + 2),
                (None, Some(micro)) => (Action::new(stage, micro, Forward), now + 1),
                (None, None) => continue,
            };
            let ends = if action.work == Forward { &mut forward } else { &mut backward };
            ends[stage][action.micro] = Some(end);
            free_at[stage] = end;
            lists[stage].push(action);
            left -= 1;
        }
        now += 1;
    }
    Ok(lists)
}
