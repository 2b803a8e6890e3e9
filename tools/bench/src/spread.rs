//! What many values of one thing come to.

/// Values of one thing, measured again and again.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Spread(pub(super) Vec<f64>);

impl Spread {
    /// The middle value, or the mean of the two in the middle; not a number when there is none.
    pub(super) fn median(&self) -> f64 {
        let sorted = self.sorted();
        match sorted.len() {
            0 => f64::NAN,
            length if length % 2 == 1 => sorted[length / 2],
            length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
        }
    }

    /// The least value that so many in a hundred do not exceed; not a number when there is none.
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        let sorted = self.sorted();
        let place = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
        sorted.get(place.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    /// The smallest and the largest.
    pub(super) fn bounds(&self) -> (f64, f64) {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_end() {
        for (values, median, p95) in
            [(vec![3.0, 1.0, 2.0], 2.0, 3.0), (vec![1.0, 2.0], 1.5, 2.0), (vec![7.0], 7.0, 7.0)]
        {
            let spread = Spread(values);
            assert_eq!((spread.median(), spread.percentile(95.0)), (median, p95), "{spread:?}");
        }
        assert_eq!(Spread((1..=100).rev().map(f64::from).collect()).percentile(95.0), 95.0);
        assert!(Spread::default().percentile(95.0).is_nan() && Spread::default().median().is_nan());
    }
}
