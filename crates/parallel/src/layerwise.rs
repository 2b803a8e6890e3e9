//! Optimizers for large batches that give each layer a rate of its own, as formulas on slices: LARS
//! (You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks", 2017, algorithm 1)
//! and LAMB (You et al., "Large Batch Optimization for Deep Learning", 2020, algorithm 2).
//!
//! A layer may be spread over ranks: each adds up the squares of its part ([`squares`]), the sums
//! are added over the ranks, and the ratio that follows is the same on all. Biases and the
//! parameters of normalisations are usually left out of both the ratio and the decay: ratio 1, and
//! a decay of 0.

use serde::{Deserialize, Serialize};

/// The sum of squares, in double precision: the square of a norm, or of a part of one.
pub fn squares(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
}

/// LARS.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lars {
    /// Of the velocity.
    pub momentum: f64,
    /// Weight decay.
    pub decay: f64,
    /// How far a layer may go in a step, as a part of its norm.
    pub trust: f64,
}

impl Default for Lars {
    /// The paper's: 0.9, 5e-4, 0.001.
    fn default() -> Self {
        Self { momentum: 0.9, decay: 5e-4, trust: 0.001 }
    }
}

impl Lars {
    /// What the rate of a layer is multiplied by, from the squared norms of its weights and of its
    /// gradient; 1 where one of them is 0.
    pub fn ratio(&self, weights: f64, gradient: f64) -> f64 {
        if weights <= 0.0 || gradient <= 0.0 {
            return 1.0;
        }
        let (weights, gradient) = (weights.sqrt(), gradient.sqrt());
        self.trust * weights / (gradient + self.decay * weights)
    }

    /// One step of a layer, or of a part of one; the slices have one length.
    pub fn step(&self, rate: f64, ratio: f64, weights: &mut [f32], gradient: &[f32], velocity: &mut [f32]) {
        let (rate, momentum, decay) = ((rate * ratio) as f32, self.momentum as f32, self.decay as f32);
        for ((weight, gradient), velocity) in weights.iter_mut().zip(gradient).zip(velocity) {
            *velocity = momentum * *velocity + rate * (gradient + decay * *weight);
            *weight -= *velocity;
        }
    }
}

/// LAMB.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lamb {
    /// Of the first moment.
    pub beta1: f64,
    /// Of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight decay.
    pub decay: f64,
    /// The norm of a layer's weights counts as at most this: the paper's function phi.
    pub highest: f64,
}

impl Default for Lamb {
    /// 0.9, 0.999, 1e-6, 0.01 as for BERT; no highest norm.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-6, decay: 0.01, highest: f64::INFINITY }
    }
}

impl Lamb {
    /// Moves the moments of a layer, or of a part of one, and writes the direction of the step;
    /// `step` is counted from 1. The slices have one length.
    pub fn direction(
        &self,
        step: u64,
        weights: &[f32],
        gradient: &[f32],
        first: &mut [f32],
        second: &mut [f32],
        direction: &mut [f32],
    ) {
        let unbiased = |beta: f64| (1.0 / (1.0 - libm::pow(beta, step as f64))) as f32;
        let (unbiased1, unbiased2) = (unbiased(self.beta1), unbiased(self.beta2));
        // 1 - 0.999 has five digits less in single precision.
        let (keep1, keep2, add1, add2) =
            (self.beta1 as f32, self.beta2 as f32, (1.0 - self.beta1) as f32, (1.0 - self.beta2) as f32);
        let (epsilon, decay) = (self.epsilon as f32, self.decay as f32);
        let moments = first.iter_mut().zip(second);
        for (((direction, (first, second)), weight), gradient) in
            direction.iter_mut().zip(moments).zip(weights).zip(gradient)
        {
            *first = keep1 * *first + add1 * gradient;
            *second = keep2 * *second + add2 * gradient * gradient;
            *direction = *first * unbiased1 / ((*second * unbiased2).sqrt() + epsilon) + decay * weight;
        }
    }

    /// What the rate of a layer is multiplied by, from the squared norms of its weights and of its
    /// direction; 1 where one of them is 0.
    pub fn ratio(&self, weights: f64, direction: f64) -> f64 {
        if weights <= 0.0 || direction <= 0.0 { 1.0 } else { weights.sqrt().min(self.highest) / direction.sqrt() }
    }

