//! Which directories of an instance can hold checkpoints.

use crate::{
    CheckpointConfig, Error,
    refusal::{refuse, s3_uri},
    training_job::request,
};

/// Directories of an instance that are not a program's own. Some are on the way to places that are.
const NOT_FOR_CHECKPOINTS: [&str; 16] = [
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
const NOT_AS_A_WHOLE: [&str; 8] = ["/home", "/opt", "/opt/ml", "/root", "/run", "/tmp", "/var", "/var/tmp"];

/// `CheckpointConfig.LocalPath` by default.
pub(crate) const CHECKPOINTS: &str = "/opt/ml/checkpoints";

pub(super) fn checkpoint(config: request::CheckpointConfig) -> Result<CheckpointConfig, Error> {
    let path = "checkpointConfig.localPath";
    let given = config.local_path.unwrap_or_else(|| CHECKPOINTS.to_owned());
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
    if let Some(directory) = NOT_FOR_CHECKPOINTS.into_iter().find(|directory| is_below(directory)) {
        return refuse(
            path,
            &format!(
                "{directory} is not for checkpoints; use /opt/ml/checkpoints or another directory of the program's own"
            ),
        );
    }
    if names.is_empty() || NOT_AS_A_WHOLE.contains(&local_path.as_str()) {
        return refuse(path, &format!("{local_path} holds more than checkpoints; name a directory in it"));
    }
    Ok(CheckpointConfig { uri: s3_uri("checkpointConfig.s3Uri", &config.s3_uri)?, local_path })
}
