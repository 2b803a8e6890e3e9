//! Which training images are built-in algorithms: SageMaker's image names, in every form in which SDKs and people write them.

use thiserror::Error;

use crate::xgboost::{HyperparameterError, hyperparameters, metrics, tunable};
pub use crate::xgboost::{
    metrics::{MetricDefinition, TuningObjective},
    tunable::Tunable,
};

/// An algorithm of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Gradient boosted trees by the XGBoost library.
    XGBoost,
}

impl Algorithm {
    /// The name that [`crate::run`] takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::XGBoost => "xgboost",
        }
    }
}

/// A built-in algorithm that an image name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Builtin {
    /// What runs.
    pub algorithm: Algorithm,
    /// The version in SageMaker's numbering that was asked for (`1.7-1`; `1` for the oldest, unnumbered image). Every one of them is served by
    /// the current library.
    pub version: &'static str,
}

impl Builtin {
    /// The metric definitions that hold when a request for this image brings none.
    pub fn metric_definitions(&self) -> Vec<MetricDefinition> {
        match self.algorithm {
            Algorithm::XGBoost => metrics::definitions(),
        }
    }

    /// What a tuning job of this image can optimise, and which way.
    pub fn tuning_objectives(&self) -> Vec<TuningObjective> {
        match self.algorithm {
            Algorithm::XGBoost => metrics::objectives(),
        }
    }

    /// Names of the hyperparameters that it takes.
    pub fn hyperparameters(&self) -> Vec<&'static str> {
        match self.algorithm {
            Algorithm::XGBoost => hyperparameters::names().collect(),
        }
    }

    /// Those that every training job must have.
    pub fn required_hyperparameters(&self) -> &'static [&'static str] {
        match self.algorithm {
            Algorithm::XGBoost => &["num_round"],
        }
    }

    /// The channel that every training job must have, and those that it may have.
    pub fn channels(&self) -> (&'static str, &'static [&'static str]) {
        match self.algorithm {
            Algorithm::XGBoost => ("train", &["validation", "code"]),
        }
    }

    /// Checks one hyperparameter without the others: its name, and its value as the request has it.
    ///
    /// # Errors
    /// In the words of the algorithm's image.
    pub fn check_hyperparameter(&self, name: &str, value: &str) -> Result<(), HyperparameterError> {
        match self.algorithm {
            Algorithm::XGBoost => hyperparameters::validate_one(name, value),
        }
    }

    /// What is recommended to be tuned, for requests that leave it to the service.
    pub fn tunable(&self) -> &'static [Tunable] {
        match self.algorithm {
            Algorithm::XGBoost => &tunable::TUNABLE,
        }
    }
}

/// An image name that is of a built-in algorithm, but of no version of it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the image {image:?} names no published version of SageMaker's XGBoost; the versions are {}, and xgboost:1 and xgboost:latest", VERSIONS.join(", "))]
pub struct UnknownVersion {
    image: String,
}

/// The published versions of the repository `sagemaker-xgboost`, as the SageMaker SDK 2.257 lists them.
const VERSIONS: [&str; 9] = ["0.90-1", "0.90-2", "1.0-1", "1.2-1", "1.2-2", "1.3-1", "1.5-1", "1.7-1", "3.0-5"];

/// The tags of the repository `xgboost`, which came before.
const FIRST_IMAGE: [&str; 3] = ["1", "latest", ""];

/// What may follow a version in a tag.
const SUFFIXES: [&str; 5] = ["", "-cpu-py3", "-cpu", "-py3", "-gpu-py3"];

/// The built-in algorithm that `image` stands for; `None` if it is none of ours.
///
/// All registry forms count: `ACCOUNT.dkr.ecr.REGION.amazonaws.com/sagemaker-xgboost:1.7-1`, the same with another partition's suffix, and the
/// plain `sagemaker-xgboost:1.7-1` and `xgboost:latest`. A digest after the tag is ignored: there is only one build of a built-in.
///
/// # Errors
/// [`UnknownVersion`] lists the published versions when the repository is one of ours but the tag is not.
pub fn resolve(image: &str) -> Result<Option<Builtin>, UnknownVersion> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (registry, repository) = match name.rsplit_once('/') {
        Some((registry, repository)) => (Some(registry), repository),
        None => (None, name),
    };
    if registry.is_some_and(|registry| !is_sagemaker_registry(registry)) {
        return Ok(None);
    }
    let (repository, tag) = match repository.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (repository, None),
    };
    let version = match (repository, tag) {
        // A digest alone says which build, but not of which version.
        ("sagemaker-xgboost" | "xgboost", None) if digest.is_some() => VERSIONS.last().copied(),
        ("sagemaker-xgboost", tag) => tag.and_then(version_of),
        ("xgboost", tag) => match tag.unwrap_or_default() {
            tag if FIRST_IMAGE.contains(&tag) => Some("1"),
            tag => version_of(tag),
        },
        _ => return Ok(None),
    };
    match version {
        Some(version) => Ok(Some(Builtin { algorithm: Algorithm::XGBoost, version })),
        None => Err(UnknownVersion { image: image.to_owned() }),
    }
}

