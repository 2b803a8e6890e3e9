//! Actions of lineage: what was done, such as a deployment of a model.

use shoal_wire::ErrorCode;

use super::{Filter, LINEAGE_HOLDERS, PLAIN, Refusal, ResourceType, Selects, kinds, users};

pub(super) static ACTION: ResourceType = ResourceType {
    kind: kinds::ACTION,
    noun: "Action",
    operations: &["CreateAction", "DescribeAction", "ListActions", "UpdateAction", "DeleteAction"],
    duplicate: Refusal(ErrorCode::ValidationException, "Action with name ({name}) already exists."),
    missing: Refusal(ErrorCode::ResourceNotFound, "Action '{name}' does not exist."),
    keys: [Some(&["Source", "SourceUri"]), Some(&["ActionType"])],
    filters: &[
        Filter { member: "SourceUri", selects: Selects::Key { at: 0, lower: false } },
        Filter { member: "ActionType", selects: Selects::Key { at: 1, lower: false } },
    ],
    held_by: &LINEAGE_HOLDERS,
    describe: |_, row, shown| {
        users(row, shown);
        Ok(())
    },
    #[cfg(test)]
    sample: r#"{
        "ActionName": "Deploy-1", "Source": {"SourceUri": "s3://bucket/model", "SourceType": "S3ETag", "SourceId": "1f"},
        "ActionType": "ModelDeployment", "Description": "to the boat", "Status": "InProgress", "Properties": {"by": "captain"},
        "MetadataProperties": {"CommitId": "1f"}, "Tags": [{"Key": "team", "Value": "trees"}]
    }"#,
    ..PLAIN
};
