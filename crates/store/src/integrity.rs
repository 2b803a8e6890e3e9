//! Whether stored objects are what was written. Long objects are compared block by block whenever
//! they are read; small ones, those of earlier versions and those that others read as files
//! (channels) are compared whole: once after a start, then by age.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use md5::{Digest, Md5};

use crate::block_sums::{block_at, read_block};
use crate::clock::now_ms;
use crate::data_dir::hex;
use crate::{ObjectMeta, StoreError};

/// After this time an object is compared again before it is read.
const MAX_AGE: Duration = Duration::from_hours(24);

/// Objects of which is remembered when they were compared; 64 MiB or less.
const MOST_REMEMBERED: usize = 1 << 20;

/// Bytes read at a time where there are no blocks.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

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

    /// An object was compared now.
    pub(crate) fn set(&self, id: &str) {
        let now_s = self.now_s();
        let mut seconds = self.lock();
        remember(&mut seconds, MOST_REMEMBERED, key_of(id), now_s);
    }

    /// Compares an object's file, which is at this path, with what was written, unless that was
    /// done lately.
    pub(crate) fn ensure(
        &self,
        meta: &ObjectMeta,
        file: &File,
        sums: Option<&[u8]>,
        path: impl Fn() -> PathBuf,
    ) -> Result<(), StoreError> {
        if self.is_recent(meta) {
            return Ok(());
        }
        let unread = |source| StoreError::Io { what: "read", path: path(), source };
        if let Some(detail) = damage(file, meta, sums).map_err(unread)? {
            return Err(StoreError::DamagedObject { key: meta.key.clone(), detail });
        }
        self.set(&meta.id);
        Ok(())
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

pub(crate) fn block_text(start: u64, end: u64) -> String {
    format!("{} are not those that were written", bytes_text(start, end))
}

pub(crate) fn bytes_text(start: u64, end: u64) -> String {
    format!("its bytes {start} to {}", end - 1)
}

/// The parts that an object came in, or one that is all of it.
pub(crate) fn parts_of(meta: &ObjectMeta) -> Vec<(u32, u64)> {
    if meta.attributes.parts.is_empty() { vec![(1, meta.size)] } else { meta.attributes.parts.clone() }
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
            return Ok(Some(block_text(block.start, block.end)));
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
    use super::*;

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
}
