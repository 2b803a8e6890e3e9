//! Parts for the other hosts of the job: a port of this machine, with TLS under a certificate that
//! the others know by its fingerprint, from the server; they show the attempt's secret.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use sha2::{Digest, Sha256};
use shoal_link::{Decoder, Frame, FromPeer, Hello, PROTOCOL, ToPeer, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use super::holding::{Answer, Holding};
use crate::Options;

/// From a connection to its hello.
const HELLO: Duration = Duration::from_secs(10);
/// A part that is on its way is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Between two looks at whether it is over.
const LOOK: Duration = Duration::from_secs(1);
/// A caller that takes nothing meanwhile is as good as gone.
const SEND: Duration = Duration::from_secs(60);
const STACK_BYTES: usize = 512 << 10;

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct Served {
    address: SocketAddr,
    fingerprint: String,
    is_over: Arc<AtomicBool>,
}

/// Who may ask for what.
struct Door {
    attempt: String,
    token: String,
    holding: Arc<Holding>,
    is_over: Arc<AtomicBool>,
    callers: AtomicUsize,
    most_callers: usize,
}

impl Served {
    /// Listens at this machine's address.
    ///
    /// # Errors
    /// There is no port, no certificate or no thread.
    pub(super) fn start(options: &Options, at: Ipv4Addr, hosts: usize, holding: &Arc<Holding>) -> io::Result<Self> {
        let (acceptor, fingerprint) = acceptor()?;
        let listener = TcpListener::bind((at, 0))?;
        let served = Self { address: listener.local_addr()?, fingerprint, is_over: Arc::default() };
        let door = Arc::new(Door {
            attempt: options.attempt.clone(),
            token: options.token.clone(),
            holding: holding.clone(),
            is_over: served.is_over.clone(),
            callers: AtomicUsize::default(),
            // Each host asks by one connection; some are old ones.
            most_callers: 2 * hosts + 8,
        });
        let accept = move || {
            for stream in listener.incoming() {
                if door.is_over.load(Ordering::Acquire) {
                    return;
                }
                match stream {
                    Ok(stream) => door.receive(&acceptor, stream),
                    // Out of files, for example: others close theirs.
                    Err(_) => thread::sleep(Duration::from_millis(50)),
                }
            }
        };
        thread::Builder::new().name("pass".into()).stack_size(STACK_BYTES).spawn(accept)?;
        Ok(served)
    }

    /// As in [`crate::machine_network::Place::passes`].
    pub(super) fn passes(&self) -> (u16, String) {
        (self.address.port(), self.fingerprint.clone())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // Wakes the thread, unless it has ended.
        let _ = TcpStream::connect(self.address);
    }
}

impl Door {
    fn receive(self: &Arc<Self>, acceptor: &TlsAcceptor, stream: TcpStream) {
        if self.callers.fetch_add(1, Ordering::Relaxed) >= self.most_callers {
            self.callers.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (door, acceptor) = (self.clone(), acceptor.clone());
        let converse = move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            // A caller that goes away is no news.
            let _ = runtime.and_then(|runtime| runtime.block_on(door.converse(&acceptor, stream)));
            door.callers.fetch_sub(1, Ordering::Relaxed);
        };
        if thread::Builder::new().name("pass to".into()).stack_size(STACK_BYTES).spawn(converse).is_err() {
            self.callers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    async fn converse(&self, acceptor: &TlsAcceptor, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let mut decoder = Decoder::default();
        let greeted = timeout(HELLO, async {
            let mut stream = acceptor.accept(tokio::net::TcpStream::from_std(stream)?).await?;
            let answer = match read(&mut stream, &mut decoder).await? {
                ToPeer::Hello(hello) => self.greet(&hello),
                ToPeer::Part { .. } => FromPeer::Refused { reason: "a part is asked for before hello".to_owned() },
            };
            send(&mut stream, &Frame::Message(answer.clone())).await?;
            io::Result::Ok((stream, answer == FromPeer::Ready))
        });
        let (mut stream, true) = greeted.await?? else { return Ok(()) };
        loop {
            let message = match timeout(LOOK, read(&mut stream, &mut decoder)).await {
                Err(_) if self.is_over.load(Ordering::Acquire) => return Ok(()),
                Err(_) => continue,
                Ok(message) => message?,
            };
            let ToPeer::Part { id, offset, length } = message else { return Ok(()) };
            // This thread has nothing else to do.
            let frame = match self.holding.answer(&id, offset, length, ANSWER_TIMEOUT)? {
                Answer::Part(content) => Frame::Chunk(content),
                Answer::Later => Frame::Message(FromPeer::Later),
                Answer::Absent => Frame::Message(FromPeer::Absent),
            };
            timeout(SEND, send(&mut stream, &frame)).await??;
        }
    }

    fn greet(&self, hello: &Hello) -> FromPeer {
        let refuse = |reason: &str| FromPeer::Refused { reason: reason.to_owned() };
        if hello.protocol != PROTOCOL {
            return refuse("another protocol of the link");
        }
        // How long it takes depends on no letter of the secret.
        let is_token = Sha256::digest(&hello.token) == Sha256::digest(&self.token);
        match is_token && hello.attempt == self.attempt {
            true => FromPeer::Ready,
            false => refuse("not of this attempt"),
        }
    }
}

async fn read(stream: &mut TlsStream<tokio::net::TcpStream>, decoder: &mut Decoder) -> io::Result<ToPeer> {
    let mut buffer = [0; 4 << 10];
    loop {
        match decoder.next().map_err(io::Error::other)? {
            Some(Frame::Message(message)) => return Ok(message),
            Some(_) => return Err(io::Error::other("only messages come here")),
            None => match stream.read(&mut buffer).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => decoder.push(&buffer[..count]),
            },
        }
    }
}

async fn send(stream: &mut TlsStream<tokio::net::TcpStream>, frame: &Frame<FromPeer>) -> io::Result<()> {
    stream.write_all(&encode(frame).map_err(io::Error::other)?).await?;
    stream.flush().await
}

/// With a certificate of its own, and its fingerprint. Its names and times do not matter.
fn acceptor() -> io::Result<(TlsAcceptor, String)> {
    let pair = KeyPair::generate().map_err(io::Error::other)?;
    let params = CertificateParams::new(vec!["shoal-agents".to_owned()]).map_err(io::Error::other)?;
    let certificate = params.self_signed(&pair).map_err(io::Error::other)?.der().clone();
    let fingerprint = hex_simd::encode_to_string(Sha256::digest(&certificate), hex_simd::AsciiCase::Lower);
    let key = PrivateKeyDer::try_from(pair.serialize_der()).map_err(io::Error::other)?;
    let config =
        ServerConfig::builder_with_provider(Arc::new(ring::default_provider())).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_no_client_auth().with_single_cert(vec![certificate], key);
    Ok((TlsAcceptor::from(Arc::new(config.map_err(io::Error::other)?)), fingerprint))
}
