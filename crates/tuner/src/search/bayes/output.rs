//! What is done to objective values before the model sees them. Good values keep their distances;
//! bad ones are drawn together, so that a few disasters do not hide how good ones differ. The bend
//! is Yeo and Johnson's ("A new family of power transformations to improve normality or symmetry",
//! Biometrika 87, 2000) on the bad side only, with the exponent under which the values are most
//! likely normal.

/// Values, less is better, of which those that are not finite count as the worst finite one.
pub(crate) fn finite(values: &[f64]) -> Vec<f64> {
    let worst = values.iter().copied().filter(|value| value.is_finite()).fold(f64::NEG_INFINITY, f64::max);
    let least = values.iter().copied().filter(|value| value.is_finite()).fold(f64::INFINITY, f64::min);
    let (worst, least) = if worst.is_finite() { (worst, least) } else { (0.0, 0.0) };
    values
        .iter()
        .map(|value| {
            if *value == f64::NEG_INFINITY {
                least
            } else if value.is_finite() {
                *value
            } else {
                worst
            }
        })
        .collect()
}

/// Finite values about their middle, in units of the good half's spread, with the bad side bent.
/// All the same: zeros.
pub(crate) fn tamed(values: &[f64]) -> Vec<f64> {
    let greatest = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    if greatest == 0.0 {
        return vec![0.0; values.len()];
    }
    // Nothing below overflows or vanishes.
    let small: Vec<f64> = values.iter().map(|value| value / greatest).collect();
    let mut sorted = small.clone();
    sorted.sort_by(f64::total_cmp);
    let at = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or(0.0);
    let (low, middle, high) = (at(16), at(50), at(84));
    let ends = sorted.last().zip(sorted.first()).map_or(0.0, |(last, first)| last - first);
    let spread = [middle - low, high - middle, ends].into_iter().find(|spread| *spread > 0.0);
    let Some(spread) = spread else { return vec![0.0; values.len()] };
    let scaled: Vec<f64> = small.iter().map(|value| (value - middle) / spread).collect();
    let exponents = (0..=10).map(|step| 0.1 * f64::from(step));
    let best =
        exponents.map(|power| (likelihood(&scaled, power), power)).max_by(|one, other| one.0.total_cmp(&other.0));
    let power = best.map_or(1.0, |(_, power)| power);
    scaled.iter().map(|value| bent(*value, power)).collect()
}

/// Yeo and Johnson's for values above 0.
fn bent(value: f64, power: f64) -> f64 {
    if value <= 0.0 || power == 1.0 {
        value
    } else if power == 0.0 {
        libm::log1p(value)
    } else {
        libm::expm1(power * libm::log1p(value)) / power
    }
}

fn likelihood(values: &[f64], power: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a count of trials")]
    let n = values.len() as f64;
    let bent: Vec<f64> = values.iter().map(|value| bent(*value, power)).collect();
    let mean = bent.iter().sum::<f64>() / n;
    let variance = bent.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / n;
    let stretch: f64 = values.iter().filter(|value| **value > 0.0).map(|value| libm::log1p(*value)).sum();
    -0.5 * n * libm::log(variance.max(1e-300)) + (power - 1.0) * stretch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_stays_and_disasters_come_near() {
        let values = [3.0, 1.0, 2.0, 1.5, 2.5, 1e6, 0.5, f64::INFINITY, f64::NAN];
        let tamed = tamed(&finite(&values));
        let mut order: Vec<usize> = (0..7).collect();
        order.sort_by(|a, b| tamed[*a].total_cmp(&tamed[*b]));
        assert_eq!(order, [6, 1, 3, 2, 4, 0, 5]);
        // What failed counts as the worst that was seen.
        assert!(tamed[7] == tamed[5] && tamed[8] == tamed[5]);
        assert!(tamed[5] - tamed[0] < 30.0 * (tamed[0] - tamed[6]), "{tamed:?}");
        // The good half keeps its distances.
        assert!(((tamed[1] - tamed[6]) - (tamed[3] - tamed[1])).abs() < 1e-12);
        assert_eq!(super::tamed(&[7.0; 4]), [0.0; 4]);
        assert!(super::tamed(&[1e308, -1e308, 5.0]).iter().all(|value| value.is_finite()));
    }
}
