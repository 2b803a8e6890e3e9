//! torch's store as the place where ranks meet.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use pyo3::{prelude::*, types::PyBytes};
use shoal_comm::{Error, rendezvous};

/// A `torch.distributed.Store` (TCPStore, FileStore, HashStore, PrefixStore): anything with
/// `compare_set`, `check` and `get`.
pub(super) struct Store {
    store: Py<PyAny>,
    place: String,
    server: Option<SocketAddr>,
}

impl Store {
    /// `server`: `HOST:PORT`, or empty if it has none.
    pub(super) fn new(store: Py<PyAny>, place: String, server: &str) -> Self {
        // One that cannot be resolved has been reached by torch all the same, and says nothing
        // here.
        let server = server.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        Self { store, place, server }
    }

    fn failed(&self, what: &str, key: &str, error: &PyErr) -> Error {
        Error::Rendezvous {
            problem: format!("{} does not {what} {key:?}: {error}; is rank 0's process still there?", self.place),
        }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place)
    }
}

impl rendezvous::Store for Store {
    fn put(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, Error> {
        Python::attach(|py| {
            let arguments = (key, PyBytes::new(py, b""), PyBytes::new(py, value));
            self.store.bind(py).call_method1("compare_set", arguments)?.extract::<Vec<u8>>()
        })
        .map_err(|error| self.failed("take", key, &error))
    }

    /// Asks again and again: torch's own wait would keep the connection that all groups of the
    /// process use.
    fn wait(&self, key: &str, timeout: Duration) -> Result<Option<Vec<u8>>, Error> {
        let end = Instant::now() + timeout;
        let mut pause = Duration::from_millis(1);
        loop {
            let value = Python::attach(|py| {
                let store = self.store.bind(py);
                if store.call_method1("check", ((key,),))?.is_truthy()? {
                    store.call_method1("get", (key,))?.extract::<Vec<u8>>().map(Some)
                } else {
                    Ok(None)
                }
            });
            let value = value.map_err(|error: PyErr| self.failed("give", key, &error))?;
            let left = end.saturating_duration_since(Instant::now());
            if value.is_some() || left.is_zero() {
                return Ok(value);
            }
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    fn place(&self) -> String {
        self.place.clone()
    }

    fn server(&self) -> Option<SocketAddr> {
        self.server
    }
}
