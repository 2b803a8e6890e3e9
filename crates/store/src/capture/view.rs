//! A database as of a capture: its pages, those that changed since an earlier one, and its rows.
//!
//! Pages are read from the files, as SQLite has laid them out: the last frame of the log that has
//! the page, or else the page of the file. A copy by SQLite itself would be a second file as large
//! as the first, and would not know what has changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;

use super::source::RawFiles;
use super::wal::{FRAME_HEADER, HEADER, IndexHeader, LogHeader, Position, frame_at, lost};
use crate::StoreError;
use crate::error::io_at;

/// A database that is read as it was at a moment.
#[derive(Debug)]
pub struct DatabaseView {
    name: &'static str,
    path: PathBuf,
    // In a transaction: what it reads from is kept until it is dropped.
    reader: Connection,
    raw: Arc<RawFiles>,
    log: Option<File>,
    header: IndexHeader,
}

/// Where a log was read up to; [`DatabaseView::changes`] continues there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition(Position);

/// The pages of a database that its log has, each as of its last frame.
#[derive(Debug)]
pub struct Pages {
    salts: [u32; 2],
    /// By page number, from 1.
    frames: BTreeMap<u32, u32>,
}

impl LogPosition {
    /// Frames that a log has got since, by its index as it is now.
    pub(super) fn frames_until(&self, now: &IndexHeader) -> u64 {
        let Self(then) = self;
        // A log that was begun again has only new ones.
        let before = if then.salts == now.salts { then.frame } else { 0 };
        now.last_frame.saturating_sub(before).into()
    }
}

impl DatabaseView {
    pub(super) fn new(
        name: &'static str,
        path: PathBuf,
        reader: Connection,
        raw: Arc<RawFiles>,
        log: Option<File>,
        header: IndexHeader,
    ) -> Self {
        Self { name, path, reader, raw, log, header }
    }

