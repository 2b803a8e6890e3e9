//! Which headers a signature of version 4 must cover: `Host`, and all that mean something to S3.
//! The framework verifies those that it names and leaves the rest to us; a header that somebody put
//! in on the way could make another request of it (`x-amz-copy-source`).

use http::HeaderMap;
use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::query::Query;

/// # Errors
/// `AccessDenied` that names the headers which are not signed, `SignatureDoesNotMatch` for one that
/// is signed and not there.
pub(crate) fn check(headers: &HeaderMap, query: &Query) -> S3Result<()> {
    // Version 2 signs every such header, and the framework looks for it first.
    if query.has("Signature") {
        return Ok(());
    }
    let signed = signed(headers, query).unwrap_or_default();
    let signed: Vec<&str> = signed.split(';').filter(|name| !name.is_empty()).collect();
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

/// The list, from where the framework takes the signature: of a presigned URL before the header.
/// Without one nothing is signed.
fn signed(headers: &HeaderMap, query: &Query) -> Option<String> {
    if query.has("X-Amz-Signature") {
        return query.get("X-Amz-SignedHeaders").map(str::to_owned);
    }
    let authorization = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let mut parts = authorization.strip_prefix("AWS4-HMAC-SHA256")?.split(',');
    parts.find_map(|part| part.trim().strip_prefix("SignedHeaders=")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Option<&str> = Some("not signed: x-amz-copy-source");

    #[test]
    fn what_means_something_is_signed() {
        let v4 = "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, \
                  Signature=0";
        let other = "Basic QUs6c2VjcmV0";
        let presigned = "X-Amz-SignedHeaders=host%3Bx-amz-meta-a&X-Amz-Signature=0";
        type Headers = &'static [(&'static str, &'static str)];
        let no_host = v4.replace("host;", "");
        let again = presigned.replace("Headers", "Header%73");
        let hidden = "X-Amz-%53ignedHeaders=host&X-Amz-Signatur%65=0";
        let cases: [(Option<&str>, Headers, &str, Option<&str>); 14] = [
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
            (Some(other), &[], "", Some("not signed: host")),
            (Some(other), &[("x-amz-copy-source", "b/k")], "X-Amz-SignedHeaders=host&X-Amz-Signature=0", COPY),
            (Some(v4), &[("x-amz-date", "now")], "X-Amz-SignedHeaders=host&X-Amz-Signature=0", Some("x-amz-date")),
            (None, &[("x-amz-copy-source", "b/k")], hidden, COPY),
            (None, &[("x-amz-meta-a", "1")], &again, None),
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
            let said = check(&headers, &Query::of(Some(query)))
                .err()
                .map(|error| error.message().unwrap_or_default().to_owned());
            match (&said, expected) {
                (None, None) => {}
                (Some(said), Some(expected)) if said.contains(expected) => {}
                _ => panic!("{authorization:?} {given:?} {query}: {said:?}, not {expected:?}"),
            }
        }
    }
}
