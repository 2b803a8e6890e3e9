//! Bodies in the encoding `aws-chunked`: whether one is complete. The framework decodes them and
//! verifies the chunks' signatures, but accepts a body that ends after any chunk, lacks its
//! trailer, or has another length than its headers state; so a body is checked here first.
//!
//! Format: <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html>.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, OnceLock};

use futures::{StreamExt, stream};
use http::{HeaderMap, Request, StatusCode};
use s3s::Body;
use s3s::dto::StreamingBlob;

/// Most bytes of a chunk's first line, and of everything after the last chunk.
const MAX_LINE_BYTES: usize = 1024;
const MAX_TRAILER_BYTES: usize = 16 << 10;

const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("The body ended before its last chunk, which has the length 0, was complete")]
    Cut,
    #[error("The body has {found} bytes, but x-amz-decoded-content-length states {stated}")]
    Length { stated: u64, found: u64 },
    #[error("The body is not in the encoding aws-chunked: {0}")]
    Malformed(&'static str),
    #[error("The body's trailer is not the one that the headers announce: {0}")]
    Trailer(String),
    #[error("{0}")]
    Headers(&'static str),
}

impl Fault {
    /// HTTP status and S3's code.
    pub(crate) fn code(&self) -> (StatusCode, &'static str) {
        let code = match self {
            Self::Cut | Self::Length { .. } | Self::Malformed(_) => "IncompleteBody",
            Self::Trailer(_) => "MalformedTrailerError",
            Self::Headers(_) => "InvalidRequest",
        };
        (StatusCode::BAD_REQUEST, code)
    }
}

/// Holds the fault of a body once the body was read.
pub(crate) type Finding = Arc<OnceLock<Fault>>;

/// Wraps the request's body so that an incomplete one yields an error instead of its end.
///
/// # Errors
/// The headers contradict each other.
pub(crate) fn guard(request: Request<Body>) -> Result<(Request<Body>, Finding), Fault> {
    let finding = Finding::default();
    let Some(framing) = Framing::of(request.headers())? else { return Ok((request, finding)) };
    let (head, body) = request.into_parts();
    let found = Arc::clone(&finding);
    let checked = stream::unfold(Some((body, framing)), move |state| {
        let found = Arc::clone(&found);
        async move {
            let (mut body, mut framing) = state?;
            let next = body.next().await;
            let checked = match &next {
                Some(Ok(piece)) => framing.take(piece),
                Some(Err(_)) => Ok(()),
                None => framing.end(),
            };
            match (next, checked) {
                (_, Err(fault)) => {
                    // The first fault is the cause of any other.
                    let _ = found.set(fault.clone());
                    Some((Err(io::Error::other(fault)), None))
                }
                (Some(Ok(piece)), Ok(())) => Some((Ok(piece), Some((body, framing)))),
                (Some(Err(error)), Ok(())) => Some((Err(io::Error::other(error)), None)),
                (None, Ok(())) => None,
            }
        }
    });
    Ok((Request::from_parts(head, Body::from(StreamingBlob::wrap(checked))), finding))
}

/// The length of the content that a request with these headers brings, where they tell it; it
/// brings no more than that.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_chunked = text("x-amz-content-sha256").starts_with("STREAMING-");
    text(if is_chunked { "x-amz-decoded-content-length" } else { "content-length" }).parse().ok()
}

/// How far a body has been read.
#[derive(Debug)]
struct Framing {
    state: State,
    /// Decoded bytes.
    stated: u64,
    found: u64,
    /// Lower-case names of the trailer's fields.
    announced: BTreeSet<String>,
    signed_trailer: bool,
}

#[derive(Debug)]
enum State {
    /// In the first line of a chunk.
    Line(Vec<u8>),
    /// So many bytes of a chunk are still to come, then a line's end.
    Data(u64),
    /// The line's end after a chunk: how many of its two bytes were read.
    DataEnd(usize),
    /// After the last chunk.
    Trailer(Vec<u8>),
}

