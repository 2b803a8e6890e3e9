//! Earlier values of tensors, within a budget.

use std::collections::BTreeMap;

/// Bytes that a rule may remember.
const MAX_BYTES: usize = 64 << 20;
/// What an entry takes beside its content, about.
const ENTRY_BYTES: usize = 128;

/// Contents that know their size.
pub(crate) trait HeapBytes {
    /// Bytes on the heap.
    fn bytes(&self) -> usize;
}

impl HeapBytes for Vec<f32> {
    fn bytes(&self) -> usize {
        self.len() * 4
    }
}

/// Something of each series, by its key. What does not fit any more is not remembered, so its
/// series is not judged.
#[derive(Debug)]
pub(crate) struct Snapshots<T> {
    entries: BTreeMap<String, T>,
    bytes: usize,
    budget: usize,
}

impl<T: HeapBytes> Default for Snapshots<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), bytes: 0, budget: MAX_BYTES }
    }
}

impl<T: HeapBytes> Snapshots<T> {
    /// Takes what is remembered of a series, to be put back.
    pub(crate) fn take(&mut self, key: &str) -> Option<T> {
        let entry = self.entries.remove(key)?;
        self.bytes -= entry.bytes() + key.len() + ENTRY_BYTES;
        Some(entry)
    }

    /// Remembers it, unless the budget is spent.
    pub(crate) fn put(&mut self, key: String, entry: T) {
        self.take(&key);
        let bytes = entry.bytes() + key.len() + ENTRY_BYTES;
        if self.bytes + bytes <= self.budget {
            self.bytes += bytes;
            self.entries.insert(key, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_series_stay_within_the_budget() {
        let mut snapshots = Snapshots { budget: 1 << 20, ..Snapshots::default() };
        for number in 0..1_000_000 {
            snapshots.put(format!("tensor {number}"), vec![0.0_f32; 4]);
        }
        assert!(snapshots.bytes <= 1 << 20 && snapshots.entries.len() > 1000);
        assert_eq!(snapshots.take("tensor 0"), Some(vec![0.0; 4]));
        snapshots.put("again".into(), vec![1.0]);
        assert!(snapshots.entries.contains_key("again"), "there is room again");
        let bytes: usize = snapshots.entries.iter().map(|(key, it)| key.len() + it.bytes() + ENTRY_BYTES).sum();
        assert_eq!(snapshots.bytes, bytes);
    }
}
