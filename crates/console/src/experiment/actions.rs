//! Stopping and deleting chosen runs: the API's own calls, after a question.

use askama::Template;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use shoal_wire::{Error, ErrorCode, arn};

use super::super::{
    Console, Visit,
    frame::{Frame, PageError, rendered},
    query::Query,
    responses::{Body, see_other},
    sources::Stop,
};

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsActionPage {
    frame: Frame,
    action: Action,
    experiment: String,
    runs: Vec<String>,
    /// Of runs where it was not possible, why.
    refused: Vec<(String, String)>,
    back: String,
    grace_s: u32,
}

/// What is done with runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Stop,
    Delete,
}

impl Action {
    fn of(form: &Query) -> Option<Self> {
        match form.get("do")? {
            "stop" => Some(Self::Stop),
            "delete" => Some(Self::Delete),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        if self == Self::Stop { "Stop" } else { "Delete" }
    }

    fn key(self) -> &'static str {
        if self == Self::Stop { "stop" } else { "delete" }
    }
}

impl Console {
    /// The question, or, if the form has been asked it, what was chosen is done.
    pub(in super::super) async fn change_runs(
        &self,
        visit: &Visit,
        experiment: &str,
        form: &Query,
    ) -> Result<Response<Body>, PageError> {
        let table = format!("/console/experiments/{experiment}");
        let is_table = |address: &&str| address.split('?').next() == Some(table.as_str());
        let back = form.get("back").filter(is_table).unwrap_or(&table).to_owned();
        let runs: Vec<String> = form.all("run").into_iter().map(str::to_owned).collect();
        let Some(action) = Action::of(form).filter(|_| !runs.is_empty()) else {
            let text = "Choose runs in the table first, by the boxes in front of their names.";
            return Err(PageError::new(StatusCode::BAD_REQUEST, "No run is chosen", text));
        };
        let mut refused = Vec::new();
        if form.get("sure").is_some() {
            for run in &runs {
                let done = match action {
                    Action::Stop => self.stop_run(run).await,
                    Action::Delete => self.delete_run(run).await,
                };
                refused.extend(done.err().map(|error| (run.clone(), error.message)));
            }
            if refused.is_empty() {
                return Ok(see_other(&back));
            }
        }
        let frame = visit.frame(&format!("{} runs", action.word()));
        let (grace_s, experiment) = (self.sources.grace_s, experiment.to_owned());
        Ok(rendered(&RunsActionPage { frame, action, experiment, runs, refused, back, grace_s }))
    }

    /// A run's description and the name of its training job.
    async fn run_and_job(&self, run: &str) -> Result<(Value, Option<String>), Error> {
        let named = json!({"TrialComponentName": run});
        let described = self.sources.server.call("SageMaker.DescribeTrialComponent", named).await?;
        let source = described["Source"]["SourceArn"].as_str().and_then(arn::resource);
        let job = source.filter(|it| it.kind == "training-job").map(|it| it.name.to_owned());
        Ok((described, job))
    }

    async fn stop_run(&self, run: &str) -> Result<(), Error> {
        let (described, job) = self.run_and_job(run).await?;
        if described["Status"]["PrimaryStatus"] != "InProgress" {
            return Ok(());
        }
        let Some(job) = job else {
            let text = "It is no training job: the program that made it ends it.";
            return Err(Error::new(ErrorCode::ValidationException, text));
        };
        self.sources.server.stop(Stop::TrainingJob(job)).await
    }

    /// Deletes a run and its training job.
    async fn delete_run(&self, run: &str) -> Result<(), Error> {
        let (described, job) = self.run_and_job(run).await?;
        let server = &self.sources.server;
        if let Some(job) = job {
            if ["InProgress", "Stopping"].iter().any(|live| described["Status"]["PrimaryStatus"] == *live) {
                return Err(Error::new(ErrorCode::ValidationException, "Its training job runs: stop it first."));
            }
            match server.call("SageMaker.DeleteTrainingJob", json!({"TrainingJobName": job})).await {
                Err(error) if is_missing(&error) => {}
                done => drop(done?),
            }
        }
        loop {
            let trials = server.call("SageMaker.ListTrials", json!({"TrialComponentName": run})).await?;
            let names: Vec<&Value> =
                trials["TrialSummaries"].as_array().into_iter().flatten().map(|it| &it["TrialName"]).collect();
            if names.is_empty() {
                break;
            }
            for trial in names {
                let link = json!({"TrialComponentName": run, "TrialName": trial});
                server.call("SageMaker.DisassociateTrialComponent", link).await?;
            }
        }
        match server.call("SageMaker.DeleteTrialComponent", json!({"TrialComponentName": run})).await {
            Err(error) if is_missing(&error) => Ok(()),
            done => done.map(drop),
        }
    }
}

/// Deleted by another client, or with its job.
fn is_missing(error: &Error) -> bool {
    error.code == ErrorCode::ResourceNotFound || error.message.contains("not found")
}
