//! What notifies: alarms, changes of jobs' states, and the deliveries of both.

use std::sync::Arc;

use shoal_plane::State;
use shoal_store::{ResourceKind, Rows, StoreError, Telemetry};
use tokio::{sync::Notify, task::JoinSet};

use crate::{
    NotificationOptions,
    alarms::{Alarms, ChangedMetrics},
    api::{Topics, read_series},
    core::Core,
    exporter::Counts,
    identity::Identity,
    notifications::{Deliverer, JobStates, Transport},
};

/// What its parts depend on.
pub(super) struct Notifying {
    pub(super) core: Core,
    pub(super) rows: Arc<dyn Rows>,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) identity: Identity,
    pub(super) transport: Arc<Transport>,
    pub(super) counts: Arc<Counts>,
    pub(super) wake: Arc<Notify>,
}

impl Notifying {
    /// Starts alarms and deliveries.
    pub(super) fn start(self, background: &mut JoinSet<()>) -> (Arc<Topics>, Arc<ChangedMetrics>) {
        let Self { core, rows, telemetry, identity, transport, counts, wake } = self;
        let deliverer = Deliverer {
            core: core.clone(),
            rows: rows.clone(),
            transport: transport.clone(),
            identity: identity.clone(),
            wake,
            counts,
        };
        background.spawn(Arc::new(deliverer).run());
        let changed = Arc::new(ChangedMetrics::default());
        let alarms = Alarms {
            core: core.clone(),
            rows: rows.clone(),
            telemetry,
            identity: identity.clone(),
            changed: changed.clone(),
            read_series,
        };
        background.spawn(Arc::new(alarms).run());
        (Arc::new(Topics { core, rows, transport, identity }), changed)
    }
}

/// The jobs that are not over, for who watches them.
pub(super) fn job_states(
    state: &State,
    rows: &Arc<dyn Rows>,
    identity: &Identity,
    options: &NotificationOptions,
) -> Result<JobStates, StoreError> {
    let jobs = state.in_progress().map(|(name, ..)| (ResourceKind::TRAINING_JOB, name.to_string()));
    let jobs = jobs.chain(state.tunings().map(|name| (ResourceKind::TUNING_JOB, name.to_string())));
    let (topic, has_mail) = (options.job_state_changes.clone(), options.mail.is_some());
    JobStates::read(rows.clone(), jobs, identity.clone(), topic, has_mail)
}
