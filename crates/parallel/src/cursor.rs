//! Which samples are read in which order, for a seed, an epoch and a world that may change between
//! any two steps.
//!
//! An epoch is one order of all samples. A step takes the next `workers x batch` of it, and worker
//! w the places w, w + workers, ... within them, as PyTorch's `DistributedSampler` deals them.
//! Since the position is a number of samples and not of steps, the world may change after any step:
//! what was read stays read, and nothing is read twice. The last step of an epoch may be short;
//! what it lacks is left out, dropped or filled up from the beginning, by choice.

use serde::{Deserialize, Serialize};

use crate::{
    error::{Invalid, at_least_one},
    random::Permutation,
};

/// What to do with an epoch's end that fills no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tail {
    /// A short step: some workers get fewer samples, or none. Every sample is read once.
    Short,
    /// No step: `drop_last`.
    Drop,
    /// A whole step, filled with the epoch's first samples: these are read twice, as by
    /// `DistributedSampler`.
    Pad,
}

/// The data and its orders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// How many there are.
    pub samples: u64,
    /// Of the orders.
    pub seed: u64,
    /// Another order each epoch; otherwise the order of the data.
    pub shuffle: bool,
    /// Of an epoch.
    pub tail: Tail,
}

/// Who reads at a step: the simulated workers (`accumulation`), each a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readers {
    /// How many.
    pub workers: usize,
    /// Samples of each in a step.
    pub batch: usize,
}

/// A place in the data. It is all that a checkpoint must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// From 0.
    pub epoch: u64,
    /// How many samples of the epoch's order are behind.
    pub read: u64,
}

/// Reads the data step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    samples: Samples,
    order: Permutation,
    position: Position,
}

impl Cursor {
    /// At a position: `Position::default()` at first, later one that was kept.
    ///
    /// # Errors
    /// No samples, or a position behind the epoch's end.
    pub fn new(samples: Samples, position: Position) -> Result<Self, Invalid> {
        let count = samples.samples;
        at_least_one("samples", usize::try_from(count).unwrap_or(usize::MAX))?;
        if position.read > count {
            let nearest = usize::try_from(count).unwrap_or(usize::MAX);
            return Err(Invalid::new("read", format!("{} samples are read of an epoch of {count}", position.read))
                .nearest([nearest]));
        }
        let order = Permutation::new(count, samples.seed, position.epoch);
        Ok(Self { samples, order, position })
    }

    /// What to keep in a checkpoint, as of the last step that was finished.
    pub fn position(&self) -> Position {
        self.position
    }

    /// How many steps these readers still have in this epoch.
    ///
    /// # Errors
    /// Nobody reads, or nothing.
    pub fn steps_left(&self, readers: Readers) -> Result<u64, Invalid> {
        let step = readers.step()?;
        let left = self.samples.samples - self.position.read;
        Ok(if self.samples.tail == Tail::Drop { left / step } else { left.div_ceil(step) })
    }

    /// Positions in the epoch's order that a worker reads in the next step; empty where the epoch
    /// has none for it. The order itself may be another one's, as PyTorch's.
    ///
    /// # Errors
    /// Nobody reads, or nothing, or there is no such worker.
    pub fn positions(&self, readers: Readers, worker: usize) -> Result<Vec<u64>, Invalid> {
        let step = readers.step()?;
        if worker >= readers.workers {
            return Err(
                Invalid::new("worker", format!("{worker} of {}", readers.workers)).nearest([readers.workers - 1])
            );
        }
        if self.steps_left(readers)? == 0 {
            return Ok(Vec::new());
        }
        let (from, count) = (self.position.read, self.samples.samples);
        let all = (from + worker as u64..from + step).step_by(readers.workers);
        Ok(match self.samples.tail {
            Tail::Pad => all.map(|place| place % count).collect(),
            Tail::Short | Tail::Drop => all.take_while(|place| *place < count).collect(),
        })
    }

    /// The numbers of the samples that a worker reads in the next step.
    ///
    /// # Errors
    /// As [`Cursor::positions`].
    pub fn batch(&self, readers: Readers, worker: usize) -> Result<Vec<u64>, Invalid> {
        let positions = self.positions(readers, worker)?;
        Ok(if self.samples.shuffle {
            positions.into_iter().map(|place| self.order.at(place)).collect()
        } else {
            positions
        })
    }

    /// The step was finished by all: moves behind it, and to the next epoch after the last one. A
    /// step that failed is not finished, and whoever is there then reads it again. Returns whether
    /// an epoch ended.
    ///
    /// # Errors
    /// Nobody reads, or nothing.
    pub fn finish(&mut self, readers: Readers) -> Result<bool, Invalid> {
        let step = readers.step()?;
        if self.steps_left(readers)? > 0 {
            self.position.read = self.samples.samples.min(self.position.read.saturating_add(step));
        }
        let ended = self.steps_left(readers)? == 0;
        if ended {
            self.position = Position { epoch: self.position.epoch + 1, read: 0 };
            self.order = Permutation::new(self.samples.samples, self.samples.seed, self.position.epoch);
        }
        Ok(ended)
    }
}

