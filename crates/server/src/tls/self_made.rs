//! Self-made certificates. An authority of the data directory, whose certificate clients trust,
//! lasts for years; what the server shows it signs at every start and whenever two thirds of its
//! time are over, with a key that is never stored. So names follow the settings, and nothing has to
//! be done when a certificate ends.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use shoal_store::DataDir;
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::{pki_types::ServerName, sign::CertifiedKey};

use super::{TlsError, certificate, source::Source};

/// Of what the server shows.
const DAYS: i64 = 90;
/// Of the authority; another one is made at a start in its last year.
const AUTHORITY_DAYS: i64 = 3650;
const AUTHORITY_LAST_S: u64 = 365 * 86_400;
/// Clients' clocks may be behind.
const BEFORE: Duration = Duration::days(1);

/// The authority, and what it signs.
pub(super) struct SelfMade {
    authority: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    names: Vec<String>,
    /// When another certificate is due, in seconds since the epoch.
    due_s: AtomicU64,
}

impl SelfMade {
    /// Opens the authority in `dir` or makes one, and signs the first certificate.
    ///
    /// # Errors
    /// The directory cannot be written, or there is no randomness.
    pub(super) fn open(dir: &Path, id: &str, names: &[String], now_s: u64) -> Result<(Source, CertifiedKey), TlsError> {
        let (authority, key_file) = (dir.join("authority.pem"), dir.join("authority.key"));
        let params = authority_params(id, now_s)?;
        let key = match known(&authority, &key_file, now_s) {
            Some(key) => key,
            None => {
                fs::create_dir_all(dir).map_err(|error| TlsError::Make(format!("{}: {error}", dir.display())))?;
                let key = KeyPair::generate()?;
                let signed = params.self_signed(&key)?;
                DataDir::write_private(&key_file, key.serialize_pem().as_bytes())?;
                DataDir::write_private(&authority, signed.pem().as_bytes())?;
                key
            }
        };
        let made =
            Self { authority, issuer: Issuer::new(params, key), names: names.to_vec(), due_s: AtomicU64::new(0) };
        let certified = made.sign(now_s)?;
        Ok((Source::SelfMade(made), certified))
    }

    /// Another certificate when the last one nears its end.
    pub(super) fn next(&self, now_s: u64) -> Result<Option<CertifiedKey>, TlsError> {
        if now_s < self.due_s.load(Ordering::Relaxed) { Ok(None) } else { self.sign(now_s).map(Some) }
    }

    /// The authority's certificate.
    pub(super) fn authority(&self) -> PathBuf {
        self.authority.clone()
    }

    fn sign(&self, now_s: u64) -> Result<CertifiedKey, TlsError> {
        let mut params = CertificateParams::new(self.names.clone())?;
        params.distinguished_name = named("shoal");
        (params.not_before, params.not_after) = span(now_s, DAYS)?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let signed = params.signed_by(&key, &self.issuer)?;
        self.due_s.store(now_s + DAYS.unsigned_abs() * 86_400 * 2 / 3, Ordering::Relaxed);
        let nowhere = Path::new("a self-made certificate");
        certificate::certified(nowhere, signed.pem().as_bytes(), nowhere, key.serialize_pem().as_bytes())
    }
}

/// The key of the authority that lies here, if it is of use for a good while.
fn known(authority: &Path, key_file: &Path, now_s: u64) -> Option<KeyPair> {
    if !authority.exists() && !key_file.exists() {
        return None;
    }
    let usable = || -> Result<KeyPair, String> {
        let pair = certificate::read(authority, key_file).map_err(|error| error.to_string())?;
        match certificate::end_s(&pair.cert[0]) {
            Some(end_s) if end_s > now_s + AUTHORITY_LAST_S => {}
            _ => return Err(format!("{} is in its last year", authority.display())),
        }
        let text = fs::read_to_string(key_file).map_err(|error| error.to_string())?;
        KeyPair::from_pem(&text).map_err(|error| error.to_string())
    };
    let usable = usable();
    usable
        .inspect_err(|why| {
            tracing::warn!(
                "another TLS authority is made, and clients have to be given {}: {why}",
                authority.display()
            );
        })
        .ok()
}

/// An authority that begins now. Its name is the data directory's, so that what is signed with a
/// key of before leads to the certificate of before.
fn authority_params(id: &str, now_s: u64) -> Result<CertificateParams, TlsError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = named(&format!("Shoal authority of data directory {id}"));
    (params.not_before, params.not_after) = span(now_s, AUTHORITY_DAYS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn span(now_s: u64, days: i64) -> Result<(OffsetDateTime, OffsetDateTime), TlsError> {
    let now = i64::try_from(now_s).ok().and_then(|now| OffsetDateTime::from_unix_timestamp(now).ok());
    let now = now.ok_or_else(|| TlsError::Make("this machine's clock is beyond the year 9999".to_owned()))?;
    Ok((now - BEFORE, now + Duration::days(days)))
}

/// What clients may call a server that listens at `address`: this machine's names and addresses as
/// far as they lead to it, and `more`.
///
/// # Errors
/// One of `more` is neither a host's name nor an address.
pub(super) fn names(address: SocketAddr, more: &[String]) -> Result<Vec<String>, TlsError> {
    let is_name = |name: &str| ServerName::try_from(name.to_owned()).is_ok();
    if let Some(wrong) = more.iter().find(|name| !is_name(name)) {
        return Err(TlsError::Name(wrong.clone()));
    }
    let mut names = vec!["localhost".to_owned()];
    names.extend(
        fs::read_to_string("/proc/sys/kernel/hostname")
            .map(|name| name.trim().to_owned())
            .into_iter()
            .filter(|name| is_name(name)),
    );
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    addresses.extend(if address.ip().is_unspecified() { outward() } else { vec![address.ip().to_canonical()] });
    names.extend(addresses.iter().map(ToString::to_string));
    names.extend(more.iter().cloned());
    let mut unique = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    Ok(unique)
}

/// The addresses that this machine shows to others by default. Nothing is sent: connecting a
/// datagram socket asks the routing table alone.
fn outward() -> Vec<IpAddr> {
    let towards = |from: IpAddr, to: IpAddr| {
        let socket = UdpSocket::bind((from, 0)).ok()?;
        socket.connect((to, 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    // Addresses of documentation: they lead by the default route.
    let four = towards(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let six = towards(Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into());
    four.into_iter().chain(six).collect()
}
