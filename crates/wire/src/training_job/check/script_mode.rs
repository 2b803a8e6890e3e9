//! Script mode: the script that a request brings for an image that runs such. SDK estimators with
//! an `entry_point` name it by the hyperparameters `sagemaker_program` and
//! `sagemaker_submit_directory` (JSON in SDK v2, plain in v3), users by variables of the same names
//! in capitals, too.

use std::collections::BTreeMap;

use crate::{
    Error, S3Uri, Script,
    refusal::{refuse, s3_uri},
};

const PROGRAM: &str = "sagemaker_program";
const SUBMIT_DIRECTORY: &str = "sagemaker_submit_directory";
const S3_OUTPUT: &str = "sagemaker_s3_output";

/// The script that hyperparameters or variables name; `None` if they name none, or the request has
/// a command.
///
/// # Errors
/// Its directory is missing, or is neither an archive in S3 nor an absolute path; its output is no
/// S3 location.
pub(crate) fn script(
    entrypoint: &[String],
    hyperparameters: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
) -> Result<Option<Script>, Error> {
    let Some(program) = value(PROGRAM, hyperparameters, environment).filter(|_| entrypoint.is_empty()) else {
        return Ok(None);
    };
    let path = &format!("hyperParameters.{SUBMIT_DIRECTORY}");
    let Some(directory) = value(SUBMIT_DIRECTORY, hyperparameters, environment) else {
        return refuse(
            path,
            "sagemaker_program needs it; give a .tar.gz archive in S3 that has the program, or its directory on the \
             instance",
        );
    };
    if !directory.starts_with("s3://") {
        return match directory.starts_with('/') {
            true => Ok(Some(Script { program, source: None, output: output(hyperparameters)? })),
            false => refuse(path, &format!("'{directory}' is neither an S3 location nor an absolute path")),
        };
    }
    if !directory.ends_with(".tar.gz") {
        return refuse(
            path,
            &format!(
                "'{directory}' is no .tar.gz archive; pack the program's directory (tar -czf sourcedir.tar.gz -C DIR .)"
            ),
        );
    }
    Ok(Some(Script { program, source: Some(s3_uri(path, &directory)?), output: output(hyperparameters)? }))
}

/// Where intermediate output goes, by the hyperparameter alone. SDK v2 says `null` for none, and a
/// `file:` that it means itself.
fn output(hyperparameters: &BTreeMap<String, String>) -> Result<Option<S3Uri>, Error> {
    let Some(text) = value(S3_OUTPUT, hyperparameters, &BTreeMap::new()) else { return Ok(None) };
    if text == "null" || text.starts_with("file:") {
        return Ok(None);
    }
    s3_uri(&format!("hyperParameters.{S3_OUTPUT}"), &text).map(Some)
}

/// Whether the script depends on a hyperparameter of this name.
pub(crate) fn names_script(hyperparameter: &str) -> bool {
    [PROGRAM, SUBMIT_DIRECTORY, S3_OUTPUT].contains(&hyperparameter)
}

fn value(
    name: &str,
    hyperparameters: &BTreeMap<String, String>,
    environment: &BTreeMap<String, String>,
) -> Option<String> {
    let hyperparameter =
        hyperparameters.get(name).map(|text| serde_json::from_str(text).unwrap_or_else(|_| text.clone()));
    let variable = || environment.get(&name.to_uppercase()).cloned();
    hyperparameter.filter(|text: &String| !text.is_empty()).or_else(variable).filter(|text| !text.is_empty())
}
