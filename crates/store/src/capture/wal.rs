//! SQLite's write-ahead log as bytes, after its file format: which frames a log has, and whether
//! they are whole. Pure.

use crate::StoreError;

/// Bytes of the log's header, and of a frame's.
pub(crate) const HEADER: usize = 32;
pub(crate) const FRAME_HEADER: usize = 24;

/// Sums of 32-bit words, which each frame continues.
pub(crate) type Sums = [u32; 2];

/// What the index of a log (the `-shm` file) contains of the last commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexHeader {
    /// The last frame of the last commit; frames are counted from 1.
    pub(crate) last_frame: u32,
    /// Pages of the database after it.
    pub(crate) pages: u32,
    pub(crate) page_bytes: u32,
    /// Name this generation of the log: the first is one more than that of the previous.
    pub(crate) salts: [u32; 2],
    /// Of the last frame.
    pub(crate) sums: Sums,
}

/// Which generation of a log was read, up to which frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) salts: [u32; 2],
    pub(crate) frame: u32,
    pub(crate) sums: Sums,
}

impl IndexHeader {
    /// Bytes at the beginning of the index that are read.
    pub(crate) const BYTES: usize = 48;
    const VERSION: u32 = 3_007_000;

    /// Numbers are in the order of the machine, except for the salts, which are the log's.
    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let native = |at: usize| u32::from_ne_bytes(take(bytes, at));
        let half = u16::from_ne_bytes([bytes[14], bytes[15]]);
        if native(0) != Self::VERSION || bytes[12] == 0 {
            return None;
        }
        Some(Self {
            // 65536 has no place in 16 bits and is written as 1.
            page_bytes: u32::from(half & 0xfe00) | u32::from(half & 1) << 16,
            last_frame: native(16),
            pages: native(20),
            sums: [native(24), native(28)],
            salts: [big(bytes, 32), big(bytes, 36)],
        })
    }

    /// The place behind its last frame.
    pub(crate) fn position(&self) -> Position {
        Position { salts: self.salts, frame: self.last_frame, sums: self.sums }
    }
}

/// The header of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) salts: [u32; 2],
    /// Whether sums take words in big-endian order.
    big_endian: bool,
    sums: Sums,
}

impl LogHeader {
    /// `None`: no log, or one that is not whole.
    pub(crate) fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        let magic = big(bytes, 0);
        if magic & !1 != 0x377f_0682 {
            return None;
        }
        let big_endian = magic & 1 == 1;
        let sums = add([0, 0], &bytes[..24], big_endian);
        (sums == [big(bytes, 24), big(bytes, 28)]).then(|| Self {
            salts: [big(bytes, 16), big(bytes, 20)],
            big_endian,
            sums,
        })
    }

    /// The place before its first frame.
    pub(crate) fn start(&self) -> Position {
        Position { salts: self.salts, frame: 0, sums: self.sums }
    }

    /// The page that a frame has, if it is whole and the frame behind this place, which then moves.
    pub(crate) fn frame<'a>(&self, position: &mut Position, frame: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let (header, page) = frame.split_at_checked(FRAME_HEADER)?;
        let sums = add(add(position.sums, &header[..8], self.big_endian), page, self.big_endian);
        let is_next = [big(header, 8), big(header, 12)] == position.salts && sums == [big(header, 16), big(header, 20)];
        is_next.then(|| {
            *position = Position { frame: position.frame + 1, sums, ..*position };
            (big(header, 0), page)
        })
    }
}

/// Where a frame begins in the log.
pub(crate) fn frame_at(frame: u32, page_bytes: u32) -> u64 {
    HEADER as u64 + u64::from(frame - 1) * (FRAME_HEADER as u64 + u64::from(page_bytes))
}

/// The error of a log that is not what its index describes.
pub(crate) fn lost(what: &str) -> StoreError {
    StoreError::Corrupt { path: what.into(), detail: "its write-ahead log is not the one that was followed".to_owned() }
}

fn take(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

fn big(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(bytes, at))
}

fn add(sums: Sums, bytes: &[u8], big_endian: bool) -> Sums {
    let word = |bytes: &[u8]| {
        let word = take(bytes, 0);
        if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    };
    let [mut first, mut second] = sums;
    for pair in bytes.chunks_exact(8) {
        first = first.wrapping_add(word(pair)).wrapping_add(second);
        second = second.wrapping_add(word(&pair[4..])).wrapping_add(first);
    }
    [first, second]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_log_of_sqlite_is_read_up_to_its_last_commit() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("t.db");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE t (a BLOB); INSERT INTO t VALUES (zeroblob(20000));").unwrap();
        let index = fs::read(temp.path().join("t.db-shm")).unwrap();
        let index = IndexHeader::parse(index[..IndexHeader::BYTES].try_into().unwrap()).unwrap();
        let log = fs::read(temp.path().join("t.db-wal")).unwrap();
        let header = LogHeader::parse(log[..HEADER].try_into().unwrap()).unwrap();
        assert_eq!((index.page_bytes, header.salts), (4096, index.salts));
        let frame = |number: u32| {
            let at = usize::try_from(frame_at(number, index.page_bytes)).unwrap();
            log[at..at + FRAME_HEADER + 4096].to_vec()
        };
        let mut position = header.start();
        for number in 1..=index.last_frame {
            let bytes = frame(number);
            let (page, content) = header.frame(&mut position, &bytes).unwrap();
            assert!((1..=index.pages).contains(&page) && content.len() == 4096);
        }
        assert_eq!(position, index.position());
        // Out of its order, and with a bit flipped, a frame is none.
        let mut first = frame(1);
        assert!(header.frame(&mut position, &first).is_none());
        first[100] ^= 1;
        assert!(header.frame(&mut header.start(), &first).is_none());
        let mut torn: [u8; HEADER] = log[..HEADER].try_into().unwrap();
        torn[17] ^= 1;
        assert!(LogHeader::parse(&torn).is_none());
    }
}
