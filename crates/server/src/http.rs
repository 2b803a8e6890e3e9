//! The one port: requests are told apart by their signature's scope, verified, parsed, answered.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming, SizeHint};
use shoal_console::{Body, Console};
use shoal_s3::{KeyFault, OnVerified, PrivateTransport, S3Front, Scope};
use shoal_store::Telemetry;
use shoal_wire::{
    Error, ErrorCode, Operation, Protocol, Reply, Route, Service,
    no_effect::{self, Found},
    parse, respond, respond_error, route, sigv4,
};

use crate::{
    api::{Api, Caller, read},
    attempts::Attempts,
    audit::Record,
    auditor::Auditor,
    bodies::{PacedBody, Unverified, collect_verified},
    clock::now_ms,
    connections::{Answering, Connection, Signer},
    content_encoding::decoded,
    exporter::{Asked, Exporter, Process, Utilization, announced},
    key_ring::{Holder, KeyRing},
    quotas::user_of,
    request_id::request_id,
    unread_bodies::{TrackedBody, Unread},
};

/// Everything that answers.
pub(crate) struct Front {
    pub(crate) api: Arc<Api>,
    pub(crate) console: Console,
    pub(crate) s3: S3Front,
    pub(crate) keys: Arc<KeyRing>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Opens `/metrics`.
    pub(crate) metrics_token: String,
    pub(crate) max_skew_s: u64,
    /// Fields without effect are refused instead of noted.
    pub(crate) strict: bool,
    pub(crate) unverified: Arc<Unverified>,
    /// Those of jobs, which have keys and may be hostile all the same.
    pub(crate) jobs_bodies: Arc<Unverified>,
    pub(crate) auditor: Auditor,
}

/// Where a request comes from.
pub(crate) struct Origin {
    /// The peer's address.
    pub(crate) source: IpAddr,
    pub(crate) connection: Arc<Connection>,
    /// It came over TLS.
    pub(crate) is_tls: bool,
}

