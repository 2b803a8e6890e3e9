//! Checksums of objects' contents, block by block, in the index: what is read is compared before it
//! is given out, and only the blocks that are read. CRC-64/NVME finds every flipped bit of a block;
//! it is no protection against somebody who can write both the file and the index.

use std::io;
use std::os::unix::fs::FileExt;

use crc_fast::{CrcAlgorithm, Digest};
use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreError;

/// Bytes of a block; the last one of a part may be shorter.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes of a sum.
const SUM_BYTES: usize = 8;

/// Sums of what is written, in order.
#[derive(Debug)]
pub(crate) struct BlockHasher {
    sums: Vec<u8>,
    block: Digest,
    filled: u64,
}

impl BlockHasher {
    pub(crate) fn new() -> Self {
        Self { sums: Vec::new(), block: Digest::new(CrcAlgorithm::Crc64Nvme), filled: 0 }
    }

    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = usize::try_from(BLOCK_BYTES - self.filled).expect("a block fits in memory");
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.block.update(now);
            self.filled += now.len() as u64;
            bytes = rest;
            if self.filled == BLOCK_BYTES {
                self.end_block();
            }
        }
    }

    /// The sums of all blocks.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if self.filled > 0 {
            self.end_block();
        }
        self.sums
    }

    fn end_block(&mut self) {
        self.sums.extend_from_slice(&self.block.finalize().to_be_bytes());
        self.block.reset();
        self.filled = 0;
    }
}

/// A block of an object: bytes `start..end`, whose sum is the `index`-th. Blocks begin anew with
/// each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    index: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The block that has the byte `at` of an object with these parts (runs of count and bytes each);
/// `None` behind its end.
pub(crate) fn block_at(parts: &[(u32, u64)], at: u64) -> Option<Block> {
    let (mut start, mut index) = (0, 0);
    for &(count, size) in parts {
        let blocks = size.div_ceil(BLOCK_BYTES);
        let run = u64::from(count) * size;
        if at < start + run {
            let part = (at - start) / size;
            let (part_start, within) = (start + part * size, (at - start) % size / BLOCK_BYTES);
            let block_start = part_start + within * BLOCK_BYTES;
            let end = (block_start + BLOCK_BYTES).min(part_start + size);
            return Some(Block { index: index + part * blocks + within, start: block_start, end });
        }
        start += run;
        index += u64::from(count) * blocks;
    }
    None
}

/// Reads a block of what begins at `start` of the file and compares it with its sum; `None`: the
/// bytes are not those that were written, or not there.
pub(crate) fn read_block(file: &impl FileExt, start: u64, block: Block, sums: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; usize::try_from(block.end - block.start).expect("a block fits in memory")];
    match file.read_exact_at(&mut bytes, start + block.start) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    Ok(is_block(&bytes, block, sums).then_some(bytes))
}

/// Whether these bytes are those of a block.
pub(crate) fn is_block(bytes: &[u8], block: Block, sums: &[u8]) -> bool {
    let at = usize::try_from(block.index).expect("sums fit in memory") * SUM_BYTES;
    let sum = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes();
    sums.get(at..at + SUM_BYTES) == Some(&sum)
}

/// Keeps a file's sums.
pub(crate) fn keep(connection: &Connection, file: &str, sums: &[u8]) -> Result<(), StoreError> {
    connection.prepare_cached("INSERT INTO block_sums (file, sums) VALUES (?, ?)")?.execute(params![file, sums])?;
    Ok(())
}

/// A file's sums; small files and those of earlier versions have none.
pub(crate) fn of_file(connection: &Connection, file: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = connection.prepare_cached("SELECT sums FROM block_sums WHERE file = ?")?;
    Ok(select.query_row([file], |row| row.get(0)).optional()?)
}

/// Drops the sums of a file that no row names any more.
pub(crate) fn forget(connection: &Connection, file: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM block_sums WHERE file = ?")?.execute([file])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_block_and_every_block_a_sum() {
        const B: u64 = BLOCK_BYTES;
        for parts in [
            vec![(1, 1)],
            vec![(1, B)],
            vec![(1, 3 * B + 5)],
            vec![(2, B + 1), (1, 7)],
            vec![(3, 5), (1, 0), (1, 2 * B)],
        ] {
            let size: u64 = parts.iter().map(|(count, size)| u64::from(*count) * size).sum();
            let (mut at, mut index) = (0, 0);
            while let Some(block) = block_at(&parts, at) {
                assert_eq!((block.index, block.start), (index, at), "{parts:?}");
                assert_eq!(block_at(&parts, block.end - 1), Some(block), "{parts:?}");
                (at, index) = (block.end, index + 1);
            }
            assert_eq!(at, size, "{parts:?}");
            let sums: usize = parts
                .iter()
                .map(|&(count, size)| {
                    let mut hasher = BlockHasher::new();
                    hasher.update(&vec![7; usize::try_from(size).unwrap()]);
                    hasher.finish().len() / SUM_BYTES * count as usize
                })
                .sum();
            assert_eq!(sums as u64, index, "{parts:?}");
        }
    }
}
