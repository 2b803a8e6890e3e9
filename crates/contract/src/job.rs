//! The training program's side: what the files under `/opt/ml/input/config` say.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, de::DeserializeOwned};

/// What a training program knows of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Every value a string, as submitted.
    pub hyperparameters: BTreeMap<String, String>,
    /// All host names, in the order of ranks.
    pub hosts: Vec<String>,
    /// This host's position in `hosts`, from 0.
    pub rank: usize,
    /// As requested.
    pub instance_type: String,
    /// The interface that the hosts talk over.
    pub network_interface: String,
    /// Inputs by name; their data is at [`crate::Paths::channel`].
    pub channels: BTreeMap<String, ChannelConfig>,
}

/// How an input was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ChannelConfig {
    /// `text/csv;label_size=1`
    #[serde(default)]
    pub content_type: Option<String>,
    /// `File` or `Pipe`
    #[serde(default)]
    pub training_input_mode: Option<String>,
    /// `FullyReplicated` or `ShardedByS3Key`
    #[serde(default)]
    pub s3_distribution_type: Option<String>,
    /// `None` or `RecordIO`
    #[serde(default)]
    pub record_wrapper_type: Option<String>,
}

/// A config file does not say what it must.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not JSON of the expected shape.
    #[error("{file} is malformed")]
    Malformed {
        /// Its name under `/opt/ml/input/config`.
        file: &'static str,
        /// Where and what.
        #[source]
        source: serde_json::Error,
    },
    /// `current_host` is none of `hosts`.
    #[error("resourceconfig.json: current_host \"{0}\" is not among its hosts")]
    UnknownHost(String),
}

#[derive(Deserialize)]
struct ResourceConfig {
    current_host: String,
    hosts: Vec<String>,
    #[serde(default)]
    current_instance_type: String,
    #[serde(default = "eth0")]
    network_interface_name: String,
}

fn eth0() -> String {
    "eth0".into()
}

impl Job {
    /// From the contents of `hyperparameters.json`, `resourceconfig.json` and
    /// `inputdataconfig.json`.
    ///
    /// # Errors
    /// [`ConfigError`] names the file that is wrong.
    pub fn parse(
        hyperparameters: &[u8],
        resource_config: &[u8],
        input_data_config: &[u8],
    ) -> Result<Self, ConfigError> {
        let resources: ResourceConfig = parse("resourceconfig.json", resource_config)?;
        let mut hosts = resources.hosts;
        hosts.sort_unstable();
        let Some(rank) = hosts.iter().position(|host| *host == resources.current_host) else {
            return Err(ConfigError::UnknownHost(resources.current_host));
        };
        Ok(Self {
            hyperparameters: parse("hyperparameters.json", hyperparameters)?,
            hosts,
            rank,
            instance_type: resources.current_instance_type,
            network_interface: resources.network_interface_name,
            channels: parse("inputdataconfig.json", input_data_config)?,
        })
    }

    /// How many hosts there are.
    pub fn world_size(&self) -> usize {
        self.hosts.len()
    }

    /// This host's name.
    pub fn current_host(&self) -> &str {
        &self.hosts[self.rank]
    }
}

/// The directory that is mirrored to S3, from the content of `checkpointconfig.json`.
///
/// # Errors
/// [`ConfigError::Malformed`].
pub fn checkpoint_directory(checkpoint_config: &[u8]) -> Result<PathBuf, ConfigError> {
    let CheckpointConfig { local_path } = parse("checkpointconfig.json", checkpoint_config)?;
    Ok(local_path)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct CheckpointConfig {
    local_path: PathBuf,
}

fn parse<T: DeserializeOwned>(file: &'static str, bytes: &[u8]) -> Result<T, ConfigError> {
    serde_json::from_slice(bytes).map_err(|source| ConfigError::Malformed { file, source })
}
