//! Framing of event files (TensorFlow's TFRecord): length (u64), masked CRC-32C of the length,
//! content, masked CRC-32C of the content; all little-endian.

use crc_fast::{CrcAlgorithm, checksum};

use super::TensorError;

/// Longest content that is read; a tensor of 2 GiB is the longest that protocol buffers allow.
pub const MAX_RECORD_BYTES: u64 = 2 << 30;

/// Bytes before the content.
const HEADER_BYTES: usize = 12;
/// Bytes after it.
const FOOTER_BYTES: usize = 4;

/// What smdebug sums in place of the content where its checksums are off, as they are by default.
const CHECKSUM_OFF: &[u8] = b"0x12345678";

/// The records of an event file in their order. It ends after the first error.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    off: u32,
}

impl<'a> Records<'a> {
    /// Reads a whole file, or the part of it that an index entry locates.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, off: masked_sum(CHECKSUM_OFF) }
    }

    fn read(&mut self) -> Result<&'a [u8], TensorError> {
        let at = self.at;
        let rest = &self.bytes[at..];
        let torn = |needs: u64| TensorError::Torn { at, needs, has: rest.len() };
        let frame = HEADER_BYTES as u64 + FOOTER_BYTES as u64;
        let Some((length, after)) = rest.split_first_chunk::<8>() else { return Err(torn(frame)) };
        let Some((sum, after)) = after.split_first_chunk::<4>() else { return Err(torn(frame)) };
        if u32::from_le_bytes(*sum) != masked_sum(length) {
            return Err(TensorError::Checksum { at, part: "length" });
        }
        let length = u64::from_le_bytes(*length);
        if length > MAX_RECORD_BYTES {
            return Err(TensorError::TooLong { at, bytes: length });
        }
        let needs = length + frame;
        let content_end = usize::try_from(length).map_err(|_| torn(needs))?;
        let Some((content, after)) = after.split_at_checked(content_end) else { return Err(torn(needs)) };
        let Some(sum) = after.first_chunk::<4>() else { return Err(torn(needs)) };
        let sum = u32::from_le_bytes(*sum);
        if sum != self.off && sum != masked_sum(content) {
            return Err(TensorError::Checksum { at, part: "content" });
        }
        self.at = at + HEADER_BYTES + content.len() + FOOTER_BYTES;
        Ok(content)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], TensorError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.at = self.bytes.len();
        }
        Some(read)
    }
}

/// Appends a record, with its checksum where `is_checked`; smdebug writes it without by default and
/// its reader accepts nothing else, TensorBoard's accepts nothing but the real one.
pub fn write_record(out: &mut Vec<u8>, content: &[u8], is_checked: bool) {
    let length = (content.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked_sum(&length).to_le_bytes());
    out.extend_from_slice(content);
    let summed = if is_checked { content } else { CHECKSUM_OFF };
    out.extend_from_slice(&masked_sum(summed).to_le_bytes());
}

/// CRC-32C, rotated and shifted so that sums of sums stay useful (TensorFlow's `crc32c.h`).
fn masked_sum(bytes: &[u8]) -> u32 {
    let sum = u32::try_from(checksum(CrcAlgorithm::Crc32Iscsi, bytes)).expect("a CRC-32 has 32 bits");
    sum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(content: &[u8], is_checked: bool) -> Vec<u8> {
        let mut out = Vec::new();
        write_record(&mut out, content, is_checked);
        out
    }

    fn read(bytes: &[u8]) -> Result<Vec<&[u8]>, TensorError> {
        Records::new(bytes).collect()
    }

    #[test]
    fn records_read_as_they_were_written() {
        let bytes = [record(b"first", true), record(b"", false), record(b"third", false)].concat();
        assert_eq!(read(&bytes).unwrap(), [&b"first"[..], b"", b"third"]);
        assert_eq!(read(&[]).unwrap(), [&[0_u8; 0]; 0]);
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_an_error() {
        let whole = record(b"content", true);
        for end in 1..whole.len() {
            assert!(matches!(read(&whole[..end]), Err(TensorError::Torn { at: 0, .. })), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(matches!(read(&changed), Err(TensorError::Checksum { at: 0, .. })), "byte {at}");
        }
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        let length = u64::MAX.to_le_bytes();
        let bytes = [&length[..], &masked_sum(&length).to_le_bytes(), &[0; 100]].concat();
        let error = read(&bytes).unwrap_err();
        assert_eq!(error, TensorError::TooLong { at: 0, bytes: u64::MAX });
        assert_eq!(
            error.to_string(),
            "the record at byte 0 claims 18446744073709551615 bytes; at most 2147483648 are read"
        );
    }
}
