//! `ProfilerConfig`: system metrics as AWS's files in S3, one for each minute of a host.
//!
//! Which samples belong into files is stored with them (`shoal_store::system_metrics`), and so is
//! what was written: a file that a crash came between is written again, with the same bytes.

mod events;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use shoal_plane::Host;
use shoal_store::{Attributes, Objects, ProfiledMinute, ResourceKind, Rows, StoreError, Telemetry};
use shoal_wire::S3Uri;

use crate::{core::Core, error_chain::describe, requests};

/// Between two passes.
const INTERVAL: Duration = Duration::from_secs(2);
/// Files of one pass.
const MAX_FILES: usize = 500;

/// Where files come from and go.
pub(crate) struct Profiling {
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) objects: Arc<Objects>,
    pub(crate) core: Core,
    /// Jobs whose files cannot be written, each reported once.
    pub(crate) failing: Mutex<BTreeSet<String>>,
}

/// What is known of a job whose minutes are due.
struct Job {
    /// Below it and the job's name.
    output: S3Uri,
    /// No more samples will come.
    is_over: bool,
}

impl Profiling {
    /// Writes files until it is aborted.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            let telemetry = self.telemetry.clone();
            let minutes = tokio::task::spawn_blocking(move || telemetry.profiled_minutes(MAX_FILES)).await;
            let minutes = match minutes {
                Ok(Ok(minutes)) if minutes.is_empty() => continue,
                Ok(Ok(minutes)) => minutes,
                Ok(Err(error)) => {
                    tracing::warn!("files of profilers are not written: {error}");
                    continue;
                }
                Err(error) => {
                    tracing::error!("reading profiled minutes panicked: {error}");
                    continue;
                }
            };
            let mut live = BTreeSet::new();
            for job in minutes.iter().map(|minute| minute.job.as_str()).collect::<BTreeSet<_>>() {
                // Jobs leave the core's state when their instances are released.
                if self.core.view(job).await.is_some() {
                    live.insert(job.to_owned());
                }
            }
            let this = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || this.pass(&minutes, &live)).await {
                tracing::error!("writing files of profilers panicked: {error}");
            }
        }
    }

    /// Writes the files of these minutes that are complete. `live`: jobs that may send more.
    fn pass(&self, minutes: &[ProfiledMinute], live: &BTreeSet<String>) {
        let mut jobs: BTreeMap<&str, Result<Option<Job>, String>> = BTreeMap::new();
        for minute in minutes {
            let found = jobs.entry(&minute.job).or_insert_with(|| self.job(&minute.job, live));
            let written = match found {
                Ok(Some(job)) if minute.is_over || job.is_over => self.write(minute, &job.output),
                Ok(Some(_)) => continue,
                // The job was deleted, and its samples are about to be.
                Ok(None) => self
                    .telemetry
                    .profiled_samples(minute)
                    .and_then(|samples| self.telemetry.set_exported(minute, &samples))
                    .map_err(|error| describe(&error)),
                Err(error) => Err(error.clone()),
            };
            self.note(&minute.job, written);
        }
    }

    fn job(&self, name: &str, live: &BTreeSet<String>) -> Result<Option<Job>, String> {
        let row = self.rows.resource(ResourceKind::TRAINING_JOB, name).map_err(|error| describe(&error))?;
        let Some(row) = row else { return Ok(None) };
        let request = requests::training_job(&row).map_err(|error| error.message)?;
        let output = request.profiler.and_then(|profiler| profiler.output);
        Ok(output.map(|output| Job { output, is_over: row.ended && !live.contains(name) }))
    }

    fn write(&self, minute: &ProfiledMinute, output: &S3Uri) -> Result<(), String> {
        let host = Host(minute.host).to_string();
        let uri = output.below(&format!("{}/{}", minute.job, events::key(minute.minute_ms, &host)));
        let write = || {
            let samples = self.telemetry.profiled_samples(minute)?;
            let text = events::file(&samples.tables, &host);
            let attributes = Attributes { content_type: Some("application/json".to_owned()), ..Attributes::default() };
            self.objects.put(&uri.bucket, &uri.prefix, text.as_bytes(), &attributes)?;
            self.telemetry.set_exported(minute, &samples)
        };
        write().map_err(|error| match error {
            StoreError::NoSuchBucket(bucket) => {
                format!("the S3 bucket \"{bucket}\" was deleted; create it again (aws s3 mb s3://{bucket})")
            }
            error => describe(&error),
        })
    }

    /// What fails is tried again at each pass, and reported once.
    fn note(&self, job: &str, written: Result<(), String>) {
        let mut failing = self.failing.lock().expect("no holder of this lock panics");
        match written {
            Ok(()) if failing.remove(job) => {
                tracing::info!("training job {job}: files of its profiler are written again");
            }
            Ok(()) => {}
            Err(error) => {
                if failing.insert(job.to_owned()) {
                    tracing::error!("training job {job}: files of its profiler cannot be written: {error}");
                }
            }
        }
    }
}
