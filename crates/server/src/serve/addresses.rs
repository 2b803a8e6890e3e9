//! Where a server is, and what its clients need.

use std::{net::SocketAddr, path::PathBuf};

use super::Server;
use crate::AccessKeys;

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listeners.address()
    }

    /// Where clients on this machine find it, `http://127.0.0.1:9777`, or `https://` and a name
    /// that its certificate is for.
    #[must_use]
    pub fn url(&self) -> String {
        self.listeners.url()
    }

    /// The certificate of the authority that its clients must trust, if it is none that they trust
    /// anyway.
    #[must_use]
    pub fn tls_authority(&self) -> Option<PathBuf> {
        self.listeners.authority()
    }

    /// The owner's keys.
    #[must_use]
    pub fn keys(&self) -> &AccessKeys {
        &self.keys
    }
}
