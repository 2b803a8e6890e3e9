//! Artifacts of lineage: objects with a URI, such as a data set or a model. An artifact is what its
//! source is, the URI with the ids of the version there; its name need not be unique.

use shoal_wire::ErrorCode;

use super::{Filter, LINEAGE_HOLDERS, NamedBy, PLAIN, Refusal, ResourceType, Selects, kinds, users};
use crate::hex::sha256_hex;

/// Hexadecimal digits of an artifact's id.
const ID_DIGITS: usize = 32;

/// The id of the artifact with this source. SDK v2 logs a file again under the same URI with
/// another ETag: that is another artifact.
pub(crate) fn name_of(source: &serde_json::Value) -> String {
    let uri = source["SourceUri"].as_str().unwrap_or_default();
    let types = source["SourceTypes"].as_array().map_or(&[][..], Vec::as_slice);
    let mut ids: Vec<_> = types
        .iter()
        .map(|id| (id["SourceIdType"].as_str().unwrap_or_default(), id["Value"].as_str().unwrap_or_default()))
        .collect();
    ids.sort_unstable();
    let mut digest = sha256_hex(&serde_json::json!([uri, ids]).to_string());
    digest.truncate(ID_DIGITS);
    digest
}

pub(super) static ARTIFACT: ResourceType = ResourceType {
    kind: kinds::ARTIFACT,
    noun: "Artifact",
    operations: &["CreateArtifact", "DescribeArtifact", "ListArtifacts", "UpdateArtifact", "DeleteArtifact"],
    named_by: NamedBy::Source,
    duplicate: Refusal(ErrorCode::ValidationException, "Artifact '{arn}' of this source already exists."),
    missing: Refusal(ErrorCode::ResourceNotFound, "Artifact '{name}' does not exist."),
    keys: [Some(&["Source", "SourceUri"]), Some(&["ArtifactType"])],
    filters: &[
        Filter { member: "SourceUri", selects: Selects::Key { at: 0, lower: false } },
        Filter { member: "ArtifactType", selects: Selects::Key { at: 1, lower: false } },
    ],
    held_by: &LINEAGE_HOLDERS,
    describe: |_, row, shown| {
        users(row, shown);
        Ok(())
    },
    #[cfg(test)]
    sample: r#"{
        "ArtifactName": "Data-1",
        "Source": {"SourceUri": "s3://bucket/train", "SourceTypes": [{"SourceIdType": "S3ETag", "Value": "1f"}]},
        "ArtifactType": "DataSet", "Properties": {"rows": "891"}, "MetadataProperties": {"CommitId": "1f"},
        "Tags": [{"Key": "team", "Value": "trees"}]
    }"#,
    ..PLAIN
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_artifact_is_its_uri_and_version() {
        let id = |kind: &str, value: &str| json!({"SourceIdType": kind, "Value": value});
        let source = |uri: &str, types: serde_json::Value| name_of(&json!({"SourceUri": uri, "SourceTypes": types}));
        let (one, other) = (id("S3ETag", "1"), id("Custom", "2"));
        let name = source("s3://b/k", json!([one, other]));
        assert!(name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit()), "{name}");
        assert_eq!(source("s3://b/k", json!([other, one])), name);
        for (uri, types) in [("s3://b/l", json!([one, other])), ("s3://b/k", json!([one])), ("s3://b/k", json!([]))] {
            assert_ne!(source(uri, types), name, "{uri}");
        }
        assert_eq!(name_of(&json!({"SourceUri": "s3://b/k"})), source("s3://b/k", json!([])), "none are none");
    }
}
