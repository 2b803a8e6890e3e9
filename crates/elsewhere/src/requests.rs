//! S3's own requests: signed, repeated where that helps, their errors by kind.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use object_store::ClientOptions;
use object_store::aws::{AmazonS3ConfigKey, AwsAuthorizer, AwsCredentialProvider};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequestBody, HttpResponse, HttpResponseBody,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::address::Address;
use crate::bucket::{builder, error_of};
use crate::documents::ErrorDocument;
use crate::http::{ANSWER_TIMEOUT, AnswerTimeout, Connector};
use crate::{Error, bucket};

/// Between two attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Between two pieces of an answer.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a document, and the time for it: the end of an upload may come after minutes of spaces.
const DOCUMENT: (usize, Duration) = (32 << 20, Duration::from_secs(1800));
/// The same of an error.
const ERROR_DOCUMENT: (usize, Duration) = (64 << 10, Duration::from_secs(5));

const IN_QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const IN_PATH: &AsciiSet = &IN_QUERY.remove(b'/');

/// A request for an object, or for the bucket, whose key is empty.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: Method,
    /// As the store has it.
    pub(crate) key: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Doing it twice does the same, even if the first answer was lost.
    pub(crate) is_repeatable: bool,
    /// Until the answer begins.
    pub(crate) answer_timeout: Duration,
}

impl Request {
    pub(crate) fn new(method: Method, key: &str) -> Self {
        let (query, headers, body) = (Vec::new(), HeaderMap::new(), Bytes::new());
        Self { method, key: key.to_owned(), query, headers, body, is_repeatable: true, answer_timeout: ANSWER_TIMEOUT }
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).map(|value| (name, value)));
        self
    }

    pub(crate) fn body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }
}

/// A bucket's address, and who asks.
pub(crate) struct Requests {
    address: Address,
    root: String,
    region: String,
    credentials: AwsCredentialProvider,
    client: HttpClient,
    retry_timeout: Duration,
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("address", &self.address).finish_non_exhaustive()
    }
}

/// An attempt that has failed.
struct Failed {
    error: Error,
    /// The same may succeed.
    is_passing: bool,
    /// Nothing was done.
    is_undone: bool,
}

impl Requests {
    pub(crate) fn new(address: &Address, retry_timeout: Duration) -> Result<Self, Error> {
        let builder = builder(address, retry_timeout)?;
        let value = |key| builder.get_config_value(&key);
        let region = value(AmazonS3ConfigKey::Region).unwrap_or("us-east-1".to_owned());
        let root = format!("{}/{}", value(AmazonS3ConfigKey::Endpoint).unwrap_or_default(), address.bucket);
        let failed = |error: object_store::Error| error_of(&address.to_string(), "", &error);
        let client = Connector.connect(&ClientOptions::new()).map_err(failed)?;
        let credentials = builder.build().map_err(failed)?.credentials().clone();
        Ok(Self { address: address.clone(), root, region, credentials, client, retry_timeout })
    }

    #[cfg(test)]
    pub(crate) fn with_keys(self) -> Self {
        let text = |text: &str| text.to_owned();
        let keys = object_store::aws::AwsCredential { key_id: text("id"), secret_key: text("secret"), token: None };
        let credentials = std::sync::Arc::new(object_store::StaticCredentialProvider::new(keys));
        Self { credentials, ..self }
    }

    pub(crate) fn location(&self) -> String {
        self.address.to_string()
    }

