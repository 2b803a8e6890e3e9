//! The model's hyperparameters as one vector of logarithms, and what is believed of them before any
//! data.

use super::kernel::{Axis, Kernel};
use super::warp::Warp;

/// Noise is never less than this part of the data's variance: the factor stays sound.
const LEAST_NOISE: f64 = 1e-8;

/// Kernel, noise and warps.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Hyper {
    pub(super) kernel: Kernel,
    /// Variance of the noise.
    pub(super) noise: f64,
    /// By axis; [`Warp::NONE`] where it is not warped.
    pub(super) warps: Vec<Warp>,
}

/// How many logarithms: a weight per axis, scale, noise, two exponents per warped axis.
pub(super) fn count(axes: &[Axis]) -> usize {
    axes.len() + 2 + 2 * warped(axes).count()
}

fn warped(axes: &[Axis]) -> impl Iterator<Item = usize> {
    axes.iter().enumerate().filter(|(_, axis)| **axis == Axis::Number { warped: true }).map(|(index, _)| index)
}

impl Hyper {
    /// From its logarithms.
    pub(super) fn new(axes: &[Axis], theta: &[f64]) -> Self {
        let mut warps = vec![Warp::NONE; axes.len()];
        for (axis, pair) in warped(axes).zip(theta[axes.len() + 2..].chunks_exact(2)) {
            warps[axis] = Warp { a: libm::exp(pair[0]), b: libm::exp(pair[1]) };
        }
        let weights = theta[..axes.len()].iter().map(|log| libm::exp(*log)).collect();
        Self {
            kernel: Kernel { weights, scale: libm::exp(theta[axes.len()]) },
            noise: libm::exp(theta[axes.len() + 1]),
            warps,
        }
    }
}

/// Where a search for the most probable hyperparameters begins without a better idea.
pub(super) fn start(axes: &[Axis]) -> Vec<f64> {
    let mut theta = vec![0.0; count(axes)];
    theta[axes.len() + 1] = libm::log(1e-3);
    theta
}

/// Bounds of the logarithms.
pub(super) fn bounds(axes: &[Axis]) -> Vec<(f64, f64)> {
    let mut bounds = vec![(libm::log(1e-4), libm::log(1e4)); axes.len()];
    bounds.push((libm::log(1e-3), libm::log(1e3)));
    bounds.push((libm::log(LEAST_NOISE), 0.0));
    // AWS's exponents go from 1/4 to 4.
    bounds.resize(count(axes), (-libm::log(4.0), libm::log(4.0)));
    bounds
}

/// Minus the logarithm of the prior density (but for a constant), whose derivatives are added to
/// `gradient`.
pub(super) fn prior(axes: &[Axis], theta: &[f64], gradient: &mut [f64]) -> f64 {
    let d = axes.len();
    let mut sum = 0.0;
    for (log, slope) in theta[..d].iter().zip(&mut *gradient) {
        let weight = libm::exp(*log);
        sum += FLAT / weight + STEEP * weight;
        *slope += STEEP * weight - FLAT / weight;
    }
    // Scale: Gamma(2, 1).
    let scale = libm::exp(theta[d]);
    sum += scale - theta[d];
    gradient[d] += scale - 1.0;
    // Noise: Gamma(1.1, 30).
    let noise = libm::exp(theta[d + 1]);
    sum += 30.0 * noise - 0.1 * theta[d + 1];
    gradient[d + 1] += 30.0 * noise - 0.1;
    for (log, slope) in theta[d + 2..].iter().zip(&mut gradient[d + 2..]) {
        let z = log / WARP_SD;
        sum += 0.5 * z * z;
        *slope += z / WARP_SD;
    }
    sum
}

/// Against length scales far above the range (a parameter that seems not to matter may not have
/// been looked at) and far below it.
const FLAT: f64 = 0.4;
const STEEP: f64 = 0.05;

/// Of the logarithms of the warps' exponents.
const WARP_SD: f64 = 0.25;
