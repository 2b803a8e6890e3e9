//! The exponential function and the logarithm in plain arithmetic: short, and a loop over them
//! becomes vector code with the same bits on every machine.

/// e^x for x in [-708, 709], to about one unit in the last place; smaller x count as -708 (3e-308),
/// greater ones as 709.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    // Adding and taking away 1.5 * 2^52 rounds to a whole number, which then stands in the low
    // bits.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    // ln 2 in two parts (as fdlibm splits it): n times the first is exact.
    const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let x = if x > -708.0 { x } else { -708.0 };
    let x = if x < 709.0 { x } else { 709.0 };
    let shifted = x * std::f64::consts::LOG2_E + ROUNDER;
    let n = shifted - ROUNDER;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    // Taylor's series to r^13; |r| <= ln 2 / 2, so what is left out is below 1e-17.
    let mut sum = 1.0 / 6_227_020_800.0;
    sum = sum * r + 1.0 / 479_001_600.0;
    sum = sum * r + 1.0 / 39_916_800.0;
    sum = sum * r + 1.0 / 3_628_800.0;
    sum = sum * r + 1.0 / 362_880.0;
    sum = sum * r + 1.0 / 40_320.0;
    sum = sum * r + 1.0 / 5_040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    // 2^n by its exponent's bits.
    sum * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// ln x for normal x > 0, to a few units in the last place.
#[inline(always)]
pub(crate) fn ln(x: f64) -> f64 {
    // x = 2^n m with m in [sqrt(1/2), sqrt(2)).
    const ROOT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let offset = x.to_bits().wrapping_sub(ROOT_HALF);
    let n = (offset.cast_signed() >> 52) as f64;
    let m = f64::from_bits((offset & 0x000f_ffff_ffff_ffff).wrapping_add(ROOT_HALF));
    // ln m = 2 artanh s.
    let s = (m - 1.0) / (m + 1.0);
    let q = s * s;
    let mut sum = 1.0 / 21.0;
    sum = sum * q + 1.0 / 19.0;
    sum = sum * q + 1.0 / 17.0;
    sum = sum * q + 1.0 / 15.0;
    sum = sum * q + 1.0 / 13.0;
    sum = sum * q + 1.0 / 11.0;
    sum = sum * q + 1.0 / 9.0;
    sum = sum * q + 1.0 / 7.0;
    sum = sum * q + 1.0 / 5.0;
    sum = sum * q + 1.0 / 3.0;
    n * std::f64::consts::LN_2 + (2.0 * s + 2.0 * s * (q * sum))
}

/// Sum of `weights[i] * e^logs[i]`, in four lanes; logarithms below -708 count as nothing.
pub(crate) fn weighted_exp_sum(logs: &[f64], weights: &[f64]) -> f64 {
    let term = |log: f64, weight: f64| {
        let term = weight * exp(log);
        if log < -708.0 { 0.0 } else { term }
    };
    let mut lanes = [0.0_f64; 4];
    let (heads, tail) = logs.as_chunks::<4>();
    let (weight_heads, weight_tail) = weights[..logs.len()].as_chunks::<4>();
    for (four, four_weights) in heads.iter().zip(weight_heads) {
        for lane in 0..4 {
            lanes[lane] += term(four[lane], four_weights[lane]);
        }
    }
    let rest: f64 = tail.iter().zip(weight_tail).map(|(log, weight)| term(*log, *weight)).sum();
    ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + rest
}

#[cfg(test)]
mod tests {
    #[test]
    fn sums_are_weighted() {
        let logs: Vec<f64> = (0..11).map(|it| f64::from(it) * 0.1).collect();
        let weights: Vec<f64> = (0..11).map(|it| f64::from(it % 3)).collect();
        let expected: f64 = logs.iter().zip(&weights).map(|(log, weight)| weight * libm::exp(*log)).sum();
        assert!((super::weighted_exp_sum(&logs, &weights) - expected).abs() < 1e-14 * expected);
        assert_eq!(super::weighted_exp_sum(&[f64::NEG_INFINITY; 5], &[1.0; 5]), 0.0);
    }

    #[test]
    fn it_is_the_logarithm() {
        for step in 1..60_000 {
            let x = f64::from(step) * 1.7e-5;
            for x in [x, x * 1e-9, 1.0 / x] {
                let (ours, theirs) = (super::ln(x), libm::log(x));
                assert!((ours - theirs).abs() <= 1e-15 * theirs.abs().max(0.01), "{x}: {ours} {theirs}");
            }
        }
        assert_eq!(super::ln(1.0), 0.0);
    }

    #[test]
    fn it_is_the_exponential_function() {
        for step in -70_000..70_000 {
            let x = f64::from(step) * 0.01;
            let (ours, theirs) = (super::exp(x), libm::exp(x));
            assert!((ours / theirs - 1.0).abs() < 5e-16, "{x}: {ours} {theirs}");
        }
        assert_eq!(super::exp(0.0), 1.0);
        assert!(super::exp(-1e300) < 1e-300);
    }
}
