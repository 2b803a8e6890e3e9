//! Large batch simulation: Y ranks train as X workers would, by running several passes (forward and
//! backward) for each step of the optimizer.
//!
//! A *worker* is one of the X that are simulated, a *rank* one of the Y that are there. Rank r runs
//! the workers r, r + Y, r + 2Y and so on, one a pass, so worker w sees the samples that it would
//! see on X ranks (`cursor`). The gradient of a step is the mean over all X workers, in whatever
//! order it is summed: Horovod's `backward_passes_per_step` with `average_aggregated_gradients`.
//! What is not linear in the gradient (clipping, norms, a check for numbers that are not finite)
//! belongs after the last pass, on the sum over all ranks; batch statistics stay those of one pass.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, at_least_one, nearest_divisors, nearest_multiples};

/// How the gradients of a step's passes are summed by what the script already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Summed over a rank's passes, summed over ranks.
    Sum,
    /// Summed over a rank's passes, averaged over ranks: `horovod.torch`, and DDP without sync.
    Average,
    /// Averaged over a rank's passes, averaged over ranks: Horovod's
    /// `average_aggregated_gradients`.
    AverageOfAverages,
}

/// X workers on Y ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accumulation {
    workers: usize,
    ranks: usize,
}

/// One pass of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// The optimizer's step that it belongs to, from 0.
    pub step: u64,
    /// Its number within that step, from 0.
    pub pass: usize,
    /// Whose samples it computes.
    pub worker: usize,
    /// It is the rank's last one of the step: gradients are reduced over ranks now, and the
    /// optimizer steps after it.
    pub communicates: bool,
}

impl Accumulation {
    /// Every rank runs equally many passes.
    ///
    /// # Errors
    /// More ranks than workers, or a number of workers that the ranks do not divide; with the
    /// nearest that they do.
    pub fn new(workers: usize, ranks: usize) -> Result<Self, Invalid> {
        let plan = Self::uneven(workers, ranks)?;
        if workers.is_multiple_of(ranks) {
            return Ok(plan);
        }
        let also = nearest_divisors(workers, ranks).iter().map(usize::to_string).collect::<Vec<_>>().join(" or ");
        let problem = format!("{workers} workers cannot be shared equally by {ranks} ranks (by {also} they can)");
        Err(Invalid::new("simulate", problem).nearest(nearest_multiples(ranks, workers)))
    }

    /// Some ranks may run a pass more than others: for a world that changed and keeps its global
    /// batch. Only [`Reduction::Sum`] and [`Reduction::Average`] are right for it.
    ///
    /// # Errors
    /// No ranks, or more ranks than workers: some would have nothing to do.
    pub fn uneven(workers: usize, ranks: usize) -> Result<Self, Invalid> {
        at_least_one("ranks", ranks)?;
        if workers < ranks {
            return Err(Invalid::new(
                "simulate",
                format!("{ranks} ranks cannot behave as {workers} workers: fewer than they are"),
            )
            .nearest([ranks]));
        }
        Ok(Self { workers, ranks })
    }

    /// X.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Y.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Whether all ranks run equally many passes.
    pub fn is_even(&self) -> bool {
        self.workers.is_multiple_of(self.ranks)
    }

    /// How many passes a rank runs for each step.
    pub fn passes(&self, rank: usize) -> usize {
        (self.workers - rank).div_ceil(self.ranks)
    }

    /// The rank's pass of this number, counted from 0 through all steps.
    pub fn pass(&self, rank: usize, number: u64) -> Pass {
        let passes = self.passes(rank) as u64;
        let pass = (number % passes) as usize;
        Pass {
            step: number / passes,
            pass,
            worker: rank + pass * self.ranks,
            communicates: pass + 1 == passes as usize,
        }
    }

    /// The worker's rank, and its number among the rank's passes.
    pub fn place(&self, worker: usize) -> (usize, usize) {
        (worker % self.ranks, worker / self.ranks)
    }

    /// What the reduced gradient must be multiplied by to be the mean over X workers. Equally well,
    /// what each pass's loss is multiplied by.
    ///
    /// # Errors
    /// Averages of averages over unequal numbers of passes: no one factor makes a mean of them.
    pub fn factor(&self, reduction: Reduction) -> Result<f64, Invalid> {
        match reduction {
            Reduction::Sum => Ok(1.0 / self.workers as f64),
            Reduction::Average => Ok(self.ranks as f64 / self.workers as f64),
            Reduction::AverageOfAverages if self.is_even() => Ok(1.0),
            Reduction::AverageOfAverages => {
                let problem = format!(
                    "{} ranks run unequal numbers of passes for {} workers; sum them instead",
                    self.ranks, self.workers
                );
                Err(Invalid::new("reduction", problem))
            }
        }
    }

