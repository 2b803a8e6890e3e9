//! Trial components of training jobs. Every job has one, `<job>-aws-training-job` in lower case,
//! that is a view of the job's row: parameters, artifacts, status, times. A row of its own is
//! written in the turn that creates the job if the request has an `ExperimentConfig`, else when
//! something is stored about the component itself.

use serde_json::{Map, Value, json};
use shoal_store::{ResourceKind, ResourceRow, RowChange};
use shoal_wire::{Error, ExperimentConfig, TrainingJobDescription, arn, timestamp};

use super::{
    Lookup, Members,
    kinds::{EXPERIMENT, TRIAL, TRIAL_COMPONENT},
    links::link,
    of_kind, request,
};
use crate::{api::training, clock::now_ms, core::Present, internal::internal};

/// What a component has behind its job's name.
const SUFFIX: &str = "-aws-training-job";
/// Parameters and artifacts that a component has at most.
const MOST_PARAMETERS: usize = 300;
const MOST_ARTIFACTS: usize = 60;
/// Most characters of a status message.
const LONGEST_MESSAGE: usize = 1024;
/// The longest text of an artifact.
const LONGEST_VALUE: usize = 2048;

/// Name of a job's component.
pub(crate) fn component_of(job: &str) -> String {
    format!("{}{SUFFIX}", job.to_lowercase())
}

/// A training job that is about to be created.
pub(crate) struct NewJob {
    pub(crate) name: String,
    pub(crate) arn: String,
    pub(crate) uid: String,
    pub(crate) creator: Option<String>,
}

/// The row of a job's component that has nothing of its own yet.
fn row(name: &str, job: &ResourceRow) -> Result<ResourceRow, Error> {
    let component = component_of(name);
    let place = arn::resource(&job.arn);
    let (region, account) = place.map_or(("", ""), |place| (place.region, place.account));
    let source = json!({"SourceArn": job.arn, "SourceType": "SageMakerTrainingJob"});
    let request = json!({"TrialComponentName": component, "Source": source});
    Ok(ResourceRow {
        uid: job.uid.clone(),
        arn: arn::sagemaker(region, account, TRIAL_COMPONENT.name(), &component),
        created_ms: job.created_ms,
        modified_ms: job.created_ms,
        parent: Some(name.to_owned()),
        keys: [Some(job.arn.to_lowercase().as_str().into()), None],
        request: serde_json::to_vec(&request).map_err(|error| internal(&error))?,
        tags: b"[]".to_vec(),
        creator: job.creator.clone(),
        ..ResourceRow::new(TRIAL_COMPONENT, &component)
    })
}

/// The row of the component of this name, or of the job of this ARN, if nothing is stored for it.
pub(super) fn implied(lookup: Lookup<'_>, name: &str) -> Result<Option<ResourceRow>, Error> {
    let job = match arn::resource(name) {
        Some(it) if it.kind == ResourceKind::TRAINING_JOB.name() => it.name,
        Some(_) => return Ok(None),
        None => match name.strip_suffix(SUFFIX) {
            Some(job) => job,
            None => return Ok(None),
        },
    };
    let get = |kind, name: &str| lookup.rows.resource(kind, name).map_err(|error| internal(&error));
    if get(TRIAL_COMPONENT, &component_of(job))?.is_some() {
        return Ok(None);
    }
    let found = match get(ResourceKind::TRAINING_JOB, job)? {
        Some(row) => Some(row),
        // Of several names that differ only in case, none is meant.
        None => {
            match lookup.rows.names(ResourceKind::TRAINING_JOB, job).map_err(|error| internal(&error))?.as_slice() {
                [only] => get(ResourceKind::TRAINING_JOB, only)?,
                _ => None,
            }
        }
    };
    found.map(|job| row(&job.name, &job)).transpose()
}

