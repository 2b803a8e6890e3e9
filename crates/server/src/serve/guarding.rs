//! Keys, and the log of what is done with them.

use std::{path::Path, sync::Arc, thread::JoinHandle};

use shoal_store::Rows;

use crate::{
    AccessKeys, QuotaOptions, ServerError,
    attempts::Attempts,
    audit::{AuditLog, Directory},
    auditor::Auditor,
    error::io_error,
    identity::Identity,
    key_ring::KeyRing,
    quotas::Quotas,
    team::Team,
};

/// What opens a server, and what notes it.
pub(super) struct Guarding {
    pub(super) ring: Arc<KeyRing>,
    pub(super) auditor: Auditor,
    pub(super) audit_thread: JoinHandle<()>,
}

impl Guarding {
    /// Reads the keys and starts the log's thread.
    ///
    /// # Errors
    /// The rows cannot be read, or the log cannot be opened.
    pub(super) fn open(
        owner: &AccessKeys,
        rows: &Arc<dyn Rows>,
        attempts: &Arc<Attempts>,
        identity: &Identity,
        data_dir: &Path,
        with_reads: bool,
        quotas: QuotaOptions,
    ) -> Result<Self, ServerError> {
        let team = Arc::new(Team::open(owner.clone(), rows.clone())?);
        let ring = Arc::new(KeyRing { owner: owner.clone(), team, attempts: attempts.clone(), quotas: Arc::new(Quotas::new(quotas)) });
        let (log, audit_thread) =
            AuditLog::open(Directory::new(data_dir), owner.clone()).map_err(io_error("open audit.log"))?;
        let auditor = Auditor { log, keys: ring.clone(), identity: identity.clone(), with_reads };
        Ok(Self { ring, auditor, audit_thread })
    }
}
