//! Several objectives as one: augmented Chebyshev with random weights, new ones at every proposal,
//! so that all of the Pareto front is looked for. J. Knowles, "ParEGO", IEEE Trans. Evolutionary
//! Computation 10 (2006). Objectives are measured between the best and the worst of each on the
//! front so far.

use crate::{Rng, pareto::dominates};

/// Of the sum, beside the worst: points that are only weakly dominated are worse.
const SUM: f64 = 0.05;

/// One value per row; less is better. Rows are as long as there are objectives.
pub(super) fn scalarised(rows: &[Vec<f64>], rng: &mut Rng) -> Vec<f64> {
    let count = rows.first().map_or(0, Vec::len);
    // Uniform on the simplex: normalised exponential draws.
    let draws: Vec<f64> = (0..count).map(|_| -libm::log(1.0 - rng.unit())).collect();
    let total: f64 = draws.iter().sum();
    let weights = draws.iter().map(|draw| draw / total);
    let front: Vec<&Vec<f64>> = rows.iter().filter(|row| !rows.iter().any(|other| dominates(other, row))).collect();
    let measured = weights.enumerate().map(|(objective, weight)| {
        let best = front.iter().map(|row| row[objective]).fold(f64::INFINITY, f64::min);
        let nadir = front.iter().map(|row| row[objective]).fold(f64::NEG_INFINITY, f64::max);
        let worst = rows.iter().map(|row| row[objective]).fold(f64::NEG_INFINITY, f64::max);
        // One point is best in everything: its distance from the worst measures.
        let range = if nadir > best { nadir - best } else { worst - best };
        (weight, best, if range > 0.0 { range } else { 1.0 })
    });
    let measured: Vec<(f64, f64, f64)> = measured.collect();
    let value = |row: &Vec<f64>| {
        let parts = row.iter().zip(&measured).map(|(value, (weight, best, range))| weight * ((value - best) / range));
        parts.clone().fold(f64::NEG_INFINITY, f64::max) + SUM * parts.sum::<f64>()
    };
    rows.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_the_front_is_best_for_some_weights() {
        let rows = vec![vec![0.0, 9.0], vec![1.0, 3.0], vec![4.0, 0.0], vec![5.0, 5.0], vec![4.0, 8.0]];
        let mut best = [0; 5];
        let mut rng = Rng::new(1, 1);
        for _ in 0..300 {
            let values = scalarised(&rows, &mut rng);
            let least = (0..rows.len()).min_by(|a, b| values[*a].total_cmp(&values[*b])).unwrap();
            best[least] += 1;
        }
        assert!(best[..3].iter().all(|count| *count > 30) && best[3..] == [0, 0], "{best:?}");
    }
}
