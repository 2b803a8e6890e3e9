//! Notes on experiments and runs: display name, description and tags, as the API has them, shown
//! and changed.

use http::Response;
use serde_json::{Value, json};
use shoal_wire::{Error, ErrorCode};

use super::{
    Console,
    frame::PageError,
    query::Query,
    responses::{Body, see_other},
};

/// What a page shows of a resource's notes, with forms that change them.
pub(crate) struct About {
    /// Where the forms are sent.
    pub(crate) action: String,
    pub(crate) arn: String,
    pub(crate) title: String,
    /// None: such resources have no description.
    pub(crate) note: Option<String>,
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) created_ms: u64,
}

/// What has notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noted {
    Experiment,
    Run,
}

/// The notes of a description.
pub(crate) async fn about(console: &Console, what: Noted, described: &Value) -> Result<About, PageError> {
    let text = |member: &str| described[member].as_str().unwrap_or_default().to_owned();
    let is_run = what == Noted::Run;
    let (name, arn) = match what {
        Noted::Experiment => (text("ExperimentName"), text("ExperimentArn")),
        Noted::Run => (text("TrialComponentName"), text("TrialComponentArn")),
    };
    let tags = console.sources.server.call("SageMaker.ListTags", json!({"ResourceArn": arn})).await;
    let tags = match tags {
        Ok(answer) => answer["Tags"].clone(),
        // A job's component for which nothing is stored has none.
        Err(Error { code: ErrorCode::ResourceNotFound | ErrorCode::ValidationException, .. }) => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let pair = |tag: &Value| Some((tag["Key"].as_str()?.to_owned(), tag["Value"].as_str()?.to_owned()));
    Ok(About {
        action: format!("/console/{}/{}", if is_run { "runs" } else { "experiments" }, name),
        title: text("DisplayName"),
        note: (!is_run).then(|| text("Description")),
        tags: tags.as_array().into_iter().flatten().filter_map(pair).collect(),
        created_ms: (described["CreationTime"].as_f64().unwrap_or_default() * 1000.0) as u64,
        arn,
    })
}

impl Console {
    /// Changes display name and description.
    pub(super) async fn rename(&self, what: Noted, name: &str, form: &Query) -> Result<Response<Body>, PageError> {
        let (target, member) = match what {
            Noted::Experiment => ("SageMaker.UpdateExperiment", "ExperimentName"),
            Noted::Run => ("SageMaker.UpdateTrialComponent", "TrialComponentName"),
        };
        let mut update = json!({ member: name });
        if let Some(title) = form.get("title") {
            update["DisplayName"] = json!(title);
        }
        if what == Noted::Experiment {
            update["Description"] = json!(form.get("note").unwrap_or_default());
        }
        self.sources.server.call(target, update).await?;
        Ok(see_other(&back(what, name)))
    }

    /// Adds a tag, or removes one.
    pub(super) async fn retag(&self, what: Noted, name: &str, form: &Query) -> Result<Response<Body>, PageError> {
        let Some(arn) = form.get("arn") else { return Err(PageError::not_found("The form names no resource.")) };
        let (target, change) = match (form.get("remove"), form.get("key")) {
            (Some(key), _) => ("SageMaker.DeleteTags", json!({"ResourceArn": arn, "TagKeys": [key]})),
            (None, Some(key)) => {
                let tag = json!({"Key": key, "Value": form.get("tag").unwrap_or_default()});
                ("SageMaker.AddTags", json!({"ResourceArn": arn, "Tags": [tag]}))
            }
            (None, None) => return Ok(see_other(&back(what, name))),
        };
        self.sources.server.call(target, change).await?;
        Ok(see_other(&back(what, name)))
    }
}

fn back(what: Noted, name: &str) -> String {
    match what {
        Noted::Experiment => format!("/console/experiments/{name}"),
        Noted::Run => format!("/console/compare?run={name}"),
    }
}