/// What a job's `ExperimentConfig` adds to the rows when the job is created: its component, the
/// trial if it is missing, and the association.
///
/// # Errors
/// What it names does not exist, or belongs to something else.
pub(crate) fn with_job(
    present: &Present<'_>,
    config: &ExperimentConfig,
    job: &NewJob,
) -> Result<Vec<RowChange>, Error> {
    let named = |kind, name: &str| {
        let of = of_kind(kind);
        present.row(kind, &of.key(name))?.ok_or_else(|| of.missing(name, name))
    };
    let experiment = config.experiment_name.as_deref().map(|name| named(EXPERIMENT, name)).transpose()?;
    if let Some(run) = &config.run_name {
        named(TRIAL_COMPONENT, run)?;
    }
    let mut changes = Vec::new();
    let trial = trial(present, config, experiment.as_ref(), job)?;
    if let Some((trial, true)) = &trial {
        changes.push(RowChange::Put(Box::new(trial.clone())));
    }
    let now = now_ms();
    let of_job = ResourceRow {
        arn: job.arn.clone(),
        uid: job.uid.clone(),
        created_ms: now,
        creator: job.creator.clone(),
        ..ResourceRow::new(ResourceKind::TRAINING_JOB, &job.name)
    };
    let mut row = row(&job.name, &of_job)?;
    let mut own = request(&row)?;
    let mut add = |member: &str, value: &Option<String>| {
        if let Some(value) = value {
            own.insert(member.to_owned(), json!(value));
        }
    };
    add("DisplayName", &config.trial_component_display_name);
    add("RunName", &config.run_name);
    row.request = serde_json::to_vec(&own).map_err(|error| internal(&error))?;
    if let Some(there) = present.row(TRIAL_COMPONENT, &row.name)? {
        if there.creator != job.creator {
            return Err(Error::validation(format!(
                "The trial component {} is that of a deleted training job of another key: give this job another \
                 name.",
                row.name
            )));
        }
        // That of a deleted job of this name becomes the new one's.
        if let Some(other) = there.parent.filter(|other| *other != job.name)
            && present.row(ResourceKind::TRAINING_JOB, &other)?.is_some()
        {
            return Err(Error::validation(format!(
                "The trial component {} of this job is that of the training job {other}: their names differ only in \
                 case.",
                row.name
            )));
        }
        row.tags = there.tags;
    }
    if let Some((trial, _)) = &trial {
        changes.push(RowChange::Put(Box::new(link(&row.name, trial)?)));
    }
    changes.push(RowChange::Put(Box::new(row)));
    Ok(changes)
}

/// The trial of a config, and whether it is new.
fn trial(
    present: &Present<'_>,
    config: &ExperimentConfig,
    experiment: Option<&ResourceRow>,
    job: &NewJob,
) -> Result<Option<(ResourceRow, bool)>, Error> {
    let there = match &config.trial_name {
        Some(name) => present.row(TRIAL, &of_kind(TRIAL).key(name))?,
        None => None,
    };
    match (there, experiment) {
        (Some(trial), experiment) => {
            if let Some(experiment) = experiment.filter(|it| trial.parent.as_ref() != Some(&it.name)) {
                return Err(Error::validation(format!(
                    "Trial '{}' is not in experiment '{}' but in '{}'.",
                    trial.name,
                    experiment.name,
                    trial.parent.unwrap_or_default()
                )));
            }
            Ok(Some((trial, false)))
        }
        (None, Some(experiment)) => {
            let name = config.trial_name.clone().unwrap_or_else(|| format!("{}-{}", job.name, job.uid));
            let own = json!({"TrialName": name, "ExperimentName": request(experiment)?.get("ExperimentName")});
            let place = arn::resource(&job.arn);
            let (region, account) = place.map_or(("", ""), |place| (place.region, place.account));
            let now = now_ms();
            let row = ResourceRow {
                uid: job.uid.clone(),
                arn: arn::sagemaker(region, account, TRIAL.name(), &name),
                created_ms: now,
                modified_ms: now,
                parent: Some(experiment.name.clone()),
                request: serde_json::to_vec(&own).map_err(|error| internal(&error))?,
                tags: b"[]".to_vec(),
                creator: job.creator.clone(),
                ..ResourceRow::new(TRIAL, &of_kind(TRIAL).key(&name))
            };
            Ok(Some((row, true)))
        }
        (None, None) => match &config.trial_name {
            Some(name) => Err(of_kind(TRIAL).missing(name, name)),
            None => Ok(None),
        },
    }
}

/// Adds what is shown of a component's job. Entries of the component's own replace the job's; null
/// ones hide them.
pub(super) fn add_job(lookup: Lookup<'_>, job: &str, shown: &mut Members) -> Result<(), Error> {
    let Some(job) = lookup.rows.resource(ResourceKind::TRAINING_JOB, job).map_err(|error| internal(&error))? else {
        return Ok(());
    };
    let (request, description) = training::describe(&job, &training::view(&job)?)?;
    overlay(shown, of_job(&request, &description));
    Ok(())
}

