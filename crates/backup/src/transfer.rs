//! Contents on their way to a target: which are missing there, and how they are copied while the
//! server may delete them.

use std::collections::BTreeMap;
use std::path::Path;

use shoal_store::{Capture, CaptureSource, Content, Contents, Opened, StoreError};

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
    lengths: BTreeMap<String, u64>,
    /// Bytes that were copied.
    pub(crate) copied_bytes: u64,
    copied: u64,
}

impl Present {
    pub(crate) fn of(target: &dyn Target) -> Result<Self, BackupError> {
        let mut lengths = target.list("objects")?;
        lengths.append(&mut target.list("logs")?);
        Ok(Self { lengths, copied_bytes: 0, copied: 0 })
    }

    fn has(&self, content: &Content) -> bool {
        let length = self.lengths.get(&content.name());
        match content {
            Content::Object { size, .. } => length == Some(size),
            Content::Segment { .. } => length.is_some(),
        }
    }

    pub(crate) fn missing(&self, contents: Contents) -> Vec<Content> {
        contents.0.into_iter().filter(|content| !self.has(content)).collect()
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
            let (mut batch, mut names, mut bytes, mut count) = (Vec::new(), Vec::new(), 0, 0);
            for content in rest.iter().take(BATCH) {
                count += 1;
                let Some(opened) = open(content)? else {
                    is_whole = false;
                    continue;
                };
                bytes += opened.size;
                names.push((content.name(), opened.size));
                batch.push((content.name(), opened));
                if bytes >= BATCH_BYTES {
                    break;
                }
            }
            let (taken, others) = rest.split_at(count);
            self.copied_bytes += target.put_all(batch)?;
            is_whole &= Contents::are_named(root, taken)?;
            self.copied += names.len() as u64;
            self.lengths.extend(names);
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
            let capture = one(source.capture(1, |_| Ok(()))?.0);
            let missing = self.missing(capture.contents()?);
            drop(capture);
            let count = missing.len();
            self.copy(source.root(), &missing, |content| content.open(source.root()), target, progress)?;
            if count < BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Captures of one moment, all contents of which are in the target.
    pub(crate) fn capture(
        &mut self,
        source: &CaptureSource,
        copies: usize,
        target: &dyn Target,
        progress: &mut Progress<'_>,
        may_differ: impl Fn(&Capture) -> bool,
    ) -> Result<Vec<Capture>, BackupError> {
        let root = source.root();
        for _ in 0..ATTEMPTS {
            let (captures, ()) = source.capture(copies, |_| Ok(()))?;
            if !may_differ(&captures[0]) {
                return Ok(captures);
            }
            let missing = self.missing(captures[0].contents()?);
            if self.copy(root, &missing, |content| content.open(root), target, progress)? {
                return Ok(captures);
            }
        }
        // The server deletes as fast as we look: what is open stays.
        let (captures, opened) = source.capture(copies, |capture| {
            let missing = self.missing(capture.contents()?);
            let opened = missing.into_iter().map(|content| Ok((content.open(root)?, content)));
            opened.collect::<Result<Vec<_>, StoreError>>()
        })?;
        let (mut files, mut contents) = (Vec::new(), Vec::new());
        for (file, content) in opened {
            files.push(file);
            contents.push(content);
        }
        let mut files = files.into_iter();
        let is_whole = self.copy(root, &contents, |_| Ok(files.next().flatten()), target, progress)?;
        if is_whole { Ok(captures) } else { Err(BackupError::Outrun) }
    }

    /// Forgets what was removed from the target.
    pub(crate) fn removed(&mut self, names: &[String]) {
        for name in names {
            self.lengths.remove(name);
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.lengths.keys().cloned().collect()
    }
}

pub(crate) fn one(mut captures: Vec<Capture>) -> Capture {
    captures.pop().expect("one capture was asked for")
}
