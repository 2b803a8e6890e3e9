//! Dynamic loss scaling (Micikevicius et al., "Mixed Precision Training", 2018), right for
//! accumulation: the scale never changes within a step, and one non-finite gradient of any pass on
//! any rank skips the whole step everywhere, as one non-finite worker does among X workers.
//!
//! A rank tells [`LossScale::pass`] of each of its passes. After the last one it reduces
//! [`LossScale::found`] (a maximum) over every group that holds other samples or other parts of the
//! model, and [`LossScale::step`] decides by the result. An accumulator that holds what is not
//! finite is cleared by writing zeros: `0 * NaN` is not 0.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, within};

/// How the scale grows and falls.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScaleOptions {
    /// At first.
    pub initial: f64,
    /// What the scale is multiplied by after `interval` steps in a row that were finite.
    pub growth: f64,
    /// What it is multiplied by after one that was not.
    pub backoff: f64,
    /// Steps.
    pub interval: u64,
    /// It does not fall below this.
    pub min: f64,
    /// It does not grow above this.
    pub max: f64,
    /// The scale falls only at this one of the non-finite steps since it last grew (DeepSpeed's
    /// hysteresis, smp's `delayed_shift`); 1: at each.
    pub tolerance: u32,
    /// Every finite step starts that count again, not only the growth of the scale
    /// (`consecutive_hysteresis`).
    pub consecutive: bool,
}

impl ScaleOptions {
    const fn of(initial: f64, interval: u64, min: f64) -> Self {
        Self { initial, growth: 2.0, backoff: 0.5, interval, min, max: f64::MAX, tolerance: 1, consecutive: false }
    }

    /// The defaults of `torch.amp.GradScaler`.
    pub const TORCH: Self = Self::of(65_536.0, 2000, 0.0);
    /// Of Keras' `LossScaleOptimizer`.
    pub const KERAS: Self = Self::of(32_768.0, 2000, 1.0);
    /// Of smp's `DistributedOptimizer(dynamic_loss_scale=True)`.
    pub const SMP: Self = Self::of(4_294_967_296.0, 1000, 1.0);
    /// Of DeepSpeed.
    pub const DEEPSPEED: Self = Self { tolerance: 2, ..Self::of(65_536.0, 1000, 1.0) };
}

/// What to do with the gradient of a whole step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Divide it by the scale that the passes were computed with, and step.
    Apply,
    /// Write zeros over it; weights, moments and schedules stay as they are.
    Skip,
}

/// The scale, and where its accumulation is. Equal on all ranks after each step, as it depends on
/// reduced facts only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    options: ScaleOptions,
    passes: usize,
    scale: f64,
    /// Finite steps in a row.
    clean: u64,
    /// Non-finite steps that are still tolerated, and the one that is not.
    tolerance: u32,
    /// Passes of the step so far.
    done: usize,
    /// One of them was not finite.
    found: bool,
}

impl LossScale {
    /// For steps of `passes` passes of this rank.
    ///
    /// # Errors
    /// Options out of bounds.
    pub fn new(options: ScaleOptions, passes: usize) -> Result<Self, Invalid> {
        crate::error::at_least_one("passes", passes)?;
        within("initial", options.initial, f64::MIN_POSITIVE, f64::MAX)?;
        within("growth", options.growth, 1.0, f64::MAX)?;
        within("backoff", options.backoff, f64::MIN_POSITIVE, 1.0)?;
        within("min", options.min, 0.0, options.initial)?;
        within("max", options.max, options.initial, f64::MAX)?;
        crate::error::at_least_one("interval", usize::try_from(options.interval).unwrap_or(usize::MAX))?;
        crate::error::at_least_one("tolerance", options.tolerance as usize)?;
        Ok(Self {
            options,
            passes,
            scale: options.initial,
            clean: 0,
            tolerance: options.tolerance,
            done: 0,
            found: false,
        })
    }

