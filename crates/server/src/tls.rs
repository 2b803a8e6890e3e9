//! TLS of the one port: the certificate that it shows, and handshakes within a time. A certificate
//! is replaced while the server runs: one in files when they change, a self-made one before it
//! ends.

mod certificate;
mod self_made;
mod source;

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    net::TcpStream,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::{CryptoProvider, ring},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
    server::TlsStream,
};

use self::{self_made::SelfMade, source::Source};
use crate::error_chain::describe;

/// How long a client has from its connection to the end of its handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Between two looks at whether there is another certificate to show.
const LOOK: Duration = Duration::from_secs(2);
/// The first byte of every TLS connection; no HTTP request begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// Where the certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsOptions {
    /// From an authority that lies in the data directory, made at the first start.
    SelfMade {
        /// Names and addresses beside those of this machine that it is for.
        names: Vec<String>,
    },
    /// From files, which are read again when they change.
    Files {
        /// PEM: the server's own certificate, then those of its issuers.
        certificate: PathBuf,
        /// PEM: its key.
        key: PathBuf,
        /// PEM: the authority that clients must trust; `None` is one that they trust anyway.
        authority: Option<PathBuf>,
    },
}

/// Why there can be no TLS. Each names the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("could not read {}, which the setting tls names", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no certificate in it.
    #[error("{} is no certificate: {why}; wanted is PEM, the server's own certificate first and then those of its \
             issuers", .path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no key in it.
    #[error("{} is no private key: {why}; wanted is PEM, without a passphrase", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The two are no pair.
    #[error(
        "the key in {} does not belong to the certificate in {}: give the certificate's own key, and the server's own \
         certificate first in its file",
        .key.display(), .certificate.display()
    )]
    Mismatch {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
    },
    /// A name that no certificate can be for.
    #[error("tls_names has \"{0}\", which is neither a host's name nor an address")]
    Name(String),
    /// Making a certificate failed.
    #[error("could not make a certificate: {0}")]
    Make(String),
    /// The data directory cannot be written.
    #[error(transparent)]
    Store(#[from] shoal_store::StoreError),
}

impl From<rcgen::Error> for TlsError {
    fn from(error: rcgen::Error) -> Self {
        Self::Make(error.to_string())
    }
}

impl TlsOptions {
    /// Reads the files, and says what clients will complain about now or soon.
    ///
    /// # Errors
    /// They are no certificate with its key.
    pub fn complaint(&self) -> Result<Option<String>, TlsError> {
        match self {
            Self::SelfMade { .. } => Ok(None),
            Self::Files { certificate, key, .. } => {
                Ok(certificate::complaint(&certificate::read(certificate, key)?.cert[0], now_s()))
            }
        }
    }
}

/// How a connection began.
pub(crate) enum Met {
    /// With a handshake, which is done.
    Tls(Box<TlsStream<TcpStream>>),
    /// With something else, of which nothing is read yet.
    Plain(TcpStream),
}

/// What clients meet at a port with TLS.
pub(crate) struct Door {
    acceptor: TlsAcceptor,
    shown: Arc<Shown>,
    source: Source,
}

/// The certificate that new connections are shown.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    fn now(&self) -> Arc<CertifiedKey> {
        self.0.read().expect("no holder of this lock panics").clone()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

impl Door {
    /// Reads or makes the certificate. `dir` is for a self-made one, `id` the data directory's,
    /// `address` where the server listens.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub(crate) fn open(options: &TlsOptions, dir: &Path, id: &str, address: SocketAddr) -> Result<Self, TlsError> {
        let now_s = now_s();
        let (source, certified) = match options {
            TlsOptions::SelfMade { names } => SelfMade::open(dir, id, &self_made::names(address, names)?, now_s)?,
            TlsOptions::Files { certificate, key, authority } => {
                Source::open(certificate, key, authority.clone(), now_s)?
            }
        };
        let shown = Arc::new(Shown(RwLock::new(Arc::new(certified))));
        let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let mut config =
            config.expect("ring has what every version needs").with_no_client_auth().with_cert_resolver(shown.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), shown, source })
    }

    /// Sees how a connection begins, and greets a client that speaks TLS.
    ///
    /// # Errors
    /// It ended, took too long, or what came is no good handshake.
    pub(crate) async fn meet(&self, stream: TcpStream) -> io::Result<Met> {
        let met = async {
            let mut first = [0];
            match stream.peek(&mut first).await? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ if first[0] == TLS_HANDSHAKE => Ok(Met::Tls(Box::new(self.acceptor.accept(stream).await?))),
                _ => Ok(Met::Plain(stream)),
            }
        };
        timeout(HANDSHAKE, met).await?
    }

    /// The certificate of the authority that clients must trust; `None` is one that they trust
    /// anyway.
    pub(crate) fn authority(&self) -> Option<PathBuf> {
        self.source.authority()
    }

    /// Under which name clients of this machine find a server that listens at `address`: one that
    /// the certificate is for.
    pub(crate) fn host(&self, address: IpAddr) -> String {
        certificate::host(&self.shown.now().cert[0], address)
    }

    /// Shows another certificate when there is one, until it is aborted.
    pub(crate) async fn renew(self: Arc<Self>) {
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let door = self.clone();
            let renewed = tokio::task::spawn_blocking(move || door.look(now_s())).await;
            if let Err(error) = renewed {
                tracing::error!("the look at the certificate panicked: {error}");
            }
        }
    }

    fn look(&self, now_s: u64) {
        match self.source.next(now_s) {
            Ok(None) => {}
            Ok(Some(certified)) => {
                *self.shown.0.write().expect("no holder of this lock panics") = Arc::new(certified);
                tracing::info!("new connections are shown the new certificate");
            }
            Err(error) => {
                tracing::warn!("new connections are still shown the previous certificate: {}", describe(&error));
            }
        }
    }
}

/// A chain and its key from two files.
///
/// # Errors
/// Which file is wrong, and how.
pub(crate) fn certified(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    certificate::read(certificate, key)
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

#[cfg(test)]
mod tests;
