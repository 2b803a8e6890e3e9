//! Frames on store and control connections: a length, a kind, a payload. Pure: bytes in, frames
//! out.

/// Most bytes of one payload. Longer ones are a mistake or a stranger's, and end the connection.
pub(crate) const MOST: usize = 64 * 1024;

/// One frame: what kind, and its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Meaning depends on the connection.
    pub(crate) kind: u8,
    /// At most [`MOST`] bytes.
    pub(crate) payload: Vec<u8>,
}

/// A frame longer than [`MOST`] was announced: this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLong(pub(crate) usize);

/// The frame as it goes over the wire.
///
/// # Panics
///
/// On a payload above [`MOST`]: callers make only bounded ones.
pub(crate) fn encode(kind: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= MOST, "a frame of {} bytes, more than {MOST}", payload.len());
    let mut out = Vec::with_capacity(5 + payload.len());
    out.extend(u32::try_from(payload.len()).expect("bounded above").to_le_bytes());
    out.push(kind);
    out.extend(payload);
    out
}

/// Collects bytes as they come and cuts them into frames.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
}

impl Decoder {
    /// Takes bytes that came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend(bytes);
    }

    /// The next whole frame. After [`TooLong`] nothing that follows can be trusted: end the
    /// connection.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, TooLong> {
        let Some(head) = self.buffer.first_chunk::<5>() else { return Ok(None) };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let kind = head[4];
        if length > MOST {
            return Err(TooLong(length));
        }
        if self.buffer.len() < 5 + length {
            return Ok(None);
        }
        let payload = self.buffer[5..5 + length].to_vec();
        self.buffer.drain(..5 + length);
        Ok(Some(Frame { kind, payload }))
    }
}

/// Takes fields off the front of a payload; `None` where it ends too early.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_le_bytes(bytes.try_into().expect("two bytes")))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// A length of two bytes and so many bytes.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }

    /// The same as UTF-8 text.
    pub(crate) fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// `Some` if nothing is left over.
    pub(crate) fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends what [`Fields::bytes`] reads; cut off at 65,535 bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let count = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend(count.to_le_bytes());
    out.extend(&bytes[..usize::from(count)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_however_they_are_cut() {
        let frames = [(1, b"".to_vec()), (2, b"abc".to_vec()), (255, vec![7; MOST])];
        let bytes: Vec<u8> = frames.iter().flat_map(|(kind, payload)| encode(*kind, payload)).collect();
        for step in [1, 2, 5, 1000, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for part in bytes.chunks(step) {
                decoder.push(part);
                while let Some(frame) = decoder.next().unwrap() {
                    got.push((frame.kind, frame.payload));
                }
            }
            assert_eq!(got, frames, "in steps of {step}");
        }
    }

    #[test]
    fn a_boundless_frame_is_refused_before_it_is_there() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff, 0xff, 0xff, 0xff, 1]);
        assert_eq!(decoder.next(), Err(TooLong(u32::MAX as usize)));
    }

    #[test]
    fn fields_end_where_the_payload_ends() {
        let mut out = vec![5];
        out.extend(7_u16.to_le_bytes());
        put_bytes(&mut out, "text".as_bytes());
        let mut fields = Fields(&out);
        assert_eq!((fields.byte(), fields.u16(), fields.text()), (Some(5), Some(7), Some("text".to_owned())));
        assert_eq!((fields.end(), fields.byte(), fields.u64(), fields.u32()), (Some(()), None, None, None));
        assert_eq!(Fields(&[9, 0, b'x']).bytes(), None);
    }
}
