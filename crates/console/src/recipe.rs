//! A job's request as something to run again.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Longest name of a training job.
const LONGEST_NAME: usize = 63;

/// A request like this one under a name that is free, as far as we know.
fn renamed(request: &Map<String, Value>) -> Map<String, Value> {
    let mut request = request.clone();
    if let Some(Value::String(name)) = request.get_mut("TrainingJobName") {
        name.truncate(LONGEST_NAME - "-again".len());
        let kept = name.trim_end_matches('-').len();
        name.truncate(kept);
        name.push_str("-again");
    }
    request
}

/// Python that creates the job again with boto3.
pub(crate) fn boto3(request: &Map<String, Value>) -> String {
    let mut text = "import boto3\n\nboto3.client(\"sagemaker\").create_training_job(\n".to_owned();
    for (name, value) in &renamed(request) {
        let _ = write!(text, "    {name}=");
        python(&mut text, value, 4);
        text.push_str(",\n");
    }
    text + ")\n"
}

/// The same with the AWS CLI, for a POSIX shell.
pub(crate) fn aws_cli(request: &Map<String, Value>) -> String {
    let json = serde_json::to_string_pretty(&Value::Object(renamed(request))).expect("a value of JSON has string keys");
    format!("aws sagemaker create-training-job --cli-input-json '{}'\n", json.replace('\'', "'\\''"))
}

fn python(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Number(number) => text.push_str(&number.to_string()),
        // JSON's escapes are Python's, too, but for the pairs of surrogates, which serde_json does
        // not write.
        Value::String(_) => text.push_str(&value.to_string()),
        Value::Array(items) if items.is_empty() => text.push_str("[]"),
        Value::Object(members) if members.is_empty() => text.push_str("{}"),
        Value::Array(items) => {
            text.push_str("[\n");
            for item in items {
                text.extend(std::iter::repeat_n(' ', indent + 4));
                python(text, item, indent + 4);
                text.push_str(",\n");
            }
            text.extend(std::iter::repeat_n(' ', indent));
            text.push(']');
        }
        Value::Object(members) => {
            text.push_str("{\n");
            for (name, member) in members {
                text.extend(std::iter::repeat_n(' ', indent + 4));
                let _ = write!(text, "{}: ", Value::String(name.clone()));
                python(text, member, indent + 4);
                text.push_str(",\n");
            }
            text.extend(std::iter::repeat_n(' ', indent));
            text.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_a_program() {
        let json = r#"{"TrainingJobName": "it-", "Tags": [{"Key": "a", "Value": "it's \"\u00fc\"\n"}], "EnableNetworkIsolation": true, "Environment": {}}"#;
        let request: Map<String, Value> = serde_json::from_str(json).unwrap();
        let expected = "import boto3\n\nboto3.client(\"sagemaker\").create_training_job(\n    TrainingJobName=\"it-again\",\n    Tags=[\n        {\n            \
                        \"Key\": \"a\",\n            \"Value\": \"it's \
                        \\\"ü\\\"\\n\",\n        },\n    ],\n    EnableNetworkIsolation=True,\n    Environment={},\n)\n";
        assert_eq!(boto3(&request), expected);
        let command = aws_cli(&request);
        assert!(
            command.starts_with("aws sagemaker create-training-job --cli-input-json '{\n")
                && command.contains("it'\\''s"),
            "{command}"
        );
        let long = Map::from_iter([("TrainingJobName".to_owned(), Value::String("x".repeat(63)))]);
        assert_eq!(renamed(&long)["TrainingJobName"].as_str().map(str::len), Some(63));
    }
}
