//! Where the server is reached: one port for clients, plain or with TLS; and, where that has TLS,
//! one more on loopback for the jobs of this machine, whose agents carry what their programs say in
//! plain HTTP. Those bytes never leave the machine.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use shoal_store::DataDir;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

use crate::{
    ServerError, TlsOptions,
    connections::{Connection, Paced},
    error::io_error,
    http::{Front, Origin},
    plain,
    ports::at_the_same_port,
    tls::{Door, Met},
};

/// How long a connection may be without a request.
const SILENCE: Duration = Duration::from_secs(30);

/// The sockets that take connections.
pub(crate) struct Listeners {
    address: SocketAddr,
    clients: TcpListener,
    tls: Option<Secure>,
}

/// What there is beside with TLS.
struct Secure {
    door: Arc<Door>,
    jobs: TcpListener,
    jobs_address: SocketAddr,
}

/// A new connection.
pub(crate) struct Caller {
    stream: TcpStream,
    peer: SocketAddr,
    door: Option<Arc<Door>>,
}

impl Listeners {
    /// Listens.
    ///
    /// # Errors
    /// The address is taken, or there is no certificate to show.
    pub(crate) async fn open(
        data_dir: &DataDir,
        listen: SocketAddr,
        tls: Option<&TlsOptions>,
    ) -> Result<Self, ServerError> {
        let clients =
            TcpListener::bind(listen).await.map_err(|source| ServerError::Listen { address: listen, source })?;
        let address = clients.local_addr().map_err(io_error("ask for the port"))?;
        let tls = match tls {
            None => None,
            Some(options) => {
                let door = Arc::new(Door::open(options, &data_dir.tls_path(), data_dir.id(), address)?);
                let jobs = at_the_same_port(&data_dir.jobs_port_path(), (Ipv4Addr::LOCALHOST, 0).into())
                    .await
                    .map_err(io_error("listen on 127.0.0.1 for jobs"))?;
                let jobs_address = jobs.local_addr().map_err(io_error("ask for the port"))?;
                Some(Secure { door, jobs, jobs_address })
            }
        };
        Ok(Self { address, clients, tls })
    }

    /// The next connection of either.
    ///
    /// # Errors
    /// As of accept.
    pub(crate) async fn accept(&self) -> io::Result<Caller> {
        let Some(tls) = &self.tls else {
            let (stream, peer) = self.clients.accept().await?;
            return Ok(Caller { stream, peer, door: None });
        };
        tokio::select! {
            accepted = self.clients.accept() => {
                accepted.map(|(stream, peer)| Caller { stream, peer, door: Some(tls.door.clone()) })
            }
            accepted = tls.jobs.accept() => accepted.map(|(stream, peer)| Caller { stream, peer, door: None }),
        }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// See [`crate::Server::url`].
    pub(crate) fn url(&self) -> String {
        match &self.tls {
            Some(tls) => format!("https://{}:{}", tls.door.host(self.address.ip()), self.address.port()),
            None => format!("http://{}", reachable(self.address)),
        }
    }

    /// Where the agents' forwarders connect, in plain HTTP.
    pub(crate) fn for_jobs(&self) -> SocketAddr {
        self.tls.as_ref().map_or_else(|| reachable(self.address), |tls| tls.jobs_address)
    }

    /// See [`crate::Server::tls_authority`].
    pub(crate) fn authority(&self) -> Option<PathBuf> {
        self.tls.as_ref()?.door.authority()
    }

    /// What shows new certificates.
    pub(crate) fn renewal(&self) -> Option<impl Future<Output = ()> + use<>> {
        self.tls.as_ref().map(|tls| tls.door.clone().renew())
    }
}

/// Where others on this machine find a server that listens on any address.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(it) if it.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(it) if it.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Answers the requests of one connection until it ends.
pub(crate) async fn serve(caller: Caller, front: Arc<Front>, connection: Arc<Connection>) {
    // Answers are small and waited for.
    let _ = caller.stream.set_nodelay(true);
    let origin = Origin { source: caller.peer.ip().to_canonical(), connection, is_tls: caller.door.is_some() };
    match caller.door {
        None => converse(caller.stream, front, origin).await,
        Some(door) => match door.meet(caller.stream).await {
            Ok(Met::Tls(stream)) => converse(stream, front, origin).await,
            Ok(Met::Plain(stream)) => turn_away(stream, origin).await,
            Err(error) => tracing::debug!("TLS handshake with {}: {error}", caller.peer),
        },
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, front: Arc<Front>, origin: Origin) {
    let paced = Paced::new(stream, origin.connection.clone());
    let origin = Arc::new(origin);
    let service = service_fn(move |request| {
        // Here, since the body may be read before the answer's future is first polled.
        let answering = origin.connection.begin();
        front.clone().answer(request, origin.clone(), answering)
    });
    if let Err(error) = protocol().serve_connection(TokioIo::new(paced), service).await {
        tracing::debug!("connection: {error}");
    }
}

/// Tells a client of plain HTTP where to go.
async fn turn_away(stream: TcpStream, origin: Origin) {
    let paced = Paced::new(stream, origin.connection);
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, std::convert::Infallible>(plain::refuse(&request.into_parts().0))
    });
    if let Err(error) = protocol().serve_connection(TokioIo::new(paced), service).await {
        tracing::debug!("connection without TLS: {error}");
    }
}

fn protocol() -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    // A client that opens a connection and sends nothing, or stops in the middle of a head, is not
    // waited for.
    builder.timer(TokioTimer::new()).header_read_timeout(SILENCE);
    builder
}
