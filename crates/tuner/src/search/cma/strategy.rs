//! The evolution strategy itself, on points of [0, 1]^n: N. Hansen, "The CMA evolution strategy: a
//! tutorial" (arXiv 1604.00772), positive weights.

use super::eigen;
use crate::Rng;

/// A normal distribution that follows the good points.
#[derive(Debug, Clone)]
pub(super) struct Strategy {
    pub(super) mean: Vec<f64>,
    pub(super) sigma: f64,
    /// Points of a generation.
    pub(super) lambda: usize,
    /// Of the better half, by rank.
    pub(super) weights: Vec<f64>,
    covariance: Vec<f64>,
    /// Square roots of the eigenvalues, and the eigenvectors as columns.
    scales: Vec<f64>,
    vectors: Vec<f64>,
    path_sigma: Vec<f64>,
    path: Vec<f64>,
    generations: u32,
}

/// Points that lie farther from the mean than this times what is usual are taken for nearer (they
/// may be from elsewhere, or late).
const FARTHEST: f64 = 2.0;

impl Strategy {
    pub(super) fn new(mean: Vec<f64>, sigma: f64, lambda: usize) -> Self {
        let size = mean.len();
        let half = lambda / 2;
        let raw: Vec<f64> =
            (0..half).map(|rank| libm::log((lambda as f64 + 1.0) / 2.0) - libm::log(rank as f64 + 1.0)).collect();
        let sum: f64 = raw.iter().sum();
        let mut identity = vec![0.0; size * size];
        (0..size).for_each(|index| identity[index * size + index] = 1.0);
        Self {
            sigma,
            lambda,
            weights: raw.into_iter().map(|weight| weight / sum).collect(),
            covariance: identity.clone(),
            scales: vec![1.0; size],
            vectors: identity,
            path_sigma: vec![0.0; size],
            path: vec![0.0; size],
            generations: 0,
            mean,
        }
    }

    /// Standard deviation of a coordinate.
    pub(super) fn deviation(&self, coordinate: usize) -> f64 {
        self.sigma * libm::sqrt(self.covariance[coordinate * self.mean.len() + coordinate])
    }

    /// Greatest standard deviation, and the ratio of the greatest to the least.
    pub(super) fn shape(&self) -> (f64, f64) {
        let greatest = self.scales.iter().copied().fold(0.0, f64::max);
        let least = self.scales.iter().copied().fold(f64::INFINITY, f64::min);
        (self.sigma * greatest, greatest / least)
    }

    /// A draw, anywhere.
    pub(super) fn draw(&self, rng: &mut Rng) -> Vec<f64> {
        let size = self.mean.len();
        let z: Vec<f64> = self.scales.iter().map(|scale| scale * rng.normal()).collect();
        let along = |row: usize| (0..size).map(|k| self.vectors[row * size + k] * z[k]).sum::<f64>();
        (0..size).map(|row| self.mean[row] + self.sigma * along(row)).collect()
    }

    /// Coordinates along the eigenvectors, each in units of its deviation.
    fn whitened(&self, step: &[f64]) -> Vec<f64> {
        let size = step.len();
        (0..size)
            .map(|k| (0..size).map(|row| self.vectors[row * size + k] * step[row]).sum::<f64>() / self.scales[k])
            .collect()
    }

    /// A generation's points, the best first.
    pub(super) fn update(&mut self, points: &[Vec<f64>]) {
        let size = self.mean.len();
        let n = size as f64;
        let effective = 1.0 / self.weights.iter().map(|weight| weight * weight).sum::<f64>();
        let c_sigma = (effective + 2.0) / (n + effective + 5.0);
        let damping = 1.0 + 2.0 * (libm::sqrt((effective - 1.0) / (n + 1.0)) - 1.0).max(0.0) + c_sigma;
        let c_path = (4.0 + effective / n) / (n + 4.0 + 2.0 * effective / n);
        let c_one = 2.0 / ((n + 1.3) * (n + 1.3) + effective);
        let c_mu =
            (2.0 * (effective - 2.0 + 1.0 / effective) / ((n + 2.0) * (n + 2.0) + effective)).clamp(0.0, 1.0 - c_one);
        let usual = libm::sqrt(n) * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));
        let steps: Vec<Vec<f64>> = points[..self.weights.len()]
            .iter()
            .map(|point| {
                let step: Vec<f64> = point.iter().zip(&self.mean).map(|(x, mean)| (x - mean) / self.sigma).collect();
                let length = norm(&self.whitened(&step));
                let shrink = (FARTHEST * usual / length).min(1.0);
                step.into_iter().map(|it| it * shrink).collect()
            })
            .collect();
        let step: Vec<f64> =
            (0..size).map(|k| steps.iter().zip(&self.weights).map(|(step, weight)| weight * step[k]).sum()).collect();
        for (mean, step) in self.mean.iter_mut().zip(&step) {
            *mean = (*mean + self.sigma * step).clamp(0.0, 1.0);
        }
        self.generations += 1;
        let white = self.whitened(&step);
        let keep = libm::sqrt(c_sigma * (2.0 - c_sigma) * effective);
        for row in 0..size {
            let along: f64 = (0..size).map(|k| self.vectors[row * size + k] * white[k]).sum();
            self.path_sigma[row] = (1.0 - c_sigma) * self.path_sigma[row] + keep * along;
        }
        let length = norm(&self.path_sigma);
        let settled = 1.0 - libm::pow(1.0 - c_sigma, 2.0 * f64::from(self.generations));
        let is_steady = length / libm::sqrt(settled) < (1.4 + 2.0 / (n + 1.0)) * usual;
        let grow = if is_steady { libm::sqrt(c_path * (2.0 - c_path) * effective) } else { 0.0 };
        for (path, step) in self.path.iter_mut().zip(&step) {
            *path = (1.0 - c_path) * *path + grow * step;
        }
        let lost = if is_steady { 0.0 } else { c_one * c_path * (2.0 - c_path) };
        for row in 0..size {
            for column in 0..size {
                let ranks: f64 =
                    steps.iter().zip(&self.weights).map(|(step, weight)| weight * step[row] * step[column]).sum();
                let at = row * size + column;
                self.covariance[at] = (1.0 - c_one - c_mu + lost) * self.covariance[at]
                    + c_one * self.path[row] * self.path[column]
                    + c_mu * ranks;
            }
        }
        self.sigma = (self.sigma * libm::exp((c_sigma / damping * (length / usual - 1.0)).min(1.0))).min(0.5);
        let (values, vectors) = eigen::symmetric(&self.covariance, size);
        self.scales = values.into_iter().map(|value| libm::sqrt(value.max(1e-20))).collect();
        self.vectors = vectors;
    }
}

fn norm(vector: &[f64]) -> f64 {
    libm::sqrt(vector.iter().map(|it| it * it).sum())
}
