//! Agents on other machines: TLS over TCP with a certificate of this port's own, which agents know
//! by its fingerprint. It stays the same from one server of a data directory to the next, as agents
//! outlive the server.
//!
//! What is behind TLS is what a connection on the Unix socket is: a task carries the bytes to one
//! end of a pair, the other end is served by the same thread as an agent of this machine. A peer
//! that is slow fills its own pair; one that is unreachable is noticed by the kernel.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rcgen::{CertificateParams, KeyPair};
use rustix::net::sockopt;
use sha2::{Digest, Sha256};
use shoal_store::DataDir;
use time::OffsetDateTime;
use tokio::{
    io::copy_bidirectional_with_sizes,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, sign::SingleCertAndKey},
};

use super::{Agents, Callers, strangers::HELLO_TIMEOUT};
use crate::{
    RemoteAgents, ServerError, TlsError,
    error::io_error,
    hex::hex,
    options::Route,
    ports::at_the_same_port,
    tls::{certified, provider},
};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 64 << 10;
/// An agent whose machine is unreachable: noticed within about a minute.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const UNANSWERED_MS: u32 = 60_000;

/// The port for agents on other machines.
pub(crate) struct RemoteListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    route: Route,
}

impl RemoteListener {
    /// Listens.
    ///
    /// # Errors
    /// The address is taken, or there is no certificate to show.
    pub(crate) async fn open(data_dir: &DataDir, options: &RemoteAgents) -> Result<Self, ServerError> {
        let listen = options.listen;
        let listener = at_the_same_port(&data_dir.agents_port_path(), listen).await;
        let listener = listener.map_err(|source| ServerError::Listen { address: listen, source })?;
        let address = listener.local_addr().map_err(io_error("ask for the port of agents"))?;
        let (acceptor, fingerprint) = acceptor(&data_dir.tls_path())?;
        let address = options.address.as_ref().map_or_else(|| address.to_string(), |host| at(host, address));
        Ok(Self { listener, acceptor, route: Route { address, fingerprint } })
    }

    pub(crate) fn route(&self) -> Route {
        self.route.clone()
    }

    /// Accepts agents until it is aborted; their connections end with it.
    pub(crate) async fn serve(self, agents: Arc<Agents>, callers: Arc<Callers>, stopping: Arc<AtomicBool>) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("agents' port: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            if stopping.load(Ordering::SeqCst) {
                return;
            }
            let Some(stranger) = callers.stranger() else { continue };
            let (acceptor, agents, callers) = (self.acceptor.clone(), agents.clone(), callers.clone());
            connections.spawn(async move {
                let carried = async {
                    let tls = timeout(HELLO_TIMEOUT, async {
                        prepare(&stream)?;
                        acceptor.accept(stream).await
                    });
                    let mut tls = tls.await??;
                    let (served, carried) = UnixStream::pair()?;
                    carried.set_nonblocking(true)?;
                    let mut carried = tokio::net::UnixStream::from_std(carried)?;
                    callers.serve(&agents, served, stranger)?;
                    copy_bidirectional_with_sizes(&mut tls, &mut carried, COPY_BYTES, COPY_BYTES).await
                };
                if let Err(error) = carried.await {
                    tracing::debug!("an agent's connection: {error}");
                }
            });
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    Ok(sockopt::set_tcp_user_timeout(stream, UNANSWERED_MS)?)
}

/// `host` with the port that is listened on, unless it names one.
fn at(host: &str, listens: SocketAddr) -> String {
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(host, port)| port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')));
    match host.parse::<std::net::IpAddr>() {
        Ok(address) => SocketAddr::new(address, listens.port()).to_string(),
        Err(_) if has_port => host.to_owned(),
        Err(_) => format!("{host}:{}", listens.port()),
    }
}

/// The certificate of this data directory's port, made at its first start, and its fingerprint.
/// Agents do not look at its names and times.
fn acceptor(dir: &Path) -> Result<(TlsAcceptor, String), ServerError> {
    let (certificate, key) = (dir.join("agents.pem"), dir.join("agents.key"));
    if !certificate.exists() || !key.exists() {
        fs::create_dir_all(dir).map_err(io_error("make the directory of certificates"))?;
        let pair = KeyPair::generate().map_err(TlsError::from)?;
        let mut params = CertificateParams::new(vec!["shoal-agents".to_owned()]).map_err(TlsError::from)?;
        params.not_before = OffsetDateTime::UNIX_EPOCH;
        let signed = params.self_signed(&pair).map_err(TlsError::from)?;
        DataDir::write_private(&key, pair.serialize_pem().as_bytes())?;
        DataDir::write_private(&certificate, signed.pem().as_bytes())?;
    }
    let certified = certified(&certificate, &key)?;
    let fingerprint = hex(&Sha256::digest(&certified.cert[0]));
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let config = config.expect("ring has what every version needs").with_no_client_auth();
    let config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    Ok((TlsAcceptor::from(Arc::new(config)), fingerprint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let fingerprint = || acceptor(&dir.path().join("tls")).map(|(_, fingerprint)| fingerprint).unwrap();
        let first = fingerprint();
        assert_eq!(first.len(), 64);
        assert_eq!(fingerprint(), first);
        fs::remove_file(dir.path().join("tls/agents.key")).unwrap();
        assert_ne!(fingerprint(), first);
    }

    #[test]
    fn agents_connect_to_the_address_that_the_owner_names() {
        let listens = "0.0.0.0:7000".parse().unwrap();
        for (host, expected) in [
            ("box", "box:7000"),
            ("box:1", "box:1"),
            ("10.0.0.1", "10.0.0.1:7000"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("fd00::1", "[fd00::1]:7000"),
            ("[fd00::1]:1", "[fd00::1]:1"),
        ] {
            assert_eq!(at(host, listens), expected);
        }
    }
}
