//! Whether a search still gets anywhere: AWS's completion criteria `BestObjectiveNotImproving` and
//! `ConvergenceDetected`, as a fold over results. What it keeps does not grow with the number of
//! trials.

use serde::{Deserialize, Serialize};

/// By how much of its own size the best value must improve to count as an improvement; AWS's 1 %.
pub const IMPROVEMENT: f64 = 0.01;

/// How many of the best values [`Progress::possible`] looks at.
const BEST: usize = 10;

/// How sure the bound of [`Progress::possible`] is.
const DOUBT: f64 = 0.05;

/// Results so far, in the order in which trials ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    results: u32,
    /// Results since the last improvement.
    not_improving: u32,
    /// The best value at the last improvement: many small steps may make one improvement.
    reference: Option<f64>,
    /// The best values, ascending.
    best: Vec<f64>,
}

impl Progress {
    /// A trial ended with a value, as it is minimised. Values that are not finite are no results
    /// and change nothing.
    pub fn take(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.results += 1;
        self.not_improving += 1;
        if self.reference.is_none_or(|reference| value < reference - IMPROVEMENT * reference.abs()) {
            self.reference = Some(value);
            self.not_improving = 0;
        }
        let place = self.best.partition_point(|known| *known <= value);
        if place < BEST {
            self.best.insert(place, value);
            self.best.truncate(BEST);
        }
    }

    /// The best value, minimised.
    pub fn best(&self) -> Option<f64> {
        self.best.first().copied()
    }

    /// How many results there are.
    pub fn results(&self) -> u32 {
        self.results
    }

    /// How many results there have been since one improved the best by more than 1 % of its size.
    pub fn not_improving(&self) -> u32 {
        self.not_improving
    }

    /// By how much the best value could still improve, with 95 % confidence: a bound on the
    /// distance from the best of ten values to the least possible one.
    ///
    /// Near its minimum a smooth function of d parameters has values below x with a chance that
    /// grows as (x - minimum)^(d/2), whatever the function (de Haan, "Estimation of the minimum of
    /// a function using order statistics", JASA 76, 1981). Then the ratio of the distances of the
    /// best and the tenth best value to the minimum is the (2/d)-th power of a variable with the
    /// Beta(1, 9) law, and its 95 % quantile bounds the best one's. Values of a searcher that
    /// learns are denser near the minimum than random ones, which makes the bound tighter than it
    /// says only where the searcher is wrong about where the minimum lies.
    pub fn possible(&self, dimensions: usize) -> Option<f64> {
        let (best, last) = (self.best.first()?, self.best.get(BEST - 1)?);
        #[expect(clippy::cast_precision_loss, reason = "a handful of parameters")]
        let power = 2.0 / dimensions.max(1) as f64;
        let quantile = 1.0 - libm::pow(DOUBT, 1.0 / (BEST - 1) as f64);
        let ratio = libm::pow(quantile, power);
        Some((last - best) * ratio / (1.0 - ratio))
    }

    /// Whether it is unlikely that the search improves by more than 1 % of the best value's size
    /// any more: no improvement in the last 10 results nor in the last third of all, and
    /// [`Self::possible`] says so, too. `dimensions`: how many parameters have more than one value.
    pub fn has_converged(&self, dimensions: usize) -> bool {
        let patience = (self.results / 3).max(10);
        let is_small = |possible: f64| self.best().is_some_and(|best| possible <= IMPROVEMENT * best.abs());
        self.not_improving >= patience && self.possible(dimensions).is_some_and(is_small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    fn progress(values: &[f64]) -> Progress {
        let mut progress = Progress::default();
        values.iter().for_each(|value| progress.take(*value));
        progress
    }

    #[test]
    fn steps_below_one_per_cent_do_not_count_until_they_add_up() {
        for (values, expected) in [
            (&[][..], 0),
            (&[1.0], 0),
            (&[1.0, 0.995, 0.991], 2),
            (&[1.0, 0.995, 0.989], 0),
            (&[1.0, 2.0, f64::INFINITY, f64::NAN, 3.0], 2),
            (&[-1.0, -1.005, -1.02], 0),
            (&[0.0, 0.0, -1e-9], 0),
        ] {
            assert_eq!(progress(values).not_improving(), expected, "{values:?}");
        }
        assert_eq!(progress(&[3.0, 1.0, 2.0]).best(), Some(1.0));
    }

    /// The bound holds as often as it says, for random draws on a bowl.
    #[test]
    fn the_bound_holds() {
        for dimensions in [1_usize, 2, 5] {
            let holds = (0..1000).filter(|&seed| {
                let mut rng = Rng::new(seed, dimensions as u64);
                let mut progress = Progress::default();
                for _ in 0..300 {
                    progress.take((0..dimensions).map(|_| (rng.unit() - 0.5).powi(2)).sum());
                }
                progress.best().unwrap() <= progress.possible(dimensions).unwrap()
            });
            let share = holds.count();
            assert!((925..975).contains(&share), "{dimensions} dimensions: {share} of 1000");
        }
    }

    #[test]
    fn a_search_that_narrows_in_converges_and_one_that_goes_on_does_not() {
        // Offsets shrink by a tenth a trial: values come to 1 quickly.
        let narrowing: Vec<f64> = (0..150).map(|trial| 1.0 + 0.9_f64.powi(trial)).collect();
        assert!(!progress(&narrowing[..30]).has_converged(2));
        assert!(progress(&narrowing).has_converged(2));
        let random = |seed: u64| {
            let mut rng = Rng::new(seed, 0);
            progress(&(0..60).map(|_| 0.01 + rng.unit() + rng.unit()).collect::<Vec<_>>())
        };
        assert!((0..100).all(|seed| !random(seed).has_converged(2)));
        // A metric that cannot get better.
        assert!(!progress(&[0.5; 10]).has_converged(3));
        assert!(progress(&[0.5; 12]).has_converged(3));
    }

    #[test]
    fn it_is_stored_without_loss() {
        let before = progress(&[0.1, 1e-300, -3.5, 0.1 + 0.2]);
        let after: Progress = serde_json::from_str(&serde_json::to_string(&before).unwrap()).unwrap();
        assert_eq!(before, after);
    }
}