impl Readers {
    /// Samples of a step.
    fn step(self) -> Result<u64, Invalid> {
        at_least_one("workers", self.workers)?;
        at_least_one("batch", self.batch)?;
        Ok(self.workers as u64 * self.batch as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{accumulation::Accumulation, random::Rng};

    fn samples(samples: u64, shuffle: bool, tail: Tail) -> Samples {
        Samples { samples, seed: 7, shuffle, tail }
    }

    /// An epoch with another world at each step, some steps failing on their way; returns what was
    /// read.
    fn epoch(cursor: &mut Cursor, rng: &mut Rng, global: Option<usize>) -> Vec<u64> {
        let mut read = Vec::new();
        loop {
            // Either the world changes the batch, or the batch is kept by changing the passes.
            let workers = global.unwrap_or_else(|| rng.from(1, 9));
            let readers = Readers { workers, batch: if global.is_some() { 3 } else { rng.from(1, 9) } };
            let plan = Accumulation::uneven(workers, rng.from(1, workers)).unwrap();
            let mut step = Vec::new();
            for rank in 0..plan.ranks() {
                for pass in 0..plan.passes(rank) {
                    step.extend(cursor.batch(readers, plan.pass(rank, pass as u64).worker).unwrap());
                }
            }
            if rng.unit() < 0.2 {
                // A rank died: the step is read again by whoever is left. A checkpoint goes on at
                // the same place.
                *cursor = Cursor::new(cursor.samples.clone(), cursor.position()).unwrap();
                continue;
            }
            read.extend(step);
            if cursor.finish(readers).unwrap() {
                return read;
            }
        }
    }

    #[test]
    fn no_sample_is_lost_and_none_is_read_twice_when_the_world_changes() {
        let mut rng = Rng::new(6);
        for round in 0..150 {
            let count = rng.from(1, 300) as u64;
            let mut cursor = Cursor::new(samples(count, round % 3 > 0, Tail::Short), Position::default()).unwrap();
            let global = rng.pick(&[None, Some(4), Some(7)]);
            let mut orders = Vec::new();
            for number in 0..3 {
                assert_eq!(cursor.position(), Position { epoch: number, read: 0 });
                let mut read = epoch(&mut cursor, &mut rng, global);
                orders.push(read.clone());
                read.sort_unstable();
                assert!(read.into_iter().eq(0..count));
            }
            assert!(round % 3 == 0 || count < 20 || orders[0] != orders[1], "every epoch has an order of its own");
        }
    }

    /// A step's samples do not depend on how many ranks run the workers, and a worker's batch not
    /// on whether others exist.
    #[test]
    fn a_workers_batch_is_that_of_pytorchs_sampler() {
        let (workers, batch, count) = (4, 3, 50);
        let mut cursor = Cursor::new(samples(count, false, Tail::Pad), Position::default()).unwrap();
        let readers = Readers { workers, batch };
        let mut own = vec![Vec::new(); workers];
        loop {
            for (worker, all) in own.iter_mut().enumerate() {
                all.extend(cursor.batch(readers, worker).unwrap());
            }
            if cursor.finish(readers).unwrap() {
                break;
            }
        }
        // indices = list(range(50)) + padding; indices[rank::4]
        for (worker, all) in own.iter().enumerate() {
            assert!(
                all.iter().copied().eq((0..60).skip(worker).step_by(4).map(|place| place % count)),
                "{worker}: {all:?}"
            );
        }
    }

    #[test]
    fn tails_are_dropped_shortened_or_filled() {
        let readers = Readers { workers: 4, batch: 2 };
        for (tail, steps, last) in [(Tail::Drop, 1, vec![]), (Tail::Short, 2, vec![9]), (Tail::Pad, 2, vec![9, 3])] {
            let mut cursor = Cursor::new(samples(10, false, tail), Position::default()).unwrap();
            assert_eq!(cursor.steps_left(readers), Ok(steps));
            assert_eq!(cursor.batch(readers, 1), Ok(vec![1, 5]));
            assert_eq!(cursor.finish(readers), Ok(tail == Tail::Drop));
            if tail != Tail::Drop {
                assert_eq!(cursor.batch(readers, 1), Ok(last));
            }
        }
        // What is dropped leaves no step at all: the epoch still ends.
        let mut cursor = Cursor::new(samples(3, false, Tail::Drop), Position::default()).unwrap();
        assert_eq!((cursor.batch(readers, 0), cursor.finish(readers)), (Ok(vec![]), Ok(true)));
    }

    #[test]
    fn places_that_are_none_are_refused() {
        let wrong = Cursor::new(samples(10, true, Tail::Short), Position { epoch: 0, read: 11 }).unwrap_err();
        assert_eq!((wrong.field, wrong.nearest.as_slice()), ("read", [10].as_slice()));
        let cursor = Cursor::new(samples(10, true, Tail::Short), Position::default()).unwrap();
        assert_eq!(cursor.batch(Readers { workers: 2, batch: 0 }, 0).unwrap_err().field, "batch");
        assert_eq!(cursor.batch(Readers { workers: 2, batch: 1 }, 2).unwrap_err().nearest, [1]);
    }
}
