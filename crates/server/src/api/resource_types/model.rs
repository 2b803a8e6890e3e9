//! Models: containers and model data that endpoints and transform jobs run.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use shoal_store::ResourceKind;
use shoal_wire::{Error, ErrorCode};

use super::{PLAIN, Refusal, ResourceType};

/// Bytes of a container's environment, keys and values together.
const MAX_ENVIRONMENT_BYTES: usize = 32 << 10;

pub(super) static MODEL: ResourceType = ResourceType {
    kind: ResourceKind::new("model"),
    noun: "Model",
    operations: &["CreateModel", "DescribeModel", "ListModels", "DeleteModel"],
    ignores_case: false,
    duplicate: Refusal(ErrorCode::ValidationException, "Cannot create already existing model \"{arn}\"."),
    missing: Refusal(ErrorCode::ValidationException, "Could not find model \"{arn}\"."),
    check,
    describe: |_, _, shown| {
        complete_all(shown);
        Ok(())
    },
    #[cfg(test)]
    sample: r#"{
        "ModelName": "Titanic-1", "ExecutionRoleArn": "arn:aws:iam::123456789012:role/SageMakerRole", "EnableNetworkIsolation": true,
        "Containers": [
            {"Image": "registry/first:1", "ContainerHostname": "first", "ModelDataUrl": "s3://my-bucket/model.tar.gz", "Mode": "SingleModel",
             "Environment": {"A": "b"}},
            {"Image": "registry/second:1", "ContainerHostname": "second", "Mode": "SingleModel", "Environment": {}}],
        "InferenceExecutionConfig": {"Mode": "Direct"}, "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
        "Tags": [{"Key": "team", "Value": "trees"}, {"Key": "empty", "Value": ""}]
    }"#,
    ..PLAIN
};

