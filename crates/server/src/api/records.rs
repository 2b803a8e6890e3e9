//! What descriptions of resources are made from.

use std::sync::Arc;

use shoal_store::{Objects, Rows, Telemetry};

use crate::{Images, warm_status::WarmPools};

/// Everything that answers about training jobs and tuning jobs are read from.
pub(crate) struct Records {
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) pools: WarmPools,
}
