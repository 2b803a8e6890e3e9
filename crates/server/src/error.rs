//! Why a server could not start or go on.

use std::{io, net::SocketAddr};

use shoal_encryption::KeyError;
use shoal_runtime::control::FoldError;
use shoal_store::StoreError;

use crate::TlsError;

/// Why a server could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data directory cannot be used.
    #[error("could not use the data directory")]
    Store(#[from] StoreError),
    /// A key of the owner's cannot be used.
    #[error("could not read the keys of shoal.toml")]
    Keys(#[from] KeyError),
    /// There is no certificate to show.
    #[error("could not set up TLS")]
    Tls(#[from] TlsError),
    /// The journal holds what this version cannot read.
    #[error("{0}")]
    Journal(String),
    /// The address cannot be listened on.
    #[error("could not listen on {address}; is another server running? Choose another address with --listen")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The disk has lost what was written; the server must not go on with what it believes.
    #[error(
        "{0}. Nothing of it was acknowledged, and training jobs that run go on: check the disk, then start the server \
         again"
    )]
    Disk(String),
    /// A part without which nothing goes on is gone: a defect.
    #[error(
        "the server's thread `{0}` ended by itself, which is a defect of shoal; training jobs that run go on: start \
         the server again"
    )]
    Thread(&'static str),
    /// Anything else of the operating system.
    #[error("could not {what}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// For failures of the system.
pub(crate) fn io_error(what: &str) -> impl FnOnce(io::Error) -> ServerError {
    let what = what.to_owned();
    move |source| ServerError::Io { what, source }
}

impl From<FoldError> for ServerError {
    fn from(error: FoldError) -> Self {
        Self::Journal(error.to_string())
    }
}
