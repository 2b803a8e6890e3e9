//! Lines of one stream as bytes. A block is complete in itself: each line is two time differences
//! (zigzag varints, milliseconds: when it was written, when it came in), its length (varint) and
//! its text.

use crate::LogEvent;

/// The lines of a block, the first at `position`.
#[derive(Debug, Default)]
pub(crate) struct BlockWriter {
    bytes: Vec<u8>,
    lines: u64,
    at_ms: u64,
    ingested_ms: u64,
    first_ms: u64,
    last_ms: u64,
}

/// An encoded block and what its row states about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The encoded lines.
    pub(crate) bytes: Vec<u8>,
    /// How many.
    pub(crate) lines: u64,
    /// Time of the earliest line.
    pub(crate) first_ms: u64,
    /// Time of the latest line.
    pub(crate) last_ms: u64,
    /// When the last line came in.
    pub(crate) ingested_ms: u64,
}

impl BlockWriter {
    /// Adds a line.
    pub(crate) fn push(&mut self, at_ms: u64, ingested_ms: u64, text: &str) {
        put_difference(&mut self.bytes, self.at_ms, at_ms);
        put_difference(&mut self.bytes, self.ingested_ms, ingested_ms);
        put_varint(&mut self.bytes, text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
        self.first_ms = if self.lines == 0 { at_ms } else { self.first_ms.min(at_ms) };
        self.last_ms = self.last_ms.max(at_ms);
        (self.at_ms, self.ingested_ms) = (at_ms, ingested_ms);
        self.lines += 1;
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The block; `None` without lines. The writer is empty afterwards.
    pub(crate) fn take(&mut self) -> Option<Block> {
        let Self { bytes, lines, ingested_ms, first_ms, last_ms, .. } = std::mem::take(self);
        (lines > 0).then_some(Block { bytes, lines, first_ms, last_ms, ingested_ms })
    }
}

/// The lines of a block whose first line is at `position`; `None` if these bytes are not a block.
pub(crate) fn read_block(mut bytes: &[u8], position: u64) -> Option<Vec<LogEvent>> {
    let (mut at_ms, mut ingested_ms) = (0, 0);
    let mut events = Vec::new();
    while !bytes.is_empty() {
        at_ms = get_difference(&mut bytes, at_ms)?;
        ingested_ms = get_difference(&mut bytes, ingested_ms)?;
        let length = usize::try_from(get_varint(&mut bytes)?).ok()?;
        let (text, rest) = bytes.split_at_checked(length)?;
        let text = str::from_utf8(text).ok()?.to_owned();
        events.push(LogEvent { at_ms, ingested_ms, text, position: position + events.len() as u64 });
        bytes = rest;
    }
    Some(events)
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn get_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// Zigzag: small differences of either sign are short.
fn put_difference(bytes: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from).cast_signed();
    put_varint(bytes, ((difference << 1) ^ (difference >> 63)).cast_unsigned());
}

fn get_difference(bytes: &mut &[u8], from: u64) -> Option<u64> {
    let zigzag = get_varint(bytes)?;
    Some(from.wrapping_add((zigzag >> 1) ^ (zigzag & 1).wrapping_neg()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let lines = [(7, 9, "one"), (3, 9, ""), (u64::MAX, 8, "größer"), (0, u64::MAX, "\u{0}\n")];
        let mut writer = BlockWriter::default();
        for (at_ms, ingested_ms, text) in lines {
            writer.push(at_ms, ingested_ms, text);
        }
        let block = writer.take().unwrap();
        assert_eq!((block.lines, block.first_ms, block.last_ms, block.ingested_ms), (4, 0, u64::MAX, u64::MAX));
        let events = read_block(&block.bytes, 5).unwrap();
        let read: Vec<_> = events.iter().map(|event| (event.at_ms, event.ingested_ms, event.text.as_str())).collect();
        assert_eq!(read, lines);
        assert_eq!(events.iter().map(|event| event.position).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert_eq!(writer.take(), None);
    }

    #[test]
    fn what_is_cut_is_no_block() {
        let mut writer = BlockWriter::default();
        writer.push(1, 1, "text");
        let bytes = writer.take().unwrap().bytes;
        for length in 1..bytes.len() {
            assert_eq!(read_block(&bytes[..length], 0), None, "{length}");
        }
        assert_eq!(read_block(&[0xff; 20], 0), None);
    }
}
