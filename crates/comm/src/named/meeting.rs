//! How the ranks of an engine meet: as the environment says, and anew for each engine that a
//! process starts.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Error, ProcessGroup,
    rendezvous::{Config, Meeting, Store, StoreServer, TcpStore},
};

/// The world that the variables describe ([`Config::read`]); a world of one rank where they
/// describe none. `number` counts the engines that this process has started, as all ranks do.
///
/// # Errors
/// As for [`crate::join`].
pub fn join(lookup: &dyn Fn(&str) -> Option<String>, number: u64) -> Result<Arc<dyn ProcessGroup>, Error> {
    let text = |name: &str| lookup(name).filter(|it| !it.trim().is_empty());
    let launched = text("RANK").is_some() || text("WORLD_SIZE").is_some();
    let several = text("SM_CURRENT_HOST").is_some() && text("SM_HOSTS").is_some_and(|hosts| hosts.contains(','));
    if (!launched && !several) || text("WORLD_SIZE").is_some_and(|it| it.trim() == "1") {
        return Ok(crate::threads(1).remove(0));
    }
    let mut config = Config::read(lookup)?;
    match &config.meeting {
        Meeting::Directory(path) if number > 0 => {
            config.meeting = Meeting::Directory(path.join(format!("start-{number}")));
        }
        Meeting::Tcp { host, port } => {
            let store = keep(host, *port, &config)?;
            config.meeting = Meeting::Store(Arc::new(Start { store, number }));
        }
        Meeting::Directory(_) | Meeting::Store(_) => {}
    }
    crate::join(config)
}

/// A store that is kept until the process ends: an engine that starts again would otherwise meet a
/// server that is about to stop.
struct Kept {
    store: Arc<dyn Store>,
    _server: Option<StoreServer>,
    address: Option<SocketAddr>,
}

static KEPT: Mutex<Option<Stores>> = Mutex::new(None);

/// By host and port.
type Stores = HashMap<(String, u16), Arc<Kept>>;

fn keep(host: &str, port: u16, config: &Config) -> Result<Arc<Kept>, Error> {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.get_or_insert_default();
    let key = (host.to_owned(), port);
    if let Some(there) = kept.get(&key) {
        return Ok(Arc::clone(there));
    }
    let new = if config.rank == 0 {
        let server = StoreServer::serve(host, port, &config.secret)?;
        Kept { store: Arc::new(server.local()), address: Some(server.address()), _server: Some(server) }
    } else {
        let rank = u32::try_from(config.rank).map_err(|_| Error::config("RANK is not below 1024"))?;
        let store = TcpStore::connect(host, port, &config.secret, rank, config.patience)?;
        let address = Some(SocketAddr::from((store.local_address(), port)));
        Kept { store: Arc::new(store), _server: None, address }
    };
    let new = Arc::new(new);
    kept.insert(key, Arc::clone(&new));
    Ok(new)
}

/// A store for one start.
struct Start {
    store: Arc<Kept>,
    number: u64,
}

impl Start {
    fn key(&self, key: &str) -> String {
        format!("start-{}/{key}", self.number)
    }
}

impl Store for Start {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        self.store.store.put(&self.key(key), value)
    }

    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        self.store.store.wait(&self.key(key), timeout)
    }

    fn place(&self) -> String {
        self.store.store.place()
    }

    fn server(&self) -> Option<SocketAddr> {
        self.store.address
    }
}
