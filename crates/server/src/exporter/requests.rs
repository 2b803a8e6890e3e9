//! What a request is counted as. Labels come from closed sets: what an unknown client makes up is
//! "unknown".

use http::{HeaderMap, StatusCode, Uri, header, request::Parts};
use shoal_wire::{Service, operation};

use super::{Exporter, Ordering};

/// A request's service and operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    service: &'static str,
    operation: &'static str,
}

impl Asked {
    /// A page, for browsers and probes.
    pub(crate) fn page() -> Self {
        Self { service: "page", operation: "GET" }
    }

    /// A call that nothing is known of yet.
    pub(crate) fn unknown(service: Service) -> Self {
        Self { service: service.scope(), operation: "unknown" }
    }

    /// An S3 request.
    pub(crate) fn s3(head: &Parts) -> Self {
        Self { service: Service::S3.scope(), operation: s3_operation(&head.uri, head.method.as_str(), &head.headers) }
    }

    /// A call whose signature is good: a name is a label only if an operation of that name is
    /// served, whoever signed.
    pub(crate) fn call(service: Service, head: &Parts, body: &[u8]) -> Self {
        Self {
            service: service.scope(),
            operation: operation(service, head, body).map_or("unknown", |operation| operation.name),
        }
    }
}

impl Exporter {
    /// A request was answered, as far as its answer's head.
    pub(crate) fn answered(&self, asked: &Asked, status: StatusCode, time: std::time::Duration) {
        self.requests.observe([asked.service, asked.operation, status.as_str()], time);
    }

