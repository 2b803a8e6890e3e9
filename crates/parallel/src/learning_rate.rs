//! Learning rates for large batches, in steps of the optimizer, never in passes of an accumulation.
//!
//! The base rate is scaled with the batch (Goyal et al., "Accurate, Large Minibatch SGD", 2017,
//! section 2.1: in proportion; You et al., "Large Batch Optimization for Deep Learning", 2020: by
//! its square root), reached by a gradual warm-up (Goyal et al., section 2.2), and followed by a
//! decay.

use serde::{Deserialize, Serialize};

use crate::error::{Invalid, within};

/// How the rate grows with the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaling {
    /// Not at all.
    None,
    /// By k for k times the batch: SGD.
    Linear,
    /// By the square root of k: Adam, LAMB.
    SquareRoot,
}

/// What follows the warm-up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Decay {
    /// The rate stays.
    Constant,
    /// At each of these steps, counted from the first step of training, the rate is multiplied by
    /// `factor`.
    Step {
        /// Ascending.
        at: Vec<u64>,
        /// For instance 0.1.
        factor: f64,
    },
    /// From the end of the warm-up to step `until`: end + (peak - end) * (1 - progress)^power;
    /// `end` is a part of the peak.
    Polynomial {
        /// The step at which the end is reached.
        until: u64,
        /// 1 for a line, 2 for LARS.
        power: f64,
        /// Between 0 and 1.
        end: f64,
    },
    /// From the end of the warm-up to step `until` along half a cosine (Loshchilov and Hutter,
    /// "SGDR", 2017, without restarts).
    Cosine {
        /// The step at which the end is reached.
        until: u64,
        /// A part of the peak between 0 and 1.
        end: f64,
    },
}

/// A schedule of the learning rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// The rate that was found right for the base batch.
    pub base: f64,
    /// How many times the base batch the batch is.
    #[serde(default = "one")]
    pub times: f64,
    /// By what rule the peak follows from both.
    #[serde(default = "linear")]
    pub scaling: Scaling,
    /// Steps from the base rate to the peak along a line; 0: none.
    #[serde(default)]
    pub warmup: u64,
    /// Where the line begins; `None`: at the base rate as in Goyal et al. LAMB and BERT begin at 0.
    #[serde(default)]
    pub start: Option<f64>,
    /// What follows.
    #[serde(default = "constant")]
    pub decay: Decay,
}

fn one() -> f64 {
    1.0
}

fn linear() -> Scaling {
    Scaling::Linear
}

fn constant() -> Decay {
    Decay::Constant
}

impl Rate {
    /// Whether every number has a meaning.
    ///
    /// # Errors
    /// One that has none, or a decay that ends within the warm-up.
    pub fn check(&self) -> Result<(), Invalid> {
        within("base", self.base, 0.0, f64::MAX)?;
        within("times", self.times, f64::MIN_POSITIVE, f64::MAX)?;
        within("start", self.start.unwrap_or(0.0), 0.0, f64::MAX)?;
        let ends_at = |until: u64| {
            if until > self.warmup {
                return Ok(());
            }
            let problem = format!("the decay is over at step {until}, and the warm-up only at {}", self.warmup);
            Err(Invalid::new("until", problem)
                .nearest([usize::try_from(self.warmup).unwrap_or(usize::MAX).saturating_add(1)]))
        };
        match &self.decay {
            Decay::Constant => Ok(()),
            Decay::Step { at, factor } => {
                within("factor", *factor, 0.0, f64::MAX)?;
                if at.is_sorted() { Ok(()) } else { Err(Invalid::new("at", "the steps must ascend")) }
            }
            Decay::Polynomial { until, power, end } => {
                within("power", *power, 0.0, f64::MAX)?;
                within("end", *end, 0.0, 1.0)?;
                ends_at(*until)
            }
            Decay::Cosine { until, end } => {
                within("end", *end, 0.0, 1.0)?;
                ends_at(*until)
            }
        }
    }

    /// The rate at the end of the warm-up.
    pub fn peak(&self) -> f64 {
        match self.scaling {
            Scaling::None => self.base,
            Scaling::Linear => self.base * self.times,
            Scaling::SquareRoot => self.base * self.times.sqrt(),
        }
    }

