use serde_json::json;

use super::*;
use crate::{operations, parse};

mod with_effect;
mod with_effect_elsewhere;

/// The paths of all members that have no members. A structure within itself (a search's
/// expressions) is a leaf.
fn leaves<'a>(shape: &'a Shape, path: &str, around: &mut Vec<&'a Shape>, found: &mut Vec<String>) {
    if around.iter().any(|it| std::ptr::eq(*it, shape)) {
        return found.push(path.to_owned());
    }
    around.push(shape);
    match shape {
        Shape::Structure(members) => {
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            members.iter().for_each(|member| leaves(member.shape, &below(member.name), around, found));
        }
        Shape::List { member, .. } => leaves(member, &format!("{path}[]"), around, found),
        _ => found.push(path.to_owned()),
    }
    around.pop();
}

/// Whether a path is this member or below it.
fn is_below(path: &str, member: &str) -> bool {
    path.strip_prefix(member).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[test]
fn every_row_is_a_member_of_the_service_model() {
    for row in TABLE {
        assert!(row.is_in_model(), "{} has no {}", row.operations.join(", "), row.field);
        assert!(!row.reason.is_empty() && !row.reason.ends_with('.'), "{}: {}", row.field, row.reason);
    }
}

/// Services may have operations of one name.
fn with_effect(operation: &str) -> impl Iterator<Item = &'static str> {
    let all = with_effect::WITH_EFFECT.iter().chain(with_effect_elsewhere::WITH_EFFECT);
    all.filter(move |(name, _)| *name == operation).flat_map(|(_, members)| members.iter().copied())
}

#[test]
fn each_member_of_the_model_has_an_effect_or_a_row() {
    for operation in operations() {
        // Inputs of our own operations are read as they are declared.
        let Some(shape) = operation.input else { continue };
        let mut all = Vec::new();
        leaves(shape, "", &mut Vec::new(), &mut all);
        let rows = |of: &'static str| {
            let rows = TABLE.iter().filter(move |row| row.service == operation.service && row.operations.contains(&of));
            rows.map(|row| row.field)
        };
        let has = |of: &'static str, path: &str| rows(of).chain(with_effect(of)).any(|member| is_below(path, member));
        for path in all {
            let path = path.replace("TrainingJobDefinitions[].", "TrainingJobDefinition.");
            let of_training =
                path.strip_prefix("TrainingJobDefinition.").is_some_and(|path| has("CreateTrainingJob", path));
            let name = operation.name;
            assert!(
                has(name, &path) || of_training,
                "{name}: say of {path} in the table that it has no effect, or here that it has one"
            );
        }
    }
}

#[test]
fn members_with_an_effect_are_in_the_model() {
    for (name, members) in with_effect::WITH_EFFECT.iter().chain(with_effect_elsewhere::WITH_EFFECT) {
        let has = |it: &&crate::Operation| it.input.is_some_and(|shape| has_member(shape, members[0]));
        let operation = operations().find(|it| it.name == *name && has(it)).expect("served");
        for member in *members {
            let is_there = operation.input.is_some_and(|shape| has_member(shape, member));
            assert!(is_there, "{name} has no {member}");
            let row = TABLE
                .iter()
                .find(|row| row.service == operation.service && row.operations.contains(name) && row.field == *member);
            assert!(row.is_none(), "{name}: {member} has an effect and a row");
        }
    }
}

#[test]
fn fields_are_found_where_their_values_ask_for_something() {
    let check = |input: Value, expected: &[&str]| {
        let found: Vec<String> =
            in_input(Service::SageMaker, "CreateTrainingJob", &input).into_iter().map(|it| it.path).collect();
        assert_eq!(found, expected, "{input}");
    };
    check(json!({"TrainingJobName": "a", "RoleArn": "arn:aws:iam::123456789012:role/a"}), &[]);
    check(json!({"VpcConfig": {"Subnets": ["s"], "SecurityGroupIds": ["g"]}}), &["VpcConfig"]);
    check(json!({"EnableInterContainerTrafficEncryption": false, "ResourceConfig": {"VolumeKmsKeyId": ""}}), &[]);
    check(
        json!({"EnableInterContainerTrafficEncryption": true, "ResourceConfig": {"VolumeKmsKeyId": "k"}}),
        &["ResourceConfig.VolumeKmsKeyId", "EnableInterContainerTrafficEncryption"],
    );
    check(json!({"ProfilerConfig": {"S3OutputPath": "s3://b/k"}, "ProfilerRuleConfigurations": []}), &[]);
    let image =
        |mode: &str| json!({"AlgorithmSpecification": {"TrainingImageConfig": {"TrainingRepositoryAccessMode": mode}}});
    check(image("Platform"), &[]);
    check(image("Vpc"), &["AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode"]);
    let channels = json!({"InputDataConfig": [{"DataSource": {"FileSystemDataSource": {"FileSystemType": "EFS"}}},
            {"DataSource": {"S3DataSource": {"ModelAccessConfig": {"AcceptEula": true}}}}]});
    check(channels, &["InputDataConfig[].DataSource.S3DataSource.ModelAccessConfig"]);
    check(json!({"RemoteDebugConfig": {"EnableRemoteDebug": false}}), &[]);
}