    /// How many steps of the optimizer an epoch has, each of `workers x batch` samples.
    /// `drop_last`: without one for what is left over.
    ///
    /// # Errors
    /// A batch of 0.
    pub fn steps_per_epoch(&self, samples: u64, batch: usize, drop_last: bool) -> Result<u64, Invalid> {
        at_least_one("batch", batch)?;
        let step = self.workers as u64 * batch as u64;
        Ok(if drop_last { samples / step } else { samples.div_ceil(step) })
    }

    /// What a number of steps in a script's settings (of a schedule, of logging, of checkpoints) is
    /// in passes of a rank: scripts count steps of the optimizer, while their loop may count
    /// passes.
    pub fn passes_in(&self, rank: usize, steps: u64) -> u64 {
        steps * self.passes(rank) as u64
    }

    /// How many whole steps of the optimizer a rank has behind it after so many passes.
    pub fn steps_in(&self, rank: usize, passes: u64) -> u64 {
        passes / self.passes(rank) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    #[test]
    fn every_worker_is_run_once_a_step() {
        for workers in 1..40 {
            for ranks in 1..=workers {
                let plan = Accumulation::uneven(workers, ranks).unwrap();
                for step in 0..3 {
                    let mut run = vec![0; workers];
                    for rank in 0..ranks {
                        let passes = plan.passes(rank);
                        for pass in 0..passes {
                            let it = plan.pass(rank, plan.passes_in(rank, step) + pass as u64);
                            assert_eq!((it.step, it.pass, it.communicates), (step, pass, pass + 1 == passes));
                            assert_eq!(plan.place(it.worker), (rank, pass));
                            run[it.worker] += 1;
                        }
                        assert_eq!(plan.steps_in(rank, plan.passes_in(rank, step + 1) - 1), step);
                        assert!(plan.passes(0) - passes <= 1);
                    }
                    assert!(run.iter().all(|times| *times == 1), "{workers} on {ranks}");
                }
                assert_eq!(Accumulation::new(workers, ranks).is_ok(), plan.is_even());
            }
        }
    }

    /// The mean over X workers is the same however many ranks compute it, for each way of summing.
    #[test]
    fn the_gradient_is_that_of_all_workers() {
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let (workers, ranks) = (rng.from(1, 24), rng.from(1, 24));
            let Ok(plan) = Accumulation::uneven(workers, ranks.min(workers)) else { unreachable!() };
            let gradients: Vec<f64> = (0..workers).map(|_| rng.unit() - 0.5).collect();
            let mean = gradients.iter().sum::<f64>() / workers as f64;
            for reduction in [Reduction::Sum, Reduction::Average, Reduction::AverageOfAverages] {
                let Ok(factor) = plan.factor(reduction) else {
                    assert!(!plan.is_even() && reduction == Reduction::AverageOfAverages);
                    continue;
                };
                let mut total = 0.0;
                for rank in 0..plan.ranks() {
                    let passes = plan.passes(rank);
                    let sum: f64 = (0..passes).map(|pass| gradients[plan.pass(rank, pass as u64).worker]).sum();
                    total += if reduction == Reduction::AverageOfAverages { sum / passes as f64 } else { sum };
                }
                let reduced = if reduction == Reduction::Sum { total } else { total / plan.ranks() as f64 };
                assert!((reduced * factor - mean).abs() < 1e-12, "{reduction:?}");
            }
        }
    }

    #[test]
    fn what_does_not_divide_is_refused_with_what_does() {
        let error = Accumulation::new(8, 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "simulate: 8 workers cannot be shared equally by 3 ranks (by 2 or 4 they can); nearest valid: 6 or 9"
        );
        assert!(error.nearest.iter().all(|&workers| Accumulation::new(workers as usize, 3).is_ok()));
        assert_eq!(Accumulation::new(2, 4).unwrap_err().nearest, [4]);
        assert_eq!(Accumulation::new(4, 0).unwrap_err().field, "ranks");
    }

    #[test]
    fn epochs_are_counted_in_steps_of_the_optimizer() {
        let plan = Accumulation::new(4, 1).unwrap();
        assert_eq!(plan.steps_per_epoch(60_000, 128, true), Ok(117));
        assert_eq!(plan.steps_per_epoch(60_000, 128, false), Ok(118));
        assert_eq!(plan.steps_per_epoch(60_000, 0, false).unwrap_err().field, "batch");
    }
}
