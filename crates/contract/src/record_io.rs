//! RecordIO, the framing of MXNet and of SageMaker's `RecordWrapperType`: magic number, length,
//! data, zeros up to a multiple of four bytes. Records are whole; none is split.

const MAGIC: u32 = 0xced7_230a;
/// The upper three bits of the length are the part's kind, 0 for a whole record.
const LENGTH_BITS: u32 = 29;

/// What precedes a record of that many bytes; `None` if no record is as long.
#[must_use]
pub fn record_header(length: u64) -> Option<[u8; 8]> {
    let length = u32::try_from(length).ok().filter(|length| length >> LENGTH_BITS == 0)?;
    let mut header = [0; 8];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..].copy_from_slice(&length.to_le_bytes());
    Some(header)
}

/// What follows it.
#[must_use]
pub fn record_padding(length: u64) -> &'static [u8] {
    &[0; 3][..(4 - length as usize % 4) % 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_those_of_mxnet() {
        // Written by `mxnet.recordio.MXRecordIO`: magic, length, data, padding.
        assert_eq!(record_header(5), Some([0x0a, 0x23, 0xd7, 0xce, 5, 0, 0, 0]));
        for (length, padding) in [(0, 0), (1, 3), (2, 2), (3, 1), (4, 0), (5, 3)] {
            assert_eq!(record_padding(length), vec![0; padding], "{length}");
        }
        assert!(record_header((1 << 29) - 1).is_some());
        assert_eq!((record_header(1 << 29), record_header(1 << 40)), (None, None));
    }
}
