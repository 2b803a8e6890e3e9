//! Megatron's interleaved 1F1B: rank r has the stages r, r + p, r + 2p, ... ("chunks"), and takes p
//! micro-batches through a chunk before it turns to the next. The idle share falls to (p - 1) / (v
//! m + p - 1), for v times the messages.

use super::{
    Action,
    Work::{Backward, Forward},
};
use crate::error::{Invalid, at_least_one, nearest_multiples};

pub(super) fn interleaved(ranks: usize, micros: usize, chunks: usize) -> Result<Vec<Vec<Action>>, Invalid> {
    at_least_one("chunks", chunks)?;
    if !micros.is_multiple_of(ranks) {
        let problem = format!("{micros} cannot be taken through {ranks} stages in turns of {ranks}");
        return Err(Invalid::new("microbatches", problem).nearest(nearest_multiples(ranks, micros)));
    }
    let total = micros * chunks;
    let list = |rank: usize| {
        // The n-th forward and backward of a rank, over all its chunks.
        let forward = |n: usize| {
            Action::new(n / ranks % chunks * ranks + rank, n / (ranks * chunks) * ranks + n % ranks, Forward)
        };
        let backward = |n: usize| {
            let chunk = chunks - 1 - n / ranks % chunks;
            Action::new(chunk * ranks + rank, n / (ranks * chunks) * ranks + n % ranks, Backward)
        };
        let ahead =
            if chunks == 1 { ranks - rank - 1 } else { 2 * (ranks - rank - 1) + (chunks - 1) * ranks }.min(total);
        let mut list: Vec<_> = (0..ahead).map(forward).collect();
        for n in 0..total {
            if n + ahead < total {
                list.push(forward(n + ahead));
            }
            list.push(backward(n));
        }
        list
    };
    Ok((0..ranks).map(list).collect())
}