    /// What the loss of every pass of this step is multiplied by.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// How many passes a step of this rank has.
    pub fn passes(&self) -> usize {
        self.passes
    }

    /// Whether a pass of this step on this rank was not finite.
    pub fn found(&self) -> bool {
        self.found
    }

    /// The gradient of a pass is there: whether all of it is finite. Returns whether it was the
    /// step's last.
    ///
    /// # Errors
    /// The step has had all of its passes and waits for [`LossScale::step`].
    pub fn pass(&mut self, finite: bool) -> Result<bool, Invalid> {
        if self.done == self.passes {
            return Err(Invalid::new(
                "passes",
                format!("the step has had its {} passes; decide it first", self.passes),
            ));
        }
        self.done += 1;
        self.found |= !finite;
        Ok(self.done == self.passes)
    }

    /// Decides the step and moves the scale; `found`: whether any pass on any rank was not finite.
    ///
    /// # Errors
    /// In the middle of an accumulation, or if this rank's own finding is left out of the reduced
    /// one.
    pub fn step(&mut self, found: bool) -> Result<Decision, Invalid> {
        if self.done < self.passes {
            let problem = format!(
                "{} of the step's {} passes are done; the scale must not change between passes",
                self.done, self.passes
            );
            return Err(Invalid::new("passes", problem));
        }
        if self.found && !found {
            return Err(Invalid::new(
                "found",
                "a pass of this rank was not finite: reduce it over all ranks before the decision",
            ));
        }
        (self.done, self.found) = (0, false);
        let options = &self.options;
        if found {
            self.clean = 0;
            self.tolerance -= 1;
            if self.tolerance == 0 {
                // Once the scale falls it falls at each non-finite step, until it has grown again.
                self.tolerance = 1;
                self.scale = (self.scale * options.backoff).max(options.min);
            }
            return Ok(Decision::Skip);
        }
        self.clean += 1;
        if options.consecutive {
            self.tolerance = options.tolerance;
        }
        if self.clean == options.interval {
            self.clean = 0;
            self.tolerance = options.tolerance;
            self.scale = (self.scale * options.growth).min(options.max);
        }
        Ok(Decision::Apply)
    }

