//! Draws from the posterior of the hyperparameters, instead of its maximum: slice sampling, one
//! coordinate after the other, stepping out. R. M. Neal, "Slice sampling", Annals of Statistics 31
//! (2003), figures 3 and 5; for Bayesian optimisation: J. Snoek, H. Larochelle and R. P. Adams,
//! NeurIPS 2012.

use super::fit::{Data, loss};
use super::hyper;
use crate::Rng;

/// How far a slice is looked for at first, and how often farther.
const WIDTH: f64 = 1.5;
const STEPS_OUT: usize = 4;

/// `count` draws, each a sweep over all coordinates after the one before; `burn_in` sweeps are
/// thrown away first.
pub(super) fn draws(data: &Data<'_>, start: &[f64], burn_in: usize, count: usize, rng: &mut Rng) -> Vec<Vec<f64>> {
    let bounds = hyper::bounds(data.axes);
    let mut theta: Vec<f64> = start.iter().zip(&bounds).map(|(x, (low, high))| x.clamp(*low, *high)).collect();
    let mut height = loss(data, &theta);
    let mut draws = Vec::with_capacity(count);
    for sweep in 0..burn_in + count {
        for (index, bounds) in bounds.iter().enumerate() {
            height = step(data, &mut theta, index, *bounds, height, rng);
        }
        if sweep >= burn_in {
            draws.push(theta.clone());
        }
    }
    draws
}

/// Moves one coordinate; gives the loss there.
fn step(
    data: &Data<'_>,
    theta: &mut [f64],
    index: usize,
    (least, most): (f64, f64),
    height: f64,
    rng: &mut Rng,
) -> f64 {
    // Above the slice lies what is less probable. (0, 1], so that its logarithm is finite.
    let level = height - libm::log(1.0 - rng.unit());
    let origin = theta[index];
    let at = |theta: &mut [f64], x: f64| {
        theta[index] = x;
        loss(data, theta)
    };
    let mut low = origin - WIDTH * rng.unit();
    let mut high = low + WIDTH;
    for _ in 0..STEPS_OUT {
        if low <= least || at(theta, low) > level {
            break;
        }
        low -= WIDTH;
    }
    for _ in 0..STEPS_OUT {
        if high >= most || at(theta, high) > level {
            break;
        }
        high += WIDTH;
    }
    (low, high) = (low.max(least), high.min(most));
    // Each miss shrinks the interval; 60 leave nothing of it.
    for _ in 0..60 {
        let x = low + (high - low) * rng.unit();
        let found = at(theta, x);
        if found <= level {
            return found;
        }
        if x < origin { low = x } else { high = x }
    }
    theta[index] = origin;
    height
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Axis;
    use super::*;

    #[test]
    fn without_data_the_draws_are_of_the_prior() {
        let axes = [Axis::Number { warped: true }];
        let data = Data { axes: &axes, points: &[], values: &[] };
        let draws = draws(&data, &hyper::start(&axes), 50, 3000, &mut Rng::new(1, 1));
        let mean = |f: &dyn Fn(&[f64]) -> f64| draws.iter().map(|it| f(it)).sum::<f64>() / draws.len() as f64;
        // The logarithm's density of Gamma(a, b) is Gamma(a + 1, b)'s shape: the prior is a density
        // of the logarithm, so scale ~ Gamma(1 + 1, 1) has mean 1 under exp(log x - x) d(log x),
        // which is Gamma(1, 1) of x.
        assert!((mean(&|it| libm::exp(it[1])) - 1.0).abs() < 0.1);
        // Warps: normal about 0, cut at the bounds.
        assert!(mean(&|it| it[3]).abs() < 0.05);
        assert!((mean(&|it| it[3] * it[3]).sqrt() - 0.25).abs() < 0.04);
    }
}
