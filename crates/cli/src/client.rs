//! The command line as a client: signed requests to the server's public API, as any SDK sends them.
//! No back door.

mod logs;
mod names;
mod objects;
mod tls;

use std::{
    env, io, thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use shoal_server::AccessKeys;
use shoal_wire::{
    Service,
    client::{self as wire, Endpoint, ServiceError},
    sigv4::Credentials,
};
use ureq::{
    Agent,
    http::{Method, Request, Response},
};

pub use logs::{LogEvent, LogReader};

use crate::{
    exit::UsageError,
    settings::{ClientFlags, ServerUrl, Settings},
};

/// Most entries in one answer of the API.
const PAGE: usize = 100;

/// Before a throttled request is sent again. Its signature is good for minutes.
const THROTTLED_PAUSES_MS: [u64; 6] = [250, 500, 1000, 2000, 4000, 8000];

/// A server as we speak with it.
#[derive(Debug, Clone)]
pub struct Client {
    url: ServerUrl,
    endpoint: Endpoint,
    agent: Agent,
}

/// What a name is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noun {
    /// `jobs`, `train`.
    TrainingJob,
    /// `tuning`, `tune`.
    TuningJob,
    /// One or the other.
    Either,
}

impl std::fmt::Display for Noun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TrainingJob => "training job",
            Self::TuningJob => "tuning job",
            Self::Either => "training or tuning job",
        })
    }
}

/// Why the server did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there, or the connection broke.
    #[error("no server answers at {endpoint}; start one with `shoal serve`")]
    Unreachable {
        /// Where.
        endpoint: String,
        /// Why.
        #[source]
        source: Box<ureq::Error>,
    },
    /// Somebody answers over TLS, and it may be anybody.
    #[error(
        "the certificate of {endpoint} is not trusted: {why}; set AWS_CA_BUNDLE to the file of its authority \
         (tls/authority.pem in the server's \
         data directory, or its setting tls_ca), and call the server by a name that its certificate is for"
    )]
    Distrusted {
        /// Where.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// The data directory has no keys, so no server has ever run on it.
    #[error(
        "no server was ever started on {data_dir}; start one with `shoal serve`, or name the directory of yours with \
         --data-dir"
    )]
    NeverStarted {
        /// Where keys were looked for.
        data_dir: String,
    },
    /// The server said no.
    #[error("{}: {}", .0.code, .0.message)]
    Refused(ServiceError),
    /// Not an answer of such a server.
    #[error("{endpoint} is no Shoal server, it seems: {what}")]
    NotUnderstood {
        /// Where.
        endpoint: String,
        /// What came.
        what: String,
    },
    /// It knows nothing of this name.
    #[error("there is no {0} {1}{2}")]
    NoJob(
        Noun,
        String,
        /// What there is instead: `; did you mean ..?`, or nothing.
        String,
    ),
    /// The server's address or keys cannot stand in a request.
    #[error(transparent)]
    Request(#[from] wire::ClientError),
}

impl ClientError {
    /// Whether a server could not be reached.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }

    /// Whether what was asked about does not exist.
    pub fn is_not_found(&self) -> bool {
        let Self::Refused(ServiceError { status, code, message }) = self else {
            return matches!(self, Self::NoJob(..));
        };
        *status == 404
            || code.contains("NotFound")
            || code.starts_with("NoSuch")
            || message == "Requested resource not found."
    }

    /// The same as an answer about a training job: the service does not say which.
    pub(crate) fn about(self, job: &str) -> anyhow::Error {
        self.about_a(Noun::TrainingJob, job)
    }

    /// The same about something else.
    pub(crate) fn about_a(self, noun: Noun, name: &str) -> anyhow::Error {
        if self.is_not_found() {
            Self::NoJob(noun, name.to_owned(), String::new()).into()
        } else {
            anyhow::Error::new(self).context(format!("{noun} {name}"))
        }
    }
}

impl Client {
    /// Finds the server: the one named by flags, else the environment's `AWS_ENDPOINT_URL` with its
    /// keys, else the one of the data directory.
    ///
    /// # Errors
    /// Settings make no sense, or there are no keys.
    pub(crate) fn connect(flags: &ClientFlags) -> Result<Self> {
        let settings = flags.settings()?;
        let named = if flags.name_a_server() { None } else { Self::of_environment(&settings)? };
        named.map_or_else(|| Self::local(&settings), Ok)
    }

