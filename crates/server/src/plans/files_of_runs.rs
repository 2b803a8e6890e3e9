//! Where in S3 a job's run keeps its files.

use shoal_wire::CreateTrainingJob;

use crate::api::component_of;

/// Where SDK v2's `Run` stores files of the job's run and of its own trial component: a folder
/// of the default bucket, unless the program gives another one.
pub(super) fn files_of_runs(request: &CreateTrainingJob, region: &str, account: &str) -> Vec<(String, String)> {
    let Some(config) = &request.experiment else { return Vec::new() };
    let components = [config.run_name.as_ref().map(|run| run.to_lowercase()), Some(component_of(&request.name))];
    let bucket = format!("sagemaker-{region}-{account}");
    let folder = |component| (bucket.clone(), format!("trial-component-artifacts/{component}/"));
    components.into_iter().flatten().map(folder).collect()
}
