//! Experiments.

use serde_json::json;
use shoal_store::ResourceKind;
use shoal_wire::ErrorCode;

use super::{Refusal, ResourceType};

pub(super) static EXPERIMENT: ResourceType = ResourceType {
    kind: ResourceKind::new("experiment"),
    noun: "Experiment",
    operations: &["CreateExperiment", "DescribeExperiment", "ListExperiments", "UpdateExperiment", "DeleteExperiment"],
    ignores_case: true,
    duplicate: Refusal(
        ErrorCode::ValidationException,
        "Experiment names must be unique within an AWS account and region. Experiment with name ({name}) already \
         exists.",
    ),
    missing: Refusal(ErrorCode::ResourceNotFound, "Experiment '{name}' does not exist."),
    check: |_| Ok(()),
    describe: |shown| {
        let name = shown["ExperimentName"].clone();
        shown.entry("DisplayName").or_insert(name);
        // At AWS they name Studio's users; for other callers they are empty.
        shown.insert("CreatedBy".to_owned(), json!({}));
        shown.insert("LastModifiedBy".to_owned(), json!({}));
    },
    #[cfg(test)]
    sample: r#"{"ExperimentName": "Titanic", "Description": "who survived", "Tags": [{"Key": "team", "Value": "trees"}]}"#,
};
