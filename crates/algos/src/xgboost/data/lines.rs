//! The lines of a list of files, with their places.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use super::files::Files;
use super::{BadField, DataError};

/// A place between two lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Index of the file.
    file: usize,
    /// Bytes of the file before this place.
    offset: u64,
    /// Lines of the file before this place.
    line: u64,
}

/// Longest line that is read; a file without line ends is not data.
const MAX_LINE: u64 = 256 << 20;

/// Reads on from a place.
pub(super) struct Lines<'a> {
    files: &'a Files,
    position: Position,
    open: Option<BufReader<File>>,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(super) fn at(files: &'a Files, position: Position) -> Self {
        Self { files, position, open: None, line: Vec::new() }
    }

    /// The place after the line that was read last.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    /// The next line that is not blank, without its end; `None` after the last file's last line.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, DataError> {
        while let Some(path) = self.files.paths().get(self.position.file) {
            let read_error = |source| DataError::Read { path: path.clone(), source };
            let reader = match &mut self.open {
                Some(reader) => reader,
                closed => {
                    let mut file = File::open(path).map_err(read_error)?;
                    if self.position.offset == 0 {
                        self.files.check_magic(self.position.file, &mut file)?;
                    }
                    file.seek(SeekFrom::Start(self.position.offset)).map_err(read_error)?;
                    closed.insert(BufReader::with_capacity(1 << 20, file))
                }
            };
            self.line.clear();
            let read = reader.take(MAX_LINE).read_until(b'\n', &mut self.line).map_err(read_error)? as u64;
            if read == 0 {
                self.open = None;
                self.position = Position { file: self.position.file + 1, ..Position::default() };
                continue;
            }
            self.position.offset += read;
            self.position.line += 1;
            if read == MAX_LINE {
                return Err(self.bad(BadField::new(1, "the line is longer than 256 MiB")));
            }
            let mut end = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
            end = end.strip_suffix(b"\r").unwrap_or(end);
            let end = end.len();
            // A byte order mark may stand before the first line.
            let start = if self.position.line == 1 && self.line.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
            if !self.line[start..end].trim_ascii().is_empty() {
                return Ok(Some(&self.line[start..end]));
            }
        }
        Ok(None)
    }

    /// The error of the line that was read last.
    pub(super) fn bad(&self, field: BadField) -> DataError {
        let BadField { column, reason } = field;
        DataError::Line { file: self.files.name(self.position.file), line: self.position.line, column, reason }
    }
}