impl Front {
    /// Answers a request; what goes wrong is told in the answer.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        origin: Arc<Origin>,
        answering: Answering,
    ) -> Result<Response<Body>, Infallible> {
        let started = Instant::now();
        let (unread, request) = Unread::of(request);
        let (asked, mut response) = self.respond(request, &origin).await;
        self.exporter.answered(&asked, response.status(), started.elapsed());
        unread.settle(response.headers_mut()).await;
        Ok(response.map(|body| AnsweringBody { body, _answering: answering }.boxed()))
    }

    async fn respond(&self, request: Request<TrackedBody>, origin: &Arc<Origin>) -> (Asked, Response<Body>) {
        let request_id = request_id();
        let (mut head, body) = request.into_parts();
        if let Some(response) = self.metrics(&head).await {
            return (Asked::page(), response.map(full));
        }
        if let Some(response) = self.link(&head, &request_id).await {
            return (Asked::page(), response.map(full));
        }
        let (asked, response) = match route(&head) {
            Ok(Route::S3) => {
                let asked = Asked::s3(&head);
                let announced = announced(&head.headers);
                let has_body = head.method != Method::HEAD;
                let verified = origin.clone();
                let trail = Arc::new(OnceLock::new());
                let (noted, auditor, agent) = (trail.clone(), self.auditor.clone(), user_agent(&head));
                let stranger = self.auditor.unknown(Service::S3, &head);
                // What comes from this machine never left it.
                if origin.is_tls || origin.source.is_loopback() {
                    head.extensions.insert(PrivateTransport);
                }
                head.extensions.insert(OnVerified(Arc::new(move |request| {
                    let is_job = matches!(request.scope, Scope::Job { .. });
                    verified.connection.signed(if is_job { Signer::Job } else { Signer::Owner });
                    let _ = noted.set(auditor.of_s3(&request, &agent));
                })));
                let mut response = if is_form(&head) {
                    let part = self.unverified.part();
                    let taken = part.is_taken();
                    let body = shoal_s3::Body::http_body_unsync(PacedBody::unverified(body, part));
                    tokio::select! {
                        () = taken => shoal_s3::slow_down(),
                        response = self.s3.call(Request::from_parts(head, body)) => response,
                    }
                } else {
                    let body = shoal_s3::Body::http_body_unsync(PacedBody::new(body));
                    self.s3.call(Request::from_parts(head, body)).await
                }
                .map(BodyExt::boxed);
                if let Some(trail) = trail.get() {
                    self.auditor.note_s3(trail.clone(), response.status(), &request_id, origin.source);
                } else if response.status() == StatusCode::FORBIDDEN {
                    self.auditor.note_s3(stranger, response.status(), &request_id, origin.source);
                }
                // Strangers announce what they like.
                if response.status().is_success() {
                    self.exporter.received(announced);
                }
                response
                    .headers_mut()
                    .insert("x-amz-request-id", HeaderValue::from_str(&request_id).expect("hexadecimal digits"));
                if has_body {
                    self.exporter.sent(response.headers());
                }
                return (asked, response);
            }
            Ok(Route::Console) => {
                if self.console.is_signed_in(&head.headers) {
                    origin.connection.signed(Signer::Owner);
                }
                return (
                    Asked::page(),
                    self.console.answer(head, body.map_err(Into::into).boxed(), origin.source, origin.is_tls).await,
                );
            }
            Ok(Route::Api(service)) => {
                let mut asked = Asked::unknown(service);
                let protocol = Protocol::of(service, &head);
                let mut trail = self.auditor.unknown(service, &head);
                let answer = self.call(service, &head, body, (&mut asked, &mut trail), &origin.connection).await;
                let error = answer.as_ref().err();
                self.auditor.note_call(trail, service, error, &request_id, origin.source);
                let response = match answer {
                    Ok((operation, reply, without_effect)) => {
                        noted(respond(operation, &reply, protocol, &request_id), &without_effect)
                    }
                    Err(mut error) => {
                        if error.code.is_server_fault() {
                            tracing::error!("{request_id}: {error}");
                        }
                        error.message = self.api.without_paths(&error.message);
                        respond_error(service, protocol, &error, &request_id)
                    }
                };
                (asked, response)
            }
            Err(error) => {
                let (service, protocol) = guessed(&head);
                (Asked::unknown(service), respond_error(service, protocol, &error, &request_id))
            }
        };
        (asked, response.map(full))
    }

    /// The answer to a GET of `/metrics` that is no request of S3's (there may be an S3 bucket of
    /// that name). Programs of jobs reach this port, too, so that nobody may read it without the
    /// token.
    async fn metrics(&self, head: &Parts) -> Option<Response<Vec<u8>>> {
        let shown = head.headers.get(header::AUTHORIZATION).map(|shown| shown.to_str().unwrap_or_default());
        let token = shown.map(|shown| shown.strip_prefix("Bearer "));
        if head.method != Method::GET
            || head.uri.path() != "/metrics"
            || head.uri.query().is_some()
            || token == Some(None)
        {
            return None;
        }
        let good = token.flatten().is_some_and(|token| self.keys.owner.equal(token, &self.metrics_token));
        let (status, kind, text) = match Process::read() {
            _ if !good => (
                401,
                "text/plain",
                "show the token in metrics-token of the data directory: Authorization: Bearer TOKEN\n".to_owned(),
            ),
            None => (500, "text/plain", "the process's own numbers cannot be read from /proc\n".to_owned()),
            Some(process) => {
                let utilization = self.utilization().await;
                (200, "text/plain; version=0.0.4", self.exporter.page(&self.attempts, &utilization, &process))
            }
        };
        Some(plain(status, kind, text))
    }

    /// The answer to a link of a notification, which confirms or ends a subscription without a
    /// signature, as AWS's does.
    async fn link(&self, head: &Parts, request_id: &str) -> Option<Response<Vec<u8>>> {
        let operation = link_operation(head)?;
        let answered = async {
            let call = parse(Service::Sns, head, b"")?;
            let reply = match operation {
                "ConfirmSubscription" => self.api.topics.confirm(call.read()?, false).await?,
                _ => self.api.topics.unsubscribe(call.read()?, false).await?,
            };
            Ok((operation_of(head)?, reply))
        };
        Some(match answered.await {
            Ok((operation, reply)) => respond(operation, &reply, Protocol::Query, request_id),
            Err(error) => respond_error(Service::Sns, Protocol::Query, &error, request_id),
        })
    }

    /// What running instances use; nothing if that cannot be read.
    async fn utilization(&self) -> Utilization {
        let (attempts, telemetry) = (self.attempts.clone(), self.telemetry.clone());
        match tokio::task::spawn_blocking(move || Utilization::read(&attempts, &telemetry)).await {
            Ok(Ok(utilization)) => return utilization,
            Ok(Err(error)) => tracing::warn!("/metrics has no gauges of instances: {error}"),
            Err(error) => tracing::error!("reading gauges of instances panicked: {error}"),
        }
        Utilization::default()
    }

    /// Verifies, reads and answers a call; with its fields that have no effect.
    async fn call(
        &self,
        service: Service,
        head: &Parts,
        body: TrackedBody,
        (asked, trail): (&mut Asked, &mut Record),
        connection: &Connection,
    ) -> Result<(&'static Operation, Reply, Vec<Found>), Error> {
        let key_id = sigv4::access_key_id(head)?;
        let token = head.headers.get("x-amz-security-token").and_then(|token| token.to_str().ok());
        let key = self.keys.find(&key_id, token).map_err(|fault| {
            let (code, why) = match fault {
                KeyFault::Unknown => {
                    let why = format!(
                        "is invalid: this server does not know access key {key_id}; `shoal env` prints its keys"
                    );
                    (ErrorCode::UnrecognizedClient, why)
                }
                KeyFault::WrongToken => (ErrorCode::UnrecognizedClient, "is invalid".to_owned()),
                KeyFault::Expired => (ErrorCode::ExpiredToken, "is expired".to_owned()),
                KeyFault::TooMany => (ErrorCode::ThrottlingException, "is used too often".to_owned()),
            };
            Error::new(code, format!("The security token included in the request {why}"))
        })?;
        let credentials = sigv4::Credentials {
            access_key_id: key.keys.access_key_id,
            secret_access_key: key.keys.secret_access_key,
            session_token: key.keys.session_token,
        };
        let signer = if matches!(key.holder, Holder::Attempt { .. }) { Signer::Job } else { Signer::Owner };
        // What the head shows to be wrong costs no body. Few clients but S3's send the body's hash,
        // without which the signature waits for it.
        let body = &if sigv4::verify_head(head, &credentials, now_ms(), self.max_skew_s)? {
            connection.signed(signer);
            if signer == Signer::Owner {
                collect_verified(&head.headers, body).await?
            } else {
                self.jobs_bodies.collect(&head.headers, body).await?
            }
        } else {
            self.unverified.collect(&head.headers, body).await?
        };
        sigv4::verify(head, body, &credentials, now_ms(), self.max_skew_s)?;
        connection.signed(signer);
        if signer == Signer::Owner && !self.keys.quotas.admits_request(user_of(key.member.as_deref()), now_ms()) {
            return Err(Error::new(
                ErrorCode::ThrottlingException,
                "Rate exceeded: the quota of requests per second is used up; try again.".to_owned(),
            ));
        }
        let body = &*decoded(&head.headers, body)?;
        *asked = Asked::call(service, head, body);
        let call = parse(service, head, body)?;
        let (operation, without_effect) = (call.operation, no_effect::in_call(&call));
        let caller = Caller { user_agent: user_agent(head), holder: key.holder, member: key.member };
        self.auditor.called(trail, &call, &caller);
        self.api.permit(&call, &caller).await?;
        let answer = read(call)?;
        if self.strict {
            no_effect::refuse(&without_effect)?;
        }
        let reply = self.api.answer(answer, &caller).await?;
        Ok((operation, reply, without_effect))
    }
}

