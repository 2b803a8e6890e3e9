//! Which local files of contents that are elsewhere may go, and in which order: the least recently
//! used first. Pure.

use std::collections::{BTreeMap, HashMap};

/// Local files that the store elsewhere has, too.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    bytes: u64,
    uses: u64,
    /// Size, and the number of the last use.
    by_id: HashMap<u128, (u64, u64)>,
    by_use: BTreeMap<u64, u128>,
    /// How many readers need the file's name, or the store's copy, of an id.
    pins: HashMap<u128, u32>,
}

impl Cache {
    /// Bytes of the files that may go.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A file is here and elsewhere; it counts as used now.
    pub(crate) fn add(&mut self, id: u128, size: u64) {
        self.remove(id);
        self.bytes += size;
        self.by_id.insert(id, (size, self.uses));
        self.by_use.insert(self.uses, id);
        self.uses += 1;
    }

    /// A file is used.
    pub(crate) fn touch(&mut self, id: u128) {
        if let Some((size, _)) = self.by_id.get(&id) {
            self.add(id, *size);
        }
    }

    /// A file is not here any more.
    pub(crate) fn remove(&mut self, id: u128) {
        if let Some((size, used)) = self.by_id.remove(&id) {
            self.bytes -= size;
            self.by_use.remove(&used);
        }
    }

    /// The file must stay, and the store's copy of it, until [`Cache::unpin`].
    pub(crate) fn pin(&mut self, id: u128) {
        *self.pins.entry(id).or_default() += 1;
    }

    /// Ends one [`Cache::pin`].
    pub(crate) fn unpin(&mut self, id: u128) {
        if let Some(pins) = self.pins.get_mut(&id) {
            *pins -= 1;
            if *pins == 0 {
                self.pins.remove(&id);
            }
        }
    }

    /// Whether there is a reader that needs it.
    pub(crate) fn is_pinned(&self, id: u128) -> bool {
        self.pins.contains_key(&id)
    }

    /// Takes out the least recently used files until `most` bytes or less are left, or until only
    /// pinned ones are.
    pub(crate) fn shrink(&mut self, most: u64) -> Vec<u128> {
        let mut victims = Vec::new();
        let mut left = self.bytes;
        for id in self.by_use.values().copied().filter(|id| !self.pins.contains_key(id)) {
            if left <= most {
                break;
            }
            left -= self.by_id[&id].0;
            victims.push(id);
        }
        victims.iter().for_each(|id| self.remove(*id));
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_go_first_and_pinned_ones_stay() {
        let mut cache = Cache::default();
        (1..=4).for_each(|id| cache.add(id, 10));
        cache.touch(1);
        cache.touch(99);
        cache.pin(2);
        cache.pin(2);
        assert_eq!(cache.shrink(40), []);
        assert_eq!(cache.shrink(25), [3, 4], "2 is older, and pinned; 1 was used since");
        assert_eq!(cache.shrink(5), [1]);
        assert_eq!((cache.shrink(0), cache.bytes()), (vec![], 10));
        cache.unpin(2);
        assert!(cache.is_pinned(2));
        cache.unpin(2);
        assert_eq!((cache.shrink(0), cache.bytes()), (vec![2], 0));
        cache.add(5, 7);
        cache.add(5, 8);
        cache.remove(6);
        assert_eq!(cache.bytes(), 8, "an id counts once");
    }
}
