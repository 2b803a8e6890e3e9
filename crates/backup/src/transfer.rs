//! Contents on their way to a target: which are missing there, and how they are copied while the
//! server may delete them.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use shoal_store::{Capture, CaptureSource, Content, ContentKey, IsKnown, Opened, StoreError, are_named};

use crate::pin::{LogWatch, Pin};
use crate::target::Target;
use crate::{BackupError, Progress, Step};

/// Contents, and bytes of them, that are made durable together.
const BATCH: usize = 256;
const BATCH_BYTES: u64 = 256 << 20;

/// Captures in a row of which something is deleted before it is copied, after which the copy keeps
/// the server from deleting.
const ATTEMPTS: usize = 5;

/// What a target has.
#[derive(Debug)]
pub(crate) struct Present {
    /// Lengths, by id.
    objects: HashMap<u128, u64>,
    segments: HashSet<String>,
    /// Bytes that were copied.
    pub(crate) copied_bytes: u64,
    copied: u64,
}

/// Captures of one moment, and what their rows name that was not known.
#[derive(Debug)]
pub(crate) struct Captured {
    pub(crate) captures: Vec<Pin>,
    pub(crate) contents: Vec<Content>,
}

impl Present {
    pub(crate) fn of(target: &dyn Target) -> Result<Self, BackupError> {
        let objects = target.list("objects")?.into_iter().filter_map(|(name, length)| Some((object(&name)?, length)));
        let segments = target.list("logs")?.into_keys().filter_map(|name| Some(name.strip_prefix("logs/")?.to_owned()));
        Ok(Self { objects: objects.collect(), segments: segments.collect(), copied_bytes: 0, copied: 0 })
    }

    fn has(&self, key: ContentKey<'_>) -> bool {
        match key {
            ContentKey::Object(id, size) => self.objects.get(&id) == Some(&size),
            ContentKey::Segment(file) => self.segments.contains(file),
        }
    }

    fn add(&mut self, content: &Content, length: u64) {
        match content.key() {
            ContentKey::Object(id, _) => drop(self.objects.insert(id, length)),
            ContentKey::Segment(file) => drop(self.segments.insert(file.to_owned())),
        }
    }

    /// Copies those of them that are still there; returns whether that was all, as they were.
    fn copy(
        &mut self,
        root: &Path,
        contents: &[Content],
        mut open: impl FnMut(&Content) -> Result<Option<Opened>, StoreError>,
        target: &dyn Target,
        progress: &mut Progress<'_>,
    ) -> Result<bool, BackupError> {
        let (mut is_whole, mut rest) = (true, contents);
        let of = self.copied + contents.len() as u64;
        while !rest.is_empty() {
            let (mut batch, mut lengths, mut bytes, mut count) = (Vec::new(), Vec::new(), 0, 0);
            for content in rest.iter().take(BATCH) {
                count += 1;
                let Some(opened) = open(content)? else {
                    is_whole = false;
                    continue;
                };
                bytes += opened.size;
                lengths.push((content, opened.size));
                batch.push((content.name(), opened));
                if bytes >= BATCH_BYTES {
                    break;
                }
            }
            let (taken, others) = rest.split_at(count);
            self.copied_bytes += target.put_all(batch)?;
            is_whole &= are_named(root, taken)?;
            self.copied += lengths.len() as u64;
            lengths.into_iter().for_each(|(content, length)| self.add(content, length));
            progress(Step::Contents { done: self.copied, of, bytes: self.copied_bytes });
            rest = others;
        }
        Ok(is_whole)
    }

    /// Everything that is there now, without holding up anybody: what is left for the captures is
    /// then little.
    pub(crate) fn copy_ahead(
        &mut self,
        source: &CaptureSource,
        target: &dyn Target,
        progress: &mut Progress<'_>,
    ) -> Result<(), BackupError> {
        for _ in 0..3 {
            let (captures, ()) = source.capture(1, |_| Ok(()))?;
            let missing = captures[0].contents(&|key| self.has(key))?;
            drop(captures);
            let count = missing.len();
            self.copy(source.root(), &missing, |content| content.open(source.root()), target, progress)?;
            if count < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Captures of one moment, all contents of which are in the target; what is known to be there
    /// is not asked for again. Rows are read only of captures that differ.
    pub(crate) fn capture(
        &mut self,
        (source, watch): (&CaptureSource, &LogWatch),
        copies: usize,
        target: &dyn Target,
        progress: &mut Progress<'_>,
        (may_differ, is_known): (&dyn Fn(&Capture) -> bool, &IsKnown<'_>),
    ) -> Result<Captured, BackupError> {
        let root = source.root();
        let pinned = |captures: Vec<Capture>| captures.into_iter().map(|it| watch.pin(it)).collect();
        for _ in 0..ATTEMPTS {
            let (captures, ()) = source.capture(copies, |_| Ok(()))?;
            if !may_differ(&captures[0]) {
                return Ok(Captured { captures: pinned(captures), contents: Vec::new() });
            }
            let contents = captures[0].contents(is_known)?;
            let captures = pinned(captures);
            let missing: Vec<Content> = contents.iter().filter(|content| !self.has(content.key())).cloned().collect();
            if self.copy(root, &missing, |content| content.open(root), target, progress)? {
                return Ok(Captured { captures, contents });
            }
        }
        // The server deletes as fast as we look: what is open stays.
        let (captures, (contents, opened)) = source.capture(copies, |capture| {
            let contents = capture.contents(is_known)?;
            let missing = contents.iter().filter(|content| !self.has(content.key()));
            let opened = missing.map(|content| Ok((content.clone(), content.open(root)?)));
            let opened = opened.collect::<Result<Vec<_>, StoreError>>()?;
            Ok((contents, opened))
        })?;
        let captures = pinned(captures);
        let (missing, files): (Vec<Content>, Vec<Option<Opened>>) = opened.into_iter().unzip();
        let mut files = files.into_iter();
        let is_whole = self.copy(root, &missing, |_| Ok(files.next().flatten()), target, progress)?;
        if is_whole { Ok(Captured { captures, contents }) } else { Err(BackupError::Outrun) }
    }

    /// Forgets what was removed from the target.
    pub(crate) fn removed(&mut self, names: &[String]) {
        for name in names {
            match object(name) {
                Some(id) => drop(self.objects.remove(&id)),
                None => drop(self.segments.remove(name.trim_start_matches("logs/"))),
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let objects = self.objects.keys().map(|id| {
            let id = format!("{id:032x}");
            format!("objects/{}/{id}", &id[..2])
        });
        objects.chain(self.segments.iter().map(|file| format!("logs/{file}"))).collect()
    }
}

/// The id in the name of an object's copy.
fn object(name: &str) -> Option<u128> {
    let (_, id) = name.strip_prefix("objects/")?.split_once('/')?;
    u128::from_str_radix(id, 16).ok()
}
