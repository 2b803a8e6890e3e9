//! The door: an HTTP request in, an HTTP response out.

use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use s3s::Body;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use shoal_store::Objects;

use crate::KeyStore;
use crate::access::{Keys, ScopedAccess, percent_decode};
use crate::errors;
use crate::operations::Operations;

/// A form upload is gathered in memory before its key's scope is known.
const LARGEST_FORM_UPLOAD: u64 = 16 << 20;

/// What the front says of itself and what it tolerates.
#[derive(Debug, Clone)]
pub struct Options {
    /// Region that buckets claim to be in.
    pub region: String,
    /// Account that owns all buckets, twelve digits.
    pub account: String,
    /// How far a request's time may be from ours.
    pub max_skew: Duration,
}

/// The S3 service over a data directory's objects. Clones are cheap and share everything.
#[derive(Clone)]
pub struct S3Front {
    service: S3Service,
}

impl S3Front {
    /// A front over these objects for the holders of these keys.
    pub fn new(objects: Arc<Objects>, keys: Arc<dyn KeyStore>, options: Options) -> Self {
        let mut config = S3Config::default();
        // The name says less than it does: header signatures are held to it, too.
        config.presigned_url_max_skew_time_secs = u32::try_from(options.max_skew.as_secs()).unwrap_or(u32::MAX);
        config.post_object_max_file_size = LARGEST_FORM_UPLOAD;
        let mut builder = S3ServiceBuilder::new(Operations { objects, options });
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
        builder.set_auth(Keys(Arc::clone(&keys)));
        builder.set_access(ScopedAccess(keys));
        Self { service: builder.build() }
    }

    /// Answers one request; also for use in a hyper service. Errors are S3's XML.
    pub async fn call<B: Into<Body>>(&self, request: Request<B>) -> Response<Body> {
        let mut request = request.map(Into::into);
        // The framework would take one of any age.
        if request.headers().get(AUTHORIZATION).is_some_and(|value| value.as_bytes().starts_with(b"AWS ")) {
            let message = "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
            return errors::document(StatusCode::BAD_REQUEST, "InvalidRequest", message);
        }
        restore_amz_headers(&mut request);
        match self.service.call(request).await {
            Ok(response) => with_message(response).await,
            // Only a response that cannot be serialised ends here.
            Err(_) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response
            }
        }
    }
}

/// Longest error document that is looked at; the framework's are a few hundred bytes.
const ERROR_BYTES: usize = 64 << 10;

/// The framework gives its own errors a code only, and clients then show "Unknown": what the code means is added.
async fn with_message(response: Response<Body>) -> Response<Body> {
    if response.status().is_success() || response.status().is_redirection() {
        return response;
    }
    let (mut head, mut body) = response.into_parts();
    let Ok(document) = body.store_all_limited(ERROR_BYTES).await else { return Response::from_parts(head, body) };
    let text = String::from_utf8_lossy(&document);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let Some((code, _)) = code.filter(|_| !text.contains("<Message>")) else { return Response::from_parts(head, Body::from(document)) };
    let explained = text.replacen("</Code>", &format!("</Code><Message>{}</Message>", errors::meaning(code)), 1);
    head.headers.remove(CONTENT_LENGTH);
    Response::from_parts(head, Body::from(explained))
}

/// Clients that sign a URL in the old way (SigV2) sign `x-amz-` headers and then move them into the query. The framework looks for
/// them where they were.
fn restore_amz_headers(request: &mut Request<Body>) {
    let Some(query) = request.uri().query().filter(|query| query.contains("AWSAccessKeyId=")) else { return };
    let moved: Vec<(HeaderName, HeaderValue)> = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-amz-"))
        .filter_map(|(name, value)| Some((name.parse().ok()?, percent_decode(value)?.parse().ok()?)))
        .collect();
    for (name, value) in moved {
        request.headers_mut().entry(name).or_insert(value);
    }
}
