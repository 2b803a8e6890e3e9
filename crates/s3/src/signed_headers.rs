//! Which headers a signature of version 4 must cover: `Host`, and all that mean something to S3.
//! The framework verifies those that it names and leaves the rest to us; a header that somebody put
//! in on the way could make another request of it (`x-amz-copy-source`).

use http::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::percent;

/// # Errors
/// `AccessDenied` that names the headers which are not signed, `SignatureDoesNotMatch` for one that
/// is signed and not there.
pub(crate) fn check(headers: &HeaderMap, query: Option<&str>) -> S3Result<()> {
    let Some(signed) = signed(headers, query) else { return Ok(()) };
    let signed: Vec<&str> = signed.split(';').collect();
    let missing = |name: &&str| !headers.contains_key(*name) && *name != "host";
    if let Some(missing) = signed.iter().copied().find(missing) {
        let message = format!("The header '{missing}' is among the signed headers and not in the request.");
        return Err(S3Error::with_message(S3ErrorCode::SignatureDoesNotMatch, message));
    }
    let present = headers.keys().map(http::HeaderName::as_str).filter(|name| name.starts_with("x-amz-"));
    // A signature without the host would be good for any server that has the keys.
    let unsigned: Vec<&str> = ["host"].into_iter().chain(present).filter(|name| !signed.contains(name)).collect();
    if unsigned.is_empty() {
        return Ok(());
    }
    let message = format!("There were headers present in the request which were not signed: {}", unsigned.join(", "));
    Err(S3Error::with_message(S3ErrorCode::AccessDenied, message))
}

/// The list, of the header or of a presigned URL; none with other versions, which sign every such
/// header.
fn signed(headers: &HeaderMap, query: Option<&str>) -> Option<String> {
    if let Some(authorization) = headers.get(http::header::AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        let parts = authorization.strip_prefix("AWS4-HMAC-SHA256")?.split(',');
        return parts.into_iter().find_map(|part| part.trim().strip_prefix("SignedHeaders=")).map(str::to_owned);
    }
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("X-Amz-SignedHeaders="))?;
    percent::decode(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_is_signed() {
        let v4 = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, \
                  Signature=0";
        let v2 = "AWS AK:signature";
        let presigned = "X-Amz-SignedHeaders=host%3Bx-amz-meta-a&X-Amz-Signature=0";
        type Headers = &'static [(&'static str, &'static str)];
        let no_host = v4.replace("host;", "");
        let cases: [(Option<&str>, Headers, &str, Option<&str>); 10] = [
            (Some(&no_host), &[("x-amz-date", "now")], "", Some("not signed: host")),
            (
                None,
                &[("x-amz-meta-a", "1")],
                "X-Amz-SignedHeaders=x-amz-meta-a&X-Amz-Signature=0",
                Some("not signed: host"),
            ),
            (Some(v4), &[("x-amz-date", "now"), ("range", "0-1")], "", None),
            (
                Some(v4),
                &[("x-amz-date", "now"), ("x-amz-copy-source", "b/k")],
                "",
                Some("not signed: x-amz-copy-source"),
            ),
            (Some(v4), &[("date", "now")], "", Some("'x-amz-date' is among the signed headers")),
            (Some(v2), &[("x-amz-copy-source", "b/k")], "", None),
            (None, &[("x-amz-meta-a", "1")], presigned, None),
            (None, &[("x-amz-meta-a", "1"), ("x-amz-meta-b", "2")], presigned, Some("not signed: x-amz-meta-b")),
            (None, &[], presigned, Some("'x-amz-meta-a' is among")),
            (None, &[("x-amz-meta-a", "1")], "AWSAccessKeyId=AK&Signature=0", None),
        ];
        for (authorization, given, query, expected) in cases {
            let mut headers = HeaderMap::new();
            headers.extend(authorization.map(|text| (http::header::AUTHORIZATION, text.parse().unwrap())));
            headers.extend(
                given.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())),
            );
            let said = check(&headers, Some(query)).err().map(|error| error.message().unwrap_or_default().to_owned());
            match (&said, expected) {
                (None, None) => {}
                (Some(said), Some(expected)) if said.contains(expected) => {}
                _ => panic!("{authorization:?} {given:?} {query}: {said:?}, not {expected:?}"),
            }
        }
    }
}
