//! A trial's training job: the definition as a `CreateTrainingJob`, with tuned values among its
//! hyperparameters.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    CheckpointConfig, CreateTrainingJob, Error, Resources, Tag,
    call::read,
    refusal::refuse,
    tags,
    training_job::{self, CHECKPOINTS, request::ResourceConfig},
};

use super::{TuningDefinition, request};

/// The hyperparameter by which a training program learns the tuning job's objective.
pub const OBJECTIVE_HYPERPARAMETER: &str = "_tuning_objective_metric";

/// Members of a definition that are a training job's, too, under the same name.
const SAME: [&str; 12] = [
    "AlgorithmSpecification",
    "RoleArn",
    "InputDataConfig",
    "OutputDataConfig",
    "ResourceConfig",
    "VpcConfig",
    "StoppingCondition",
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
    "CheckpointConfig",
    "RetryStrategy",
];
/// A training job's name stands for those to come: as long as they are.
const STAND_IN: &str = "-001-00000000";

/// A definition as a training job without tuned values, and what it may run on, best first.
///
/// # Errors
/// What is wrong with it, under the names that the definition has for it.
pub(super) fn template(
    mut definition: Map<String, Value>,
    tuning_job: &str,
    statics: &BTreeMap<String, String>,
    metric: &str,
    tuning_resources: Option<request::TuningResourceConfig>,
    path: &str,
) -> Result<(CreateTrainingJob, Vec<Resources>), Error> {
    let renamed = tuning_resources.is_some();
    let configs = resources(&mut definition, tuning_resources, path)?;
    let mut raw = Map::new();
    raw.insert("TrainingJobName".to_owned(), json!(format!("{tuning_job}{STAND_IN}")));
    raw.insert("HyperParameters".to_owned(), json!(hyperparameters(statics, &[], metric)));
    for name in SAME {
        if let Some(value) = definition.remove(name) {
            raw.insert(name.to_owned(), value);
        }
    }
    if let Some(environment) = definition.remove("Environment") {
        raw.insert("Environment".to_owned(), environment);
    }
    let told = |error: Error| relocated(&error, path, renamed);
    let mut alternatives = Vec::with_capacity(configs.len());
    for config in &configs {
        alternatives.push(training_job::resources(Some(read::<ResourceConfig>(config.clone())?)).map_err(told)?);
    }
    if let Some(first) = configs.into_iter().next() {
        raw.insert("ResourceConfig".to_owned(), first);
    }
    Ok((training_job::create_training_job(Value::Object(raw)).map_err(told)?, alternatives))
}