    /// The rate of a step of the optimizer, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        let peak = self.peak();
        let decayed = |until: u64, end: f64, shape: &dyn Fn(f64) -> f64| {
            let progress = (step.saturating_sub(self.warmup)) as f64 / until.saturating_sub(self.warmup).max(1) as f64;
            peak * (end + (1.0 - end) * shape(progress.min(1.0)))
        };
        if step < self.warmup {
            let start = self.start.unwrap_or(self.base);
            return start + (peak - start) * step as f64 / self.warmup as f64;
        }
        match &self.decay {
            Decay::Constant => peak,
            Decay::Step { at, factor } => {
                at.iter().take_while(|boundary| **boundary <= step).fold(peak, |rate, _| rate * factor)
            }
            Decay::Polynomial { until, power, end } => {
                decayed(*until, *end, &|progress| libm::pow(1.0 - progress, *power))
            }
            Decay::Cosine { until, end } => {
                decayed(*until, *end, &|progress| 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress)))
            }
        }
    }

    /// What momentum is multiplied by before a step whose rate differs from the one before (Goyal
    /// et al., section 3, remark 2), for optimizers whose velocity has the rate in it. 1 where
    /// there was no rate before.
    pub fn momentum_correction(&self, step: u64) -> f64 {
        let before = if step == 0 { 0.0 } else { self.at(step - 1) };
        if before == 0.0 { 1.0 } else { self.at(step) / before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    fn rate(decay: Decay) -> Rate {
        Rate { base: 0.1, times: 8.0, scaling: Scaling::Linear, warmup: 4, start: None, decay }
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn the_warm_up_is_that_of_goyal() {
        let rate = rate(Decay::Step { at: vec![30, 60], factor: 0.1 });
        for (step, expected) in [
            (0, 0.1),
            (1, 0.275),
            (2, 0.45),
            (3, 0.625),
            (4, 0.8),
            (29, 0.8),
            (30, 0.08),
            (59, 0.08),
            (60, 0.008),
            (1000, 0.008),
        ] {
            assert!(near(rate.at(step), expected), "{step}: {}", rate.at(step));
        }
        assert!(
            near(rate.momentum_correction(1), 2.75)
                && near(rate.momentum_correction(30), 0.1)
                && near(rate.momentum_correction(0), 1.0)
        );
        // Horovod's callback: base * (1 + epoch * (size - 1) / warm-up epochs).
        assert!((0..4).all(|step| near(rate.at(step), 0.1 * (1.0 + step as f64 * 7.0 / 4.0))));
    }

    #[test]
    fn decays_end_where_they_say() {
        let cosine = rate(Decay::Cosine { until: 104, end: 0.1 });
        for (step, expected) in
            [(4, 0.8), (54, 0.44), (104, 0.08), (500, 0.08), (29, 0.8 * (0.1 + 0.9 * 0.853_553_390_593_273_8))]
        {
            assert!(near(cosine.at(step), expected), "{step}: {}", cosine.at(step));
        }
        let polynomial = rate(Decay::Polynomial { until: 104, power: 2.0, end: 0.0 });
        for (step, expected) in [(4, 0.8), (54, 0.2), (79, 0.05), (104, 0.0), (105, 0.0)] {
            assert!(near(polynomial.at(step), expected), "{step}: {}", polynomial.at(step));
        }
        let root = Rate { times: 16.0, scaling: Scaling::SquareRoot, start: Some(0.0), ..rate(Decay::Constant) };
        assert!(near(root.at(0), 0.0) && near(root.at(2), 0.2) && near(root.at(9), 0.4));
    }

    #[test]
    fn rates_rise_in_the_warm_up_and_fall_after() {
        let mut rng = Rng::new(5);
        for _ in 0..300 {
            let warmup = rng.from(0, 20) as u64;
            let until = warmup + rng.from(1, 100) as u64;
            let end = rng.unit();
            let decay = match rng.from(0, 3) {
                0 => Decay::Constant,
                1 => Decay::Step { at: vec![warmup, until], factor: end },
                2 => Decay::Polynomial { until, power: 3.0 * rng.unit(), end },
                _ => Decay::Cosine { until, end },
            };
            let rate = Rate {
                warmup,
                times: 1.0 + 63.0 * rng.unit(),
                scaling: rng.pick(&[Scaling::None, Scaling::Linear, Scaling::SquareRoot]),
                ..rate(decay)
            };
            rate.check().unwrap();
            for step in 1..until + 10 {
                let (before, now) = (rate.at(step - 1), rate.at(step));
                assert!(
                    if step < warmup { now >= before } else { step == warmup || now <= before + 1e-12 },
                    "{rate:?} at {step}"
                );
                assert!(now >= 0.0 && now <= rate.peak() + 1e-12);
            }
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
        for (field, wrong) in [
            ("base", Rate { base: -0.1, ..rate(Decay::Constant) }),
            ("times", Rate { times: 0.0, ..rate(Decay::Constant) }),
            ("at", rate(Decay::Step { at: vec![3, 2], factor: 0.1 })),
            ("factor", rate(Decay::Step { at: vec![], factor: f64::NAN })),
            ("end", rate(Decay::Cosine { until: 9, end: 1.5 })),
            ("power", rate(Decay::Polynomial { until: 9, power: -1.0, end: 0.0 })),
        ] {
            assert_eq!(wrong.check().unwrap_err().field, field);
        }
        let error = rate(Decay::Cosine { until: 4, end: 0.0 }).check().unwrap_err();
        assert_eq!((error.field, error.nearest.as_slice()), ("until", [5].as_slice()));
    }
}