    /// The server of the environment's `AWS_ENDPOINT_URL`, with the environment's keys or those of
    /// a data directory without a server; `None` where that or keys are not set.
    ///
    /// # Errors
    /// It is no address of a server.
    pub(crate) fn of_environment(settings: &Settings) -> Result<Option<Self>> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let Some(endpoint) = variable("AWS_ENDPOINT_URL") else { return Ok(None) };
        let credentials = match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(access_key_id), Some(secret_access_key)) => {
                Credentials { access_key_id, secret_access_key, session_token: variable("AWS_SESSION_TOKEN") }
            }
            // A directory that has a key and no server.
            _ if !settings.data_dir.join("id").exists() && settings.data_dir.join("keys").exists() => {
                let AccessKeys { access_key_id, secret_access_key, session_token } = owner_keys(settings)?;
                Credentials { access_key_id, secret_access_key, session_token }
            }
            _ => return Ok(None),
        };
        let url = ServerUrl::parse(&endpoint, tls::bundle(&variable));
        let url = url.ok_or_else(|| {
            UsageError(format!("AWS_ENDPOINT_URL is {endpoint:?}; wanted http://HOST:PORT or https://HOST:PORT"))
        })?;
        Self::new(url, credentials, &settings.region).map(Some)
    }

    /// The server of a data directory on this machine.
    ///
    /// # Errors
    /// It has no keys: no server was ever started on it.
    pub fn local(settings: &Settings) -> Result<Self> {
        let keys = owner_keys(settings)?;
        let credentials = Credentials {
            access_key_id: keys.access_key_id,
            secret_access_key: keys.secret_access_key,
            session_token: None,
        };
        Self::new(settings.url(), credentials, &settings.region)
    }

    fn new(url: ServerUrl, credentials: Credentials, region: &str) -> Result<Self> {
        // A held Describe takes 3 s; what takes a minute without a byte is broken.
        let config = Agent::config_builder().http_status_as_error(false).timeout_connect(Some(Duration::from_secs(5)));
        let mut config = config.timeout_recv_response(Some(Duration::from_secs(60))).proxy(None);
        if url.scheme == wire::Scheme::HTTPS {
            config = config.tls_config(tls::config(url.trusted.as_deref())?);
        }
        let (scheme, authority) = (url.scheme.clone(), url.authority.clone());
        let endpoint = Endpoint { scheme, authority, region: region.to_owned(), credentials };
        Ok(Self { url, endpoint, agent: config.build().new_agent() })
    }

    /// Of a test's own server, which looks at no signature.
    #[cfg(test)]
    pub(crate) fn of_test(address: std::net::SocketAddr) -> Self {
        let credentials =
            Credentials { access_key_id: "test".to_owned(), secret_access_key: "test".to_owned(), session_token: None };
        Self::new(ServerUrl::parse(&format!("http://{address}"), None).unwrap(), credentials, "us-east-1").unwrap()
    }

    /// The keys that sign.
    pub(crate) fn keys(&self) -> AccessKeys {
        let Credentials { access_key_id, secret_access_key, session_token } = self.endpoint.credentials.clone();
        AccessKeys { access_key_id, secret_access_key, session_token }
    }

    /// `http://127.0.0.1:9777`.
    pub(crate) fn url(&self) -> String {
        self.url.to_string()
    }

    /// Where and as whom it speaks.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// An operation of the SageMaker API.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn sagemaker(&self, operation: &str, input: &Value) -> Result<Value, ClientError> {
        self.json(Service::SageMaker, operation, input)
    }

    /// The same, with what the server would have people know of it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn sagemaker_with_notice(
        &self,
        operation: &str,
        input: &Value,
    ) -> Result<(Value, Option<String>), ClientError> {
        let mut response = self.send(wire::call(&self.endpoint, Service::SageMaker, operation, input, now_ms())?)?;
        let notice =
            response.headers().get(shoal_wire::NOTICE).and_then(|notice| notice.to_str().ok()).map(str::to_owned);
        Ok((self.parsed(&mut response)?, notice))
    }

    /// What an operation of the SageMaker API lists under `key`, page by page: at most so many.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn list(&self, operation: &str, key: &str, mut input: Value, most: usize) -> Result<Vec<Value>, ClientError> {
        let mut all: Vec<Value> = Vec::new();
        while all.len() < most {
            input["MaxResults"] = json!(PAGE.min(most - all.len()));
            let mut answer = self.sagemaker(operation, &input)?;
            if let Value::Array(page) = answer[key].take() {
                all.extend(page);
            }
            match answer.get("NextToken") {
                Some(token) => input["NextToken"] = token.clone(),
                None => break,
            }
        }
        Ok(all)
    }

    /// An operation of CloudWatch.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn cloudwatch(&self, operation: &str, input: &Value) -> Result<Value, ClientError> {
        self.json(Service::CloudWatch, operation, input)
    }

    /// An operation of AWS Budgets.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub(crate) fn budgets(&self, operation: &str, input: &Value) -> Result<Value, ClientError> {
        self.json(Service::Budgets, operation, input)
    }

    /// An operation of an AWS JSON service.
    fn json(&self, service: Service, operation: &str, input: &Value) -> Result<Value, ClientError> {
        let mut response = self.send(wire::call(&self.endpoint, service, operation, input, now_ms())?)?;
        self.parsed(&mut response)
    }

    fn parsed(&self, response: &mut Response<ureq::Body>) -> Result<Value, ClientError> {
        let body = self.body(response)?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| self.not_understood(format!("its answer is not JSON ({error})")))
    }

    /// An S3 request; the path is percent-encoded.
    fn s3(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Response<ureq::Body>, ClientError> {
        self.send(wire::s3(&self.endpoint, method, path, body, now_ms())?)
    }

    /// Sends, again and again while it is throttled; answers but those of success are errors.
    fn send(&self, request: Request<Vec<u8>>) -> Result<Response<ureq::Body>, ClientError> {
        for pause in THROTTLED_PAUSES_MS.map(Duration::from_millis) {
            match self.send_once(request.clone()) {
                Err(ClientError::Refused(error)) if error.is_throttling() => thread::sleep(pause),
                answer => return answer,
            }
        }
        self.send_once(request)
    }

    fn send_once(&self, request: Request<Vec<u8>>) -> Result<Response<ureq::Body>, ClientError> {
        let mut response = self.agent.run(request).map_err(|source| self.unreachable(source))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let body = self.body(&mut response)?;
        Err(ClientError::Refused(wire::error(response.status().as_u16(), &body)))
    }

    fn body(&self, response: &mut Response<ureq::Body>) -> Result<Vec<u8>, ClientError> {
        response.body_mut().with_config().limit(u64::MAX).read_to_vec().map_err(|source| self.unreachable(source))
    }

    fn unreachable(&self, source: ureq::Error) -> ClientError {
        if let Some(why) = tls::distrust(&source) {
            return ClientError::Distrusted { endpoint: self.url(), why };
        }
        ClientError::Unreachable { endpoint: self.url(), source: Box::new(source) }
    }

    /// Its answer is not what such a server says.
    pub(crate) fn not_understood(&self, what: String) -> ClientError {
        ClientError::NotUnderstood { endpoint: self.url(), what }
    }
}

/// The keys of a data directory's owner.
///
/// # Errors
/// [`ClientError::NeverStarted`], or the file cannot be read.
pub(crate) fn owner_keys(settings: &Settings) -> Result<AccessKeys> {
    match AccessKeys::read(&settings.keys()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ClientError::NeverStarted { data_dir: settings.data_dir.display().to_string() }.into())
        }
        keys => keys.with_context(|| format!("could not read {}", settings.keys().display())),
    }
}

/// Milliseconds since the epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn a_throttled_request_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = Client::of_test(listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let answers = [("400 Bad Request", "{\"__type\": \"ThrottlingException\"}"), ("200 OK", "{\"A\": 1}")];
            for (status, body) in answers {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                let head = stream.by_ref().lines().map(Result::unwrap).take_while(|line| !line.is_empty());
                let length =
                    head.filter_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                let length: u64 = length.last().unwrap();
                io::copy(&mut stream.by_ref().take(length), &mut io::sink()).unwrap();
                let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.get_mut().write_all((head + body).as_bytes()).unwrap();
            }
        });
        assert_eq!(client.sagemaker("ListTrainingJobs", &json!({})).unwrap(), json!({"A": 1}));
        server.join().unwrap();
    }
}
