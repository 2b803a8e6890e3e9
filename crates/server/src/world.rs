//! What a server works with. It knows what it holds, and nothing of those who use it: effects,
//! agents, the API.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use shoal_console::JobChanges;
use shoal_launch::Launcher;
use shoal_plane::{AttemptId, Capacity, Catalog};
use shoal_store::{DataDir, Objects, ResourceKind, Rows, Telemetry};
use shoal_wire::CreateTrainingJob;

use crate::{
    Images, NetworkOptions, RemoveTree, attempts::Attempts, channels::Trees, core::Core, exporter::Exporter,
    idle_agents::IdleAgents, keys::AccessKeys, launches::Prepared, machines::Machines, options::Route, requests,
    sweeps::Sweeps, tuning::Looks, visits::Visits,
};

/// One for each server, made at its start.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) trees: Trees,
    pub(crate) attempts: Arc<Attempts>,
    pub(crate) visits: Visits,
    pub(crate) machines: Machines,
    pub(crate) idle_agents: IdleAgents,
    /// Launches between their preparation and their start, by attempt.
    pub(crate) prepared: Mutex<HashMap<AttemptId, Prepared>>,
    pub(crate) looks: Looks,
    pub(crate) job_changes: Arc<JobChanges>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) launcher: Arc<dyn Launcher>,
    pub(crate) images: Arc<dyn Images>,
    pub(crate) keys: AccessKeys,
    pub(crate) sweeps: Sweeps,
    pub(crate) remove_tree: RemoveTree,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) program: PathBuf,
    pub(crate) agent_env: Vec<(String, String)>,
    pub(crate) data_id: String,
    /// Locked for as long as anything may still be done in it.
    pub(crate) data_dir: DataDir,
    pub(crate) runs: PathBuf,
    pub(crate) socket: PathBuf,
    /// How agents on other machines connect.
    pub(crate) route: Option<Route>,
    pub(crate) server_address: String,
    pub(crate) lease_s: Option<u64>,
    pub(crate) grace_s: u32,
    pub(crate) silence: Duration,
    pub(crate) capacity: Capacity,
    pub(crate) catalog: Catalog,
    /// Bytes of log lines, and of metric points, that a training job may store.
    pub(crate) log_quota: u64,
    pub(crate) network: NetworkOptions,
}

impl World {
    /// Whether agents share no files with this server.
    pub(crate) fn is_remote(&self) -> bool {
        self.route.is_some() && self.launcher.is_remote()
    }

    /// A text for clients, who need not know where the server keeps its files.
    pub(crate) fn without_paths(&self, text: &str) -> String {
        text.replace(&self.data_dir.root().display().to_string(), "DATA_DIR")
    }

    /// The request of a training job.
    pub(crate) fn request(&self, job: &str) -> Result<CreateTrainingJob, String> {
        let row = self
            .rows
            .resource(ResourceKind::TRAINING_JOB, job)
            .map_err(|error| error.to_string())?
            .ok_or_else(|| format!("no row of training job {job}"))?;
        requests::training_job(&row).map_err(|error| format!("training job {job}: {}", error.message))
    }

    pub(crate) fn prepared(&self) -> MutexGuard<'_, HashMap<AttemptId, Prepared>> {
        self.prepared.lock().expect("no holder of this lock panics")
    }
}
