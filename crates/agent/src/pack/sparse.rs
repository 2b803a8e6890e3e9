//! Files with holes, as GNU tar keeps them: the entry holds what was written, and where it belongs.
//! GNU tar, bsdtar and Python's tarfile read it (GNU tar manual, "Sparse Formats", the old GNU
//! format).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use tar::{EntryType, GnuExtSparseHeader, Header};

/// A file whose holes are smaller is packed as it reads, in the form that every reader knows.
const MIN_HOLES_BYTES: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 512;

/// A file's written parts: offset and length, ascending.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Extents(Vec<(u64, u64)>);

impl Extents {
    /// Those of a file with holes; `None` of any other, and where the file system tells of none.
    pub(super) fn of(file: &File) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        let size = metadata.len();
        if metadata.blocks().saturating_mul(BLOCK_BYTES).saturating_add(MIN_HOLES_BYTES) > size {
            return Ok(None);
        }
        let (mut extents, mut at) = (Vec::new(), 0);
        while at < size {
            let start = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
                Ok(start) => start,
                // There is none behind this.
                Err(Errno::NXIO) => break,
                Err(_) => {
                    rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0))?;
                    return Ok(None);
                }
            };
            let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(start))?.min(size);
            if start < at || end <= start {
                return Err(io::Error::other("it was changed while it was read"));
            }
            extents.push((start, end - start));
            at = end;
        }
        // Says how long the file is, wherever its last written part ends.
        if extents.last().is_none_or(|(start, length)| start + length < size) {
            extents.push((size, 0));
        }
        Ok(Some(Self(extents)))
    }

    /// Bytes that were written.
    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, length)| length).sum()
    }

    /// Makes the header that of a file of `size` bytes with these parts. What does not fit in it
    /// comes before the content, in the blocks returned.
    pub(super) fn describe(&self, header: &mut Header, size: u64) -> io::Result<Vec<u8>> {
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(self.bytes());
        let gnu = header.as_gnu_mut().ok_or_else(|| io::Error::other("the header is not GNU's"))?;
        gnu.set_real_size(size);
        let (own, rest) = self.0.split_at(self.0.len().min(gnu.sparse.len()));
        for (field, (offset, length)) in gnu.sparse.iter_mut().zip(own) {
            field.set_offset(*offset);
            field.set_length(*length);
        }
        gnu.set_is_extended(!rest.is_empty());
        let mut blocks = Vec::new();
        let mut rest = rest.iter().peekable();
        while rest.peek().is_some() {
            let mut block = GnuExtSparseHeader::new();
            for (field, (offset, length)) in block.sparse.iter_mut().zip(rest.by_ref()) {
                field.set_offset(*offset);
                field.set_length(*length);
            }
            block.set_is_extended(rest.peek().is_some());
            blocks.extend_from_slice(block.as_bytes());
        }
        Ok(blocks)
    }

    /// The content of the parts.
    pub(super) fn reader(self, file: File) -> Reader {
        Reader { file, waiting: self.0.into_iter(), left: 0 }
    }
}

/// See [`Extents::reader`].
pub(super) struct Reader {
    file: File,
    waiting: std::vec::IntoIter<(u64, u64)>,
    left: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let Some((offset, length)) = self.waiting.next() else { return Ok(0) };
            self.file.seek(SeekFrom::Start(offset))?;
            self.left = length;
        }
        let count = (&mut self.file).take(self.left).read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}
