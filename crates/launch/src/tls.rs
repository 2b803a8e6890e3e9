//! TLS to servers with a public certificate.

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore};

/// Trusts what this machine trusts.
pub(crate) fn client() -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    // Those that cannot be read are not trusted.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(ring::default_provider().into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
