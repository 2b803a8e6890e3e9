//! Which directories of an instance can be mirrored to S3: those of checkpoints, tensors and
//! TensorBoard's event files.

use crate::{
    CheckpointConfig, Error,
    refusal::{refuse, s3_uri},
    training_job::request,
};

/// Directories of an instance that are not a program's own. Some are on the way to places that are.
const NOT_A_PROGRAMS: [&str; 16] = [
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/opt/ml/input",
    "/opt/shoal",
    "/proc",
    "/run/shoal",
    "/sbin",
    "/sys",
    "/usr",
    "/var/run",
];
/// They hold more than what is mirrored.
const NOT_AS_A_WHOLE: [&str; 8] = ["/home", "/opt", "/opt/ml", "/root", "/run", "/tmp", "/var", "/var/tmp"];

/// `CheckpointConfig.LocalPath` by default.
pub(crate) const CHECKPOINTS: &str = "/opt/ml/checkpoints";

pub(super) fn checkpoint(config: request::CheckpointConfig) -> Result<CheckpointConfig, Error> {
    let local_path = of_program("checkpointConfig.localPath", config.local_path, CHECKPOINTS, "checkpoints")?;
    Ok(CheckpointConfig { uri: s3_uri("checkpointConfig.s3Uri", &config.s3_uri)?, local_path })
}

/// The directory that the member at `path` names: absolute, without `.`, `..` and a `/` at its end.
///
/// # Errors
/// It is not a directory of the program's own, or holds more than `content`.
pub(super) fn of_program(path: &str, given: Option<String>, default: &str, content: &str) -> Result<String, Error> {
    let given = given.unwrap_or_else(|| default.to_owned());
    if !given.starts_with('/') {
        return refuse(path, "it must be an absolute path");
    }
    let names: Vec<&str> = given.split('/').filter(|name| !matches!(*name, "" | ".")).collect();
    if names.contains(&"..") {
        return refuse(path, "it must not contain '..'");
    }
    let local_path = format!("/{}", names.join("/"));
    let is_below = |directory: &str| {
        local_path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if let Some(directory) = NOT_A_PROGRAMS.into_iter().find(|directory| is_below(directory)) {
        return refuse(
            path,
            &format!("{directory} is not for {content}; use {default} or another directory of the program's own"),
        );
    }
    if names.is_empty() || NOT_AS_A_WHOLE.contains(&local_path.as_str()) {
        return refuse(path, &format!("{local_path} holds more than {content}; name a directory in it"));
    }
    Ok(local_path)
}