impl Framing {
    /// Of a request with these headers; `None` where the body is not chunked.
    fn of(headers: &HeaderMap) -> Result<Option<Self>, Fault> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let kind = text("x-amz-content-sha256");
        let names = text("x-amz-trailer").to_ascii_lowercase();
        let announced: BTreeSet<String> =
            names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        let has_trailer = kind.starts_with("STREAMING-") && kind.ends_with("-TRAILER");
        if !announced.is_empty() && !has_trailer {
            return Err(Fault::Headers("x-amz-trailer needs an x-amz-content-sha256 of STREAMING-...-TRAILER."));
        }
        if !kind.starts_with("STREAMING-") {
            return Ok(None);
        }
        if has_trailer && announced.is_empty() {
            return Err(Fault::Headers(
                "An x-amz-content-sha256 of STREAMING-...-TRAILER needs the header x-amz-trailer.",
            ));
        }
        let stated = text("x-amz-decoded-content-length").parse();
        let stated = stated
            .map_err(|_| Fault::Headers("A chunked body needs x-amz-decoded-content-length: its length in bytes."))?;
        let signed_trailer = has_trailer && !kind.contains("UNSIGNED");
        Ok(Some(Self { state: State::Line(Vec::new()), stated, found: 0, announced, signed_trailer }))
    }

    /// Reads the next piece of the encoded body.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while let Some(first) = bytes.first() {
            match &mut self.state {
                State::Line(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    line.extend_from_slice(part);
                    bytes = rest;
                    if line.len() > MAX_LINE_BYTES {
                        return Err(Fault::Malformed("the first line of a chunk is too long"));
                    }
                    if end.is_some() {
                        let size = chunk_size(line)?;
                        self.state = self.chunk(size)?;
                    }
                }
                State::Data(left) => {
                    let now = (*left).min(bytes.len() as u64);
                    *left -= now;
                    bytes = &bytes[usize::try_from(now).expect("not longer than a slice")..];
                    if *left == 0 {
                        self.state = State::DataEnd(0);
                    }
                }
                State::DataEnd(read) => {
                    if *first != b"\r\n"[*read] {
                        return Err(Fault::Malformed("a chunk is not followed by a line's end"));
                    }
                    bytes = &bytes[1..];
                    self.state = if *read == 0 { State::DataEnd(1) } else { State::Line(Vec::new()) };
                }
                State::Trailer(trailer) => {
                    trailer.extend_from_slice(bytes);
                    if trailer.len() > MAX_TRAILER_BYTES {
                        return Err(Fault::Malformed("too much follows the last chunk"));
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Begins a chunk of this size.
    fn chunk(&mut self, size: u64) -> Result<State, Fault> {
        self.found = self.found.saturating_add(size);
        if self.found > self.stated || size == 0 && self.found < self.stated {
            return Err(Fault::Length { stated: self.stated, found: self.found });
        }
        Ok(if size == 0 { State::Trailer(Vec::new()) } else { State::Data(size) })
    }

    /// The body has ended.
    fn end(&self) -> Result<(), Fault> {
        let State::Trailer(trailer) = &self.state else { return Err(Fault::Cut) };
        if !trailer.ends_with(b"\n") {
            return Err(Fault::Cut);
        }
        let lines = trailer.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
        let names = lines.map(|line| {
            String::from_utf8_lossy(line.split(|byte| *byte == b':').next().unwrap_or_default()).into_owned()
        });
        let mut names: BTreeSet<String> = names.map(|name| name.trim().to_ascii_lowercase()).collect();
        let signed = names.remove(TRAILER_SIGNATURE);
        if let Some(missing) = self.announced.difference(&names).next() {
            return Err(Fault::Trailer(format!("{missing} is missing")));
        }
        if let Some(other) = names.difference(&self.announced).next() {
            return Err(Fault::Trailer(format!("{} was not announced", other.escape_default())));
        }
        if self.signed_trailer && !signed {
            return Err(Fault::Trailer(format!("{TRAILER_SIGNATURE} is missing")));
        }
        Ok(())
    }
}

/// The hexadecimal number at the beginning of a chunk's first line.
fn chunk_size(line: &[u8]) -> Result<u64, Fault> {
    let malformed = Fault::Malformed("a chunk does not begin with its length in hexadecimal digits");
    let Some(line) = line.strip_suffix(b"\r\n") else { return Err(malformed) };
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
    if !(1..=16).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(malformed);
    }
    str::from_utf8(digits).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
    const SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    const UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    const CRC: &str = "x-amz-checksum-crc32";

    #[test]
    fn the_length_of_the_content_is_not_that_of_its_encoding() {
        let length = |kind: &str, fields: &[(&'static str, &str)]| {
            let fields = fields.iter().copied().chain([("x-amz-content-sha256", kind)]);
            content_length(
                &fields.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect::<HeaderMap>(),
            )
        };
        let both = [("content-length", "90"), ("x-amz-decoded-content-length", "70")];
        assert_eq!(length(UNSIGNED_TRAILER, &both), Some(70));
        assert_eq!(length(SIGNED, &both[..1]), None);
        // Nobody holds such a body to the other length.
        assert_eq!(length("UNSIGNED-PAYLOAD", &both), Some(90));
        assert_eq!(length("UNSIGNED-PAYLOAD", &[]), None);
    }

    /// What a body of this kind is found to be when it comes in pieces of this many bytes.
    fn check(kind: &str, trailer: &str, stated: &str, body: &str, piece: usize) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("x-amz-content-sha256", kind), ("x-amz-trailer", trailer), ("x-amz-decoded-content-length", stated)]
        {
            if !value.is_empty() {
                headers.insert(name, value.parse().unwrap());
            }
        }
        let Some(mut framing) = Framing::of(&headers)? else { return Ok(()) };
        body.as_bytes().chunks(piece).try_for_each(|piece| framing.take(piece))?;
        framing.end()
    }

    #[test]
    fn a_body_is_complete_or_refused() {
        let length = |found| Err(Fault::Length { stated: 8, found });
        let trailer = |text: &str| Err(Fault::Trailer(text.to_owned()));
        let signature = "chunk-signature=0";
        let chunks = format!("5;{signature}\r\nhello\r\n3;{signature}\r\n\r\n!\r\n");
        let plain = "5\r\nhello\r\n3\r\n\r\n!\r\n";
        let last = format!("0;{signature}\r\n");
        for (kind, announced, body, expected) in [
            (SIGNED, "", format!("{chunks}{last}\r\n"), Ok(())),
            (SIGNED_TRAILER, CRC, format!("{chunks}{last}{CRC}:AAAAAA==\n\r\n{TRAILER_SIGNATURE}:0\r\n\r\n"), Ok(())),
            (UNSIGNED_TRAILER, CRC, format!("{plain}0\r\n{CRC}:AAAAAA==\r\n\r\n"), Ok(())),
            ("UNSIGNED-PAYLOAD", "", "anything".to_owned(), Ok(())),
            // Cut: nothing at all, after a chunk, within one, within the last one.
            (SIGNED, "", String::new(), Err(Fault::Cut)),
            (SIGNED, "", chunks.clone(), Err(Fault::Cut)),
            (SIGNED, "", chunks[..chunks.len() - 1].to_owned(), Err(Fault::Cut)),
            (SIGNED, "", format!("{chunks}{last}"), Err(Fault::Cut)),
            (SIGNED_TRAILER, CRC, chunks.clone(), Err(Fault::Cut)),
            (UNSIGNED_TRAILER, CRC, plain.to_owned(), Err(Fault::Cut)),
            // The last chunk came, the trailer did not, or not all of it.
            (SIGNED_TRAILER, CRC, format!("{chunks}{last}\r\n"), trailer("x-amz-checksum-crc32 is missing")),
            (
                SIGNED_TRAILER,
                CRC,
                format!("{chunks}{last}{CRC}:AAAAAA==\r\n"),
                trailer("x-amz-trailer-signature is missing"),
            ),
            (UNSIGNED_TRAILER, CRC, format!("{plain}0\r\n\r\n"), trailer("x-amz-checksum-crc32 is missing")),
            (UNSIGNED_TRAILER, CRC, format!("{plain}0\r\n{CRC}:AAA"), Err(Fault::Cut)),
            (
                UNSIGNED_TRAILER,
                CRC,
                format!("{plain}0\r\n{CRC}:AAAAAA==\r\nx-amz-meta-a:b\r\n\r\n"),
                trailer("x-amz-meta-a was not announced"),
            ),
            (
                SIGNED,
                "",
                format!("{chunks}{last}{CRC}:AAAAAA==\r\n"),
                trailer("x-amz-checksum-crc32 was not announced"),
            ),
            // Another length than stated.
            (SIGNED, "", format!("5;{signature}\r\nhello\r\n{last}\r\n"), length(5)),
            (SIGNED, "", format!("{chunks}1;{signature}\r\nx\r\n{last}\r\n"), length(9)),
            (UNSIGNED_TRAILER, CRC, format!("5\r\nhello\r\n0\r\n{CRC}:AAAAAA==\r\n\r\n"), length(5)),
            // Not chunks.
            (
                SIGNED,
                "",
                "8\nhello..!".to_owned(),
                Err(Fault::Malformed("a chunk does not begin with its length in hexadecimal digits")),
            ),
            (
                SIGNED,
                "",
                "8\r\nhello..!0\r\n\r\n".to_owned(),
                Err(Fault::Malformed("a chunk is not followed by a line's end")),
            ),
        ] {
            for piece in [1, 3, 4096] {
                assert_eq!(check(kind, announced, "8", &body, piece), expected, "{kind} {body:?} by {piece}");
            }
        }
    }

    #[test]
    fn headers_that_contradict_each_other_are_refused() {
        for (kind, trailer, stated) in
            [(UNSIGNED_TRAILER, "", "1"), (SIGNED, CRC, "1"), ("UNSIGNED-PAYLOAD", CRC, "1"), (SIGNED, "", "1x")]
        {
            assert!(matches!(check(kind, trailer, stated, "", 1), Err(Fault::Headers(_))), "{kind} {trailer} {stated}");
        }
    }
}
