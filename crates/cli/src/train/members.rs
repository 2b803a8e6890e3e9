//! Members of a request file that its operation does not have: the API drops them silently, so that a typing error would go unseen.

use serde_json::Value;
use shoal_plane::edits;
use shoal_wire::{Service, member_names};

/// Looks at the names of the top level.
///
/// # Errors
/// The first that the operation does not know, and the one that was meant, it seems.
pub(crate) fn check(operation: &str, request: &Value) -> Result<(), String> {
    let known = member_names(Service::SageMaker, operation);
    let Some(unknown) = request.as_object().into_iter().flatten().map(|(name, _)| name).find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    let near = known.into_iter().min_by_key(|name| edits(&name.to_lowercase(), &unknown.to_lowercase()));
    let hint = near.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    Err(format!("{operation} has no {unknown}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn typing_errors_are_named() {
        for (request, expected) in [
            (json!({"TrainingJobName": "x", "HyperParameters": {}}), Ok(())),
            (json!({"TrainingJobNam": "x"}), Err("CreateTrainingJob has no TrainingJobNam; did you mean TrainingJobName?".to_owned())),
            (json!({"hyperparameters": {}}), Err("CreateTrainingJob has no hyperparameters; did you mean HyperParameters?".to_owned())),
        ] {
            assert_eq!(check("CreateTrainingJob", &request), expected);
        }
    }
}
