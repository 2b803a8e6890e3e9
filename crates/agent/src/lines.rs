//! Cuts a program's output into lines.

/// Longest line; what is longer becomes several lines.
pub(crate) const MAX_LINE_BYTES: usize = 256 << 10;

/// Holds what has come of an unfinished line, at most [`MAX_LINE_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    begun: Vec<u8>,
}

impl Splitter {
    /// Takes bytes as they came and gives out the lines that they finish, without their newlines.
    pub(crate) fn push(&mut self, bytes: &[u8], mut line: impl FnMut(Vec<u8>)) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            self.extend(text, &mut line);
            if ended {
                line(std::mem::take(&mut self.begun));
            }
        }
    }

    /// The last line, if it has no newline.
    pub(crate) fn finish(self) -> Option<Vec<u8>> {
        (!self.begun.is_empty()).then_some(self.begun)
    }

    fn extend(&mut self, text: &[u8], line: &mut impl FnMut(Vec<u8>)) {
        let mut text = text;
        while self.begun.len() + text.len() > MAX_LINE_BYTES {
            let (now, later) = text.split_at(MAX_LINE_BYTES - self.begun.len());
            self.begun.extend_from_slice(now);
            text = later;
            let rest = self.begun.split_off(character_boundary(&self.begun));
            line(std::mem::replace(&mut self.begun, rest));
        }
        self.begun.extend_from_slice(text);
    }
}

/// Where to cut so that no UTF-8 character is torn: before a character that has begun at the end
/// but may not be complete.
fn character_boundary(bytes: &[u8]) -> usize {
    let leads = |byte: &u8| byte & 0b1100_0000 != 0b1000_0000;
    match bytes.iter().rev().take(4).position(leads) {
        Some(back) if bytes[bytes.len() - 1 - back] >= 0x80 => bytes.len() - 1 - back,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut splitter = Splitter::default();
        chunks.iter().for_each(|chunk| splitter.push(chunk, |line| lines.push(line)));
        lines.extend(splitter.finish());
        lines
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        let text = b"one\n\nthree\r\nfour \xc3\xbc\nfive";
        let expected: [&[u8]; 5] = [b"one", b"", b"three\r", b"four \xc3\xbc", b"five"];
        for cut in 0..=text.len() {
            assert_eq!(split(&[&text[..cut], &text[cut..]]), expected, "cut at {cut}");
        }
        assert_eq!(split(&[]), [[0; 0]; 0]);
        assert_eq!(split(&[b"\n"]), [[0; 0]]);
    }

    #[test]
    fn a_line_without_end_becomes_several_and_tears_no_character() {
        let long = "\u{1f600}".repeat(MAX_LINE_BYTES / 2);
        let shifted = format!("x{long}");
        for text in [long, shifted] {
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(1000).collect();
            let lines = split(&chunks);
            assert!(lines.len() > 1);
            assert_eq!(lines.concat(), text.as_bytes());
            for line in lines {
                assert!(line.len() <= MAX_LINE_BYTES);
                String::from_utf8(line).unwrap();
            }
        }
        let binary = vec![0x80; 3 * MAX_LINE_BYTES];
        assert_eq!(split(&[&binary]).len(), 3);
        let exact = vec![b'x'; MAX_LINE_BYTES];
        assert_eq!(split(&[&exact, b"\n"]), [exact]);
    }
}