/// The request's `User-Agent`.
fn user_agent(head: &Parts) -> String {
    head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

fn operation_of(head: &Parts) -> Result<&'static Operation, Error> {
    shoal_wire::operation(Service::Sns, head, b"")
}

/// Which of SNS's operations a link calls, if it is one.
fn link_operation(head: &Parts) -> Option<&'static str> {
    let is_get = head.method == Method::GET && head.uri.path() == "/";
    if !is_get || head.headers.contains_key(header::AUTHORIZATION) {
        return None;
    }
    let action = head.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("Action="))?;
    ["ConfirmSubscription", "Unsubscribe"].into_iter().find(|name| *name == action)
}

/// In which form a client asks a service that is not here: it gets its answer in that form.
pub(crate) fn guessed(head: &Parts) -> (Service, Protocol) {
    let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    if kind.starts_with(b"application/x-www-form-urlencoded") {
        (Service::Iam, Protocol::Query)
    } else {
        (Service::SageMaker, Protocol::Json)
    }
}

/// Whether a browser's form uploads an object: its signature is in its body, which is gathered in
/// memory.
fn is_form(head: &Parts) -> bool {
    let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    head.method == Method::POST && kind.get(..19).is_some_and(|kind| kind.eq_ignore_ascii_case(b"multipart/form-data"))
}