/// The alternatives as a training job's `ResourceConfig`s.
fn resources(
    definition: &mut Map<String, Value>,
    tuning: Option<request::TuningResourceConfig>,
    path: &str,
) -> Result<Vec<Value>, Error> {
    let place = format!("{path}.hyperParameterTuningResourceConfig");
    let Some(tuning) = tuning else {
        return match definition.remove("ResourceConfig") {
            Some(config) => Ok(vec![config]),
            None => refuse(&place, "it is required; give it or ResourceConfig, with InstanceType and InstanceCount"),
        };
    };
    if definition.contains_key("ResourceConfig") {
        return refuse(
            &place,
            "ResourceConfig and HyperParameterTuningResourceConfig are alternatives; give one of them",
        );
    }
    let config = |instance_type: Option<&str>, count: Option<u32>, volume: Option<u32>| {
        let members = [
            ("InstanceType", instance_type.map(Value::from)),
            ("InstanceCount", count.map(Value::from)),
            ("VolumeSizeInGB", volume.map(Value::from)),
            ("VolumeKmsKeyId", tuning.volume_kms_key_id.as_deref().map(Value::from)),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>().into()
    };
    if tuning.instance_configs.is_empty() {
        return Ok(vec![config(tuning.instance_type.as_deref(), tuning.instance_count, tuning.volume_size_in_gb)]);
    }
    if tuning.instance_type.is_some() || tuning.instance_count.is_some() {
        return refuse(
            &place,
            "InstanceConfigs and InstanceType with InstanceCount are alternatives; give one of them",
        );
    }
    let each = tuning.instance_configs.iter();
    Ok(each.map(|it| config(Some(&it.instance_type), Some(it.instance_count), Some(it.volume_size_in_gb))).collect())
}

/// An error about a training job, told of the definition that it came from.
fn relocated(error: &Error, path: &str, renamed: bool) -> Error {
    let message = error.message.replacen("Invalid value at '", &format!("Invalid value at '{path}."), 1);
    let message = message.replacen(&format!("'{path}.hyperParameters"), &format!("'{path}.staticHyperParameters"), 1);
    let config = if renamed { "hyperParameterTuningResourceConfig" } else { "resourceConfig" };
    Error::new(error.code, message.replacen(&format!("'{path}.resourceConfig"), &format!("'{path}.{config}"), 1))
}

/// What says how the tuning job searches is its own; the network is its trials'.
fn is_inherited(tag: &Tag) -> bool {
    tag.key == tags::NETWORK_TAG || !tag.key.starts_with("shoal:")
}

fn hyperparameters(
    statics: &BTreeMap<String, String>,
    tuned: &[(String, String)],
    metric: &str,
) -> BTreeMap<String, String> {
    let mut all = statics.clone();
    all.extend(tuned.iter().cloned());
    all.insert(OBJECTIVE_HYPERPARAMETER.to_owned(), metric.to_owned());
    all
}

/// What is a trial's own.
#[derive(Debug, Clone, Copy)]
pub struct Child<'a> {
    /// Training job's name.
    pub name: &'a str,
    /// Tuned hyperparameters and their values, as AWS's texts.
    pub tuned: &'a [(String, String)],
    /// What it runs on: index into [`TuningDefinition::alternatives`].
    pub alternative: usize,
    /// The tuning job's tags, which its training jobs have, too.
    pub tags: &'a [Tag],
    /// Keep checkpoints below the output path where the definition has no `CheckpointConfig`.
    pub keeps_checkpoints: bool,
}

impl TuningDefinition {
    /// A trial's training job, as a client would have requested it: static and tuned
    /// hyperparameters, [`OBJECTIVE_HYPERPARAMETER`], and its own location of checkpoints. The
    /// definition passed its checks when the tuning job was created, and is not checked again.
    ///
    /// # Errors
    /// Tuned values name a script that cannot be used.
    pub fn child(&self, child: &Child<'_>) -> Result<CreateTrainingJob, Error> {
        let mut job = (*self.training).clone();
        child.name.clone_into(&mut job.name);
        job.raw.insert("TrainingJobName".to_owned(), json!(child.name));
        job.hyperparameters = hyperparameters(&self.static_hyperparameters, child.tuned, &self.objective.metric);
        job.raw.insert("HyperParameters".to_owned(), json!(job.hyperparameters));
        if child.tuned.iter().any(|(name, _)| training_job::names_script(name)) {
            job.script = training_job::script(&job.algorithm.entrypoint, &job.hyperparameters, &job.environment)?;
        }
        if let (true, Some(resources)) = (child.alternative > 0, self.alternatives.get(child.alternative)) {
            job.resources = resources.clone();
            if let Some(Value::Object(config)) = job.raw.get_mut("ResourceConfig") {
                config.insert("InstanceType".to_owned(), json!(resources.instance_type));
                config.insert("InstanceCount".to_owned(), json!(resources.instance_count));
                config.insert("VolumeSizeInGB".to_owned(), json!(resources.volume_gb));
            }
        }
        if let Some(checkpoint) = &mut job.checkpoint {
            checkpoint.uri = checkpoint.uri.below(child.name);
            if let Some(Value::Object(config)) = job.raw.get_mut("CheckpointConfig") {
                config.insert("S3Uri".to_owned(), json!(checkpoint.uri.to_string()));
            }
        } else if child.keeps_checkpoints {
            let uri = job.output.s3_output_path.below(&format!("{}/checkpoints", child.name));
            job.raw.insert("CheckpointConfig".to_owned(), json!({"S3Uri": uri.to_string()}));
            job.checkpoint = Some(CheckpointConfig { uri, local_path: CHECKPOINTS.to_owned() });
        }
        job.tags = child.tags.iter().filter(|tag| is_inherited(tag)).cloned().collect();
        if !job.tags.is_empty() {
            job.raw.insert("Tags".to_owned(), tags::to_json(&job.tags));
        }
        Ok(job)
    }
}
