//! Connections to the server: by its Unix socket, or by TLS over TCP. The caller gets a Unix socket
//! in both cases, so that timeouts, polls and shutdowns are the same. For TLS it is one end of a
//! socket pair, and a task of this process forwards the bytes of the other end. Who asks for much,
//! and does nothing else on the connection, gets the TLS itself ([`asking`]).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use sha2::{Digest, Sha256};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::asking;

/// A path that is longer does not fit a socket address.
const MAX_PATH_BYTES: usize = 100;
/// From the beginning of a connection to the end of its handshake.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes that are copied at a time.
const COPY_BYTES: usize = 64 << 10;
const STACK_BYTES: usize = 512 << 10;
/// A server whose machine is unreachable: noticed within about a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const UNANSWERED_MS: u32 = 60_000;

/// Where the server is.
#[derive(Debug, Clone)]
pub enum Server {
    /// On this machine: its Unix socket.
    Socket(PathBuf),
    /// Somewhere else.
    Tls {
        /// `HOST:PORT`
        address: String,
        /// Of the certificate that it must show.
        fingerprint: Fingerprint,
    },
}

/// SHA-256 of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl FromStr for Fingerprint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.replace(':', "");
        let bytes = hex_simd::decode_to_vec(digits).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| format!("\"{text}\" is not a SHA-256 fingerprint: 64 hexadecimal digits"))
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&hex_simd::encode_to_string(self.0, hex_simd::AsciiCase::Lower))
    }
}

/// The server shows another certificate than the one that the agent was started with; trying again
/// is of no use.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server at {address} shows a certificate with fingerprint {shown}, and this agent was started for {expected}: \
     it is another server, or its \
     tls/agents.pem was replaced while this job ran"
)]
pub(crate) struct WrongCertificate {
    address: String,
    expected: Fingerprint,
    shown: Fingerprint,
}

impl Server {
    /// Whether the server shares no files with this agent.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Tls { .. })
    }

    /// A connection.
    ///
    /// # Errors
    /// I/O; one that holds a [`WrongCertificate`].
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        match self {
            Self::Socket(path) => connect_socket(path),
            Self::Tls { address, fingerprint } => connect_tls(address.clone(), *fingerprint),
        }
    }

    /// One whose bytes nothing carries between threads of this process.
    ///
    /// # Errors
    /// The same; it takes longer than `limit`.
    pub(crate) fn connect_to_ask(&self, limit: Duration) -> io::Result<asking::Stream> {
        let (address, fingerprint) = match self {
            Self::Socket(path) => return connect_socket(path).map(asking::Stream::Socket),
            Self::Tls { address, fingerprint } => (address, *fingerprint),
        };
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let greeted = runtime.block_on(async {
            let (socket, session) = greet(address, fingerprint, limit).await?.into_inner();
            Ok::<_, io::Error>((socket.into_std()?, session))
        });
        // A name that is still being resolved is not waited for.
        runtime.shutdown_background();
        let (socket, session) = greeted?;
        socket.set_nonblocking(false)?;
        Ok(asking::Stream::tls(session, socket))
    }
}

/// Whether an error is one that no further attempt changes.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<WrongCertificate>())
}

/// A socket address holds 107 bytes of path; a directory that is already open makes any path short.
fn connect_socket(socket: &Path) -> io::Result<UnixStream> {
    if socket.as_os_str().len() <= MAX_PATH_BYTES {
        return UnixStream::connect(socket);
    }
    let (Some(directory), Some(name)) = (socket.parent(), socket.file_name()) else {
        return Err(io::Error::other("a socket's path has a directory and a name"));
    };
    let directory = File::open(directory)?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))
}

/// Each connection has a thread: an agent has a handful of them.
fn connect_tls(address: String, fingerprint: Fingerprint) -> io::Result<UnixStream> {
    let (ours, carried) = UnixStream::pair()?;
    let (report, connected) = std::sync::mpsc::channel();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let carry = move || {
        runtime.block_on(async move {
            match greet(&address, fingerprint, CONNECT_TIMEOUT).await {
                Err(error) => drop(report.send(Err(error))),
                Ok(stream) => {
                    // Without a receiver its other end is closed.
                    drop(report.send(Ok(())));
                    // The end of either side reaches the other by the closing of its socket.
                    let _ = copy(stream, carried).await;
                }
            }
        });
    };
    thread::Builder::new().name("tls".into()).stack_size(STACK_BYTES).spawn(carry)?;
    connected.recv().map_err(|_| io::Error::other("the connection's thread ended"))??;
    Ok(ours)
}

async fn copy(mut stream: TlsStream<TcpStream>, carried: UnixStream) -> io::Result<()> {
    carried.set_nonblocking(true)?;
    let mut carried = tokio::net::UnixStream::from_std(carried)?;
    copy_bidirectional_with_sizes(&mut stream, &mut carried, COPY_BYTES, COPY_BYTES).await.map(drop)
}

async fn greet(address: &str, fingerprint: Fingerprint, limit: Duration) -> io::Result<TlsStream<TcpStream>> {
    let pinned =
        Arc::new(Pinned { address: address.to_owned(), expected: fingerprint, provider: ring::default_provider() });
    let config =
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let config =
        config.map_err(io::Error::other)?.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth();
    let connected = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
        sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
        sockopt::set_tcp_user_timeout(&stream, UNANSWERED_MS)?;
        let name = ServerName::try_from("shoal-agents").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(unwrapped)
    };
    timeout(limit, connected).await?
}

/// The verifier's own error, which comes wrapped in others.
fn unwrapped(error: io::Error) -> io::Error {
    let wrong = error.get_ref().and_then(|error| error.downcast_ref::<Error>()).and_then(|error| match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.downcast_ref::<WrongCertificate>(),
        _ => None,
    });
    match wrong {
        Some(WrongCertificate { address, expected, shown }) => {
            io::Error::other(WrongCertificate { address: address.clone(), expected: *expected, shown: *shown })
        }
        None => error,
    }
}

/// Accepts one certificate, whatever its names and times: it is known by its fingerprint, and that
/// its owner has the key the handshake shows.
#[derive(Debug)]
struct Pinned {
    address: String,
    expected: Fingerprint,
    provider: CryptoProvider,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Fingerprint(Sha256::digest(certificate).into());
        if shown == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongCertificate { address: self.address.clone(), expected: self.expected, shown };
        Err(Error::InvalidCertificate(CertificateError::Other(tokio_rustls::rustls::OtherError(Arc::new(wrong)))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_is_reached_however_long_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(200));
        std::fs::create_dir(&long).unwrap();
        for socket in [dir.path().join("s"), long.join("s")] {
            let short = dir.path().join("here");
            let _listener = UnixListener::bind(&short).unwrap();
            std::fs::rename(&short, &socket).unwrap();
            Server::Socket(socket).connect().unwrap();
        }
        assert_eq!(Server::Socket(long.join("nobody")).connect().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_fingerprint_is_64_hexadecimal_digits_with_or_without_colons() {
        let plain = "0f".repeat(32);
        let fingerprint: Fingerprint = plain.parse().unwrap();
        assert_eq!(fingerprint.to_string(), plain);
        assert_eq!(vec!["0F"; 32].join(":").parse(), Ok(fingerprint));
        for wrong in ["", "0f", &"0g".repeat(32), &"0f".repeat(33)] {
            assert!(wrong.parse::<Fingerprint>().unwrap_err().contains("64 hexadecimal digits"), "{wrong}");
        }
    }
}
