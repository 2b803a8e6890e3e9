//! Ports that stay the same from one server of a data directory to the next.

use std::{fs, io, net::SocketAddr, path::Path};

use shoal_store::DataDir;
use tokio::net::TcpListener;

/// Listens where the last server of the data directory did if `listen` leaves the port open and it
/// is free: jobs that run know no other. `path` remembers it.
pub(crate) async fn at_the_same_port(path: &Path, listen: SocketAddr) -> io::Result<TcpListener> {
    let before = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u16>().ok());
    if let Some(port) = before.filter(|_| listen.port() == 0)
        && let Ok(listener) = TcpListener::bind((listen.ip(), port)).await
    {
        return Ok(listener);
    }
    let listener = TcpListener::bind(listen).await?;
    let written = DataDir::write_private(path, format!("{}\n", listener.local_addr()?.port()).as_bytes());
    if let Err(error) = written {
        tracing::warn!("jobs that run will not find the next server: {error}");
    }
    Ok(listener)
}
