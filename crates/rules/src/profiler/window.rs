//! The last readings of each device.

use std::collections::{BTreeMap, VecDeque};

use super::MAX_DEVICES;

/// Values of a device.
#[derive(Debug, Default)]
pub(super) struct Window {
    pub(super) values: VecDeque<f64>,
    /// All that came.
    pub(super) seen: u64,
}

impl Window {
    pub(super) fn push(&mut self, value: f64, size: usize) {
        while self.values.len() >= size.max(1) {
            self.values.pop_front();
        }
        self.values.push_back(value);
        self.seen += 1;
    }

    /// A percentile of the window.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let mut values = Vec::from_iter(self.values.iter().copied());
        values.sort_by(f64::total_cmp);
        values.get((values.len() * percent / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }

    /// Mean of a part of the window.
    pub(super) fn mean(&self, range: std::ops::Range<usize>) -> f64 {
        let count = range.len() as f64;
        self.values.range(range).sum::<f64>() / count
    }
}

/// Windows by device, as `GPU 0 of algo-1`.
#[derive(Debug, Default)]
pub(super) struct Windows(BTreeMap<String, Window>);

impl Windows {
    /// The window of a device, unless there are too many.
    pub(super) fn of(&mut self, device: &str) -> Option<&mut Window> {
        if self.0.len() >= MAX_DEVICES && !self.0.contains_key(device) {
            return None;
        }
        Some(self.0.entry(device.to_owned()).or_default())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Window)> {
        self.0.iter().map(|(device, window)| (device.as_str(), window))
    }
}
