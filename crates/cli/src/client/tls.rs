//! Whom the command line trusts over TLS: the authority that the server's data directory names,
//! else `AWS_CA_BUNDLE`, as AWS's clients do, else what the machine trusts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result};
use tokio_rustls::rustls::{self, crypto::ring};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, TlsProvider, parse_pem};

use crate::exit::UsageError;

/// # Errors
/// A file cannot be read, or holds no certificate.
pub(super) fn config(trusted: Option<&Path>) -> Result<TlsConfig> {
    let roots: Vec<Certificate<'static>> = match trusted {
        Some(file) => {
            let text = std::fs::read(file)
                .with_context(|| format!("could not read the certificates in {}", file.display()))?;
            let items = parse_pem(&text).filter_map(|item| {
                if let Ok(PemItem::Certificate(certificate)) = item { Some(certificate) } else { None }
            });
            let roots = Vec::from_iter(items);
            if roots.is_empty() {
                return Err(UsageError(format!("{} has no certificates; wanted is PEM", file.display())).into());
            }
            roots
        }
        None => rustls_native_certs::load_native_certs()
            .certs
            .iter()
            .map(|root| Certificate::from_der(root).to_owned())
            .collect(),
    };
    let config = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(RootCerts::Specific(Arc::new(roots)));
    Ok(config.unversioned_rustls_crypto_provider(Arc::new(ring::default_provider())).build())
}

/// What the environment has clients trust.
pub(super) fn bundle(variable: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    variable("AWS_CA_BUNDLE").map(PathBuf::from)
}

/// Why a server was not spoken with, if it is that its certificate is not trusted.
pub(super) fn distrust(error: &ureq::Error) -> Option<String> {
    let inner = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        _ => return None,
    };
    matches!(inner, rustls::Error::InvalidCertificate(_)).then(|| inner.to_string())
}
