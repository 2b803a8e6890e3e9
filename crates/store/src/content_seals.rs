//! Seals of encrypted contents ([`shoal_encryption`]) in the index: a salt and the tags of all
//! blocks for each part that a content came in, in the order of the parts. The blocks are those of
//! [`crate::block_sums`], whose sums are of the ciphertext.

use rusqlite::{Connection, OptionalExtension, params};
use shoal_encryption::{BlockPlace, DataKey, SALT_BYTES, TAG_BYTES, open_block};

use crate::StoreError;
use crate::block_sums::BLOCK_BYTES;

/// Keeps a file's seals, if it has any.
pub(crate) fn keep(connection: &Connection, file: &str, seals: Option<&[u8]>) -> Result<(), StoreError> {
    if let Some(seals) = seals {
        let insert = "INSERT INTO content_seals (file, seals) VALUES (?, ?)";
        connection.prepare_cached(insert)?.execute(params![file, seals])?;
    }
    Ok(())
}

/// A file's seals; those that are not encrypted have none.
pub(crate) fn of_file(connection: &Connection, file: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = connection.prepare_cached("SELECT seals FROM content_seals WHERE file = ?")?;
    Ok(select.query_row([file], |row| row.get(0)).optional()?)
}

/// Drops the seals of a file that no row names any more.
pub(crate) fn forget(connection: &Connection, file: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM content_seals WHERE file = ?")?.execute([file])?;
    Ok(())
}

/// Decrypts the blocks of a content.
#[derive(Debug)]
pub(crate) struct Opener {
    data: DataKey,
    seals: Vec<u8>,
}

impl Opener {
    pub(crate) fn new(data: DataKey, seals: Vec<u8>) -> Self {
        Self { data, seals }
    }

    /// Decrypts the block that begins at `start` of an object with these parts; `false`: it is not
    /// what was encrypted.
    pub(crate) fn open(&self, parts: &[(u32, u64)], start: u64, block: &mut [u8]) -> bool {
        let Some((of_part, place)) = place_of(parts, start) else { return false };
        let after_salt = of_part + SALT_BYTES;
        let tag = usize::try_from(place.number).ok().and_then(|number| after_salt.checked_add(number * TAG_BYTES));
        let salt = self.seals.get(of_part..after_salt);
        let tag = tag.and_then(|at| self.seals.get(at..at + TAG_BYTES));
        salt.zip(tag).is_some_and(|(salt, tag)| open_block(&self.data, salt, place, tag, block))
    }
}

/// Where the seals of the part begin that has this byte, and which block of the part it is in.
fn place_of(parts: &[(u32, u64)], at: u64) -> Option<(usize, BlockPlace)> {
    let (mut start, mut seals) = (0, 0);
    for &(count, size) in parts {
        let blocks = size.div_ceil(BLOCK_BYTES);
        let of_part = SALT_BYTES as u64 + blocks * TAG_BYTES as u64;
        let run = u64::from(count) * size;
        if at < start + run {
            let number = (at - start) % size / BLOCK_BYTES;
            let place = BlockPlace { number, is_last: number + 1 == blocks };
            return Some((usize::try_from(seals + (at - start) / size * of_part).ok()?, place));
        }
        start += run;
        seals += u64::from(count) * of_part;
    }
    None
}

/// Bytes of the seals of an object with these parts.
pub(crate) fn length_of(parts: &[(u32, u64)]) -> u64 {
    let of_part = |size: u64| SALT_BYTES as u64 + size.div_ceil(BLOCK_BYTES) * TAG_BYTES as u64;
    parts.iter().map(|&(count, size)| u64::from(count) * of_part(size)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK_BYTES;

    #[test]
    fn every_block_has_seals_of_its_own() {
        for parts in [
            vec![(1, 1)],
            vec![(1, B)],
            vec![(1, 3 * B + 5)],
            vec![(2, B + 1), (1, 7)],
            vec![(3, 5), (1, 0), (1, 2 * B)],
        ] {
            let (mut at, mut seals) = (0, 0);
            for size in parts.iter().flat_map(|&(count, size)| std::iter::repeat_n(size, count as usize)) {
                let blocks = size.div_ceil(B);
                for number in 0..blocks {
                    let place = BlockPlace { number, is_last: number + 1 == blocks };
                    for byte in [at + number * B, (at + (number + 1) * B).min(at + size) - 1] {
                        assert_eq!(place_of(&parts, byte), Some((seals, place)), "{parts:?}: {byte}");
                    }
                }
                at += size;
                seals += SALT_BYTES + usize::try_from(blocks).unwrap() * TAG_BYTES;
            }
            assert_eq!((place_of(&parts, at), length_of(&parts)), (None, seals as u64), "{parts:?}");
        }
    }
}