    /// The passes of a rank change, as the world does; what was accumulated of the step is thrown
    /// away.
    ///
    /// # Errors
    /// No passes.
    pub fn restart(&mut self, passes: usize) -> Result<(), Invalid> {
        crate::error::at_least_one("passes", passes)?;
        (self.passes, self.done, self.found) = (passes, 0, false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{accumulation::Accumulation, random::Rng};

    /// The trace of scales and decisions of X workers, run by Y ranks.
    fn trace(workers: usize, ranks: usize, steps: &[Vec<bool>], options: ScaleOptions) -> Vec<(f64, Decision)> {
        let plan = Accumulation::uneven(workers, ranks).unwrap();
        let mut scales: Vec<LossScale> =
            (0..ranks).map(|rank| LossScale::new(options, plan.passes(rank)).unwrap()).collect();
        let mut trace = Vec::new();
        for finite in steps {
            for (rank, scale) in scales.iter_mut().enumerate() {
                let before = scale.scale();
                for number in 0..plan.passes(rank) {
                    assert_eq!(scale.step(true).unwrap_err().field, "passes");
                    let last = scale.pass(finite[plan.pass(rank, number as u64).worker]).unwrap();
                    assert_eq!(last, number + 1 == plan.passes(rank));
                    assert_eq!(scale.scale(), before, "the scale is the same for all passes of a step");
                }
                assert_eq!(scale.pass(true).unwrap_err().field, "passes");
            }
            let found = scales.iter().any(LossScale::found);
            let decisions: Vec<_> = scales.iter_mut().map(|scale| scale.step(found).unwrap()).collect();
            assert!(decisions.iter().all(|decision| *decision == decisions[0]));
            assert!(scales.iter().all(|scale| scale.scale() == scales[0].scale()));
            trace.push((scales[0].scale(), decisions[0]));
        }
        trace
    }

    #[test]
    fn few_ranks_keep_the_trace_of_many_workers() {
        let mut rng = Rng::new(4);
        for options in [ScaleOptions::TORCH, ScaleOptions::KERAS, ScaleOptions::SMP, ScaleOptions::DEEPSPEED] {
            let options = ScaleOptions { interval: 3, ..options };
            for _ in 0..40 {
                let (workers, ranks) = (rng.from(1, 9), rng.from(1, 9));
                let steps: Vec<Vec<bool>> =
                    (0..60).map(|_| (0..workers).map(|_| rng.unit() < 0.96).collect()).collect();
                let all = trace(workers, workers, &steps, options);
                assert_eq!(trace(workers, ranks.min(workers), &steps, options), all);
                for (finite, (_, decision)) in steps.iter().zip(&all) {
                    assert_eq!(*decision == Decision::Apply, finite.iter().all(|it| *it));
                }
            }
        }
    }

    fn scales(options: ScaleOptions, finite: &[u8]) -> Vec<f64> {
        let steps: Vec<_> = finite.iter().map(|it| vec![*it == 1]).collect();
        trace(1, 1, &steps, options).into_iter().map(|(scale, _)| scale).collect()
    }

    #[test]
    fn it_grows_after_the_interval_and_falls_at_once() {
        let options = ScaleOptions { initial: 8.0, interval: 2, ..ScaleOptions::TORCH };
        assert_eq!(scales(options, &[1, 1, 1, 0, 1, 1, 1, 1]), [8.0, 16.0, 16.0, 8.0, 8.0, 16.0, 16.0, 32.0]);
        // Keras' scale stays at 1, torch's goes on.
        assert_eq!(scales(ScaleOptions { initial: 2.0, ..ScaleOptions::KERAS }, &[0, 0, 0]), [1.0, 1.0, 1.0]);
        assert_eq!(scales(ScaleOptions { initial: 2.0, ..ScaleOptions::TORCH }, &[0, 0, 0]), [1.0, 0.5, 0.25]);
        assert_eq!(scales(ScaleOptions { max: 16.0, ..options }, &[1; 6]), [8.0, 16.0, 16.0, 16.0, 16.0, 16.0]);
    }

    /// Values of DeepSpeed's `DynamicLossScaler.update_scale`, followed by hand.
    #[test]
    fn hysteresis_is_that_of_deepspeed() {
        let options = ScaleOptions { initial: 64.0, interval: 2, ..ScaleOptions::DEEPSPEED };
        assert_eq!(scales(options, &[0, 0, 0, 1, 1, 0, 1, 0]), [64.0, 32.0, 16.0, 16.0, 32.0, 32.0, 32.0, 16.0]);
        let consecutive = ScaleOptions { consecutive: true, ..options };
        assert_eq!(scales(consecutive, &[0, 1, 0, 1, 0, 0]), [64.0, 64.0, 64.0, 64.0, 64.0, 32.0]);
    }

    #[test]
    fn a_finding_that_was_not_reduced_is_refused() {
        let mut scale = LossScale::new(ScaleOptions::TORCH, 1).unwrap();
        scale.pass(false).unwrap();
        assert_eq!(scale.step(false).unwrap_err().field, "found");
        assert_eq!(scale.step(true), Ok(Decision::Skip));
        scale.pass(false).unwrap();
        scale.restart(2).unwrap();
        assert!(!scale.found() && !scale.pass(true).unwrap());
        assert_eq!(
            LossScale::new(ScaleOptions { backoff: 2.0, ..ScaleOptions::TORCH }, 1).unwrap_err().field,
            "backoff"
        );
        assert_eq!(LossScale::new(ScaleOptions::TORCH, 0).unwrap_err().nearest, [1]);
    }
}
