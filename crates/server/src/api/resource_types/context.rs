//! Contexts of lineage: what artifacts and actions belong to, such as an endpoint.

use shoal_wire::ErrorCode;

use super::{Filter, LINEAGE_HOLDERS, PLAIN, Refusal, ResourceType, Selects, kinds, users};

pub(super) static CONTEXT: ResourceType = ResourceType {
    kind: kinds::CONTEXT,
    noun: "Context",
    operations: &["CreateContext", "DescribeContext", "ListContexts", "UpdateContext", "DeleteContext"],
    duplicate: Refusal(ErrorCode::ValidationException, "Context with name ({name}) already exists."),
    missing: Refusal(ErrorCode::ResourceNotFound, "Context '{name}' does not exist."),
    keys: [Some(&["Source", "SourceUri"]), Some(&["ContextType"])],
    filters: &[
        Filter { member: "SourceUri", selects: Selects::Key { at: 0, lower: false } },
        Filter { member: "ContextType", selects: Selects::Key { at: 1, lower: false } },
    ],
    held_by: &LINEAGE_HOLDERS,
    describe: |_, row, shown| {
        users(row, shown);
        Ok(())
    },
    #[cfg(test)]
    sample: r#"{
        "ContextName": "Boats-1", "Source": {"SourceUri": "arn:boats", "SourceType": "ARN", "SourceId": "1f"},
        "ContextType": "Endpoint", "Description": "all boats", "Properties": {"of": "wood"},
        "Tags": [{"Key": "team", "Value": "trees"}]
    }"#,
    ..PLAIN
};