    /// The file's name in the data directory.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Pages that it has.
    pub fn page_count(&self) -> u32 {
        self.header.pages
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u32 {
        self.header.page_bytes
    }

    /// Bytes that it has.
    pub fn bytes(&self) -> u64 {
        u64::from(self.header.pages) * u64::from(self.header.page_bytes)
    }

    /// Frames that its log has.
    pub fn log_frames(&self) -> u32 {
        self.header.last_frame
    }

    /// The end of its log.
    pub fn position(&self) -> LogPosition {
        LogPosition(self.header.position())
    }

    pub(super) fn reader(&self) -> &Connection {
        &self.reader
    }

    /// All pages.
    ///
    /// # Errors
    /// I/O.
    pub fn pages(&self) -> Result<Pages, StoreError> {
        let mut pages = Pages { salts: self.header.salts, frames: BTreeMap::new() };
        let Some(header) = self.log_header()?.filter(|header| header.salts == self.header.salts) else {
            // All of the log is in the file, and the log was begun again.
            return Ok(pages);
        };
        pages.frames = match self.frames(&header, header.start(), |_| Ok(())) {
            Err(StoreError::Corrupt { .. }) if self.log_header()? != Some(header) => BTreeMap::new(),
            frames => frames?,
        };
        Ok(pages)
    }

    /// The pages that were written since a position of an earlier capture, which the caller has not
    /// yet dropped: otherwise frames may have been overwritten that were never read.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the log was begun again more than once: the database must be
    /// read whole then. I/O.
    pub fn changes(&self, since: &LogPosition) -> Result<BTreeMap<u32, Vec<u8>>, StoreError> {
        let LogPosition(since) = *since;
        if since == self.header.position() {
            return Ok(BTreeMap::new());
        }
        let begun_again = self.header.salts != since.salts;
        // A capture that found nothing in the log keeps what comes after it from being moved.
        if begun_again && since.frame != 0 && self.header.salts[0] != since.salts[0].wrapping_add(1) {
            return Err(lost(self.name));
        }
        if self.header.last_frame == 0 {
            return Ok(BTreeMap::new());
        }
        let header = self.log_header()?.filter(|header| header.salts == self.header.salts);
        let header = header.ok_or_else(|| lost(self.name))?;
        let mut contents = BTreeMap::new();
        let start = if begun_again { header.start() } else { since };
        let mut each = |(page, content): (u32, &[u8])| {
            contents.insert(page, content.to_vec());
            Ok(())
        };
        self.frames(&header, start, &mut each)?;
        contents.retain(|page, _| *page <= self.header.pages);
        Ok(contents)
    }

    /// Writes all of them to a file of their own, for tests and tools.
    ///
    /// # Errors
    /// I/O.
    pub fn write_to(&self, path: &Path) -> Result<(), StoreError> {
        let mut pages = self.pages()?;
        let file = File::create(path).map_err(io_at("create", path))?;
        let mut page = vec![0; self.header.page_bytes as usize];
        for number in 1..=self.header.pages {
            pages.read(self, number, &mut page)?;
            file.write_all_at(&page, u64::from(number - 1) * page.len() as u64).map_err(io_at("write", path))?;
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        path.push("-wal");
        path.into()
    }

    fn log_header(&self) -> Result<Option<LogHeader>, StoreError> {
        let Some(log) = &self.log else { return Ok(None) };
        let mut bytes = [0; HEADER];
        match log.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            read => {
                read.map_err(io_at("read", &self.log_path()))?;
                Ok(LogHeader::parse(&bytes))
            }
        }
    }

    /// The frames from a place to the end: the last of each page.
    fn frames(
        &self,
        header: &LogHeader,
        mut position: Position,
        mut each: impl FnMut((u32, &[u8])) -> Result<(), StoreError>,
    ) -> Result<BTreeMap<u32, u32>, StoreError> {
        /// Read at a time.
        const FRAMES: u32 = 64;
        let frame_bytes = FRAME_HEADER + self.header.page_bytes as usize;
        let log = self.log.as_ref().ok_or_else(|| lost(self.name))?;
        let (mut frames, mut buffer) = (BTreeMap::new(), vec![0; FRAMES as usize * frame_bytes]);
        while position.frame < self.header.last_frame {
            let count = FRAMES.min(self.header.last_frame - position.frame);
            let bytes = &mut buffer[..count as usize * frame_bytes];
            log.read_exact_at(bytes, frame_at(position.frame + 1, self.header.page_bytes))
                .map_err(|_| lost(self.name))?;
            for frame in bytes.chunks_exact(frame_bytes) {
                let found = header.frame(&mut position, frame).ok_or_else(|| lost(self.name))?;
                frames.insert(found.0, position.frame);
                each(found)?;
            }
        }
        if position == self.header.position() { Ok(frames) } else { Err(lost(self.name)) }
    }

    fn read_file(&self, buffer: &mut [u8], at: u64) -> Result<(), StoreError> {
        let mut done = 0;
        while done < buffer.len() {
            let read = self.raw.main.read_at(&mut buffer[done..], at + done as u64);
            match read.map_err(io_at("read", &self.path))? {
                // Pages at the end that only the log has, so far.
                0 => break,
                read => done += read,
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }
}

impl Pages {
    /// Fills the buffer with whole pages of the view that they are of, from this one on.
    ///
    /// # Errors
    /// I/O.
    pub fn read(&mut self, view: &DatabaseView, first: u32, buffer: &mut [u8]) -> Result<(), StoreError> {
        let page_bytes = view.header.page_bytes;
        view.read_file(buffer, u64::from(first - 1) * u64::from(page_bytes))?;
        for (page, content) in (first..).zip(buffer.chunks_exact_mut(page_bytes as usize)) {
            let Some(&frame) = self.frames.get(&page) else { continue };
            let at = frame_at(frame, page_bytes);
            let log = view.log.as_ref().ok_or_else(|| lost(view.name))?;
            let mut draft = content.to_vec();
            log.read_exact_at(&mut draft, at + FRAME_HEADER as u64).map_err(|_| lost(view.name))?;
            // A frame's header is written before its page: if it is still the old one, so was the
            // page.
            let mut salts = [0; 8];
            log.read_exact_at(&mut salts, at + 8).map_err(|_| lost(view.name))?;
            let word = |at: usize| u32::from_be_bytes([salts[at], salts[at + 1], salts[at + 2], salts[at + 3]]);
            if [word(0), word(4)] == self.salts {
                content.copy_from_slice(&draft);
            } else {
                // The log was begun again, which happens only when all of it is in the file.
                self.frames.clear();
                view.read_file(content, u64::from(page - 1) * u64::from(page_bytes))?;
            }
        }
        Ok(())
    }
}