/// Names the request's fields that had no effect in a header.
fn noted(mut response: Response<Vec<u8>>, without_effect: &[Found]) -> Response<Vec<u8>> {
    let names: Vec<&str> = without_effect.iter().map(|field| field.path.as_str()).collect();
    if !names.is_empty() {
        let value = HeaderValue::from_str(&names.join(", ")).expect("members' names are ASCII");
        response.headers_mut().insert(no_effect::HEADER, value);
    }
    response
}

/// An answer's body, which keeps its connection from being closed for others until it is sent.
struct AnsweringBody {
    body: Body,
    _answering: Answering,
}

impl hyper::body::Body for AnsweringBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A body that is there already.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

fn plain(status: u16, kind: &'static str, text: String) -> Response<Vec<u8>> {
    let mut response = Response::new(text.into_bytes());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status between 100 and 999");
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tests::Unconnected;

    #[tokio::test]
    async fn the_servers_numbers_are_for_those_who_have_the_token() {
        let server = Unconnected::start().await;
        let bearer = format!("Bearer {}", server.front.metrics_token);
        let signed =
            "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        for (method, uri, authorization, expected) in [
            ("GET", "/metrics", Some(bearer.as_str()), Some(200)),
            ("GET", "/metrics", None, Some(401)),
            ("GET", "/metrics", Some("Bearer "), Some(401)),
            ("GET", "/metrics", Some(&bearer[..bearer.len() - 1]), Some(401)),
            // These are of an S3 bucket of that name.
            ("GET", "/metrics", Some(signed), None),
            ("GET", "/metrics", Some(""), None),
            ("GET", "/metrics?list-type=2", Some(&bearer), None),
            ("GET", "/metrics/", Some(&bearer), None),
            ("PUT", "/metrics", Some(&bearer), None),
        ] {
            let mut request = Request::builder().method(method).uri(uri);
            if let Some(authorization) = authorization {
                request = request.header(header::AUTHORIZATION, authorization);
            }
            let answer = server.front.metrics(&request.body(()).unwrap().into_parts().0).await;
            let status = answer.as_ref().map(|answer| answer.status().as_u16());
            assert_eq!(status, expected, "{method} {uri} {authorization:?}");
            let has_numbers = answer.is_some_and(|it| String::from_utf8_lossy(it.body()).contains("shoal_build_info"));
            assert_eq!(has_numbers, expected == Some(200));
        }
        server.stop().await;
    }

    fn head(method: &str, content_type: Option<&str>) -> Parts {
        let mut request = Request::builder().method(method).uri("/");
        if let Some(kind) = content_type {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_client_of_no_service_is_answered_in_the_form_that_it_speaks() {
        for (kind, expected) in [
            (Some("application/x-www-form-urlencoded; charset=utf-8"), Protocol::Query),
            (Some("application/x-amz-json-1.1"), Protocol::Json),
            (Some(""), Protocol::Json),
            (None, Protocol::Json),
        ] {
            let (service, protocol) = guessed(&head("POST", kind));
            assert_eq!(protocol, expected, "{kind:?}");
            let error = Error::new(ErrorCode::UnknownOperationException, "no <service>".to_owned());
            let body = String::from_utf8(respond_error(service, protocol, &error, "id").into_body()).unwrap();
            let is_xml = expected == Protocol::Query;
            assert_eq!((body.starts_with('<'), body.starts_with('{')), (is_xml, !is_xml), "{body}");
            assert!(!is_xml || body.contains("no &lt;service&gt;"), "{body}");
        }
    }

    #[test]
    fn only_a_form_of_a_browser_is_gathered_in_memory() {
        for (method, kind, expected) in [
            ("POST", Some("multipart/form-data; boundary=x"), true),
            ("POST", Some("Multipart/Form-Data"), true),
            ("PUT", Some("multipart/form-data; boundary=x"), false),
            ("POST", Some("multipart/form-dat"), false),
            ("POST", Some("application/json"), false),
            ("POST", None, false),
        ] {
            assert_eq!(is_form(&head(method, kind)), expected, "{method} {kind:?}");
        }
    }

    #[test]
    fn fields_without_effect_are_named_in_a_header_and_only_then() {
        let field = |path: &str| Found { path: path.to_owned(), reason: "none" };
        let header = |fields: &[Found]| {
            let response = noted(Response::new(Vec::new()), fields);
            response.headers().get(no_effect::HEADER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(header(&[]), None);
        assert_eq!(header(&[field("vpcConfig"), field("tags[0]")]).as_deref(), Some("vpcConfig, tags[0]"));
    }
}
