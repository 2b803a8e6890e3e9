//! How far the networks of training jobs reach: the owner's settings, and what a job requests by a
//! tag.

use shoal_link::{Egress, NetworkMode};
use shoal_wire::{CreateTrainingJob, Error, NETWORK_TAG, Tag};

/// The owner's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkOptions {
    /// For jobs without the tag.
    pub default: NetworkMode,
    /// Most that the tag may request.
    pub max: NetworkMode,
    /// Hosts that are open, as [`shoal_link::AllowedHost`] has them.
    pub allow: Vec<String>,
}

impl Default for NetworkOptions {
    /// No host outside.
    fn default() -> Self {
        Self { default: NetworkMode::None, max: NetworkMode::None, allow: Vec::new() }
    }
}

impl NetworkOptions {
    /// Refuses a tag that requests something unknown or more than the owner permits.
    ///
    /// # Errors
    /// `ValidationException`.
    pub(crate) fn check(&self, tags: &[Tag]) -> Result<(), Error> {
        let Some(text) = requested(tags) else { return Ok(()) };
        let problem = match text.parse::<NetworkMode>() {
            Err(()) => format!("it is one of {}", NetworkMode::NAMES),
            Ok(mode) if mode > self.max => {
                format!(
                    "this server permits at most \"{}\"; its owner can permit more by the setting network_max",
                    self.max.as_str()
                )
            }
            Ok(_) => return Ok(()),
        };
        Err(Error::validation(format!("Invalid value \"{text}\" of the tag '{NETWORK_TAG}': {problem}.")))
    }

    /// What a job's program may connect to. A job of before the settings changed gets what they
    /// permit now.
    pub(crate) fn egress(&self, request: &CreateTrainingJob) -> Option<Egress> {
        let requested = requested(&request.tags).map(|text| text.parse().unwrap_or(NetworkMode::None));
        let mode = requested.unwrap_or(self.default).min(self.max);
        let is_open = mode > NetworkMode::None && !request.enable_network_isolation;
        is_open.then(|| Egress { mode, allow: self.allow.clone() })
    }
}

fn requested(tags: &[Tag]) -> Option<&str> {
    tags.iter().find(|tag| tag.key == NETWORK_TAG).map(|tag| tag.value.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_wire::Stored as _;

    use super::*;

    fn request(tag: Option<&str>, is_isolated: bool) -> CreateTrainingJob {
        let tags: Vec<_> = tag.into_iter().map(|value| json!({"Key": NETWORK_TAG, "Value": value})).collect();
        let request = json!({
            "TrainingJobName": "job",
            "RoleArn": "arn:aws:iam::123456789012:role/r",
            "AlgorithmSpecification": {"TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
            "OutputDataConfig": {"S3OutputPath": "s3://bkt/"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
            "EnableNetworkIsolation": is_isolated,
            "Tags": tags,
        });
        match CreateTrainingJob::from_raw(request) {
            Ok(request) => request,
            Err(error) => panic!("{error:?}"),
        }
    }

    #[test]
    fn the_tag_chooses_below_the_owners_maximum_and_isolation_wins() {
        use NetworkMode::{AllowList, Host, None as Closed};
        for (default, max, tag, is_isolated, expected) in [
            (Closed, Closed, None, false, Ok(Closed)),
            (AllowList, AllowList, None, false, Ok(AllowList)),
            (AllowList, AllowList, None, true, Ok(Closed)),
            (AllowList, Host, Some("none"), false, Ok(Closed)),
            (Closed, AllowList, Some("allow-list"), false, Ok(AllowList)),
            (Closed, AllowList, Some("host"), false, Err("at most \"allow-list\"")),
            (Closed, Host, Some("host"), false, Ok(Host)),
            (Host, Host, Some("host"), true, Ok(Closed)),
            (Closed, Host, Some("all"), false, Err("it is one of none, allow-list or host")),
        ] {
            let options = NetworkOptions { default, max, allow: vec!["pypi.org".to_owned()] };
            let request = request(tag, is_isolated);
            match (options.check(&request.tags), expected) {
                (Ok(()), Ok(mode)) => assert_eq!(options.egress(&request).map_or(Closed, |egress| egress.mode), mode),
                (Err(error), Err(text)) => assert!(error.message.contains(text), "{}", error.message),
                (checked, expected) => panic!("{checked:?} {expected:?}"),
            }
        }
    }
}
