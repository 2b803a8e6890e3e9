//! Bodies that clients send compressed, as botocore sends large PutMetricData requests. The
//! signature is of the compressed body.

use std::{borrow::Cow, io::Read};

use flate2::read::MultiGzDecoder;
use http::{HeaderMap, header::CONTENT_ENCODING};
use shoal_wire::{Error, ErrorCode, MAX_REQUEST_BYTES};

/// The body as its operation has it: at most as long as any request may be, and one byte.
///
/// # Errors
/// It is in an encoding that is not known, or not what its header names.
pub(crate) fn decoded<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
    let encoding = headers.get(CONTENT_ENCODING).map_or(Ok(""), |encoding| encoding.to_str());
    match encoding.unwrap_or("?").trim() {
        "" | "identity" => Ok(Cow::Borrowed(body)),
        encoding if encoding.eq_ignore_ascii_case("gzip") => {
            let (mut plain, longest) = (Vec::new(), MAX_REQUEST_BYTES as u64 + 1);
            let read = MultiGzDecoder::new(body).take(longest).read_to_end(&mut plain);
            read.map_err(|error| {
                refused(format!("The request's body is not gzip, which its Content-Encoding names: {error}."))
            })?;
            Ok(Cow::Owned(plain))
        }
        other => Err(refused(format!(
            "The request's Content-Encoding {} is not supported: send gzip, or the body as it is.",
            other.escape_debug()
        ))),
    }
}

fn refused(message: String) -> Error {
    Error::new(ErrorCode::SerializationException, message)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};
    use http::HeaderValue;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn bodies_are_as_their_headers_say() {
        let decode = |encoding: Option<&'static str>, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.extend(encoding.map(|it| (CONTENT_ENCODING, HeaderValue::from_static(it))));
            decoded(&headers, body).map(Cow::into_owned).map_err(|error| error.code)
        };
        assert_eq!(decode(None, b"{}"), Ok(b"{}".to_vec()));
        assert_eq!(decode(Some("identity"), b"{}"), Ok(b"{}".to_vec()));
        assert_eq!(decode(Some("gzip"), &gzip(b"{}")), Ok(b"{}".to_vec()));
        assert_eq!(decode(Some("gzip"), b"{}"), Err(ErrorCode::SerializationException));
        assert_eq!(decode(Some("br"), b"{}"), Err(ErrorCode::SerializationException));
        let bomb = gzip(&vec![0; 4 * MAX_REQUEST_BYTES]);
        assert_eq!(decode(Some("gzip"), &bomb).map(|body| body.len()), Ok(MAX_REQUEST_BYTES + 1));
    }
}
