//! The files of an object that is in the node's cache in parts: its data, with holes, and the
//! checksum of each part that is there. CRC-64/NVME finds what a disk or a killed agent has left
//! damaged; it is no protection against who can write both files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crc_fast::{CrcAlgorithm, checksum};

use crate::objects::ObjectCache;

/// Bytes of a part; the last one of an object may have fewer.
pub(crate) const PART: u64 = 1 << 20;
const SUM_BYTES: u64 = 8;

/// Both files, open: while they are, the cache keeps them.
#[derive(Debug)]
pub(crate) struct PartFiles {
    size: u64,
    data: File,
    sums: File,
}

impl PartFiles {
    /// Those of an object; made if they are not there.
    ///
    /// # Errors
    /// I/O.
    pub(crate) fn open(cache: &ObjectCache, id: &str, size: u64) -> io::Result<Self> {
        let (data, sums) = cache.parts(id, size)?;
        Ok(Self { size, data, sums })
    }

    /// How many parts the object has.
    pub(crate) fn count(size: u64) -> io::Result<usize> {
        usize::try_from(size.div_ceil(PART)).map_err(io::Error::other)
    }

    /// Bytes of a part.
    pub(crate) fn length(&self, part: usize) -> u64 {
        PART.min(self.size - part as u64 * PART)
    }

    /// The object's data, of which some parts may be missing.
    pub(crate) fn data(&self) -> &File {
        &self.data
    }

    fn sum(&self, part: usize) -> io::Result<Option<u64>> {
        let mut sum = [0; SUM_BYTES as usize];
        match self.sums.read_exact_at(&mut sum, part as u64 * SUM_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
            // What was never written.
            Ok(()) if sum == [0; SUM_BYTES as usize] => Ok(None),
            Ok(()) => Ok(Some(u64::from_be_bytes(sum))),
        }
    }

    /// A part, if it is there as it came.
    ///
    /// # Errors
    /// I/O.
    pub(crate) fn sound(&self, part: usize) -> io::Result<Option<Vec<u8>>> {
        let Some(sum) = self.sum(part)? else { return Ok(None) };
        let mut content = vec![0; usize::try_from(self.length(part)).expect("a part fits in memory")];
        self.data.read_exact_at(&mut content, part as u64 * PART)?;
        Ok((sum_of(&content) == sum).then_some(content))
    }

    /// Writes a part.
    ///
    /// # Errors
    /// I/O.
    pub(crate) fn store(&self, part: usize, content: &[u8]) -> io::Result<()> {
        self.data.write_all_at(content, part as u64 * PART)?;
        self.sums.write_all_at(&sum_of(content).to_be_bytes(), part as u64 * SUM_BYTES)
    }
}

fn sum_of(content: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, content)
}
