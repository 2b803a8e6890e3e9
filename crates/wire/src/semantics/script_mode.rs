//! Script mode: the program that the hyperparameters `sagemaker_program` and `sagemaker_submit_directory` name, as SDK estimators with an
//! `entry_point` and tuning jobs send them (a tuning job's definition has no ContainerEntrypoint). It becomes a command of the image `shoal/host`.
//!
//! As in SageMaker's toolkit the program gets the other hyperparameters as `--name value`, sorted. `requirements.txt` is not installed: the
//! program runs on the machine's own `/usr`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{Channel, Distribution, Error, InputMode, RecordWrapper, S3DataType};

use super::{refuse, s3_uri};

/// The channel that a submitted archive comes by.
const CHANNEL: &str = "shoal_source";
/// Unpacks the archive into the program's own directory, where it starts.
const UNPACK: &str = "tar -xzf \"$SM_CHANNEL_SHOAL_SOURCE\"/* && exec \"$@\"";
const ENTER: &str = "cd \"$0\" && exec \"$@\"";

/// A command and the channel that it needs.
pub(super) struct Script {
    pub(super) entrypoint: Vec<String>,
    pub(super) arguments: Vec<String>,
    pub(super) channel: Option<Channel>,
}

/// The script that the hyperparameters name; `None` if they name none.
///
/// # Errors
/// The directory is missing, or is neither an archive in S3 nor an absolute path.
pub(super) fn script(hyperparameters: &BTreeMap<String, String>) -> Result<Option<Script>, Error> {
    let Some(program) = hyperparameters.get("sagemaker_program").map(|text| decoded(text)).filter(|it| !it.is_empty()) else {
        return Ok(None);
    };
    let path = "hyperParameters.sagemaker_submit_directory";
    let Some(directory) = hyperparameters.get("sagemaker_submit_directory").map(|text| decoded(text)) else {
        return refuse(
            path,
            "sagemaker_program needs it; give a .tar.gz archive in S3 that has the program, or its directory on the instance",
        );
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let (mut entrypoint, channel) = if directory.starts_with("s3://") {
        if !directory.ends_with(".tar.gz") {
            return refuse(
                path,
                &format!("'{directory}' is no .tar.gz archive; pack the program's directory (tar -czf sourcedir.tar.gz -C DIR .)"),
            );
        }
        let channel = Channel {
            name: CHANNEL.to_owned(),
            data_type: S3DataType::S3Prefix,
            uri: s3_uri(path, &directory)?,
            distribution: Distribution::FullyReplicated,
            content_type: None,
            record_wrapper: RecordWrapper::None,
            input_mode: InputMode::File,
            shuffle_seed: None,
        };
        (words(&["/bin/sh", "-c", UNPACK, "sh"]), Some(channel))
    } else if directory.starts_with('/') {
        (words(&["/bin/sh", "-c", ENTER, &directory]), None)
    } else {
        return refuse(path, &format!("'{directory}' is neither an S3 location nor an absolute path"));
    };
    if program.ends_with(".py") {
        entrypoint.extend([String::from("python3"), program]);
    } else {
        entrypoint.extend([String::from("/bin/sh"), format!("./{program}")]);
    }
    Ok(Some(Script { entrypoint, arguments: arguments(hyperparameters), channel }))
}

fn arguments(hyperparameters: &BTreeMap<String, String>) -> Vec<String> {
    let own = hyperparameters.iter().filter(|(name, _)| !name.starts_with("sagemaker_") && !name.starts_with("_tuning_objective_metric"));
    own.flat_map(|(name, value)| {
        let dashes = if name.chars().count() == 1 { "-" } else { "--" };
        [format!("{dashes}{name}"), decoded(value)]
    })
    .collect()
}

/// A hyperparameter's text without the JSON that SDK v2 puts around it, as Python's `str` shows it.
fn decoded(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::String(text)) => text,
        Ok(Value::Bool(true)) => "True".to_owned(),
        Ok(Value::Bool(false)) => "False".to_owned(),
        Ok(Value::Null) => String::new(),
        _ => text.to_owned(),
    }
}
