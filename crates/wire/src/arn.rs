//! Amazon Resource Names and the S3 places that follow from a training job's name.

use crate::S3Uri;

/// `arn:aws:sagemaker:<region>:<account>:<kind>/<name>`, the name in lower case as AWS writes it.
pub fn sagemaker(region: &str, account: &str, kind: &str, name: &str) -> String {
    format!("arn:aws:sagemaker:{region}:{account}:{kind}/{}", name.to_lowercase())
}

/// [`sagemaker`] of a training job.
pub fn training_job(region: &str, account: &str, name: &str) -> String {
    sagemaker(region, account, "training-job", name)
}

/// [`sagemaker`] of a tuning job.
pub fn tuning_job(region: &str, account: &str, name: &str) -> String {
    sagemaker(region, account, "hyper-parameter-tuning-job", name)
}

/// A resource of SageMaker, as its ARN names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resource<'a> {
    /// Where it is.
    pub region: &'a str,
    /// Whose it is.
    pub account: &'a str,
    /// `training-job`, `model` and so on.
    pub kind: &'a str,
    /// Its name; in lower case, if AWS or Shoal wrote the ARN.
    pub name: &'a str,
}

/// Reads `arn:<partition>:sagemaker:<region>:<account>:<kind>/<name>`.
pub fn resource(arn: &str) -> Option<Resource<'_>> {
    let mut parts = arn.splitn(6, ':');
    let (head, _partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account) = (parts.next()?, parts.next()?);
    let (kind, name) = parts.next()?.split_once('/')?;
    (head == "arn" && service == "sagemaker").then_some(Resource { region, account, kind, name })
}

/// `arn:aws:iam::<account>:user/<name>`.
pub fn user(account: &str, name: &str) -> String {
    format!("arn:aws:iam::{account}:user/{name}")
}

/// `arn:aws:iam::<account>:role/<name>`.
pub fn role(account: &str, name: &str) -> String {
    format!("arn:aws:iam::{account}:role/{name}")
}

/// `arn:aws:sts::<account>:assumed-role/<role>/<session>`, the form that `get_execution_role`
/// understands.
pub fn assumed_role(account: &str, role: &str, session: &str) -> String {
    format!("arn:aws:sts::{account}:assumed-role/{role}/{session}")
}

/// `arn:aws:logs:<region>:<account>:log-group:<group>`.
pub fn log_group(region: &str, account: &str, group: &str) -> String {
    format!("arn:aws:logs:{region}:{account}:log-group:{group}")
}

/// `<log group's ARN>:log-stream:<stream>`.
pub fn log_stream(region: &str, account: &str, group: &str, stream: &str) -> String {
    format!("{}:log-stream:{stream}", log_group(region, account, group))
}

/// Where a training job's outputs go: `<S3OutputPath>/<job>/output/<file>`, for `model.tar.gz`,
/// `output.tar.gz` or `model/`.
pub fn output(path: &S3Uri, job: &str, file: &str) -> S3Uri {
    path.below(&format!("{job}/output/{file}"))
}

/// Where what observes a training job goes: `<S3OutputPath>/<job>/<kind>/`, for `debug-output`,
/// `tensorboard-output` or `profiler-output`.
pub fn observed(path: &S3Uri, job: &str, kind: &str) -> S3Uri {
    path.below(&format!("{job}/{kind}/"))
}
