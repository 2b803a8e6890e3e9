//! What error documents have besides the framework's code and message: AWS's names the thing
//! concerned, and clients show it.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, Response};
use s3s::Body;

use crate::errors;
use crate::percent;
use crate::query::Query;

/// Longest error document that is completed; the framework's are a few hundred bytes.
const MAX_BYTES: usize = 64 << 10;

/// Conditions of a request in the order in which they are checked, as AWS writes them.
const CONDITIONS: [&str; 7] = [
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "x-amz-copy-source-If-Match",
    "x-amz-copy-source-If-Unmodified-Since",
    "x-amz-copy-source-If-None-Match",
    "x-amz-copy-source-If-Modified-Since",
];

/// What a request is about.
#[derive(Debug, Default)]
pub(crate) struct Subject {
    resource: String,
    bucket: String,
    key: String,
    upload: String,
    condition: &'static str,
    range: String,
}

impl Subject {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let resource = percent::decode(request.uri().path()).unwrap_or_default();
        let (bucket, key) =
            resource.trim_start_matches('/').split_once('/').unwrap_or((resource.trim_start_matches('/'), ""));
        let upload = Query::of(request.uri().query()).get("uploadId").unwrap_or_default().to_owned();
        let text = |headers: &HeaderMap, name: &str| {
            headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            upload,
            condition: CONDITIONS.into_iter().find(|name| request.headers().contains_key(*name)).unwrap_or_default(),
            range: text(request.headers(), "range").unwrap_or_default(),
            resource,
        }
    }

    /// The elements that a document with this code has.
    fn elements(&self, code: &str) -> String {
        let own: &[(&str, &str)] = match code {
            "NoSuchBucket"
            | "BucketNotEmpty"
            | "BucketAlreadyOwnedByYou"
            | "BucketAlreadyExists"
            | "InvalidBucketName" => &[("BucketName", &self.bucket)],
            "NoSuchKey" | "NoSuchVersion" | "ObjectDamaged" => &[("Key", &self.key)],
            "NoSuchUpload" => &[("UploadId", &self.upload)],
            "PreconditionFailed" => &[("Condition", self.condition)],
            "InvalidRange" => &[("RangeRequested", &self.range)],
            _ => &[],
        };
        let all = own.iter().copied().chain([("Resource", self.resource.as_str())]);
        let given = all.filter(|(_, value)| !value.is_empty());
        given.map(|(name, value)| format!("<{name}>{}</{name}>", escaped(value))).collect()
    }
}

/// Adds the subject to an error's document, and to the framework's own errors what their code
/// means: clients show "Unknown" without.
pub(crate) async fn complete(response: Response<Body>, subject: &Subject) -> Response<Body> {
    if response.status().is_success() || response.status().is_redirection() {
        return response;
    }
    let (mut head, mut body) = response.into_parts();
    let Ok(document) = body.store_all_limited(MAX_BYTES).await else { return Response::from_parts(head, body) };
    let text = String::from_utf8_lossy(&document);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let Some((code, _)) = code else { return Response::from_parts(head, Body::from(document)) };
    let message = if text.contains("<Message>") {
        String::new()
    } else {
        format!("<Message>{}</Message>", errors::meaning(code))
    };
    let explained = text.replacen("</Code>", &format!("</Code>{message}"), 1);
    let explained = explained.replacen("</Error>", &format!("{}</Error>", subject.elements(code)), 1);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(explained))
}

/// XML has no way to write control characters; they are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            _ if !crate::key_encoding::in_xml(letter) => escaped.push('\u{fffd}'),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_name_their_subject() {
        for (uri, header, code, expected) in [
            ("/b/a%20%26/k", "", "NoSuchKey", "<Key>a &amp;/k</Key><Resource>/b/a &amp;/k</Resource>"),
            ("/b", "", "NoSuchBucket", "<BucketName>b</BucketName><Resource>/b</Resource>"),
            (
                "/b/k?partNumber=1&uploadId=1%2B2",
                "",
                "NoSuchUpload",
                "<UploadId>1+2</UploadId><Resource>/b/k</Resource>",
            ),
            (
                "/b/k",
                "if-none-match",
                "PreconditionFailed",
                "<Condition>If-None-Match</Condition><Resource>/b/k</Resource>",
            ),
            ("/b/k", "range", "InvalidRange", "<RangeRequested>x</RangeRequested><Resource>/b/k</Resource>"),
            ("/", "", "AccessDenied", "<Resource>/</Resource>"),
        ] {
            let mut request = Request::builder().uri(uri);
            if !header.is_empty() {
                request = request.header(header, "x");
            }
            assert_eq!(Subject::of(&request.body(()).unwrap()).elements(code), expected, "{uri}");
        }
    }
}
