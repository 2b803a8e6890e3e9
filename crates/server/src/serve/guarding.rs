//! Keys, and the log of what is done with them.

use std::{num::NonZeroU32, path::Path, sync::Arc, thread::JoinHandle};

use shoal_store::Rows;

use crate::{
    AccessKeys, QuotaOptions, Roles, ServerError,
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

/// What the owner has decided about keys and the log.
pub(super) struct Settings {
    /// Reads are in the log, too.
    pub(super) with_reads: bool,
    /// For how many days its lines are kept; `None`: for ever.
    pub(super) days: Option<NonZeroU32>,
    pub(super) quotas: QuotaOptions,
    pub(super) roles: Roles,
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
        settings: Settings,
    ) -> Result<Self, ServerError> {
        let Settings { with_reads, days, quotas, roles } = settings;
        let team = Arc::new(Team::open(owner.clone(), rows.clone())?);
        let names = Vec::from_iter(team.all().iter().map(|member| member.name.clone()));
        for doubt in quotas.doubts(&names) {
            tracing::warn!("{doubt}");
        }
        let ring = Arc::new(KeyRing {
            owner: owner.clone(),
            team,
            attempts: attempts.clone(),
            quotas: Arc::new(Quotas::new(quotas)),
            roles: Arc::new(roles),
            identity: identity.clone(),
        });
        let (log, audit_thread) =
            AuditLog::open(Directory::new(data_dir), owner.clone(), days).map_err(io_error("open audit.log"))?;
        let auditor = Auditor { log, keys: ring.clone(), identity: identity.clone(), with_reads };
        Ok(Self { ring, auditor, audit_thread })
    }
}
