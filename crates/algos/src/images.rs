//! Which training images are built-in algorithms: SageMaker's image names, in every form in which
//! SDKs and people write them.

use std::fmt::Write;

use thiserror::Error;

use crate::algorithm::Algorithm;

/// A repository of an algorithm's images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repository {
    /// Without registry: `sagemaker-xgboost`.
    pub name: &'static str,
    /// The published versions, oldest first. A tag is one of them, with or without what SageMaker
    /// appends to it.
    pub versions: &'static [&'static str],
    /// Other tags, and the versions that they stand for; the empty tag is that of an image without
    /// one.
    pub other_tags: &'static [(&'static str, &'static str)],
}

/// An image of a built-in algorithm.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The version in SageMaker's numbering that was asked for (`1.7-1`). Every one of them is
    /// served by the algorithm's one build.
    pub version: &'static str,
}

/// An image name that is of a built-in algorithm, but of no version of it.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the image \"{image}\" names no published version of SageMaker's {title}; the versions are {published}")]
pub struct UnknownVersion {
    image: String,
    title: &'static str,
    published: String,
}

/// What may follow a version in a tag.
const SUFFIXES: [&str; 5] = ["", "-cpu-py3", "-cpu", "-py3", "-gpu-py3"];

/// The algorithm that `image` stands for; `None` if it is of none of them.
///
/// All registry forms count: `ACCOUNT.dkr.ecr.REGION.amazonaws.com/sagemaker-xgboost:1.7-1`, the
/// same with another partition's suffix, and the plain `sagemaker-xgboost:1.7-1` and
/// `xgboost:latest`. A digest after the tag is ignored: there is only one build of an algorithm.
pub(crate) fn resolve(algorithms: &[&'static Algorithm], image: &str) -> Result<Option<Image>, UnknownVersion> {
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
    let known = algorithms.iter().flat_map(|it| it.repositories.iter().map(move |repository| (*it, repository)));
    let Some((algorithm, repository)) = known.into_iter().find(|(_, known)| known.name == repository) else {
        return Ok(None);
    };
    let version = match tag {
        // A digest alone says which build, but not of which version.
        None if digest.is_some() => repository.versions.last().copied(),
        tag => repository.version_of(tag.unwrap_or_default()),
    };
    match version {
        Some(version) => Ok(Some(Image { algorithm, version })),
        None => {
            Err(UnknownVersion { image: image.to_owned(), title: algorithm.title, published: published(algorithm) })
        }
    }
}

impl Repository {
    fn version_of(&self, tag: &str) -> Option<&'static str> {
        let other = self.other_tags.iter().find(|(known, _)| *known == tag).map(|(_, version)| *version);
        let is_of = |version: &&str| tag.strip_prefix(*version).is_some_and(|suffix| SUFFIXES.contains(&suffix));
        other.or_else(|| self.versions.iter().copied().find(is_of))
    }

    /// Its newest image.
    pub fn newest(&self) -> String {
        match self.versions.last() {
            Some(version) => format!("{}:{version}", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// `0.90-1, 0.90-2, 1.0-1, and xgboost:1 and xgboost:latest`
fn published(algorithm: &Algorithm) -> String {
    let mut versions: Vec<&str> = Vec::new();
    for version in algorithm.repositories.iter().flat_map(|repository| repository.versions) {
        if !versions.contains(version) {
            versions.push(version);
        }
    }
    let mut text = versions.join(", ");
    let tags = algorithm.repositories.iter().flat_map(|it| it.other_tags.iter().map(move |(tag, _)| (it.name, *tag)));
    for (at, (repository, tag)) in tags.filter(|(_, tag)| !tag.is_empty()).enumerate() {
        let _ = write!(text, "{} and {repository}:{tag}", if at == 0 { "," } else { "" });
    }
    text
}

/// `683313688378.dkr.ecr.us-east-1.amazonaws.com` and the same of other partitions.
fn is_sagemaker_registry(registry: &str) -> bool {
    let Some((account, host)) = registry.split_once(".dkr.ecr") else { return false };
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    is_account && host.starts_with(['.', '-']) && host.contains('.') && !host.contains('/')
}

#[cfg(test)]
mod tests {
    use crate::BUILT_IN;

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
            let found = BUILT_IN.resolve(image).unwrap().expect(image);
            assert_eq!((found.algorithm.name, found.version), ("xgboost", version), "{image}");
        }
    }

    #[test]
    fn what_algorithms_declare_fits_together() {
        let mut repositories = Vec::new();
        for algorithm in BUILT_IN.iter() {
            for repository in algorithm.repositories {
                assert!(!repositories.contains(&repository.name), "{}: two repositories of this name", repository.name);
                repositories.push(repository.name);
                assert_eq!(
                    BUILT_IN.resolve(&repository.newest()).unwrap().map(|it| it.algorithm.name),
                    Some(algorithm.name)
                );
                for version in repository.versions {
                    let image = format!("{}:{version}", repository.name);
                    assert_eq!(BUILT_IN.resolve(&image).unwrap().map(|it| it.version), Some(*version), "{image}");
                }
            }
            let names = (algorithm.hyperparameters.names)();
            for (name, value) in algorithm.hyperparameters.required {
                assert_eq!((algorithm.hyperparameters.check)(name, value), Ok(()), "{name}");
            }
            for tunable in algorithm.hyperparameters.tunable {
                assert!(names.contains(&tunable.name) && tunable.min < tunable.max, "{tunable:?}");
                for end in [tunable.min, tunable.max] {
                    assert_eq!(
                        (algorithm.hyperparameters.check)(tunable.name, &end.to_string()),
                        Ok(()),
                        "{tunable:?}"
                    );
                }
            }
            assert!(algorithm.hyperparameters.resource.is_none_or(|resource| names.contains(&resource.name)));
            for (name, objective) in algorithm.objectives() {
                let Some(measured) = objective.measured_on else { continue };
                assert!(algorithm.channels.optional.contains(&measured.channel), "{name}: {measured:?}");
                assert!(measured.unless.is_none_or(|unless| names.contains(&unless)), "{name}: {measured:?}");
            }
        }
    }

    #[test]
    fn unpublished_versions_are_told_with_the_published_ones() {
        for image in [
            "sagemaker-xgboost:2.0-1",
            "sagemaker-xgboost:1.7-11",
            "sagemaker-xgboost",
            "xgboost:1.7",
            "sagemaker-xgboost:latest",
        ] {
            let expected = format!(
                "the image {image:?} names no published version of SageMaker's XGBoost; the versions are 0.90-1, \
                 0.90-2, 1.0-1, 1.2-1, 1.2-2, 1.3-1, \
                 1.5-1, 1.7-1, 3.0-5, and xgboost:1 and xgboost:latest"
            );
            assert_eq!(BUILT_IN.resolve(image).expect_err(image).to_string(), expected);
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
            assert!(BUILT_IN.resolve(image).unwrap().is_none(), "{image}");
        }
    }
}
