//! What a training program may call with its job's keys: who it is, metrics of its own, and, if its
//! job belongs to an experiment, what SDK v2's `load_run()` does there. At AWS the job's role
//! decides; here the keys open the job's own experiment.

use serde_json::Value;
use shoal_store::{LinkEnd, ResourceFilter, ResourceKind, Rows};
use shoal_wire::{Call, Error, ErrorCode, ExperimentConfig};

use super::{Api, TRIAL, TRIAL_LINK, blocking, component_of, resources::found};
use crate::{internal::internal, key_ring::Holder, requests};

/// For all jobs. `BatchPutMetrics` checks whose series it is; `PutMetricData` takes any namespace,
/// as roles usually may at AWS.
const ALWAYS: [&str; 3] = ["GetCallerIdentity", "BatchPutMetrics", "PutMetricData"];
/// For jobs with an `ExperimentConfig`.
const READS: [&str; 6] = [
    "DescribeExperiment",
    "DescribeTrial",
    "DescribeTrialComponent",
    "ListExperiments",
    "ListTrials",
    "ListTrialComponents",
];
/// New things that change nothing of others.
const ADDITIONS: [&str; 3] = ["CreateTrialComponent", "CreateArtifact", "AddAssociation"];

/// A job's place among experiments.
pub(super) struct Place {
    job: String,
    config: ExperimentConfig,
}

impl Place {
    /// Of a job; none if it has no `ExperimentConfig`.
    pub(super) fn of(rows: &dyn Rows, job: &str) -> Result<Option<Self>, Error> {
        let Some(row) = found(rows, ResourceKind::TRAINING_JOB, job)? else { return Ok(None) };
        let config = requests::training_job(&row)?.experiment;
        Ok(config.map(|config| Self { job: job.to_owned(), config }))
    }

    fn experiment(&self) -> Option<String> {
        self.config.experiment_name.as_ref().map(|name| name.to_lowercase())
    }

    /// Whether a component is the job's, that of its run, or in its experiment.
    pub(super) fn has_component(&self, rows: &dyn Rows, name: &str) -> Result<bool, Error> {
        let name = name.to_lowercase();
        let run = self.config.run_name.as_ref().map(|run| run.to_lowercase());
        if name == component_of(&self.job) || run.as_ref() == Some(&name) {
            return Ok(true);
        }
        let mut links = ResourceFilter::new(TRIAL_LINK);
        LinkEnd::FirstKey.select(&mut links, &name);
        let links = rows.list(&links).map_err(|error| internal(&error))?.rows;
        let experiment = self.experiment();
        Ok(experiment.is_some() && links.iter().any(|link| LinkEnd::SecondKey.of(link) == experiment.as_deref()))
    }

    /// Whether a trial is in the job's experiment.
    fn has_trial(&self, rows: &dyn Rows, name: &str) -> Result<bool, Error> {
        let trial = found(rows, TRIAL, &name.to_lowercase())?;
        let experiment = self.experiment();
        Ok(experiment.is_some() && trial.is_some_and(|trial| trial.parent == experiment))
    }

    fn permits(&self, rows: &dyn Rows, operation: &str, input: &Value) -> Result<bool, Error> {
        let text = |member: &str| input[member].as_str().unwrap_or_default();
        let is_own = |name: &str| self.experiment().is_some_and(|own| own == name.to_lowercase());
        Ok(match operation {
            "Search" => text("Resource").starts_with("Experiment"),
            "CreateExperiment" | "CreateTrial" => is_own(text("ExperimentName")),
            "AssociateTrialComponent" => self.has_trial(rows, text("TrialName"))?,
            "UpdateTrialComponent" => self.has_component(rows, text("TrialComponentName"))?,
            operation => READS.contains(&operation) || ADDITIONS.contains(&operation),
        })
    }
}

impl Api {
    /// Refuses a call that a training job's keys do not open.
    ///
    /// # Errors
    /// `AccessDenied`, and the storage's.
    pub(super) async fn permit_job(&self, call: &Call, holder: &Holder) -> Result<(), Error> {
        let Holder::Attempt { job, .. } = holder else { return Ok(()) };
        let (operation, job) = (call.operation.name, job.to_string());
        if ALWAYS.contains(&operation)
            || (operation == "DescribeTrainingJob" && call.input["TrainingJobName"].as_str() == Some(&job))
        {
            return Ok(());
        }
        let (rows, input) = (self.rows.clone(), call.input.clone());
        let is_permitted = blocking(move || match Place::of(&*rows, &job)? {
            Some(place) => place.permits(&*rows, operation, &input),
            None => Ok(false),
        });
        if is_permitted.await? {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::AccessDenied,
            "a training job's keys open its channels and outputs, and the experiment of its ExperimentConfig, only",
        ))
    }
}
