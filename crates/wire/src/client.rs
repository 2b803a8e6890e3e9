//! The other side, for our own command line: signed requests, and errors read from responses.

pub use http::uri::Scheme;
use http::{HeaderValue, Method, Request, Uri, header};
use serde_json::Value;

use crate::{
    Service,
    operations::is_ours,
    sigv4::{self, Credentials},
};

/// Where and as whom to call.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// With or without TLS.
    pub scheme: Scheme,
    /// `127.0.0.1:9777`.
    pub authority: String,
    /// For the signature.
    pub region: String,
    /// For the signature.
    pub credentials: Credentials,
}

/// Why a request could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The endpoint or path is no part of a URI.
    #[error("cannot make a request to {authority}{path}")]
    Uri {
        /// As given.
        authority: String,
        /// As given.
        path: String,
        /// From the http crate.
        source: http::Error,
    },
    /// Keys, regions and hosts are ASCII.
    #[error("the endpoint's {0} has characters that a header cannot carry")]
    Header(&'static str),
}

/// What a server refused with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceError {
    /// HTTP status.
    pub status: u16,
    /// `ValidationException`; `HTTP <status>` if the body has none.
    pub code: String,
    /// For the user.
    pub message: String,
}

impl ServiceError {
    /// Whether the same request is answered when it is sent more slowly.
    pub fn is_throttling(&self) -> bool {
        self.status == 429 || ["ThrottlingException", "SlowDown"].contains(&&*self.code)
    }
}

/// A signed awsJson request of an operation of the service, or of ours
/// ([`crate::LIST_CHECKPOINTS`]). `now_ms` is the time in milliseconds since the epoch.
///
/// # Errors
/// The endpoint cannot stand in a request.
pub fn call(
    endpoint: &Endpoint,
    service: Service,
    operation: &str,
    body: &Value,
    now_ms: u64,
) -> Result<Request<Vec<u8>>, ClientError> {
    let mut request = unsigned(endpoint, Method::POST, "/", body.to_string().into_bytes())?;
    let target = match operation {
        ours if is_ours(ours) => ours.to_owned(),
        _ => format!("{}.{operation}", service.target_prefix().unwrap_or_default()),
    };
    let target = HeaderValue::from_str(&target).map_err(|_| ClientError::Header("operation"))?;
    request.headers_mut().insert("x-amz-target", target);
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-amz-json-1.1"));
    Ok(signed(endpoint, service, request, now_ms))
}

/// A signed S3 request; the path is percent-encoded already. `now_ms` is the time in milliseconds
/// since the epoch.
///
/// # Errors
/// The endpoint or the path cannot stand in a request.
pub fn s3(
    endpoint: &Endpoint,
    method: Method,
    path: &str,
    body: Vec<u8>,
    now_ms: u64,
) -> Result<Request<Vec<u8>>, ClientError> {
    Ok(signed(endpoint, Service::S3, unsigned(endpoint, method, path, body)?, now_ms))
}

/// Reads a refusal, in JSON or XML.
pub fn error(status: u16, body: &[u8]) -> ServiceError {
    let text = String::from_utf8_lossy(body);
    let found = match serde_json::from_slice::<Value>(body) {
        Ok(body) => {
            let member = |name: &str| body.get(name).and_then(Value::as_str).map(str::to_owned);
            let code = member("__type").map(|code| code.rsplit('#').next().unwrap_or_default().to_owned());
            (code, member("message").or_else(|| member("Message")))
        }
        Err(_) => (element(&text, "Code"), element(&text, "Message")),
    };
    let code = found.0.unwrap_or_else(|| format!("HTTP {status}"));
    let mut message = found.1.unwrap_or_else(|| text.chars().take(512).collect());
    if message.is_empty() {
        // As answers to HEAD are.
        let reason = http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
        message = reason.unwrap_or("no reason is given").to_owned();
    }
    ServiceError { status, code, message }
}

fn unsigned(endpoint: &Endpoint, method: Method, path: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, ClientError> {
    let uri = Uri::builder()
        .scheme(endpoint.scheme.clone())
        .authority(endpoint.authority.as_str())
        .path_and_query(path)
        .build();
    let uri = uri.map_err(|source| ClientError::Uri {
        authority: endpoint.authority.clone(),
        path: path.to_owned(),
        source,
    })?;
    let host = HeaderValue::from_str(&endpoint.authority).map_err(|_| ClientError::Header("authority"))?;
    let key = [
        Some(&endpoint.credentials.access_key_id),
        Some(&endpoint.region),
        endpoint.credentials.session_token.as_ref(),
    ];
    if key.into_iter().flatten().any(|text| !text.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(ClientError::Header("access key, session token or region"));
    }
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    request.headers_mut().insert(header::HOST, host);
    Ok(request)
}

fn signed(endpoint: &Endpoint, service: Service, request: Request<Vec<u8>>, now_ms: u64) -> Request<Vec<u8>> {
    let (mut head, body) = request.into_parts();
    sigv4::sign(&mut head, &body, &endpoint.credentials, &endpoint.region, service.scope(), now_ms);
    Request::from_parts(head, body)
}

/// The text of the first element of a name.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'"), ("&amp;", "&")];
    Some(plain.iter().fold(text.to_owned(), |text, (escaped, letter)| text.replace(escaped, letter)))
}
