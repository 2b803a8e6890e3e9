//! Members of a request file that its operation does not have: the API drops them silently, so that
//! a typing error would go unseen.

use serde_json::Value;
use shoal_tuner::near;
use shoal_wire::{Service, Unknown, unknown_member};

/// Looks at the names of all members.
///
/// # Errors
/// The first that the operation does not know, and the one that was meant, it seems.
pub(crate) fn check(operation: &str, request: &Value) -> Result<(), String> {
    let Some(Unknown { path, name, known }) = unknown_member(Service::SageMaker, operation, request) else {
        return Ok(());
    };
    let hint = near(&name, known);
    let place = if path.is_empty() { operation } else { &path };
    Err(format!("{place} has no {name}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn typing_errors_are_named() {
        for (request, expected) in [
            (json!({"TrainingJobName": "x", "HyperParameters": {}}), Ok(())),
            (
                json!({"TrainingJobNam": "x"}),
                Err("CreateTrainingJob has no TrainingJobNam; did you mean TrainingJobName?".to_owned()),
            ),
            (
                json!({"ResourceConfig": {"InstanceCnt": 1}}),
                Err("ResourceConfig has no InstanceCnt; did you mean InstanceCount?".to_owned()),
            ),
            (
                json!({"InputDataConfig": [{"ChannelName": "train"}, {"Chanel": "x"}]}),
                Err("InputDataConfig.2 has no Chanel; did you mean ChannelName?".to_owned()),
            ),
            (json!({"HyperParameters": {"anything": "1"}, "Tags": "no list"}), Ok(())),
            (
                json!({"hyperparameters": {}}),
                Err("CreateTrainingJob has no hyperparameters; did you mean HyperParameters?".to_owned()),
            ),
        ] {
            assert_eq!(check("CreateTrainingJob", &request), expected);
        }
    }
}
