//! The one port: requests are told apart by their signature's scope, verified, parsed, answered.

use std::{convert::Infallible, sync::Arc, time::Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header, request::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, combinators::BoxBody};
use hyper::body::Incoming;
use shoal_s3::{KeyFault, S3Front};
use shoal_wire::{Error, ErrorCode, MAX_REQUEST_BYTES, Protocol, Reply, Route, Service, parse, respond, respond_error, route, sigv4};

use crate::{
    api::{Api, Caller},
    attempts::Attempts,
    console::Console,
    core::now_ms,
    exporter::{Asked, Exporter, Process},
    keys::{KeyRing, random_hex, sha256_hex},
};

/// Any response body.
pub(crate) type Body = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Everything that answers.
pub(crate) struct Front {
    pub(crate) api: Api,
    pub(crate) console: Console,
    pub(crate) s3: S3Front,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) attempts: Arc<Attempts>,
    /// Opens `/metrics` to other machines.
    pub(crate) metrics_token: String,
    pub(crate) max_skew_s: u64,
}

impl Front {
    /// Answers a request; what goes wrong is told in the answer. `near`: it comes from this machine.
    pub(crate) async fn answer(self: Arc<Self>, request: Request<Incoming>, near: bool) -> Result<Response<Body>, Infallible> {
        let started = Instant::now();
        let (asked, response) = self.respond(request, near).await;
        self.exporter.answered(&asked, response.status(), started.elapsed());
        Ok(response)
    }

    async fn respond(&self, request: Request<Incoming>, near: bool) -> (Asked, Response<Body>) {
        let request_id = request_id();
        let (head, body) = request.into_parts();
        if let Some(response) = self.metrics(&head, near) {
            return (Asked::page(), response.map(full));
        }
        let (asked, response) = match route(&head) {
            Ok(Route::S3) => {
                let asked = Asked::s3(&head);
                self.exporter.received(&head.headers);
                let has_body = head.method != Method::HEAD;
                let mut response = self.s3.call(Request::from_parts(head, body)).await.map(BodyExt::boxed);
                response.headers_mut().insert("x-amz-request-id", HeaderValue::from_str(&request_id).expect("hexadecimal digits"));
                if has_body {
                    self.exporter.sent(response.headers());
                }
                return (asked, response);
            }
            Ok(Route::Console) => return (Asked::page(), self.console.answer(&self.api, head, body).await),
            Ok(Route::Api(service)) => {
                let mut asked = Asked::unknown(service);
                let protocol = Protocol::of(service, &head);
                let answered = match collect(body).await {
                    Ok(body) => self.call(service, &head, &body, &mut asked).await,
                    Err(error) => Err(error),
                };
                let response = match answered {
                    Ok(reply) => respond(&reply, protocol, &request_id),
                    Err(error) => {
                        if error.code.is_server_fault() {
                            tracing::error!("{request_id}: {error}");
                        }
                        respond_error(service, protocol, &error, &request_id)
                    }
                };
                (asked, response)
            }
            Err(error) => {
                // A service that is not here gets its answer in the form that it asked in.
                let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
                let form = kind.starts_with(b"application/x-www-form-urlencoded");
                let (service, protocol) = if form { (Service::Iam, Protocol::Query) } else { (Service::SageMaker, Protocol::Json) };
                (Asked::unknown(service), respond_error(service, protocol, &error, &request_id))
            }
        };
        (asked, response.map(full))
    }

    /// The answer to a GET of `/metrics` that is no request of S3's (there may be an S3 bucket of that name).
    fn metrics(&self, head: &Parts, near: bool) -> Option<Response<Vec<u8>>> {
        let shown = head.headers.get(header::AUTHORIZATION).map(|shown| shown.to_str().unwrap_or_default());
        let token = shown.map(|shown| shown.strip_prefix("Bearer "));
        if head.method != Method::GET || head.uri.path() != "/metrics" || head.uri.query().is_some() || token == Some(None) {
            return None;
        }
        // Hashes are compared, so the time that it takes tells nothing of use.
        let good = token.flatten().is_some_and(|token| sha256_hex(token) == sha256_hex(&self.metrics_token));
        let (status, kind, text) = match Process::read() {
            _ if !(good || near && !forwarded(head)) => {
                (401, "text/plain", "show the token in metrics-token of the data directory: Authorization: Bearer TOKEN\n".to_owned())
            }
            None => (500, "text/plain", "the process's own numbers cannot be read from /proc\n".to_owned()),
            Some(process) => (200, "text/plain; version=0.0.4", self.exporter.page(&self.attempts, &process)),
        };
        Some(plain(status, kind, text))
    }

    async fn call(&self, service: Service, head: &Parts, body: &[u8], asked: &mut Asked) -> Result<Reply, Error> {
        let key_id = sigv4::access_key_id(head)?;
        let token = head.headers.get("x-amz-security-token").and_then(|token| token.to_str().ok());
        let key = self.keys.find(&key_id, token).map_err(|fault| {
            let (code, why) = match fault {
                KeyFault::Unknown => {
                    let why = format!("is invalid: this server does not know access key {key_id}; `shoal env` prints its keys");
                    (ErrorCode::UnrecognizedClient, why)
                }
                KeyFault::WrongToken => (ErrorCode::UnrecognizedClient, "is invalid".to_owned()),
                KeyFault::Expired => (ErrorCode::ExpiredToken, "is expired".to_owned()),
            };
            Error::new(code, format!("The security token included in the request {why}"))
        })?;
        let credentials = sigv4::Credentials {
            access_key_id: key.keys.access_key_id,
            secret_access_key: key.keys.secret_access_key,
            session_token: key.keys.session_token,
        };
        sigv4::verify(head, body, &credentials, now_ms(), self.max_skew_s)?;
        let user_agent = head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        *asked = Asked::call(service, head, body);
        match parse(service, head, body) {
            Ok(call) => self.api.call(call, &Caller { user_agent, holder: key.holder }).await,
            Err(error) => Err(error),
        }
    }
}

/// A proxy on this machine speaks for others: it says so, as proxies do.
fn forwarded(head: &Parts) -> bool {
    head.headers.contains_key(header::FORWARDED) || head.headers.contains_key("x-forwarded-for")
}

async fn collect(body: Incoming) -> Result<Bytes, Error> {
    match Limited::new(body, MAX_REQUEST_BYTES).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Error::new(ErrorCode::RequestTooLarge, format!("the request is longer than {MAX_REQUEST_BYTES} bytes")))
        }
        Err(error) => Err(Error::new(ErrorCode::SerializationException, format!("the request's body broke off: {error}"))),
    }
}

/// A body that is there already.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn plain(status: u16, kind: &'static str, text: String) -> Response<Vec<u8>> {
    let mut response = Response::new(text.into_bytes());
    *response.status_mut() = http::StatusCode::from_u16(status).expect("a status between 100 and 999");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn request_id() -> String {
    let hex = random_hex(16).unwrap_or_else(|_| "0".repeat(32));
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