fn overlay(shown: &mut Members, of_job: Members) {
    for (member, value) in of_job {
        match (shown.get_mut(&member), value) {
            (Some(Value::Object(own)), Value::Object(mut entries)) if member != "Status" => {
                entries.extend(std::mem::take(own));
                *own = entries;
            }
            (Some(own), value) if member == "LastModifiedTime" => {
                if own.as_f64() < value.as_f64() {
                    *own = value;
                }
            }
            // Its own status and times are the job's.
            (_, value) => drop(shown.insert(member, value)),
        }
    }
    for member in ["Parameters", "InputArtifacts", "OutputArtifacts"] {
        if let Some(entries) = shown.get_mut(member).and_then(Value::as_object_mut) {
            entries.retain(|_, value| !value.is_null());
        }
    }
}

/// The members of a component that follow from its job.
fn of_job(request: &Members, job: &TrainingJobDescription) -> Members {
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
    let reason = job.failure_reason.as_deref().unwrap_or_default();
    let message =
        format!("Status: {}, secondary status: {}, failure reason: {reason}.", job.status, job.secondary_status);
    let message: String = message.chars().take(LONGEST_MESSAGE).collect();
    put("Status", json!({"PrimaryStatus": job.status, "Message": message}));
    if let Some(start) = job.training_start_ms {
        put("StartTime", timestamp::seconds(start));
    }
    if let Some(end) = job.training_end_ms {
        put("EndTime", timestamp::seconds(end));
    }
    put("LastModifiedTime", timestamp::seconds(job.modified_ms));
    put("Parameters", parameters(request).into());
    put("InputArtifacts", inputs(request).into());
    put("OutputArtifacts", outputs(request, job).into());
    members
}

fn parameters(request: &Members) -> Members {
    let mut parameters = Map::new();
    let resources = request.get("ResourceConfig").unwrap_or(&Value::Null);
    let of_platform = [
        ("SageMaker.InstanceType", text(&resources["InstanceType"])),
        ("SageMaker.InstanceCount", number(&resources["InstanceCount"])),
        ("SageMaker.VolumeSizeInGB", number(&resources["VolumeSizeInGB"])),
    ];
    for (name, value) in of_platform {
        parameters.extend(value.map(|value| (name.to_owned(), value)));
    }
    for (name, value) in request.get("HyperParameters").and_then(Value::as_object).into_iter().flatten() {
        if parameters.len() < MOST_PARAMETERS {
            parameters.extend(hyperparameter(value).map(|value| (name.clone(), value)));
        }
    }
    parameters
}

/// Texts that spell numbers are numbers.
fn hyperparameter(value: &Value) -> Option<Value> {
    let spelled = value.as_str()?.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    Some(spelled.map_or_else(|| json!({"StringValue": value}), |number| json!({"NumberValue": number})))
}

fn text(value: &Value) -> Option<Value> {
    value.as_str().map(|text| json!({"StringValue": text}))
}

fn number(value: &Value) -> Option<Value> {
    value.as_f64().map(|number| json!({"NumberValue": number}))
}

fn artifact(value: &Value, media_type: Option<&Value>) -> Option<Value> {
    let value: String = value.as_str().filter(|text| !text.is_empty())?.chars().take(LONGEST_VALUE).collect();
    Some(match media_type.and_then(Value::as_str).filter(|it| !it.is_empty()) {
        Some(media_type) => json!({"MediaType": media_type, "Value": value}),
        None => json!({"Value": value}),
    })
}

fn inputs(request: &Members) -> Members {
    let mut inputs = Map::new();
    let image = request.get("AlgorithmSpecification").map(|it| &it["TrainingImage"]);
    let image = image.and_then(|image| artifact(image, None));
    inputs.extend(image.map(|image| ("SageMaker.ImageUri".to_owned(), image)));
    for channel in request.get("InputDataConfig").and_then(Value::as_array).into_iter().flatten() {
        let uri = &channel["DataSource"]["S3DataSource"]["S3Uri"];
        if let (Some(name), true) = (channel["ChannelName"].as_str(), inputs.len() < MOST_ARTIFACTS) {
            inputs.extend(artifact(uri, channel.get("ContentType")).map(|input| (name.to_owned(), input)));
        }
    }
    inputs
}

