//! Whether stored objects are what was written. Long objects are compared block by block whenever
//! they are read; small ones, those of earlier versions and those that others read as files
//! (channels) are compared whole: once after a start, then by age.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use md5::{Digest, Md5};

use crate::block_sums::{block_at, of_file, read_block};
use crate::clock::now_ms;
use crate::data_dir::hex;
use crate::{ObjectMeta, Objects, StoreError};

/// After this time an object is compared again before it is read.
const MAX_AGE: Duration = Duration::from_hours(24);

/// Objects of which is remembered when they were compared; 64 MiB or less.
const MOST_REMEMBERED: usize = 1 << 20;

/// Bytes read at a time where there are no blocks.
const PIECE_BYTES: usize = 1 << 20;

/// Which objects were compared, and when. What is written was in memory a moment before, so it
/// counts as compared then.
#[derive(Debug)]
pub(crate) struct Verified {
    opened: Instant,
    opened_ms: u64,
    /// By id, in seconds after the opening.
    seconds: Mutex<HashMap<u128, u32>>,
}

impl Verified {
    pub(crate) fn new() -> Self {
        Self { opened: Instant::now(), opened_ms: now_ms(), seconds: Mutex::default() }
    }

    fn now_s(&self) -> u32 {
        u32::try_from(self.opened.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    fn is_recent(&self, meta: &ObjectMeta) -> bool {
        let since = |seconds: u32| u64::from(self.now_s().saturating_sub(seconds));
        let compared = self.lock().get(&key_of(&meta.id)).copied();
        let written = meta.modified_ms.checked_sub(self.opened_ms).and_then(|after| u32::try_from(after / 1000).ok());
        compared.max(written).is_some_and(|seconds| since(seconds) < MAX_AGE.as_secs())
    }

    fn set(&self, id: &str) {
        let now_s = self.now_s();
        let mut seconds = self.lock();
        remember(&mut seconds, MOST_REMEMBERED, key_of(id), now_s);
    }

    /// The object is gone.
    pub(crate) fn forget(&self, id: &str) {
        self.lock().remove(&key_of(id));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u128, u32>> {
        self.seconds.lock().expect("no holder of this lock panics")
    }
}

/// Notes that an object was compared now. What was forgotten is compared again.
fn remember(seconds: &mut HashMap<u128, u32>, most: usize, id: u128, now_s: u32) {
    if seconds.len() >= most {
        seconds.retain(|_, compared| u64::from(now_s.saturating_sub(*compared)) < MAX_AGE.as_secs());
        if seconds.len() >= most {
            seconds.clear();
        }
    }
    seconds.insert(id, now_s);
}

fn key_of(id: &str) -> u128 {
    u128::from_str_radix(id, 16).unwrap_or_default()
}

/// An object that is read in pieces, each compared before it is returned.
#[derive(Debug)]
pub struct ObjectReader {
    /// The object.
    pub meta: ObjectMeta,
    file: File,
    /// `None`: it was compared whole.
    sums: Option<Vec<u8>>,
}

impl ObjectReader {
    /// The content of an object that fits in memory.
    ///
    /// # Errors
    /// As [`ObjectReader::read`].
    pub fn read_all(&self) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < self.meta.size {
            bytes.extend(self.read(bytes.len() as u64, self.meta.size)?);
        }
        Ok(bytes)
    }

    /// Bytes from `at` to `end` or to the end of the block that `at` is in, whichever comes first.
    ///
    /// # Errors
    /// [`StoreError::DamagedObject`]; I/O.
    pub fn read(&self, at: u64, end: u64) -> Result<Vec<u8>, StoreError> {
        let damaged = |detail| StoreError::DamagedObject { key: self.meta.key.clone(), detail };
        let unread = |source| StoreError::Io { what: "read", path: "objects".into(), source };
        let Some(sums) = &self.sums else {
            let length = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let mut piece = vec![0; length];
            std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut piece, at).map_err(unread)?;
            return Ok(piece);
        };
        let Some(block) = block_at(&parts_of(&self.meta), at) else {
            return Err(damaged(format!("it has no byte {at}")));
        };
        let mut bytes = read_block(&self.file, 0, block, sums)
            .map_err(unread)?
            .ok_or_else(|| damaged(named(block.start, block.end)))?;
        bytes.truncate(place(end.min(block.end) - block.start));
        bytes.drain(..place(at - block.start));
        Ok(bytes)
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("a block fits in memory")
}

fn named(start: u64, end: u64) -> String {
    format!("its bytes {start} to {} are not those that were written", end - 1)
}

/// The parts that an object came in, or one that is all of it.
fn parts_of(meta: &ObjectMeta) -> Vec<(u32, u64)> {
    if meta.attributes.parts.is_empty() { vec![(1, meta.size)] } else { meta.attributes.parts.clone() }
}

impl Objects {
    /// The object of this key for reading in pieces. Nothing that is returned by this was damaged
    /// when it was read.
    ///
    /// # Errors
    /// As [`Objects::read`].
    pub fn reader(&self, bucket: &str, key: &str) -> Result<ObjectReader, StoreError> {
        let (meta, file) = self.find_file(bucket, key)?;
        let sums = self.sums(&meta)?;
        if sums.is_none() {
            self.ensure_sound(&meta, &file, None)?;
        }
        Ok(ObjectReader { meta, file, sums })
    }

    /// Compares an object's file with what was written, unless that was done lately.
    pub(crate) fn ensure_sound(&self, meta: &ObjectMeta, file: &File, sums: Option<&[u8]>) -> Result<(), StoreError> {
        if self.verified.is_recent(meta) {
            return Ok(());
        }
        let unread = |source| StoreError::Io { what: "read", path: self.path(meta), source };
        if let Some(detail) = damage(file, meta, sums).map_err(unread)? {
            return Err(StoreError::DamagedObject { key: meta.key.clone(), detail });
        }
        self.verified.set(&meta.id);
        Ok(())
    }

    pub(crate) fn sums(&self, meta: &ObjectMeta) -> Result<Option<Vec<u8>>, StoreError> {
        self.index.read(|connection| of_file(connection, &meta.id))
    }
}

/// What is wrong with an object's file, if anything. Without sums its ETag decides, which is the
/// MD5 of the content or of its parts' MD5s.
pub(crate) fn damage(file: &File, meta: &ObjectMeta, sums: Option<&[u8]>) -> io::Result<Option<String>> {
    let length = file.metadata()?.len();
    if length != meta.size {
        return Ok(Some(format!("its file has {length} bytes instead of {}", meta.size)));
    }
    let parts = parts_of(meta);
    if let Some(sums) = sums {
        return damaged_block(file, 0, &parts, sums);
    }
    let found = etag(file, &parts, meta.etag.contains('-'))?;
    Ok((found != meta.etag).then(|| "its content is not what was written (its MD5 differs)".to_owned()))
}

/// The same of a part that begins there in a file that others share.
pub(crate) fn damage_in_place(file: &File, start: u64, size: u64, sums: &[u8]) -> io::Result<Option<String>> {
    damaged_block(file, start, &[(1, size)], sums)
}

fn damaged_block(file: &File, start: u64, parts: &[(u32, u64)], sums: &[u8]) -> io::Result<Option<String>> {
    let mut at = 0;
    while let Some(block) = block_at(parts, at) {
        if read_block(file, start, block, sums)?.is_none() {
            return Ok(Some(named(block.start, block.end)));
        }
        at = block.end;
    }
    Ok(None)
}

fn etag(mut file: &File, parts: &[(u32, u64)], composite: bool) -> io::Result<String> {
    file.rewind()?;
    let mut whole = Md5::new();
    let mut count = 0;
    let mut piece = vec![0; PIECE_BYTES];
    for size in parts.iter().flat_map(|&(count, size)| std::iter::repeat_n(size, count as usize)) {
        let mut part = Md5::new();
        let mut left = size;
        while left > 0 {
            let now = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            file.read_exact(&mut piece[..now])?;
            part.update(&piece[..now]);
            left -= now as u64;
        }
        count += 1;
        if !composite {
            file.rewind()?;
            return Ok(hex(&part.finalize()));
        }
        whole.update(part.finalize());
    }
    file.rewind()?;
    Ok(format!("{}-{count}", hex(&whole.finalize())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::{Attributes, DataDir, PutCondition};

    /// Flips a bit of the object's file, behind the store's back.
    fn flip(objects: &Objects, meta: &ObjectMeta, at: u64) {
        let file = OpenOptions::new().read(true).write(true).open(objects.path(meta)).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }

    #[test]
    fn what_was_compared_is_not_remembered_for_ever() {
        let day = u32::try_from(MAX_AGE.as_secs()).unwrap();
        let mut seconds = HashMap::new();
        (0..4).for_each(|id| remember(&mut seconds, 4, id, 10 * u32::try_from(id).unwrap()));
        remember(&mut seconds, 4, 9, day + 15);
        let mut left: Vec<_> = seconds.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [2, 3, 9], "those older than a day are gone");
        remember(&mut seconds, 3, 10, day + 16);
        assert_eq!(seconds, HashMap::from([(10, day + 16)]), "too many of one day");
    }

    #[test]
    fn a_damaged_object_is_not_copied() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&temp.path().join("data")).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let written = Attributes::default();
        for (key, bytes) in [("small", vec![1; 1000]), ("long", vec![1; 3_000_000])] {
            let meta = objects.put("b", key, &bytes, &written).unwrap();
            // A start writes small objects again that may not be on the disk yet.
            drop(Objects::open(&dir).unwrap());
            flip(&objects, &meta, meta.size - 1);
            let after = Objects::open(&dir).unwrap();
            for target in ["copy", key] {
                let error = after.copy(("b", &meta), "b", target, &written, &PutCondition::Always).unwrap_err();
                assert!(matches!(&error, StoreError::DamagedObject { key: named, .. } if named == key), "{error}");
            }
            assert_eq!(after.get("b", "copy").unwrap(), None);
        }
    }

    #[test]
    fn a_flipped_bit_is_an_error_that_names_the_object() {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(&temp.path().join("data")).unwrap();
        let objects = Objects::open(&dir).unwrap();
        objects.create_bucket("b").unwrap();
        let long: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        objects.put("b", "small", b"content", &Attributes::default()).unwrap();
        objects.put("b", "long", &long, &Attributes::default()).unwrap();
        let upload = objects.create_upload("b", "parts", &Attributes::default(), None).unwrap();
        let chosen: Vec<(u32, String)> = [&long[..], b"the last part"]
            .into_iter()
            .zip(1..)
            .map(|(bytes, number)| {
                let mut writer = objects.writer().unwrap();
                writer.append(bytes).unwrap();
                (number, objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap().etag)
            })
            .collect();
        objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap();
        let source = objects.get("b", "long").unwrap().unwrap();
        objects.copy(("b", &source), "b", "copy", &Attributes::default(), &PutCondition::Always).unwrap();

        for key in ["small", "long", "parts", "copy"] {
            let reader = objects.reader("b", key).unwrap();
            let (meta, bytes) = (reader.meta.clone(), reader.read_all().unwrap());
            assert_eq!(bytes.len() as u64, meta.size);
            let middle = usize::try_from(meta.size / 2).unwrap();
            let range = reader.read(meta.size / 2, meta.size / 2 + 1).unwrap();
            assert_eq!(range, bytes[middle..=middle], "{key}");
            // What was damaged while nobody looked is found at the first look after a start.
            let again = Objects::open(&dir).unwrap();
            again.reader("b", key).unwrap().read_all().unwrap();
            let tree = dir.channels_path().join(key);
            again.link_tree(&tree, &[("a", &meta)], &|| false).unwrap();
            flip(&objects, &meta, meta.size - 1);
            let after = Objects::open(&dir).unwrap();
            for error in [
                after.reader("b", key).and_then(|reader| reader.read_all()).map(drop).unwrap_err(),
                after.read("b", key).map(drop).unwrap_err(),
                after
                    .link_tree(&dir.channels_path().join(format!("{key}-again")), &[("a", &meta)], &|| false)
                    .unwrap_err(),
            ] {
                assert!(
                    matches!(&error, StoreError::DamagedObject { key: named, .. } if named == key),
                    "{key}: {error}"
                );
            }
            flip(&objects, &meta, meta.size - 1);
            assert_eq!(after.reader("b", key).unwrap().read_all().unwrap(), bytes, "{key}");
        }
        // A block is compared whenever it is read, and only that block.
        flip(&objects, &source, 0);
        let reader = objects.reader("b", "long").unwrap();
        assert!(reader.read(1, 2).is_err());
        assert_eq!(reader.read(1 << 20, (1 << 20) + 1).unwrap(), long[1 << 20..=1 << 20]);
    }
}
