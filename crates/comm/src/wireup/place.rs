//! The meeting place as a process finds it, and how it introduces itself there.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::rendezvous::{
    Config, FileStore, Meeting, Member, Secret, Store, StoreServer, TcpStore, host_identity, pid_namespace, rand_word,
    towards,
};

/// A store, and the server of it where this rank is that.
pub(super) struct Place {
    pub(super) store: Box<dyn Store>,
    pub(super) server: Option<StoreServer>,
    pub(super) secret: Secret,
    /// The address of this machine on the way to it.
    pub(super) towards: IpAddr,
}

/// Finds the meeting place; `serves` if this rank is to make it where it needs a server.
pub(super) fn find(config: &Config, serves: bool) -> Result<Place, Error> {
    let (store, server, towards): (Box<dyn Store>, _, _) = match &config.meeting {
        Meeting::Tcp { host, port } if serves => {
            let server = StoreServer::serve(host, *port, &config.secret)?;
            let ip = server.address().ip();
            (Box::new(server.local()), Some(server), ip)
        }
        Meeting::Tcp { host, port } => {
            let rank = u32::try_from(config.rank).expect("at most 1024 ranks");
            let store = TcpStore::connect(host, *port, &config.secret, rank, config.patience)?;
            let ip = store.local_address();
            (Box::new(store), None, ip)
        }
        Meeting::Directory(path) => (Box::new(FileStore::open(path)?), None, outward(None)),
        Meeting::Store(store) => (Box::new(Shared(Arc::clone(store))), None, outward(store.server())),
    };
    let mut secret = config.secret.clone();
    if secret.is_empty() && server.is_none() && !matches!(config.meeting, Meeting::Tcp { .. }) {
        // Who reads the store belongs to us: the first rank draws a secret for all.
        let drawn = format!("{:016x}{:016x}", rand_word(), rand_word());
        secret = Secret::new(store.put("secret", drawn.as_bytes())?);
    }
    Ok(Place { store, server, secret, towards: config.address.unwrap_or(towards) })
}

/// A store of the caller's.
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        self.0.put(key, value)
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.0.wait(key, timeout)
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

/// The address that this machine would use towards the outside, or else towards the store's server,
/// as in a network of its own; loopback where it has no such.
fn outward(server: Option<SocketAddr>) -> IpAddr {
    let outside = SocketAddr::from(([192, 0, 2, 1], 9));
    towards(outside).or_else(|| towards(server?)).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// What this process says of itself.
pub(super) fn introduce(config: &Config, address: SocketAddr) -> Member {
    Member {
        rank: u32::try_from(config.rank).expect("at most 1024 ranks"),
        size: u32::try_from(config.size).expect("at most 1024 ranks"),
        incarnation: rand_word(),
        address,
        host: config.host.clone().unwrap_or_else(host_identity),
        pid: process::id(),
        pid_namespace: pid_namespace(),
        heartbeat: u32::try_from(config.heartbeat.as_millis()).unwrap_or(u32::MAX),
    }
}
