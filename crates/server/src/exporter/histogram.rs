//! How often a value was how large.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::format::{Kind, Text};

/// Counts of seconds in buckets, for each combination of `N` labels that came.
pub(super) struct Histogram<const N: usize> {
    labels: [&'static str; N],
    /// Upper bounds, ascending; one without a bound follows.
    bounds: &'static [f64],
    series: Mutex<BTreeMap<[String; N], Series>>,
}

#[derive(Default)]
struct Series {
    /// By bucket, not cumulative.
    counts: Vec<u64>,
    sum: f64,
}

impl<const N: usize> Histogram<N> {
    pub(super) fn new(labels: [&'static str; N], bounds: &'static [f64]) -> Self {
        Self { labels, bounds, series: Mutex::default() }
    }

    /// Counts a value. The caller sees to it that labels have few values.
    pub(super) fn observe(&self, labels: [&str; N], time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = self.bounds.partition_point(|bound| *bound < seconds);
        let mut all = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        let series = all.entry(labels.map(str::to_owned)).or_default();
        series.counts.resize(self.bounds.len() + 1, 0);
        series.counts[bucket] += 1;
        series.sum += seconds;
    }

    pub(super) fn write(&self, text: &mut Text, name: &str, help: &str) {
        text.family(name, Kind::Histogram, help);
        let bounds: Vec<String> = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]).collect();
        for (values, series) in &*self.series.lock().unwrap_or_else(PoisonError::into_inner) {
            let labels: Vec<(&str, &str)> = self.labels.into_iter().zip(values.iter().map(String::as_str)).collect();
            let mut count = 0;
            for (bound, here) in bounds.iter().zip(&series.counts) {
                count += here;
                text.sample(&format!("{name}_bucket"), &[&labels[..], &[("le", bound)]].concat(), count as f64);
            }
            text.sample(&format!("{name}_sum"), &labels, series.sum);
            text.sample(&format!("{name}_count"), &labels, count as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_hold_their_bound() {
        let histogram = Histogram::new(["kind"], &[0.5, 1.0]);
        for milliseconds in [250, 500, 750, 4000] {
            histogram.observe(["a"], Duration::from_millis(milliseconds));
        }
        let mut text = Text::default();
        histogram.write(&mut text, "t", "Time.");
        let expected = "# HELP t Time.\n# TYPE t histogram\nt_bucket{kind=\"a\",le=\"0.5\"} \
                        2\nt_bucket{kind=\"a\",le=\"1\"} 3\n\
                        t_bucket{kind=\"a\",le=\"+Inf\"} 4\nt_sum{kind=\"a\"} 5.5\nt_count{kind=\"a\"} 4\n";
        assert_eq!(text.into_string(), expected);
    }
}