    /// Bytes came with an S3 request.
    pub(crate) fn received(&self, bytes: u64) {
        self.s3_received.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What an S3 answer with a body said that it brings.
    pub(crate) fn sent(&self, headers: &HeaderMap) {
        self.s3_sent.fetch_add(number(headers, header::CONTENT_LENGTH.as_str()).unwrap_or_default(), Ordering::Relaxed);
    }
}

/// What an S3 request announces that it brings, without what frames it.
pub(crate) fn announced(headers: &HeaderMap) -> u64 {
    let framed = number(headers, header::CONTENT_LENGTH.as_str());
    match (number(headers, "x-amz-decoded-content-length"), framed) {
        // Nothing but the framed length limits what is read.
        (Some(bytes), Some(framed)) => bytes.min(framed),
        (bytes, framed) => bytes.or(framed).unwrap_or_default(),
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// S3 has no operations on the wire: method, path and query tell.
fn s3_operation(uri: &Uri, method: &str, headers: &HeaderMap) -> &'static str {
    let (bucket, key) =
        uri.path().trim_start_matches('/').split_once('/').unwrap_or((uri.path().trim_start_matches('/'), ""));
    let has = |name: &str| uri.query().unwrap_or_default().split('&').any(|pair| pair.split('=').next() == Some(name));
    match (method, bucket.is_empty(), key.is_empty()) {
        ("GET", true, _) => "ListBuckets",
        ("GET", _, true) if has("uploads") => "ListMultipartUploads",
        ("GET", _, true) if has("location") => "GetBucketLocation",
        ("GET", _, true) => "ListObjects",
        ("HEAD", _, true) => "HeadBucket",
        ("PUT", _, true) => "CreateBucket",
        ("DELETE", _, true) => "DeleteBucket",
        ("POST", _, true) => "DeleteObjects",
        ("GET", _, _) if has("uploadId") => "ListParts",
        ("GET", _, _) if has("tagging") => "GetObjectTagging",
        ("GET", ..) => "GetObject",
        ("HEAD", ..) => "HeadObject",
        ("PUT", _, _) if has("partNumber") => "UploadPart",
        ("PUT", _, _) if has("tagging") => "PutObjectTagging",
        ("PUT", _, _) if headers.contains_key("x-amz-copy-source") => "CopyObject",
        ("PUT", ..) => "PutObject",
        ("DELETE", _, _) if has("uploadId") => "AbortMultipartUpload",
        ("DELETE", _, _) if has("tagging") => "DeleteObjectTagging",
        ("DELETE", ..) => "DeleteObject",
        ("POST", _, _) if has("uploads") => "CreateMultipartUpload",
        ("POST", ..) => "CompleteMultipartUpload",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use shoal_wire::LIST_CHECKPOINTS;

    use super::*;

    #[test]
    fn s3_operations_are_told_by_method_path_and_query() {
        for (method, uri, expected) in [
            ("GET", "/", "ListBuckets"),
            ("GET", "/b?list-type=2&prefix=a", "ListObjects"),
            ("GET", "/b/?location", "GetBucketLocation"),
            ("PUT", "/b", "CreateBucket"),
            ("POST", "/b?delete", "DeleteObjects"),
            ("GET", "/b/k/l", "GetObject"),
            ("PUT", "/b/k?partNumber=1&uploadId=x", "UploadPart"),
            ("POST", "/b/k?uploads", "CreateMultipartUpload"),
            ("POST", "/b/k?uploadId=x", "CompleteMultipartUpload"),
            ("DELETE", "/b/k?uploadId=x", "AbortMultipartUpload"),
            ("PATCH", "/b/k", "unknown"),
        ] {
            assert_eq!(s3_operation(&uri.parse().unwrap(), method, &HeaderMap::new()), expected, "{method} {uri}");
        }
    }

    #[test]
    fn what_nobody_knows_makes_no_label() {
        for (service, target, path, body, expected) in [
            (Service::SageMaker, "SageMaker.StopTrainingJob", "/", "{}", "StopTrainingJob"),
            (Service::SageMaker, "SageMaker.Invented", "/", "{}", "unknown"),
            (Service::SageMaker, "Other.StopTrainingJob", "/", "{}", "unknown"),
            (Service::SageMaker, "SageMaker.", "/", "{}", "unknown"),
            (Service::SageMaker, LIST_CHECKPOINTS, "/", "{}", "ListCheckpoints"),
            (Service::SageMaker, shoal_wire::INTERRUPT_TRAINING_JOB, "/", "{}", "InterruptTrainingJob"),
            (Service::Logs, LIST_CHECKPOINTS, "/", "{}", "unknown"),
            (Service::SageMaker, "", "/BatchPutMetrics", "{}", "BatchPutMetrics"),
            (Service::SageMaker, "", "/Invented", "{}", "unknown"),
            // A target that a form's protocol does not read.
            (Service::Iam, "SageMaker.Invented", "/", "Action=GetRole&Version=1", "GetRole"),
            (Service::Iam, "", "/", "Action=%47etRole&Version=1", "GetRole"),
            (Service::Iam, "", "/", "Action=%49nvented&Version=1", "unknown"),
            (Service::Sts, "", "/", "", "unknown"),
        ] {
            let request =
                http::Request::builder().method(if path == "/BatchPutMetrics" { "PUT" } else { "POST" }).uri(path);
            let request = if target.is_empty() { request } else { request.header("x-amz-target", target) };
            let head = request.body(()).unwrap().into_parts().0;
            let asked = Asked::call(service, &head, body.as_bytes());
            assert_eq!(asked, Asked { service: service.scope(), operation: expected }, "{target} {path} {body}");
        }
    }

    #[test]
    fn a_request_brings_no_more_than_it_is_long() {
        for (length, decoded, expected) in [
            (None, None, 0),
            (Some("10"), None, 10),
            (Some("10"), Some("7"), 7),
            (Some("10"), Some("18446744073709551615"), 10),
            (None, Some("7"), 7),
            (Some("-1"), Some("x"), 0),
        ] {
            let mut headers = HeaderMap::new();
            length.map(|length| headers.insert(header::CONTENT_LENGTH, length.parse().unwrap()));
            decoded.map(|decoded| headers.insert("x-amz-decoded-content-length", decoded.parse().unwrap()));
            assert_eq!(announced(&headers), expected, "{length:?} {decoded:?}");
        }
    }
}
