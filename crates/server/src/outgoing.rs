//! Requests to servers of others.

use std::{sync::Arc, time::Duration};

use tokio_rustls::rustls::crypto::ring;
use ureq::{
    Agent,
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

/// A client that trusts the authorities that this machine trusts, follows no redirect and uses no
/// proxy. Every answer is an answer, whatever its status.
pub(crate) fn agent(timeout: Duration) -> Agent {
    let trusted = rustls_native_certs::load_native_certs().certs;
    let trusted: Vec<_> = trusted.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::Specific(Arc::new(trusted)))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .timeout_global(Some(timeout))
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .proxy(None)
        .build()
        .into()
}
