//! Words that a request cannot carry, told before anything is uploaded for it. The limits are those
//! of the table that the server checks by.

use serde_json::Value;
use shoal_wire::{Service, TextLimits, text_limits};

/// Characters shown of a word.
const SHOWN: usize = 40;

/// What would be too much, with the word for each.
const PLACES: [(&[&str], &str); 4] = [
    (&["AlgorithmSpecification", "ContainerEntrypoint"], "argument"),
    (&["AlgorithmSpecification", "ContainerArguments"], "argument"),
    (&["HyperParameters"], "hyperparameter"),
    (&["Environment"], "variable"),
];

/// Looks at the program's words, its hyperparameters and its variables in a CreateTrainingJob
/// request.
///
/// # Errors
/// One is too long or has several lines, or they are too many; the text names it and says what to
/// do instead.
pub(super) fn check(request: &Value) -> Result<(), String> {
    for (path, noun) in PLACES {
        let Some(limits) = text_limits(Service::SageMaker, "CreateTrainingJob", path) else { continue };
        let texts: Vec<(Option<&str>, &str)> = match path.iter().fold(request, |value, name| &value[name]) {
            Value::Array(words) => words.iter().filter_map(Value::as_str).map(|word| (None, word)).collect(),
            Value::Object(pairs) => {
                pairs.iter().filter_map(|(name, value)| Some((Some(name.as_str()), value.as_str()?))).collect()
            }
            _ => continue,
        };
        if texts.len() as u64 > limits.most {
            return Err(format!(
                "{} {noun}s are more than a request carries, which is {}: write them to a file, {INSTEAD}",
                texts.len(),
                limits.most
            ));
        }
        for (name, text) in texts {
            let Some(why) = too_much(text, limits) else { continue };
            let shown = name.map_or_else(|| beginning(text), str::to_owned);
            return Err(format!("the {noun} {shown} {why}: write it to a file, {INSTEAD}"));
        }
    }
    Ok(())
}

const INSTEAD: &str = "and give that in the script's directory (shoal train train.py uploads it) or as a channel \
                       (--channel NAME=FILE, then /opt/ml/input/data/NAME/FILE)";

fn too_much(text: &str, limits: TextLimits) -> Option<String> {
    let length = text.chars().count();
    if length as u64 > limits.longest {
        return Some(format!("has {length} characters, and a request carries {} of each", limits.longest));
    }
    (!limits.allow_form_of(text)).then(|| "has several lines, and a request carries one of each".to_owned())
}

fn beginning(text: &str) -> String {
    let is_long = text.chars().count() > SHOWN;
    format!("{:?}{}", text.chars().take(SHOWN).collect::<String>(), if is_long { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_request_cannot_carry_is_named() {
        let arguments = |words: Value| json!({"AlgorithmSpecification": {"ContainerEntrypoint": ["python3"], "ContainerArguments": words}});
        for (request, expected) in [
            (arguments(json!(["-c", "print(1)", "x".repeat(256)])), None),
            (
                arguments(json!(["-c", "import os\nprint(1)"])),
                Some("the argument \"import os\\nprint(1)\" has several lines"),
            ),
            (arguments(json!(["x".repeat(257)])), Some("\"... has 257 characters, and a request carries 256 of each")),
            (arguments(json!(vec!["x"; 101])), Some("101 arguments are more than a request carries, which is 100")),
            (
                json!({"HyperParameters": {"prompt": "x".repeat(2501)}}),
                Some("the hyperparameter prompt has 2501 characters, and a request carries 2500"),
            ),
            (json!({"HyperParameters": {"prompt": "a\nb"}}), Some("the hyperparameter prompt has several lines")),
            (json!({"Environment": {"TEXT": "x".repeat(513)}}), Some("the variable TEXT has 513 characters")),
            (json!({"HyperParameters": {"n": 1}, "Environment": {}}), None),
        ] {
            let told = check(&request).err();
            assert_eq!(told.is_some(), expected.is_some(), "{told:?}");
            let told = told.unwrap_or_default();
            assert!(
                told.contains(expected.unwrap_or_default()) && (expected.is_none() || told.contains("--channel")),
                "{told}"
            );
        }
    }
}