fn version_of(tag: &str) -> Option<&'static str> {
    VERSIONS.into_iter().find(|version| tag.strip_prefix(version).is_some_and(|suffix| SUFFIXES.contains(&suffix)))
}

/// `683313688378.dkr.ecr.us-east-1.amazonaws.com` and the same of other partitions.
fn is_sagemaker_registry(registry: &str) -> bool {
    let Some((account, host)) = registry.split_once(".dkr.ecr") else { return false };
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    is_account && host.starts_with(['.', '-']) && host.contains('.') && !host.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_name_resolves() {
        let cases = [
            ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1", "1.7-1"),
            ("246618743249.dkr.ecr.us-west-2.amazonaws.com/sagemaker-xgboost:1.0-1-cpu-py3", "1.0-1"),
            ("390948362332.dkr.ecr.cn-north-1.amazonaws.com.cn/sagemaker-xgboost:1.2-2", "1.2-2"),
            ("492215442770.dkr.ecr-fips.us-gov-west-1.amazonaws.com/sagemaker-xgboost:3.0-5", "3.0-5"),
            ("505240241414.dkr.ecr.us-iso-east-1.c2s.ic.gov/sagemaker-xgboost:0.90-2-cpu-py3", "0.90-2"),
            ("811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:1", "1"),
            ("811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost:latest", "1"),
            ("811284229777.dkr.ecr.us-east-1.amazonaws.com/xgboost", "1"),
            ("sagemaker-xgboost:1.5-1", "1.5-1"),
            ("xgboost:1.3-1", "1.3-1"),
            ("xgboost", "1"),
            ("sagemaker-xgboost:1.2-1@sha256:0f", "1.2-1"),
            ("683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost@sha256:0f", "3.0-5"),
        ];
        for (image, version) in cases {
            assert_eq!(resolve(image), Ok(Some(Builtin { algorithm: Algorithm::XGBoost, version })), "{image}");
        }
        for version in VERSIONS {
            assert_eq!(resolve(&format!("sagemaker-xgboost:{version}")).unwrap().unwrap().version, version);
        }
    }

    #[test]
    fn unpublished_versions_are_told_with_the_published_ones() {
        for image in ["sagemaker-xgboost:2.0-1", "sagemaker-xgboost:1.7-11", "sagemaker-xgboost", "xgboost:1.7", "sagemaker-xgboost:latest"]
        {
            let error = resolve(image).expect_err(image).to_string();
            assert!(error.contains(image) && error.contains("0.90-1, ") && error.contains("3.0-5"), "{error}");
        }
    }

    #[test]
    fn other_images_are_not_ours() {
        for image in [
            "shoal/host",
            "683313688378.dkr.ecr.us-east-1.amazonaws.com/linear-learner:1",
            "docker.io/me/sagemaker-xgboost:1.7-1",
            "me/xgboost",
            "my-sagemaker-xgboost:1.7-1",
            "",
        ] {
            assert_eq!(resolve(image), Ok(None), "{image}");
        }
    }

    #[test]
    fn definitions_find_every_metric_of_a_line() {
        let definitions = Builtin { algorithm: Algorithm::XGBoost, version: "1.7-1" }.metric_definitions();
        assert_eq!(definitions.len(), 2 * 33);
        let auc = definitions.iter().find(|definition| definition.name == "validation:auc").expect("validation:auc");
        assert_eq!(auc.regex, r".*\[[0-9]+\].*#011validation-auc:(\S+)");
    }

    #[test]
    fn every_metric_of_the_validation_set_can_be_an_objective() {
        let builtin = Builtin { algorithm: Algorithm::XGBoost, version: "1.7-1" };
        let objectives = builtin.tuning_objectives();
        let definitions = builtin.metric_definitions();
        assert_eq!(objectives.len(), 33);
        assert!(objectives.iter().all(|objective| definitions.iter().any(|definition| definition.name == objective.name)));
        let is_maximized = |name: &str| objectives.iter().find(|objective| objective.name == name).map(|objective| objective.is_maximized);
        assert_eq!(is_maximized("validation:auc"), Some(true));
        assert_eq!(is_maximized("validation:rmse"), Some(false));
        assert_eq!(is_maximized("train:auc"), None);
    }
}
