//! What a certificate and its key say: read, checked against each other, and warned of before the
//! end.

use std::{fs, net::IpAddr, path::Path, time::Duration};

use tokio_rustls::rustls::{
    Error, InconsistentKeys,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem, pem::PemObject},
    sign::CertifiedKey,
};
use webpki::{EndEntityCert, KeyUsage};

use super::{TlsError, provider};

const DAY_S: u64 = 86_400;
/// A certificate that ends sooner is warned of.
const SOON_S: u64 = 14 * DAY_S;

/// A chain and its key from two files.
///
/// # Errors
/// Which file is wrong, and how.
pub(super) fn read(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let bytes = |path: &Path| fs::read(path).map_err(|source| TlsError::Read { path: path.to_owned(), source });
    certified(certificate, &bytes(certificate)?, key, &bytes(key)?)
}

/// The same of what two files hold.
pub(super) fn certified(
    certificate: &Path,
    chain: &[u8],
    key: &Path,
    key_pem: &[u8],
) -> Result<CertifiedKey, TlsError> {
    let no_certificate = |why: String| TlsError::Certificate { path: certificate.to_owned(), why };
    let no_key = |why: String| TlsError::Key { path: key.to_owned(), why };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<_, _>>()
        .map_err(|error| no_certificate(error.to_string()))?;
    let first = chain.first().ok_or_else(|| no_certificate("there is no `BEGIN CERTIFICATE` in it".to_owned()))?;
    EndEntityCert::try_from(first).map_err(|error| no_certificate(error.to_string()))?;
    let private = PrivateKeyDer::from_pem_slice(key_pem).map_err(|error| match error {
        pem::Error::NoItemsFound if key_pem.windows(9).any(|text| text == b"ENCRYPTED") => {
            no_key("it is encrypted".to_owned())
        }
        pem::Error::NoItemsFound => no_key("there is no `BEGIN PRIVATE KEY` in it".to_owned()),
        other => no_key(other.to_string()),
    })?;
    let signer = provider().key_provider.load_private_key(private).map_err(|error| no_key(error.to_string()))?;
    let certified = CertifiedKey::new(chain, signer);
    match certified.keys_match() {
        // Some kinds of keys do not tell; handshakes then do.
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(_) => Err(TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() }),
    }
}

/// When a certificate ends, in seconds since the epoch.
pub(super) fn end_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    // What is looked at in the last of days is over, and its error says since when.
    let judged = judged(certificate, u64::MAX >> 1);
    match judged {
        Some(webpki::Error::CertExpired { not_after, .. }) => Some(not_after.as_secs()),
        _ => None,
    }
}

/// What is wrong with a certificate whoever has signed it; `UnknownIssuer` if nothing is.
fn judged(certificate: &CertificateDer<'_>, now_s: u64) -> Option<webpki::Error> {
    let time = UnixTime::since_unix_epoch(Duration::from_secs(now_s));
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    certificate
        .verify_for_usage(webpki::ALL_VERIFICATION_ALGS, &[], &[], time, KeyUsage::server_auth(), None, None)
        .err()
}

/// What clients will complain about now or soon.
pub(super) fn complaint(certificate: &CertificateDer<'_>, now_s: u64) -> Option<String> {
    let ago = |then: u64| format!("{} days ago", now_s.saturating_sub(then) / DAY_S);
    match judged(certificate, now_s) {
        Some(webpki::Error::CertExpired { not_after, .. }) => Some(format!(
            "has expired, {}: clients refuse \
             it",
            ago(not_after.as_secs())
        )),
        Some(webpki::Error::CertNotValidYet { .. }) => Some("is not valid yet: clients refuse it".to_owned()),
        Some(webpki::Error::CaUsedAsEndEntity) => Some(
            "is an authority's own (CA:TRUE): the commands of shoal and other clients refuse it; let it sign one for \
             the server"
                .to_owned(),
        ),
        _ => {
            let left = end_s(certificate)?.saturating_sub(now_s);
            (left < SOON_S).then(|| format!("expires in {} days", left / DAY_S))
        }
    }
}

/// A name of this certificate under which clients of this machine find a server that listens at
/// `address`: the address itself, else `localhost` where that leads to it, else the first name in
/// the certificate.
pub(super) fn host(certificate: &CertificateDer<'_>, address: IpAddr) -> String {
    let is_here = address.is_unspecified() || address.to_canonical().is_loopback();
    let reached = match address {
        IpAddr::V4(it) if it.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(it) if it.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    let plain = if reached.is_ipv6() { format!("[{reached}]") } else { reached.to_string() };
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return plain };
    let is_for = |name: ServerName<'_>| certificate.verify_is_valid_for_subject_name(&name).is_ok();
    if is_for(ServerName::from(reached)) {
        return plain;
    }
    let localhost = ServerName::try_from("localhost").expect("a name");
    if is_here && is_for(localhost) {
        return "localhost".to_owned();
    }
    certificate.valid_dns_names().find(|name| !name.starts_with('*')).map_or(plain, str::to_owned)
}
