//! Input warping by Kumaraswamy's distribution function, which bends [0, 1] onto itself. J. Snoek,
//! K. Swersky, R. Zemel and R. P. Adams, "Input Warping for Bayesian Optimization of Non-stationary
//! Functions", ICML 2014.

use crate::exp::{exp, ln};

/// Nearer to the ends than this nothing is told apart: slopes stay finite.
const EDGE: f64 = 1e-6;

/// u(x) = 1 - (1 - x^a)^b.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Warp {
    /// Inner exponent.
    pub(super) a: f64,
    /// Outer exponent.
    pub(super) b: f64,
}

/// A place after warping, and how it moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Warped {
    /// u.
    pub(super) value: f64,
    /// du/dx.
    pub(super) slope: f64,
    /// du/d log a.
    pub(super) by_log_a: f64,
    /// du/d log b.
    pub(super) by_log_b: f64,
}

impl Warp {
    /// Nothing is moved.
    pub(super) const NONE: Self = Self { a: 1.0, b: 1.0 };

    /// With its derivatives.
    pub(super) fn at(self, x: f64) -> Warped {
        let x = x.clamp(EDGE, 1.0 - EDGE);
        let log_x = ln(x);
        let power = exp(self.a * log_x);
        let rest = 1.0 - power;
        let log_rest = ln(rest);
        let outer = exp(self.b * log_rest);
        let inner_slope = self.b * outer / rest;
        Warped {
            value: 1.0 - outer,
            slope: inner_slope * self.a * power / x,
            by_log_a: inner_slope * self.a * power * log_x,
            by_log_b: -outer * self.b * log_rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_bends_the_interval_and_knows_its_slopes() {
        for (a, b) in [(1.0, 1.0), (0.4, 2.0), (3.0, 0.7)] {
            let warp = Warp { a, b };
            let value = |x: f64| warp.at(x).value;
            assert!(value(0.0) < 0.01 && value(1.0) > 0.99);
            for x in [0.02, 0.3, 0.77, 0.98] {
                let at = warp.at(x);
                let expected = 1.0 - libm::pow(1.0 - libm::pow(x, a), b);
                assert!((at.value - expected).abs() < 1e-13);
                let h = 1e-6;
                let slope = (value(x + h) - value(x - h)) / (2.0 * h);
                let by_a = (Warp { a: a * libm::exp(h), b }.at(x).value - Warp { a: a * libm::exp(-h), b }.at(x).value)
                    / (2.0 * h);
                let by_b = (Warp { a, b: b * libm::exp(h) }.at(x).value - Warp { a, b: b * libm::exp(-h) }.at(x).value)
                    / (2.0 * h);
                for (known, numeric) in [(at.slope, slope), (at.by_log_a, by_a), (at.by_log_b, by_b)] {
                    assert!((known - numeric).abs() < 1e-6 * (1.0 + known.abs()), "{a} {b} {x}: {known} {numeric}");
                }
            }
        }
    }
}
