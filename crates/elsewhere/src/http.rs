//! object_store's requests over hyper's client, with the workspace's TLS.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// To open a connection, and to the first byte of an answer once all is sent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// What a slow link takes of a body, in bytes per second.
const SLOWEST: usize = 100_000;

/// What a request waits for its answer, if not [`ANSWER_TIMEOUT`]; an extension of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerTimeout(pub(crate) Duration);

/// Sending the body, and the answer's begin.
fn time_for(request: &HttpRequest) -> Duration {
    let answer = request.extensions().get::<AnswerTimeout>().map_or(ANSWER_TIMEOUT, |timeout| timeout.0);
    answer + Duration::from_secs((request.body().content_length() / SLOWEST) as u64)
}

/// Makes the client.
#[derive(Debug)]
pub(crate) struct Connector;

#[derive(Debug)]
struct Service(Client<HttpsConnector<Tcp>, HttpRequestBody>);

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |source: Box<dyn Error + Send + Sync>| object_store::Error::Generic { store: "S3", source };
        let mut roots = RootCertStore::empty();
        // Those that cannot be read are not trusted.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = Tcp::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_timer(TokioTimer::new())
            .build(https);
        Ok(HttpClient::new(Service(client)))
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answered = tokio::time::timeout(time_for(&request), self.0.request(request)).await;
        let late = |error| HttpError::new(HttpErrorKind::Timeout, error);
        let response = answered.map_err(late)?.map_err(|error| HttpError::new(kind_of(&error), error))?;
        let (parts, body) = response.into_parts();
        let body = http_body_util::BodyExt::map_err(body, |error| HttpError::new(HttpErrorKind::Interrupted, error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// Reads what is at an address that needs no keys, as it comes; for callers that block.
///
/// # Errors
/// The server does not answer, or not with 200; what `take` returns.
pub fn download(url: &str, take: &mut dyn FnMut(&[u8]) -> std::io::Result<()>) -> std::io::Result<()> {
    let failed = |error: Box<dyn Error + Send + Sync>| std::io::Error::other(error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Connector.connect(&ClientOptions::new()).map_err(|error| failed(error.into()))?;
        let request = http::Request::get(url).body(HttpRequestBody::empty()).map_err(|error| failed(error.into()))?;
        let answer = client.execute(request).await.map_err(|error| failed(error.into()))?;
        if answer.status() != http::StatusCode::OK {
            return Err(failed(format!("the store answers {}", answer.status()).into()));
        }
        let mut body = answer.into_body();
        loop {
            let next = tokio::time::timeout(ANSWER_TIMEOUT, http_body_util::BodyExt::frame(&mut body)).await;
            let Some(frame) = next.map_err(|late| failed(late.into()))? else { return Ok(()) };
            if let Some(bytes) = frame.map_err(|error| failed(error.into()))?.data_ref() {
                take(bytes)?;
            }
        }
    })
}

/// Connections that the other side has closed are an error of the next request on them.
fn kind_of(error: &hyper_util::client::legacy::Error) -> HttpErrorKind {
    if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bodies_have_the_time_that_slow_links_need() {
        let request = |length: usize| http::Request::new(HttpRequestBody::from(vec![0; length]));
        assert_eq!((time_for(&request(0)).as_secs(), time_for(&request(32 << 20)).as_secs()), (30, 365));
        let mut slow = request(0);
        slow.extensions_mut().insert(AnswerTimeout(Duration::from_secs(300)));
        assert_eq!(time_for(&slow).as_secs(), 300);
    }
}
