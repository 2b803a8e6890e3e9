//! Amazon Resource Names and the S3 places that follow from a training job's name.

use crate::S3Uri;

/// `arn:aws:sagemaker:<region>:<account>:training-job/<name>`, the name in lower case as AWS writes it.
pub fn training_job(region: &str, account: &str, name: &str) -> String {
    format!("arn:aws:sagemaker:{region}:{account}:training-job/{}", name.to_lowercase())
}

/// `arn:aws:iam::<account>:role/<name>`.
pub fn role(account: &str, name: &str) -> String {
    format!("arn:aws:iam::{account}:role/{name}")
}

/// `arn:aws:sts::<account>:assumed-role/<role>/<session>`, the form that `get_execution_role` understands.
pub fn assumed_role(account: &str, role: &str, session: &str) -> String {
    format!("arn:aws:sts::{account}:assumed-role/{role}/{session}")
}

/// `arn:aws:logs:<region>:<account>:log-group:<group>:log-stream:<stream>`.
pub fn log_stream(region: &str, account: &str, group: &str, stream: &str) -> String {
    format!("arn:aws:logs:{region}:{account}:log-group:{group}:log-stream:{stream}")
}

/// Where a training job's outputs go: `<S3OutputPath>/<job>/output/<file>`, for `model.tar.gz`, `output.tar.gz` or `model/`.
pub fn output(path: &S3Uri, job: &str, file: &str) -> S3Uri {
    let prefix = path.prefix.trim_end_matches('/');
    let slash = if prefix.is_empty() { "" } else { "/" };
    S3Uri { bucket: path.bucket.clone(), prefix: format!("{prefix}{slash}{job}/output/{file}") }
}