    /// The step along the direction; the slices have one length.
    pub fn step(&self, rate: f64, ratio: f64, weights: &mut [f32], direction: &[f32]) {
        let rate = (rate * ratio) as f32;
        for (weight, direction) in weights.iter_mut().zip(direction) {
            *weight -= rate * direction;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Rng;

    const WEIGHTS: [f32; 5] = [0.5, -1.25, 2.0, 0.75, -0.1];
    const GRADIENTS: [[f32; 5]; 3] =
        [[0.1, 0.2, -0.3, 0.05, 0.4], [-0.2, 0.1, 0.05, 0.3, -0.1], [0.02, -0.07, 0.11, 0.0, 0.6]];

    fn lars(options: Lars, rate: f64, weights: &mut [f32], gradients: &[Vec<f32>], parts: &[usize]) {
        let mut velocity = vec![0.0; weights.len()];
        for gradient in gradients {
            let ratio = options.ratio(in_parts(weights, parts), in_parts(gradient, parts));
            let mut begin = 0;
            for &end in parts {
                options.step(rate, ratio, &mut weights[begin..end], &gradient[begin..end], &mut velocity[begin..end]);
                begin = end;
            }
        }
    }

    fn lamb(options: Lamb, rate: f64, weights: &mut [f32], gradients: &[Vec<f32>], parts: &[usize]) {
        let (mut first, mut second, mut direction) =
            (vec![0.0; weights.len()], vec![0.0; weights.len()], vec![0.0; weights.len()]);
        for (gradient, step) in gradients.iter().zip(1..) {
            let mut begin = 0;
            for &end in parts {
                let part = begin..end;
                let moments = (&mut first[part.clone()], &mut second[part.clone()]);
                options.direction(
                    step,
                    &weights[part.clone()],
                    &gradient[part.clone()],
                    moments.0,
                    moments.1,
                    &mut direction[part],
                );
                begin = end;
            }
            let ratio = options.ratio(in_parts(weights, parts), in_parts(&direction, parts));
            options.step(rate, ratio, weights, &direction);
        }
    }

    fn in_parts(values: &[f32], ends: &[usize]) -> f64 {
        let begins = [0].into_iter().chain(ends.iter().copied());
        begins.zip(ends).map(|(begin, end)| squares(&values[begin..*end])).sum()
    }

    fn near(found: &[f32], expected: &[f64], tolerance: f64) {
        for (one, other) in found.iter().zip(expected) {
            assert!((f64::from(*one) - other).abs() < tolerance * other.abs().max(1.0), "{found:?} {expected:?}");
        }
    }

    /// Values by numpy: reference/layerwise.py.
    #[test]
    fn steps_are_those_of_the_papers_formulas() {
        let gradients = GRADIENTS.map(Vec::from);
        let mut weights = WEIGHTS;
        lars(Lars::default(), 8.0, &mut weights, &gradients, &[5]);
        near(
            &weights,
            &[0.509_040_233_871, -1.277_262_037_094, 2.021_015_946_431, 0.715_398_964_806, -0.149_747_057_226],
            1e-6,
        );
        let mut weights = WEIGHTS;
        lamb(Lamb::default(), 0.05, &mut weights, &gradients, &[5]);
        near(
            &weights,
            &[0.500_262_116_893, -1.442_604_622_184, 2.118_620_742_838, 0.541_576_254_818, -0.282_943_315_887],
            1e-6,
        );
        let mut weights = WEIGHTS;
        lamb(Lamb { highest: 1.0, ..Lamb::default() }, 0.05, &mut weights, &gradients, &[5]);
        near(
            &weights,
            &[0.499_390_180_447, -1.324_663_658_221, 2.046_323_375_113, 0.669_396_736_145, -0.170_615_245_64],
            1e-6,
        );
    }

    #[test]
    fn parts_of_a_layer_step_as_the_whole() {
        let mut rng = Rng::new(16);
        for _ in 0..50 {
            let length = rng.from(2, 200);
            let random = |rng: &mut Rng| (0..length).map(|_| (rng.unit() - 0.5) as f32).collect::<Vec<f32>>();
            let (weights, gradients) = (random(&mut rng), vec![random(&mut rng), random(&mut rng), random(&mut rng)]);
            let parts = [rng.from(0, length), length];
            let (mut whole, mut cut) = (weights.clone(), weights.clone());
            lars(Lars::default(), 5.0, &mut whole, &gradients, &[length]);
            lars(Lars::default(), 5.0, &mut cut, &gradients, &parts);
            near(&cut, &whole.iter().copied().map(f64::from).collect::<Vec<_>>(), 1e-6);
            let (mut whole, mut cut) = (weights.clone(), weights);
            lamb(Lamb::default(), 0.1, &mut whole, &gradients, &[length]);
            lamb(Lamb::default(), 0.1, &mut cut, &gradients, &parts);
            near(&cut, &whole.iter().copied().map(f64::from).collect::<Vec<_>>(), 1e-6);
        }
    }

    /// A gradient that is k times as large makes the same step but for the decay: what the ratios
    /// are for.
    #[test]
    fn the_size_of_a_gradient_does_not_matter() {
        let larger: Vec<Vec<f32>> =
            GRADIENTS.iter().map(|gradient| gradient.iter().map(|value| 1000.0 * value).collect()).collect();
        let (mut one, mut other) = (WEIGHTS, WEIGHTS);
        lars(Lars { decay: 0.0, ..Lars::default() }, 8.0, &mut one, &GRADIENTS.map(Vec::from), &[5]);
        lars(Lars { decay: 0.0, ..Lars::default() }, 8.0, &mut other, &larger, &[5]);
        near(&other, &one.map(f64::from), 1e-5);
        let (mut one, mut other) = (WEIGHTS, WEIGHTS);
        lamb(Lamb { decay: 0.0, epsilon: 0.0, ..Lamb::default() }, 0.05, &mut one, &GRADIENTS.map(Vec::from), &[5]);
        lamb(Lamb { decay: 0.0, epsilon: 0.0, ..Lamb::default() }, 0.05, &mut other, &larger, &[5]);
        near(&other, &one.map(f64::from), 1e-5);
    }

    #[test]
    fn a_norm_of_zero_has_ratio_one() {
        assert_eq!((Lars::default().ratio(0.0, 4.0), Lars::default().ratio(4.0, 0.0)), (1.0, 1.0));
        assert_eq!(
            (Lamb::default().ratio(0.0, 4.0), Lamb::default().ratio(4.0, 0.0), Lamb::default().ratio(4.0, 16.0)),
            (1.0, 1.0, 0.5)
        );
    }
}
