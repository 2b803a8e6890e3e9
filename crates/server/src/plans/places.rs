//! Where in S3 a job reads and writes.

use shoal_wire::{Channel, CreateTrainingJob, S3Uri, arn};

use crate::api::component_of;

/// Where a script's intermediate output goes, as SageMaker's toolkit has it.
pub(super) fn intermediate(request: &CreateTrainingJob) -> Option<S3Uri> {
    let output = request.script.as_ref()?.output.as_ref()?;
    Some(arn::output(output, &request.name, "intermediate/"))
}

/// What a job's temporary keys may write: its output, its checkpoints and its intermediate output.
pub(super) fn writes(request: &CreateTrainingJob) -> Vec<(String, String)> {
    let output = place(&arn::output(&request.output.s3_output_path, &request.name, ""));
    let others = [request.checkpoint.as_ref().map(|config| config.uri.clone()), intermediate(request)];
    [output].into_iter().chain(others.iter().flatten().map(folder)).collect()
}

/// What a job's temporary keys may read: its channels, its checkpoints and its submitted source.
pub(super) fn reads(request: &CreateTrainingJob) -> Vec<(String, String)> {
    let checkpoints = request.checkpoint.as_ref().map(|config| folder(&config.uri));
    let source = request.script.as_ref().and_then(|script| script.source.as_ref());
    let channels = request.channels.iter().filter_map(Channel::s3).map(|source| place(&source.uri));
    channels.chain(source.map(place)).chain(checkpoints).collect()
}

/// Where SDK v2's `Run` stores files of the job's run and of its own trial component: a folder
/// of the default bucket, unless the program gives another one.
pub(super) fn files_of_runs(request: &CreateTrainingJob, region: &str, account: &str) -> Vec<(String, String)> {
    let Some(config) = &request.experiment else { return Vec::new() };
    let components = [config.run_name.as_ref().map(|run| run.to_lowercase()), Some(component_of(&request.name))];
    let bucket = format!("sagemaker-{region}-{account}");
    let folder = |component| (bucket.clone(), format!("trial-component-artifacts/{component}/"));
    components.into_iter().flatten().map(folder).collect()
}

pub(super) fn place(uri: &S3Uri) -> (String, String) {
    (uri.bucket.clone(), uri.prefix.clone())
}

/// S3 bucket and prefix of a checkpoint location, whether or not it has a `/` at its end.
pub(super) fn folder(uri: &S3Uri) -> (String, String) {
    (uri.bucket.clone(), uri.folder())
}
