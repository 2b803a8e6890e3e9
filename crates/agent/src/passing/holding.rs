//! What a host has of its inputs: parts of objects in the node's cache, numbered over all objects.

use std::collections::HashMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use shoal_link::{ManifestEntry, ObjectTree};

use crate::inputs::Part;
use crate::objects::{ObjectCache, PlaceError};
use crate::part_files::{PART, PartFiles};

/// All objects of some trees, each once.
#[derive(Debug)]
pub(super) struct Holding {
    cache: ObjectCache,
    objects: Vec<Held>,
    by_id: HashMap<String, usize>,
    here: Mutex<Here>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Held {
    tree: ObjectTree,
    id: String,
    size: u64,
    /// The number of its first part.
    first: usize,
}

#[derive(Debug, Default)]
struct Here {
    /// By number.
    parts: Vec<bool>,
    /// By object: how many parts are missing.
    missing: Vec<usize>,
    is_over: bool,
}

/// What another host is answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Part(Vec<u8>),
    Later,
    Absent,
}

impl Holding {
    /// What is to be there; nothing of it is looked for yet.
    ///
    /// # Errors
    /// There is more than this machine can count.
    pub(super) fn new(cache: &ObjectCache, trees: Vec<(ObjectTree, Vec<ManifestEntry>)>) -> io::Result<Self> {
        let (mut objects, mut by_id, mut here) = (Vec::new(), HashMap::new(), Here::default());
        for (tree, entries) in trees {
            for ManifestEntry { id, size, .. } in entries.into_iter().filter(|entry| entry.size > 0) {
                if by_id.contains_key(&id) {
                    continue;
                }
                let (first, count) = (here.parts.len(), PartFiles::count(size)?);
                by_id.insert(id.clone(), objects.len());
                objects.push(Held { tree: tree.clone(), id, size, first });
                here.parts.resize(first + count, false);
                here.missing.push(count);
            }
        }
        Ok(Self { cache: cache.clone(), objects, by_id, here: Mutex::new(here), arrived: Condvar::new() })
    }

    /// Bytes of all objects.
    pub(super) fn bytes(&self) -> u64 {
        self.objects.iter().map(|object| object.size).sum()
    }

    /// Parts that the cache lacks, as far as that is known without reading them.
    pub(super) fn missing(&self) -> Vec<usize> {
        let mut here = self.here();
        for (number, object) in self.objects.iter().enumerate() {
            if self.cache.has(&object.id, object.size) {
                let parts = object.first..object.first + std::mem::take(&mut here.missing[number]);
                here.parts[parts].fill(true);
            }
        }
        (0..here.parts.len()).filter(|part| !here.parts[*part]).collect()
    }

