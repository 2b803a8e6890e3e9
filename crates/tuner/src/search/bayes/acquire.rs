//! Expected improvement, as its logarithm, which has slopes where the improvement itself is zero to
//! machine precision. S. Ament, S. Daulton, D. Eriksson, M. Balandat and E. Bakshy, "Unexpected
//! Improvements to Expected Improvement for Bayesian Optimization", NeurIPS 2023.

use super::factor::Matrix;
use super::gp::{Beliefs, Gp};

/// Something to be made as great as possible over points as a [`Gp`] takes them.
pub(crate) trait Surface {
    /// At each point.
    fn values(&self, points: &[Vec<f64>]) -> Vec<f64>;

    /// At each point, with the derivatives with respect to its coordinates (0 for choices).
    fn slopes(&self, points: &[Vec<f64>]) -> Vec<(f64, Vec<f64>)>;

    /// By coordinate: how quickly things change along it. Searches take steps of the inverse.
    fn steepness(&self) -> Vec<f64>;
}

/// Log of the expected improvement below the best of each fantasy, averaged over fantasies and over
/// models.
#[derive(Debug)]
pub(crate) struct LogEi<'a> {
    models: &'a [Gp],
}

/// Points that are looked at together.
const BATCH: usize = 64;

impl<'a> LogEi<'a> {
    /// Of models of the same points with different hyperparameters; at least one.
    pub(crate) fn new(models: &'a [Gp]) -> Self {
        Self { models }
    }

    /// By point: the value; by model and point what it gains from each mean (a row per fantasy) and
    /// from the variance.
    fn combine(&self, beliefs: &[Beliefs], points: usize) -> (Vec<f64>, Vec<(Matrix, Vec<f64>)>) {
        let fantasies = self.models[0].fantasies;
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let shift = libm::log((fantasies * self.models.len()) as f64);
        let mut values = Vec::with_capacity(points);
        let mut gains: Vec<(Matrix, Vec<f64>)> =
            self.models.iter().map(|_| (Matrix::zeros(fantasies, points), vec![0.0; points])).collect();
        let mut parts = Vec::with_capacity(fantasies * self.models.len());
        for point in 0..points {
            parts.clear();
            for (model, belief) in self.models.iter().zip(beliefs) {
                let deviation = belief.variances[point].sqrt();
                for (fantasy, best) in model.best.iter().enumerate() {
                    parts.push(log_ei(belief.means.row(fantasy)[point], deviation, *best));
                }
            }
            let most = parts.iter().fold(f64::NEG_INFINITY, |most, part| most.max(part.value));
            let sum: f64 = parts.iter().map(|part| libm::exp(part.value - most)).sum();
            values.push(most + libm::log(sum) - shift);
            for (index, part) in parts.iter().enumerate() {
                let weight = libm::exp(part.value - most) / sum;
                let (model, fantasy) = (index / fantasies, index % fantasies);
                let deviation = beliefs[model].variances[point].sqrt();
                gains[model].0.row_mut(fantasy)[point] = weight * part.by_mean;
                gains[model].1[point] += weight * part.by_deviation * 0.5 / deviation;
            }
        }
        (values, gains)
    }
}

impl Surface for LogEi<'_> {
    fn values(&self, points: &[Vec<f64>]) -> Vec<f64> {
        let batches = points.chunks(BATCH);
        let values = batches.flat_map(|points| {
            let beliefs: Vec<Beliefs> = self.models.iter().map(|model| model.beliefs(points, false)).collect();
            self.combine(&beliefs, points.len()).0
        });
        values.collect()
    }

    fn slopes(&self, points: &[Vec<f64>]) -> Vec<(f64, Vec<f64>)> {
        let batches = points.chunks(BATCH);
        let values = batches.flat_map(|points| {
            let beliefs: Vec<Beliefs> = self.models.iter().map(|model| model.beliefs(points, true)).collect();
            let (values, gains) = self.combine(&beliefs, points.len());
            let mut slopes = vec![vec![0.0; self.models[0].axes.len()]; points.len()];
            for ((model, beliefs), (by_means, by_variances)) in self.models.iter().zip(beliefs).zip(&gains) {
                for (sum, slope) in slopes.iter_mut().zip(model.slopes(points, beliefs, by_means, by_variances)) {
                    sum.iter_mut().zip(slope).for_each(|(sum, slope)| *sum += slope);
                }
            }
            values.into_iter().zip(slopes)
        });
        values.collect()
    }

    fn steepness(&self) -> Vec<f64> {
        self.models[0].steepness()
    }
}

/// Log expected improvement and its derivatives.
#[derive(Debug, Clone, Copy)]
struct Improvement {
    value: f64,
    by_mean: f64,
    by_deviation: f64,
}

const LOG_ROOT_TAU: f64 = 0.918_938_533_204_672_8;

/// Below `best`, of a normal with this mean and deviation.
fn log_ei(mean: f64, deviation: f64, best: f64) -> Improvement {
    let z = (best - mean) / deviation;
    let log_density = -0.5 * z * z - LOG_ROOT_TAU;
    // EI / (deviation * density of z) = 1 + z Phi / phi, where Mills' ratio is Phi / phi.
    let (rest, mills) = if z < -20.0 {
        let square = 1.0 / (z * z);
        (square * (1.0 - square * (3.0 - square * (15.0 - 105.0 * square))), -(1.0 - square * (1.0 - 3.0 * square)) / z)
    } else if z < 5.0 {
        let mills = 0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2) / libm::exp(log_density);
        (1.0 + z * mills, mills)
    } else {
        // Phi is 1 to six digits, and phi vanishes: relative to z it is told directly.
        let (density, below) = (libm::exp(log_density), 0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2));
        let ei = density + z * below;
        return Improvement {
            value: libm::log(ei) + libm::log(deviation),
            by_mean: -below / (ei * deviation),
            by_deviation: density / (ei * deviation),
        };
    };
    Improvement {
        value: log_density + libm::log(rest) + libm::log(deviation),
        by_mean: -mills / (rest * deviation),
        by_deviation: 1.0 / (rest * deviation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_ei_is_smooth_and_has_its_slopes() {
        for z in [-1e3, -50.0, -20.1, -19.9, -5.0, -1.0, 0.0, 1.0, 4.9, 5.1, 30.0] {
            let (mean, deviation) = (-z * 0.7, 0.7);
            let at = log_ei(mean, deviation, 0.0);
            let h = 1e-6 * (1.0 + mean.abs());
            let by_mean = (log_ei(mean + h, deviation, 0.0).value - log_ei(mean - h, deviation, 0.0).value) / (2.0 * h);
            let by_deviation =
                (log_ei(mean, deviation + 1e-7, 0.0).value - log_ei(mean, deviation - 1e-7, 0.0).value) / 2e-7;
            assert!((at.by_mean - by_mean).abs() < 1e-5 * (1.0 + by_mean.abs()), "{z}: {} {by_mean}", at.by_mean);
            assert!(
                (at.by_deviation - by_deviation).abs() < 1e-4 * (1.0 + by_deviation.abs()),
                "{z}: {} {by_deviation}",
                at.by_deviation
            );
        }
        // phi(1) - (1 - Phi(1)) for z = -1.
        assert!((log_ei(1.0, 1.0, 0.0).value - libm::log(0.083_315_470_7)).abs() < 1e-8);
    }
}