fn outputs(request: &Members, job: &TrainingJobDescription) -> Members {
    let has_model = matches!(job.status.as_str(), "Completed" | "Stopped");
    let model = Value::from(job.model_artifacts.as_str());
    let debugger = request.get("DebugHookConfig").map(|it| it["S3OutputPath"].clone()).unwrap_or_default();
    let all =
        [("SageMaker.ModelArtifact", Some(model).filter(|_| has_model)), ("SageMaker.DebugHookOutput", Some(debugger))];
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), artifact(&value?, None)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(status: &str) -> TrainingJobDescription {
        TrainingJobDescription {
            status: status.to_owned(),
            secondary_status: status.to_owned(),
            model_artifacts: "s3://bucket/out/model.tar.gz".to_owned(),
            modified_ms: 5000,
            training_start_ms: Some(2000),
            training_end_ms: Some(4000),
            ..TrainingJobDescription::default()
        }
    }

    fn object(value: Value) -> Members {
        let Value::Object(members) = value else { panic!("{value} is no object") };
        members
    }

    #[test]
    fn a_component_shows_what_its_job_is() {
        let job = json!({
            "HyperParameters": {"eta": "0.5", "name": "\"trees\"", "huge": "1e999"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1},
            "AlgorithmSpecification": {"TrainingImage": "shoal/host"},
            "InputDataConfig": [
                {"ChannelName": "train", "ContentType": "text/csv", "DataSource": {"S3DataSource": {"S3Uri": "s3://bucket/train"}}},
                {"ChannelName": "other", "DataSource": {"FileSystemDataSource": {}}}],
            "DebugHookConfig": {"S3OutputPath": "s3://bucket/debug"},
        });
        let shown = of_job(&object(job), &description("Completed"));
        assert_eq!(
            Value::Object(shown),
            json!({
                "Status": {"PrimaryStatus": "Completed", "Message": "Status: Completed, secondary status: Completed, failure reason: ."},
                "StartTime": 2.0, "EndTime": 4.0, "LastModifiedTime": 5.0,
                "Parameters": {
                    "SageMaker.InstanceType": {"StringValue": "ml.m5.large"}, "SageMaker.InstanceCount": {"NumberValue": 2.0},
                    "SageMaker.VolumeSizeInGB": {"NumberValue": 1.0}, "eta": {"NumberValue": 0.5},
                    "name": {"StringValue": "\"trees\""}, "huge": {"StringValue": "1e999"}},
                "InputArtifacts": {
                    "SageMaker.ImageUri": {"Value": "shoal/host"}, "train": {"MediaType": "text/csv", "Value": "s3://bucket/train"}},
                "OutputArtifacts": {
                    "SageMaker.ModelArtifact": {"Value": "s3://bucket/out/model.tar.gz"},
                    "SageMaker.DebugHookOutput": {"Value": "s3://bucket/debug"}},
            })
        );
        let failed = of_job(&Members::new(), &description("Failed"));
        assert_eq!(failed["OutputArtifacts"], json!({}), "there is no model");
    }

    #[test]
    fn limits_of_components_hold_for_jobs_with_more() {
        let many: Map<_, _> = (0..400).map(|n| (format!("p{n}"), json!("1"))).collect();
        let channels: Vec<_> = (0..80)
            .map(|n| json!({"ChannelName": format!("c{n}"), "DataSource": {"S3DataSource": {"S3Uri": "s3://b/k"}}}))
            .collect();
        let shown = of_job(
            &object(json!({"HyperParameters": many, "InputDataConfig": channels})),
            &TrainingJobDescription { failure_reason: Some("x".repeat(2000)), ..description("Failed") },
        );
        assert_eq!(shown["Parameters"].as_object().unwrap().len(), MOST_PARAMETERS);
        assert_eq!(shown["InputArtifacts"].as_object().unwrap().len(), MOST_ARTIFACTS);
        assert_eq!(shown["Status"]["Message"].as_str().unwrap().len(), LONGEST_MESSAGE);
    }

    #[test]
    fn entries_of_the_components_own_come_first_and_null_hides() {
        let number = |value: f64| json!({"NumberValue": value});
        let mut shown = object(
            json!({"LastModifiedTime": 9.0, "Parameters": {"eta": number(1.0), "depth": null}, "Status": {"PrimaryStatus": "Completed"}}),
        );
        let job = json!({"LastModifiedTime": 5.0, "Parameters": {"eta": number(2.0), "depth": number(3.0), "rounds": number(4.0)},
            "Status": {"PrimaryStatus": "InProgress", "Message": "m"}});
        overlay(&mut shown, object(job));
        assert_eq!(shown["Parameters"], json!({"eta": number(1.0), "rounds": number(4.0)}));
        assert_eq!(shown["Status"]["PrimaryStatus"], "InProgress");
        assert_eq!(shown["LastModifiedTime"], 9.0);
    }
}