    /// What a part is.
    pub(super) fn part(&self, number: usize) -> Part<'_> {
        let object = &self.objects[self.object_of(number)];
        let offset = (number - object.first) as u64 * PART;
        Part { tree: &object.tree, id: &object.id, offset, length: PART.min(object.size - offset) }
    }

    /// Whether the cache has a part already: another agent of this node may have brought it.
    pub(super) fn find(&self, number: usize) -> io::Result<bool> {
        let object = self.object_of(number);
        let Held { id, size, first, .. } = &self.objects[object];
        let is_here = self.cache.read_part(id, *size, number - first)?.is_some();
        if is_here {
            self.note(number, object)?;
        }
        Ok(is_here)
    }

    /// Takes a part, which is as it was sent.
    ///
    /// # Errors
    /// I/O.
    pub(super) fn store(&self, number: usize, content: &[u8]) -> io::Result<()> {
        let object = self.object_of(number);
        let Held { id, size, first, .. } = &self.objects[object];
        PartFiles::open(&self.cache, id, *size)?.store(number - first, content)?;
        self.note(number, object)
    }

    /// What another host is answered that asks for a part, after this time at most.
    pub(super) fn answer(&self, id: &str, offset: u64, length: u64, timeout: Duration) -> io::Result<Answer> {
        let Some(object) = self.by_id.get(id).map(|object| &self.objects[*object]) else { return Ok(Answer::Absent) };
        let part = usize::try_from(offset / PART).map_err(io::Error::other)?;
        if !offset.is_multiple_of(PART) || offset >= object.size || length != PART.min(object.size - offset) {
            return Ok(Answer::Absent);
        }
        let until = Instant::now() + timeout;
        let mut here = self.here();
        while !here.parts[object.first + part] {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || here.is_over {
                return Ok(Answer::Later);
            }
            here = self.arrived.wait_timeout(here, left).expect("no holder of this lock panics").0;
        }
        drop(here);
        // What the cache has lost meanwhile does not come again.
        Ok(self.cache.read_part(id, object.size, part)?.map_or(Answer::Absent, Answer::Part))
    }

    /// No caller waits any more.
    pub(super) fn end(&self) {
        self.here().is_over = true;
        self.arrived.notify_all();
    }

    fn note(&self, number: usize, object: usize) -> io::Result<()> {
        let is_whole = {
            let mut here = self.here();
            if !std::mem::replace(&mut here.parts[number], true) {
                here.missing[object] -= 1;
            }
            here.missing[object] == 0
        };
        self.arrived.notify_all();
        if is_whole {
            let Held { id, size, .. } = &self.objects[object];
            self.cache.join_parts(id, *size, &mut || self.here().is_over).map_err(|error| match error {
                PlaceError::Io(error) => error,
                other => io::Error::other(other),
            })?;
        }
        Ok(())
    }

    fn object_of(&self, number: usize) -> usize {
        self.objects.partition_point(|object| object.first <= number) - 1
    }

    fn here(&self) -> MutexGuard<'_, Here> {
        self.here.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, size: u64) -> ManifestEntry {
        ManifestEntry { path: id.to_owned(), id: id.to_owned(), size, text: None }
    }

    #[test]
    fn parts_are_numbered_over_all_objects_and_become_them() {
        let dir = tempfile::tempdir().unwrap();
        let cache = ObjectCache::new(dir.path().join("objects"), 1 << 30);
        let tree = |name: &str| ObjectTree { tree: name.to_owned() };
        let trees = vec![
            (tree("one"), vec![entry("aa01", 2 * PART + 3), entry("bb01", 0), entry("cc01", 5)]),
            (tree("two"), vec![entry("cc01", 5), entry("dd01", PART)]),
        ];
        let holding = Holding::new(&cache, trees).unwrap();
        assert_eq!(holding.missing(), [0, 1, 2, 3, 4]);
        assert_eq!(holding.bytes(), 3 * PART + 8);
        let part = |number| {
            let Part { tree, id, offset, length } = holding.part(number);
            (tree.tree.clone(), id.to_owned(), offset, length)
        };
        assert_eq!(part(2), ("one".to_owned(), "aa01".to_owned(), 2 * PART, 3));
        assert_eq!(part(4), ("two".to_owned(), "dd01".to_owned(), 0, PART));

        let asked = |id, offset, length| holding.answer(id, offset, length, Duration::ZERO).unwrap();
        assert_eq!(asked("cc01", 0, 5), Answer::Later);
        holding.store(3, b"small").unwrap();
        assert_eq!(asked("cc01", 0, 5), Answer::Part(b"small".to_vec()));
        for (id, offset, length) in [("ee01", 0, 5), ("cc01", 0, 4), ("cc01", 1, 4), ("cc01", PART, 5), ("../x", 0, 5)]
        {
            assert_eq!(asked(id, offset, length), Answer::Absent, "{id} {offset} {length}");
        }
        assert!(cache.has("cc01", 5) && !holding.find(0).unwrap());
        // Another agent of the node has brought one.
        PartFiles::open(&cache, "dd01", PART).unwrap().store(0, &vec![1; PART as usize]).unwrap();
        assert!(holding.find(4).unwrap() && cache.has("dd01", PART));
        assert!(Holding::new(&cache, vec![(tree("two"), vec![entry("dd01", PART)])]).unwrap().missing().is_empty());
    }
}
