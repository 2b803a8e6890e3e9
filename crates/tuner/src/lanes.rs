//! Exponentials of whole arrays: plain arithmetic without branches, which compilers turn into vector code, with the same bits on every machine.

/// 1.5 * 2^52: adding it rounds to a whole number that stands in the low bits.
const SHIFT: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts, the first with trailing zeros, so that its multiples are exact.
const LN2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// e^x with a relative error below 1e-11: enough for densities; 0 below -700, that of 700 above it.
#[inline]
pub(crate) fn exp(x: f64) -> f64 {
    let inside = x.clamp(-700.0, 700.0);
    let whole = inside * std::f64::consts::LOG2_E + SHIFT;
    let k = whole - SHIFT;
    // |r| <= ln 2 / 2: what Taylor's series leaves out after the 9th power is less than 1e-11.
    let r = (inside - k * LN2_HIGH) - k * LN2_LOW;
    let mut sum = 1.0 / 362_880.0;
    for inverse in [1.0 / 40_320.0, 1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = sum * r + inverse;
    }
    // 2^k by its exponent's bits.
    let scale = f64::from_bits(whole.to_bits().wrapping_add(1023) << 52);
    if x < -700.0 { 0.0 } else { sum * scale }
}

/// Sum of `weights[i] * e^logs[i]`, in four lanes.
pub(crate) fn weighted_exp_sum(logs: &[f64], weights: &[f64]) -> f64 {
    let mut lanes = [0.0_f64; 4];
    let (heads, tail) = logs.as_chunks::<4>();
    let (weight_heads, weight_tail) = weights[..logs.len()].as_chunks::<4>();
    for (four, four_weights) in heads.iter().zip(weight_heads) {
        for lane in 0..4 {
            lanes[lane] += four_weights[lane] * exp(four[lane]);
        }
    }
    let rest: f64 = tail.iter().zip(weight_tail).map(|(log, weight)| weight * exp(*log)).sum();
    ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_exponential() {
        for step in -70_000..=70_000 {
            let x = f64::from(step) * 0.01;
            let expected = libm::exp(x);
            assert!((exp(x) - expected).abs() <= expected * 1e-11, "{x}: {} {expected}", exp(x));
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
    }

    #[test]
    fn sums_are_weighted() {
        let logs: Vec<f64> = (0..11).map(|it| f64::from(it) * 0.1).collect();
        let weights: Vec<f64> = (0..11).map(|it| f64::from(it % 3)).collect();
        let expected: f64 = logs.iter().zip(&weights).map(|(log, weight)| weight * libm::exp(*log)).sum();
        assert!((weighted_exp_sum(&logs, &weights) - expected).abs() < 1e-11 * expected);
    }
}