#[test]
fn what_a_model_asks_of_its_place_is_found() {
    let check = |input: Value, expected: &[&str]| {
        let found: Vec<String> =
            in_input(Service::SageMaker, "CreateModel", &input).into_iter().map(|it| it.path).collect();
        assert_eq!(found, expected, "{input}");
    };
    let role = "arn:aws:iam::123456789012:role/a";
    let container = json!({"Image": "i", "ModelDataUrl": "s3://b/k", "Environment": {"A": "b"}});
    check(
        json!({"ModelName": "a", "ExecutionRoleArn": role, "PrimaryContainer": container, "EnableNetworkIsolation": false}),
        &[],
    );
    check(
        json!({"VpcConfig": {"Subnets": ["s"], "SecurityGroupIds": ["g"]}, "EnableNetworkIsolation": true}),
        &["VpcConfig", "EnableNetworkIsolation"],
    );
    let image = |mode: &str| json!({"Image": "i", "ImageConfig": {"RepositoryAccessMode": mode}});
    check(json!({"PrimaryContainer": image("Platform")}), &[]);
    check(json!({"PrimaryContainer": image("Vpc")}), &["PrimaryContainer.ImageConfig.RepositoryAccessMode"]);
    check(json!({"Containers": [image("Platform"), image("Vpc")]}), &["Containers[].ImageConfig.RepositoryAccessMode"]);
}

#[test]
fn definitions_of_a_tuning_job_are_looked_through() {
    let paths = |input: Value| {
        let found = in_input(Service::SageMaker, "CreateHyperParameterTuningJob", &input);
        found.into_iter().map(|it| it.path).collect::<Vec<_>>()
    };
    let definition =
        json!({"VpcConfig": {"Subnets": ["s"]}, "HyperParameterTuningResourceConfig": {"VolumeKmsKeyId": "k"}});
    assert_eq!(
        paths(json!({"TrainingJobDefinition": definition})),
        ["TrainingJobDefinition.HyperParameterTuningResourceConfig.VolumeKmsKeyId", "TrainingJobDefinition.VpcConfig"]
    );
    assert_eq!(
        paths(json!({"TrainingJobDefinitions": [definition, definition]})),
        [
            "TrainingJobDefinitions[].HyperParameterTuningResourceConfig.VolumeKmsKeyId",
            "TrainingJobDefinitions[].VpcConfig"
        ]
    );
}

#[test]
fn requests_in_both_protocols_are_looked_through() {
    let head = |name: &str, value: &str| {
        http::Request::post("/").header(name, value).body(()).expect("a request").into_parts().0
    };
    let call = |service, head: &http::request::Parts, body: &[u8]| parse(service, head, body).expect("a call");
    let body = json!({"TrainingJobName": "a", "RemoteDebugConfig": {"EnableRemoteDebug": true}}).to_string();
    let found =
        in_call(&call(Service::SageMaker, &head("x-amz-target", "SageMaker.UpdateTrainingJob"), body.as_bytes()));
    assert_eq!(found.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["RemoteDebugConfig.EnableRemoteDebug"]);
    let form = "Action=AssumeRole&RoleArn=arn:aws:iam::123456789012:role/abc&RoleSessionName=me&ExternalId=1234";
    let found =
        in_call(&call(Service::Sts, &head("content-type", "application/x-www-form-urlencoded"), form.as_bytes()));
    assert_eq!(found.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["ExternalId"]);
    let error = refuse(&found).expect_err("a strict server refuses it");
    assert!(error.message.contains("ExternalId (") && error.message.contains("--strict"), "{}", error.message);
    assert_eq!(refuse(&[]), Ok(()));
}

/// The rows of docs/accepted.md, as they have to be there.
fn documented() -> String {
    let rows = TABLE.iter().map(|row| {
        let limit = match row.values {
            Values::Any => String::new(),
            Values::AllBut(neutral) => format!(", other than `{neutral}`"),
            Values::Required => ", required: taken by strict servers, too".to_owned(),
        };
        let service = row.service.scope();
        format!("| {service} | {} | `{}`{limit} | {} |\n", row.operations.join(", "), row.field, row.reason)
    });
    rows.collect()
}

#[test]
fn the_page_has_the_table() {
    let page = include_str!("../../../../docs/accepted.md");
    let documented = documented();
    assert!(page.contains(&documented), "docs/accepted.md must have these rows:\n{documented}");
    let rows =
        page.lines().filter(|line| line.starts_with("| ") && line.contains('`') && !line.starts_with("| s3 |")).count();
    assert_eq!(rows, TABLE.len(), "docs/accepted.md has rows that the table does not have");
}
