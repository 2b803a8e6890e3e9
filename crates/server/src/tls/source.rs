//! Where the next certificate comes from, and when.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use tokio_rustls::rustls::sign::CertifiedKey;

use super::{TlsError, certificate, self_made::SelfMade};

/// See [`super::TlsOptions`].
pub(super) enum Source {
    SelfMade(SelfMade),
    Files(Files),
}

/// Two files, and which state of them was read.
pub(super) struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authority: Option<PathBuf>,
    seen: Mutex<Seen>,
}

/// Inode, length, and time of change in nanoseconds, of both files; `None` of one that is not
/// there.
type State = [Option<(u64, u64, i128)>; 2];

struct Seen {
    read: State,
    last: State,
}

impl Source {
    /// Reads two files.
    ///
    /// # Errors
    /// They are no certificate with its key.
    pub(super) fn open(
        certificate: &Path,
        key: &Path,
        authority: Option<PathBuf>,
        now_s: u64,
    ) -> Result<(Self, CertifiedKey), TlsError> {
        let state = [state(certificate), state(key)];
        let files = Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            authority,
            seen: Mutex::new(Seen { read: state, last: state }),
        };
        let certified = files.read(now_s)?;
        Ok((Self::Files(files), certified))
    }

    /// What is to be shown from now on, if it is another.
    ///
    /// # Errors
    /// There is another and it is of no use; it is told once.
    pub(super) fn next(&self, now_s: u64) -> Result<Option<CertifiedKey>, TlsError> {
        match self {
            Self::SelfMade(made) => made.next(now_s),
            Self::Files(files) => files.next(now_s),
        }
    }

    /// See [`super::Door::authority`].
    pub(super) fn authority(&self) -> Option<PathBuf> {
        match self {
            Self::SelfMade(made) => Some(made.authority()),
            Self::Files(files) => files.authority.clone(),
        }
    }
}

impl Files {
    fn read(&self, now_s: u64) -> Result<CertifiedKey, TlsError> {
        let certified = certificate::read(&self.certificate, &self.key)?;
        if let Some(complaint) = certificate::complaint(&certified.cert[0], now_s) {
            tracing::warn!("the certificate in {} {complaint}", self.certificate.display());
        }
        Ok(certified)
    }

    /// Reads what has changed once it has been the same for two looks: two files are not replaced
    /// at one moment.
    fn next(&self, now_s: u64) -> Result<Option<CertifiedKey>, TlsError> {
        let now = [state(&self.certificate), state(&self.key)];
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_settled = seen.last == now;
        seen.last = now;
        if seen.read == now || !is_settled {
            return Ok(None);
        }
        // Also when it fails, so that it is said once: what makes them readable changes their
        // state.
        seen.read = now;
        self.read(now_s).map(Some)
    }
}

/// Other after a change of the content, of the owner or of the rights.
fn state(path: &Path) -> Option<(u64, u64, i128)> {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), i128::from(found.ctime()) * 1_000_000_000 + i128::from(found.ctime_nsec())))
}
