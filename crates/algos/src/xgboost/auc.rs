//! The area under the ROC curve of two classes, as the library computes it, in a fraction of its
//! time: the library sorts row numbers and looks up a prediction for each comparison, which of
//! small trees is as much work as growing them. Here each row is a number of its own, its
//! prediction's bits and its label, and numbers are sorted.

use super::hyperparameters::Hyperparameters;
use super::judge::Own;

/// From here on the library's threads are as fast.
const MOST_ROWS: usize = 1 << 20;

/// Its name among the metrics.
pub(super) const NAME: &str = "auc";

/// Whether [`area`] gives the library's value to the last bit for sets of these labels and weights:
/// probabilities of two classes, both there, and rows that count alike, so that all sums are of
/// whole numbers.
pub(super) fn is_ours(hyperparameters: &Hyperparameters, sets: &[Own<'_>]) -> bool {
    let has_classes = |labels: &[f32]| {
        let ones = labels.iter().filter(|label| **label == 1.0).count();
        let zeros = labels.iter().filter(|label| **label == 0.0).count();
        ones > 0 && zeros > 0 && ones + zeros == labels.len() && labels.len() <= MOST_ROWS
    };
    let is_plain = |own: &Own<'_>| own.weights.is_empty() && own.groups.is_empty() && has_classes(own.labels);
    hyperparameters.parameter("objective", "") == "binary:logistic" && sets.iter().all(is_plain)
}

/// The area, for rows of both classes and a probability for each.
pub(super) fn area(labels: &[f32], probabilities: &[f32]) -> f64 {
    // The bits of numbers that are not negative are in their order, and the sign's place is free
    // for the label.
    let row = |(label, probability): (&f32, &f32)| (probability.to_bits() << 1) | u32::from(*label == 1.0);
    let mut rows: Vec<u32> = labels.iter().zip(probabilities).map(row).collect();
    rows.sort_unstable();
    // Each run of equal probabilities is a step of the curve, from the greatest on: a trapezium.
    let (mut area, mut positives, mut negatives) = (0.0, 0.0, 0.0);
    for run in rows.chunk_by(|left, right| left >> 1 == right >> 1).rev() {
        let more = run.iter().filter(|row| **row & 1 == 1).count() as f64;
        let others = run.len() as f64 - more;
        area += others * (positives + positives + more) * 0.5;
        (positives, negatives) = (positives + more, negatives + others);
    }
    area / (positives * negatives)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_in_order_count_one_and_ties_half() {
        // sklearn.metrics.roc_auc_score
        let cases: [(&[f32], &[f32], f64); 4] = [
            (&[0.0, 0.0, 1.0, 1.0], &[0.1, 0.4, 0.35, 0.8], 0.75),
            (&[0.0, 1.0, 0.0, 1.0], &[0.5, 0.5, 0.5, 0.5], 0.5),
            (&[1.0, 0.0, 1.0, 0.0, 1.0], &[1.0, 0.0, 0.7, 0.7, 0.2], 0.75),
            (&[1.0, 0.0], &[1e-30, 0.9], 0.0),
        ];
        for (labels, probabilities, expected) in cases {
            assert!((area(labels, probabilities) - expected).abs() < 1e-15, "{labels:?} {probabilities:?}");
        }
    }

    #[test]
    fn only_what_is_exact_is_ours() {
        let given = |objective: &str| {
            let named =
                [("num_round", "9"), ("objective", objective)].map(|(name, value)| (name.to_owned(), value.to_owned()));
            Hyperparameters::parse(&named.into()).unwrap()
        };
        let own = |labels, weights| Own { labels, weights, groups: &[] };
        let plain = || own(&[0.0, 1.0, 1.0], &[]);
        let logistic = given("binary:logistic");
        assert!(is_ours(&logistic, &[plain()]));
        for (labels, weights) in [(&[0.0, 0.5, 1.0][..], &[][..]), (&[1.0, 1.0], &[]), (&[0.0, 1.0], &[1.0, 2.0])] {
            assert!(!is_ours(&logistic, &[plain(), own(labels, weights)]), "{labels:?} {weights:?}");
        }
        assert!(!is_ours(&logistic, &[Own { groups: &[1, 1, 2], ..plain() }]));
        assert!(!is_ours(&given("binary:logitraw"), &[plain()]));
    }
}
