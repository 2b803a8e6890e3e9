//! Where in S3 a job reads and writes.

use shoal_wire::{Channel, CreateTrainingJob, S3Uri, arn};

/// Where a script's intermediate output goes, as SageMaker's toolkit has it.
pub(crate) fn intermediate(request: &CreateTrainingJob) -> Option<S3Uri> {
    let output = request.script.as_ref()?.output.as_ref()?;
    Some(arn::output(output, &request.name, "intermediate/"))
}

/// What a job's temporary keys may write: its output, its checkpoints and its intermediate output.
pub(crate) fn writes(request: &CreateTrainingJob) -> Vec<(String, String)> {
    let output = place(&arn::output(&request.output.s3_output_path, &request.name, ""));
    let others = [request.checkpoint.as_ref().map(|config| config.uri.clone()), intermediate(request)];
    [output].into_iter().chain(others.iter().flatten().map(folder)).collect()
}

/// What a job's temporary keys may read: its channels, its checkpoints and its submitted source.
pub(crate) fn reads(request: &CreateTrainingJob) -> Vec<(String, String)> {
    let checkpoints = request.checkpoint.as_ref().map(|config| folder(&config.uri));
    let source = request.script.as_ref().and_then(|script| script.source.as_ref());
    let channels = request.channels.iter().filter_map(Channel::s3).map(|source| place(&source.uri));
    channels.chain(source.map(place)).chain(checkpoints).collect()
}

pub(crate) fn place(uri: &S3Uri) -> (String, String) {
    (uri.bucket.clone(), uri.prefix.clone())
}

/// S3 bucket and prefix of a checkpoint location, whether or not it has a `/` at its end.
pub(crate) fn folder(uri: &S3Uri) -> (String, String) {
    (uri.bucket.clone(), uri.folder())
}
