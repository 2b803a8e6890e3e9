//! One HTTP/1.1 request to slurmrestd, for callers that block.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::Address;
use crate::tls;

/// More is no list of jobs that can be asked for each second: that of some ten thousand jobs.
const MAX_BYTES: usize = 64 << 20;

/// What slurmrestd answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// Sends a request, on a connection of its own.
///
/// # Errors
/// No answer within the time: why, in words.
pub(super) fn call(address: &Address, request: http::Request<Full<Bytes>>, limit: Duration) -> Result<Answer, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|it| it.to_string())?;
    let answer = runtime.block_on(async {
        let late = |_| format!("no answer within {} s", limit.as_secs());
        tokio::time::timeout(limit, connect_and_send(address, request)).await.map_err(late)?
    });
    // A name's look-up may hang.
    runtime.shutdown_background();
    answer
}

async fn connect_and_send(address: &Address, request: http::Request<Full<Bytes>>) -> Result<Answer, String> {
    let words = |error: io::Error| error.to_string();
    match address {
        Address::Unix(path) => send(UnixStream::connect(path).await.map_err(words)?, request).await,
        Address::Tcp { host, port, tls } => {
            let name = host.trim_matches(['[', ']']);
            let stream = TcpStream::connect((name, *port)).await.map_err(words)?;
            match tls {
                false => send(stream, request).await,
                true => {
                    let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
                    send(connector()?.connect(name, stream).await.map_err(words)?, request).await
                }
            }
        }
    }
}

/// Trusts what this machine trusts.
fn connector() -> Result<TlsConnector, String> {
    tls::client().map(|config| TlsConnector::from(Arc::new(config))).map_err(|error| error.to_string())
}

async fn send<S>(stream: S, request: http::Request<Full<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|error| chain(&error))?;
    let (parts, body) = answer.into_parts();
    let body = Limited::new(body, MAX_BYTES).collect().await.map_err(|error| match error.downcast_ref() {
        Some(http_body_util::LengthLimitError { .. }) => {
            format!("its answer is larger than {} MiB: use Slurm's commands, without rest", MAX_BYTES >> 20)
        }
        None => error.to_string(),
    })?;
    connection.abort();
    Ok(Answer { status: parts.status.as_u16(), body: body.to_bytes().into() })
}

/// An error with its cause.
fn chain(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn ask(address: &Address, limit: Duration) -> Result<Answer, String> {
        call(address, http::Request::get("/a").header("Host", "x").body(Full::default()).expect("a request"), limit)
    }

    #[test]
    fn answers_come_over_tcp_and_a_silent_server_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = listener.local_addr().expect("an address").port();
        let server = thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut request = [0; 512];
            let length = client.read(&mut request).expect("a request");
            client.write_all(b"HTTP/1.1 401 NO\r\nContent-Length: 2\r\n\r\nno").expect("write");
            let silent = listener.accept().expect("another client");
            (String::from_utf8_lossy(&request[..length]).into_owned(), silent)
        });
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port, tls: false };
        let answer = ask(&address, Duration::from_secs(10)).expect("an answer");
        assert_eq!(answer, Answer { status: 401, body: b"no".to_vec() });
        let begun = Instant::now();
        let error = ask(&address, Duration::from_secs(1)).expect_err("it is silent");
        assert!(error.contains("no answer within 1 s") && begun.elapsed() < Duration::from_secs(10), "{error}");
        let (request, _) = server.join().expect("the server");
        assert!(request.starts_with("GET /a HTTP/1.1\r\n"), "{request}");
    }

    #[test]
    fn what_cannot_be_reached_is_explained() {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("an address").port();
        let closed = Address::Tcp { host: "127.0.0.1".to_owned(), port, tls: false };
        assert!(ask(&closed, Duration::from_secs(5)).is_err_and(|error| error.contains("refused")));
        let nowhere = Address::Unix("/nonexistent/socket".into());
        assert!(ask(&nowhere, Duration::from_secs(5)).is_err_and(|error| error.contains("No such file")));
    }
}