    /// The answer, if it is a success.
    pub(crate) async fn send(&self, request: &Request) -> Result<HttpResponse, Error> {
        let (mut began, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut is_first = true;
        loop {
            let failed = match self.attempt(request).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            // Sending a body may take longer than that; a silent store is not waited for twice.
            if is_first && !request.body.is_empty() {
                began = Instant::now();
            }
            is_first = false;
            let may_repeat = failed.is_passing && (request.is_repeatable || failed.is_undone);
            if !may_repeat || began.elapsed() + pause > self.retry_timeout {
                return Err(failed.error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&self, request: &Request) -> Result<HttpResponse, Failed> {
        let answer = self.answer(request).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let region = answer.headers().get("x-amz-bucket-region").and_then(|it| it.to_str().ok()).map(str::to_owned);
        let body = bytes_of(answer.into_body(), ERROR_DOCUMENT).await;
        let document = ErrorDocument::read(&body.unwrap_or_default());
        let is_passing = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
            || status == StatusCode::TOO_MANY_REQUESTS;
        let error = self.error(&request.key, status, &document, region.as_deref());
        Err(Failed { error, is_passing, is_undone: status == StatusCode::SERVICE_UNAVAILABLE })
    }

    async fn answer(&self, request: &Request) -> Result<HttpResponse, Failed> {
        let location = self.location();
        let final_error = |error| Failed { error, is_passing: false, is_undone: true };
        let of_library = |error: object_store::Error| final_error(error_of(&location, &request.key, &error));
        let credential = self.credentials.get_credential().await.map_err(of_library)?;
        let mut uri = format!("{}/{}", self.root, utf8_percent_encode(&request.key, IN_PATH));
        for (at, (name, value)) in request.query.iter().enumerate() {
            uri.push(if at == 0 { '?' } else { '&' });
            uri.push_str(&format!("{name}={}", utf8_percent_encode(value, IN_QUERY)));
        }
        let built = http::Request::builder().method(request.method.clone()).uri(uri);
        let mut built = built
            .body(HttpRequestBody::from(request.body.clone()))
            .map_err(|error| final_error(Error::Rejected { location: location.clone(), message: error.to_string() }))?;
        built.extensions_mut().insert(AnswerTimeout(request.answer_timeout));
        *built.headers_mut() = request.headers.clone();
        if matches!(request.method, Method::PUT | Method::POST) {
            built.headers_mut().insert(CONTENT_LENGTH, request.body.len().into());
        }
        let signer = AwsAuthorizer::new(&credential, "s3", &self.region);
        signer.try_authorize(&mut built, None).map_err(of_library)?;
        self.client.execute(built).await.map_err(|error| {
            let is_undone = error.kind() == HttpErrorKind::Connect;
            let message = bucket::text(&error);
            Failed { error: Error::Unreachable { location: location.clone(), message }, is_passing: true, is_undone }
        })
    }

    /// All of a short answer.
    pub(crate) async fn document(&self, answer: HttpResponse) -> Result<Bytes, Error> {
        bytes_of(answer.into_body(), DOCUMENT).await.map_err(|message| self.broken(message))
    }

    /// An answer is not one.
    pub(crate) fn broken(&self, message: impl Into<String>) -> Error {
        Error::Unreachable { location: self.location(), message: message.into() }
    }

    /// What an answer means that is no success.
    fn error(&self, key: &str, status: StatusCode, document: &ErrorDocument, region: Option<&str>) -> Error {
        let (location, name) = (self.location(), key.to_owned());
        let message = document.text(status);
        match (status, document.code.as_str()) {
            (StatusCode::NOT_FOUND, "NoSuchBucket") => Error::NoBucket { location },
            (StatusCode::NOT_FOUND, _) => Error::Missing { location, name },
            (StatusCode::PRECONDITION_FAILED, _) | (StatusCode::CONFLICT, "ConditionalRequestConflict") => {
                Error::Changed { location, name }
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Error::Refused { location, message },
            (status, _) if status.is_redirection() || document.code == "AuthorizationHeaderMalformed" => {
                let to = region.map_or(String::new(), |region| format!(" ({region})"));
                let message = format!("the bucket is in another region{to}: name it, ?region=..; {message}");
                Error::Rejected { location, message }
            }
            (status, _) if status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED => {
                Error::Rejected { location, message }
            }
            _ => Error::Unreachable { location, message },
        }
    }
}

/// Pieces of an answer.
type Pieces = BoxStream<'static, Result<Bytes, HttpError>>;

/// `None`: that was all.
pub(crate) async fn next_piece(pieces: &mut Pieces) -> Result<Option<Bytes>, String> {
    match tokio::time::timeout(PIECE_TIMEOUT, pieces.next()).await {
        Ok(next) => next.transpose().map_err(|error| error.to_string()),
        Err(_) => Err("the answer has stopped".to_owned()),
    }
}

async fn bytes_of(body: HttpResponseBody, (most, time): (usize, Duration)) -> Result<Bytes, String> {
    let read = async {
        let (mut bytes, mut pieces) = (Vec::new(), body.bytes_stream());
        while let Some(piece) = next_piece(&mut pieces).await? {
            if piece.len() > most - bytes.len() {
                return Err(format!("its answer has more than {most} bytes"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Bytes::from(bytes))
    };
    tokio::time::timeout(time, read).await.unwrap_or_else(|_| Err("its answer does not end".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_no_success_have_kinds() {
        let address = Address::parse("s3://team?endpoint=http://127.0.0.1:1&region=eu-1").unwrap();
        let requests = Requests::new(&address, Duration::ZERO).unwrap();
        let error = |status: u16, code: &str| {
            let document = ErrorDocument { code: code.to_owned(), message: "why".to_owned() };
            let status = StatusCode::from_u16(status).unwrap();
            format!("{:?}", requests.error("k", status, &document, Some("eu-2")))
        };
        for (status, code, expected) in [
            (404, "NoSuchBucket", "NoBucket"),
            (404, "NoSuchKey", "Missing"),
            (404, "", "Missing"),
            (412, "PreconditionFailed", "Changed"),
            (409, "ConditionalRequestConflict", "Changed"),
            (403, "InvalidAccessKeyId", "Refused"),
            (301, "PermanentRedirect", "another region (eu-2)"),
            (400, "EntityTooLarge", "Rejected"),
            (501, "NotImplemented", "Rejected"),
            (503, "SlowDown", "Unreachable"),
        ] {
            assert!(error(status, code).contains(expected), "{status} {code}: {}", error(status, code));
        }
    }
}
