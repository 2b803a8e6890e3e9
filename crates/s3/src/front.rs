//! The door: an HTTP request in, an HTTP response out.

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_RANGE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use s3s::Body;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use shoal_store::Objects;

use crate::access::{KeyStore, Keys, ScopedAccess};
use crate::backend::{Backend, Options};
use crate::error_document::{Subject, complete};
use crate::operations::Operations;
use crate::{attributes, buckets, chunked, errors, multipart, percent, ranges, refusals};

/// A form upload is gathered in memory before its key's scope is known.
const LARGEST_FORM_UPLOAD: u64 = 16 << 20;

/// The S3 service over a data directory's objects. Clones are cheap and share everything.
#[derive(Clone)]
pub struct S3Front {
    service: S3Service,
    /// The same operations without a check of keys, for requests that `service` has let pass.
    checked: S3Service,
}

impl S3Front {
    /// A front over these objects for the holders of these keys.
    pub fn new(objects: Arc<Objects>, keys: Arc<dyn KeyStore>, options: Options) -> Self {
        let mut config = S3Config::default();
        // The name says less than it does: header signatures are held to it, too.
        config.presigned_url_max_skew_time_secs = u32::try_from(options.max_skew.as_secs()).unwrap_or(u32::MAX);
        config.post_object_max_file_size = LARGEST_FORM_UPLOAD;
        let backend = Backend { objects, options };
        let mut checked = S3ServiceBuilder::new(Operations(backend.clone()));
        checked.set_access(ranges::AlreadyChecked);
        let mut builder = S3ServiceBuilder::new(Operations(backend.clone()));
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        builder.set_auth(Keys(Arc::clone(&keys)));
        builder.set_access(ScopedAccess { keys, backend });
        Self { service: builder.build(), checked: checked.build() }
    }

    /// Answers one request; also for use in a hyper service. Errors are S3's XML.
    pub async fn call<B: Into<Body>>(&self, request: Request<B>) -> Response<Body> {
        let mut request = request.map(Into::into);
        // The framework would take one of any age.
        if request.headers().get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS ")) {
            let message =
                "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
            return errors::document(StatusCode::BAD_REQUEST, "InvalidRequest", message);
        }
        restore_amz_headers(&mut request);
        hide_secrets(&mut request);
        let subject = Subject::of(&request);
        let refused = |fault: &chunked::Fault| {
            let (status, code) = fault.code();
            errors::document(status, code, &fault.to_string())
        };
        let (mut request, finding) = match chunked::guard(request) {
            Ok(guarded) => guarded,
            Err(fault) => return complete(refused(&fault), &subject).await,
        };
        if let Err(response) = buckets::refuse_tags(&mut request).await {
            return complete(response, &subject).await;
        }
        let mut without_effect = refusals::without_effect(request.headers());
        let mut response = self.answer(request).await;
        if response.headers().get("x-amz-server-side-encryption").is_some_and(|kind| kind == "aws:kms") {
            without_effect.retain(|row| !row.is_of_kms());
        }
        if response.status().is_success() && !without_effect.is_empty() {
            let names: Vec<&str> = without_effect.iter().map(|row| row.header).collect();
            let names = names.join(", ").parse().expect("names of headers are a header's value");
            response.headers_mut().insert("x-shoal-no-effect", names);
        }
        match finding.get() {
            Some(fault) => complete(refused(fault), &subject).await,
            None => complete(response, &subject).await,
        }
    }

    async fn answer(&self, mut request: Request<Body>) -> Response<Body> {
        let with_attributes = attributes::is_asked_for(&request);
        let is_head = *request.method() == Method::HEAD;
        let unranged = ranges::without_bad_range(&mut request);
        let mut answer = self.service.call(request).await;
        if let Some(unranged) = unranged.and_then(ranges::Unranged::if_passed) {
            answer = self.checked.call(unranged).await;
        }
        match answer {
            Ok(response) if with_attributes => attributes::with_bare_etag(response).await,
            Ok(mut response) => {
                // The framework answers 200 to a HEAD of a range or a part.
                if is_head && response.status() == StatusCode::OK && response.headers().contains_key(CONTENT_RANGE) {
                    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                }
                multipart::with_one_declaration(response)
            }
            // Only a response that cannot be serialised ends here.
            Err(_) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        }
    }
}

/// Headers that no log may show. The framework's shows whole requests, at the level `debug`.
const SECRETS: [&str; 4] = [
    "authorization",
    "x-amz-security-token",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-copy-source-server-side-encryption-customer-key",
];

fn hide_secrets(request: &mut Request<Body>) {
    let secrets = request.headers_mut().iter_mut().filter(|(name, _)| SECRETS.contains(&name.as_str()));
    secrets.for_each(|(_, value)| value.set_sensitive(true));
}

/// Clients that sign a URL in the old way (SigV2) sign `x-amz-` headers and then move them into the
/// query. The framework looks for them where they were.
fn restore_amz_headers(request: &mut Request<Body>) {
    let Some(query) = request.uri().query().filter(|query| query.contains("AWSAccessKeyId=")) else { return };
    let moved: Vec<(HeaderName, HeaderValue)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-amz-"))
        .filter_map(|(name, value)| Some((name.parse().ok()?, percent::decode(value)?.parse().ok()?)))
        .collect();
    for (name, value) in moved {
        request.headers_mut().entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_in_no_log() {
        let mut request = Request::new(Body::empty());
        for name in SECRETS {
            request.headers_mut().append(name, "c2VjcmV0".parse().unwrap());
            request.headers_mut().append(name, "c2VjcmV0".parse().unwrap());
        }
        request.headers_mut().insert("x-amz-date", "now".parse().unwrap());
        hide_secrets(&mut request);
        let shown = format!("{request:?}");
        assert!(!shown.contains("c2VjcmV0") && shown.contains("now"), "{shown}");
    }
}
