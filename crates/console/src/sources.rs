//! What pages are made of: the stores, and the server's own answers.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;
use shoal_plane::{Catalog, JobView, TuningView};
use shoal_store::{Objects, ResourceRow, Rows, StoreError, Telemetry};
use shoal_wire::{CreateTuningJob, Error, KeyRole, WarmPool, sigv4::Credentials};
use tokio::sync::watch;

use crate::{JobChanges, RunsPage, RunsQuery, SignOn};

/// All that the console shows, and what opens it.
#[derive(Clone)]
pub struct Sources {
    /// Training jobs, tuning jobs, trials and receipts of checkpoints.
    pub rows: Arc<dyn Rows>,
    /// Log lines and series.
    pub telemetry: Arc<Telemetry>,
    /// Files of jobs.
    pub objects: Arc<Objects>,
    /// Prices of instance types.
    pub catalog: Catalog,
    /// Changes with every commit that changes rows.
    pub version: watch::Receiver<u64>,
    /// New lines and points of jobs that are shown.
    pub job_changes: Arc<JobChanges>,
    /// What only the server knows.
    pub server: Arc<dyn Server>,
    /// The account of the server's resources.
    pub account: String,
    /// Which keys open it.
    pub keys: Arc<dyn Keys>,
    /// Who identifies visitors without keys.
    pub sign_on: Option<Arc<dyn SignOn>>,
    /// Which objects may be downloaded.
    pub objects_open: ObjectsOpen,
    /// What the visitor's key is for: pages offer what it opens.
    pub role: KeyRole,
    /// The id of the data directory.
    pub data_id: String,
    /// Where it is: what was used or signed out is written there.
    pub data_dir: PathBuf,
    /// Seconds between the two signals of a stop.
    pub grace_s: u32,
}

/// Whether the object in this bucket with this key may be downloaded.
pub type IsOpen = dyn Fn(&str, &str) -> bool + Send + Sync;

/// Which objects a visitor may download.
#[derive(Clone)]
pub enum ObjectsOpen {
    /// All.
    All,
    /// Those of which this holds; and only pages of what `rows` has.
    Some(Arc<IsOpen>),
}

/// The keys that open the console.
pub trait Keys: Send + Sync {
    /// The owner's: tickets that name no key are its own.
    fn owner(&self) -> Credentials;

    /// The secret of the key with this id, the owner's or another one's.
    fn secret(&self, access_key_id: &str) -> Option<String>;

    /// What the holder of this key sees and may do of everything, from this address; `None` if
    /// there is no such key.
    fn seen_by(&self, access_key_id: &str, source: IpAddr, all: &Sources) -> Option<Sources>;

    /// A browser has signed in from this address, or could not; `identity` is a provider's name of
    /// its user.
    fn signed_in(&self, access_key_id: &str, identity: Option<&str>, source: IpAddr, is_in: bool);
}

/// What the server around the console answers and does.
pub trait Server: Send + Sync {
    /// A live training job as of now, with its place in the queue.
    fn current_view(&self, job: &str) -> BoxFuture<'static, Option<JobView>>;

    /// What the API's call does.
    fn stop(&self, stop: Stop) -> BoxFuture<'static, Result<(), Error>>;

    /// What the API answers its owner's call of an operation, by `X-Amz-Target`:
    /// `SageMaker.DescribeTrialComponent`.
    fn call(&self, target: &'static str, input: Value) -> BoxFuture<'static, Result<Value, Error>>;

    /// A page of runs.
    fn runs(&self, query: RunsQuery) -> BoxFuture<'static, Result<RunsPage, Error>>;

    /// How many runs each experiment has that has some, by name.
    fn runs_of_experiments(&self) -> BoxFuture<'static, Result<BTreeMap<String, usize>, Error>>;

    /// What an image name means here.
    fn image(&self, name: &str) -> ImageKind;

    /// What a tuning job searches, of its row.
    ///
    /// # Errors
    /// The request was written by a newer version.
    fn study(&self, row: &ResourceRow) -> Result<Study, Error>;

    /// What the user of a tuning job should know of its best training job.
    ///
    /// # Errors
    /// The storage's.
    fn best_model_warning(&self, view: &TuningView) -> Result<Option<String>, Error>;

    /// The warm pool of a training job.
    ///
    /// # Errors
    /// The storage's.
    fn warm_pool(&self, job: &str) -> Result<Option<WarmPool>, StoreError>;
}

/// What is to be stopped, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A training job.
    TrainingJob(String),
    /// A tuning job.
    TuningJob(String),
}

/// What an image name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageKind {
    /// The built-in algorithm of this name.
    Builtin(String),
    /// Surroundings of the job's own program.
    Environment,
    /// The server's tables do not have it.
    Unknown,
}

/// A tuning job's request and what follows from it.
#[derive(Debug, Clone)]
pub struct Study {
    /// The request, with its ranges of Autotune.
    pub request: CreateTuningJob,
    /// Searcher and scheduler.
    pub strategy: String,
    /// By definition: the greatest resource, if the scheduler has one.
    pub greatest_resources: Vec<Option<u32>>,
}