fn check(request: &Map<String, Value>) -> Result<(), Error> {
    let containers: Vec<(String, &Value)> =
        match (request.get("PrimaryContainer"), request.get("Containers").and_then(Value::as_array)) {
            (Some(_), Some(list)) if !list.is_empty() => {
                return Err(Error::validation("PrimaryContainer and Containers are alternatives: give one of them."));
            }
            (Some(primary), _) => vec![("primaryContainer".to_owned(), primary)],
            (None, Some(list)) if !list.is_empty() => (1..)
                .zip(list)
                .map(|(number, container): (usize, _)| (format!("containers.{number}.member"), container))
                .collect(),
            (None, _) => {
                return Err(Error::validation("A model needs a container: give PrimaryContainer or Containers."));
            }
        };
    for (path, container) in &containers {
        check_container(path, container)?;
    }
    let mode = request.get("InferenceExecutionConfig").and_then(|config| config["Mode"].as_str());
    if mode.is_some() && containers.len() < 2 {
        return refuse("inferenceExecutionConfig", "it is for models of several containers; leave it out");
    }
    let mut hostnames = HashSet::new();
    for (path, container) in &containers {
        match container["ContainerHostname"].as_str() {
            Some(hostname) if !hostnames.insert(hostname) => {
                return refuse(
                    &format!("{path}.containerHostname"),
                    &format!("'{hostname}' is another container's; they are unique"),
                );
            }
            None if mode == Some("Direct") => {
                return refuse(
                    &format!("{path}.containerHostname"),
                    "it is required where InferenceExecutionConfig.Mode is Direct",
                );
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_container(path: &str, container: &Value) -> Result<(), Error> {
    if !container["ModelPackageName"].is_null() {
        return refuse(
            &format!("{path}.modelPackageName"),
            "this server has no model packages; give Image and ModelDataUrl or ModelDataSource instead",
        );
    }
    if container["Image"].as_str().is_none_or(str::is_empty) {
        return refuse(&format!("{path}.image"), "it is required");
    }
    let data = container["ModelDataUrl"].as_str();
    if data.is_some() && !container["ModelDataSource"].is_null() {
        return refuse(path, "ModelDataUrl and ModelDataSource are alternatives: give one of them");
    }
    if let Some(url) = data.filter(|url| !["s3://", "https://"].iter().any(|scheme| url.starts_with(scheme))) {
        return refuse(
            &format!("{path}.modelDataUrl"),
            &format!("'{url}' is not the S3 URL of a model; it begins with s3:// or https://"),
        );
    }
    if container["Mode"] == "MultiModel" && data.is_none() {
        return refuse(
            &format!("{path}.modelDataUrl"),
            "it is required where Mode is MultiModel, and names the prefix of the models",
        );
    }
    let environment = container["Environment"].as_object().into_iter().flatten();
    let bytes: usize = environment.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MAX_ENVIRONMENT_BYTES {
        return refuse(
            &format!("{path}.environment"),
            &format!("it has {bytes} bytes; {MAX_ENVIRONMENT_BYTES} are allowed"),
        );
    }
    Ok(())
}

/// Adds the defaults that AWS shows.
fn complete_all(shown: &mut Map<String, Value>) {
    shown.entry("EnableNetworkIsolation").or_insert(json!(false));
    if let Some(container) = shown.get_mut("PrimaryContainer").and_then(Value::as_object_mut) {
        complete(container);
    }
    for container in
        shown.get_mut("Containers").and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
    {
        complete(container);
    }
}

fn complete(container: &mut Map<String, Value>) {
    container.entry("Mode").or_insert(json!("SingleModel"));
    container.entry("Environment").or_insert(json!({}));
}

fn refuse(path: &str, why: &str) -> Result<(), Error> {
    Err(Error::validation(format!("Invalid value at '{path}': {why}.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_complete_and_tell_apart() {
        let refused =
            |request: Value| check(request.as_object().unwrap()).err().map_or_else(String::new, |error| error.message);
        let image = json!({"Image": "i"});
        let hosts = |one: &str, two: &str| json!([{"Image": "i", "ContainerHostname": one}, {"Image": "i", "ContainerHostname": two}]);
        for (request, expected) in [
            (json!({"PrimaryContainer": image}), ""),
            (json!({"PrimaryContainer": image, "Containers": []}), ""),
            (json!({"Containers": [image, image], "InferenceExecutionConfig": {"Mode": "Serial"}}), ""),
            (json!({"Containers": hosts("a", "b"), "InferenceExecutionConfig": {"Mode": "Direct"}}), ""),
            (json!({}), "PrimaryContainer or Containers"),
            (json!({"Containers": []}), "PrimaryContainer or Containers"),
            (json!({"PrimaryContainer": image, "Containers": [image]}), "alternatives"),
            (json!({"PrimaryContainer": {}}), "'primaryContainer.image'"),
            (json!({"Containers": [image, {"Image": ""}]}), "'containers.2.member.image'"),
            (json!({"PrimaryContainer": {"ModelPackageName": "p"}}), "model packages"),
            (json!({"PrimaryContainer": {"Image": "i", "ModelDataUrl": "/model"}}), "'primaryContainer.modelDataUrl'"),
            (
                json!({"PrimaryContainer": {"Image": "i", "ModelDataUrl": "s3://b/k", "ModelDataSource": {}}}),
                "alternatives",
            ),
            (json!({"PrimaryContainer": {"Image": "i", "Mode": "MultiModel"}}), "'primaryContainer.modelDataUrl'"),
            (
                json!({"PrimaryContainer": {"Image": "i", "Environment": {"k": "v".repeat(32 << 10)}}}),
                "32768 are allowed",
            ),
            (json!({"PrimaryContainer": image, "InferenceExecutionConfig": {"Mode": "Serial"}}), "several containers"),
            (json!({"Containers": hosts("a", "a")}), "'containers.2.member.containerHostname'"),
            (
                json!({"Containers": [image, image], "InferenceExecutionConfig": {"Mode": "Direct"}}),
                "'containers.1.member.containerHostname'",
            ),
        ] {
            let message = refused(request.clone());
            assert!(message.contains(expected) && message.is_empty() == expected.is_empty(), "{request}: {message}");
        }
    }
}
