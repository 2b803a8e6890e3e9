//! Rules of `AlgorithmSpecification`.

use std::collections::BTreeSet;

use fancy_regex::RegexBuilder;

use crate::{
    Algorithm, Error, MetricDefinition,
    refusal::{refuse, refuse_nul},
    training_job::request,
};

/// Steps that a metric's regex may take on one line.
const MOST_STEPS: usize = 1_000_000;
/// The image that runs the user's program on the machine's own `/usr`.
const HOST_IMAGE: &str = "shoal/host";

pub(super) fn algorithm(
    specification: Option<request::AlgorithmSpecification>,
    has_script: bool,
) -> Result<Algorithm, Error> {
    let path = "algorithmSpecification";
    let Some(specification) = specification else {
        return refuse(path, "it is required; give at least TrainingImage and TrainingInputMode");
    };
    match (&specification.training_image, &specification.algorithm_name) {
        (Some(image), None) if image.is_empty() => return refuse(&format!("{path}.trainingImage"), "it is empty"),
        (Some(image), None) => {
            if is_host(image) && !has_script && specification.container_entrypoint.first().is_none_or(String::is_empty)
            {
                return refuse(
                    &format!("{path}.containerEntrypoint"),
                    "the image shoal/host has no program of its own; give the command to run, as in [\"python3\", \
                     \"train.py\"], or the \
                     hyperparameters sagemaker_program and sagemaker_submit_directory",
                );
            }
        }
        (None, Some(_)) => {}
        (Some(_), Some(_)) => {
            return refuse(path, "TrainingImage and AlgorithmName are alternatives; give one of them");
        }
        (None, None) => return refuse(path, "give one of TrainingImage and AlgorithmName"),
    }
    for (name, words) in [
        ("containerEntrypoint", &specification.container_entrypoint),
        ("containerArguments", &specification.container_arguments),
    ] {
        refuse_nul(&format!("{path}.{name}"), words)?;
    }
    let metric_definitions = metric_definitions(specification.metric_definitions)?;
    Ok(Algorithm {
        training_image: specification.training_image,
        algorithm_name: specification.algorithm_name,
        input_mode: specification.training_input_mode,
        metric_definitions,
        entrypoint: specification.container_entrypoint,
        arguments: specification.container_arguments,
    })
}

fn is_host(image: &str) -> bool {
    image.split([':', '@']).next() == Some(HOST_IMAGE)
}

/// Registries in a network of the user's own.
pub(super) fn image_access(config: &request::TrainingImageConfig, vpc: bool) -> Result<(), Error> {
    let path = "algorithmSpecification.trainingImageConfig";
    let own = config.training_repository_access_mode == "Vpc";
    if own && !vpc {
        return refuse(
            &format!("{path}.trainingRepositoryAccessMode"),
            "Vpc needs VpcConfig; use Platform, or give VpcConfig",
        );
    }
    if !own && config.training_repository_auth_config.is_some() {
        return refuse(
            &format!("{path}.trainingRepositoryAuthConfig"),
            "it is for the access mode Vpc only; leave it out",
        );
    }
    Ok(())
}

fn metric_definitions(definitions: Vec<request::MetricDefinition>) -> Result<Vec<MetricDefinition>, Error> {
    let mut names = BTreeSet::new();
    let mut checked = Vec::with_capacity(definitions.len());
    for (at, definition) in definitions.into_iter().enumerate() {
        let path = format!("algorithmSpecification.metricDefinitions.{}.member", at + 1);
        if !names.insert(definition.name.clone()) {
            return refuse(&format!("{path}.name"), &format!("the metric '{}' is defined twice", definition.name));
        }
        match RegexBuilder::new(&definition.regex).backtrack_limit(MOST_STEPS).build() {
            Ok(regex) if regex.captures_len() < 2 => {
                let hint = r"it has no group; put the number into parentheses, as in 'loss: ([0-9.]+)'";
                return refuse(&format!("{path}.regex"), hint);
            }
            Ok(_) => checked.push(MetricDefinition { name: definition.name, regex: definition.regex }),
            Err(error) => {
                return refuse(
                    &format!("{path}.regex"),
                    &format!("'{}' is not a regular expression: {error}", definition.regex),
                );
            }
        }
    }
    Ok(checked)
}
