//! Which instances a training job has, as Describe tells it.

use serde_json::Value;

/// Types and how many of each, from a `ResourceConfig`: the groups' where it has groups.
pub(crate) fn of(resources: &Value) -> Vec<(String, u64)> {
    let group = |it: &Value| {
        (it["InstanceType"].as_str().unwrap_or_default().to_owned(), it["InstanceCount"].as_u64().unwrap_or(1))
    };
    match resources["InstanceGroups"].as_array() {
        Some(groups) if !groups.is_empty() => groups.iter().map(group).collect(),
        _ => vec![group(resources)],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn groups_are_told_apart() {
        let of_type = |kind: &str, count| (kind.to_owned(), count);
        assert_eq!(of(&json!({"InstanceType": "ml.m5.large", "InstanceCount": 2})), [of_type("ml.m5.large", 2)]);
        let groups = json!({"InstanceGroups": [
            {"InstanceGroupName": "a", "InstanceType": "ml.m5.large", "InstanceCount": 2},
            {"InstanceGroupName": "b", "InstanceType": "ml.c5.large", "InstanceCount": 1},
        ]});
        assert_eq!(of(&groups), [of_type("ml.m5.large", 2), of_type("ml.c5.large", 1)]);
    }
}
