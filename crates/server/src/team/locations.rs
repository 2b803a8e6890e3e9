//! The locations in S3 that a request names.

use serde_json::Value;
use shoal_wire::S3Uri;

/// Members and hyperparameters whose location is written.
const WRITTEN: [&str; 2] = ["S3OutputPath", "sagemaker_s3_output"];
/// A member whose locations are read and written.
const BOTH: &str = "CheckpointConfig";
/// Parameters of rules whose names begin so have several locations, with commas between.
const LISTED: &str = "other_trial";
/// Texts within texts that are followed.
const MAX_DEPTH: usize = 4;

/// Locations of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Locations {
    pub(crate) read: Vec<S3Uri>,
    /// As folders.
    pub(crate) written: Vec<S3Uri>,
    /// Texts that begin as locations do and are none.
    pub(crate) unreadable: Vec<String>,
}

/// All locations of a request, wherever they are: what is not known to be written is read. Values
/// of hyperparameters may be JSON that has them as texts.
pub(crate) fn locations(input: &Value) -> Locations {
    let mut found = Locations::default();
    found.collect(input, "", false, 0);
    found
}

impl Locations {
    fn collect(&mut self, value: &Value, member: &str, is_both: bool, depth: usize) {
        match value {
            Value::Object(members) => {
                // Of a range, the values are those of the hyperparameter that it names.
                let range = members.get("Name").and_then(Value::as_str);
                for (name, value) in members {
                    let member = range.filter(|_| name == "Values").unwrap_or(name);
                    self.collect(value, member, is_both || name == BOTH, depth);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, member, is_both, depth)),
            Value::String(text) => {
                self.note(text, member, is_both);
                if depth < MAX_DEPTH
                    && text.trim_start().starts_with(['"', '[', '{'])
                    && let Ok(inner) = serde_json::from_str(text)
                {
                    self.collect(&inner, member, is_both, depth + 1);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn note(&mut self, text: &str, member: &str, is_both: bool) {
        if member.starts_with(LISTED) {
            text.split(',').for_each(|uri| self.note_one(uri.trim(), member, is_both));
        } else {
            self.note_one(text.trim(), member, is_both);
        }
    }

    fn note_one(&mut self, text: &str, member: &str, is_both: bool) {
        if !text.starts_with("s3://") {
            return;
        }
        match text.parse::<S3Uri>() {
            Ok(uri) => {
                let is_written = is_both || WRITTEN.contains(&member);
                if is_written {
                    self.written.push(S3Uri { bucket: uri.bucket.clone(), prefix: uri.folder() });
                }
                if is_both || !is_written {
                    self.read.push(uri);
                }
            }
            Err(_) => self.unreadable.push(text.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn locations_are_found_wherever_they_are() {
        let request = json!({
            "TrainingJobName": "a",
            "InputDataConfig": [{"DataSource": {"S3DataSource": {"S3Uri": "s3://data/train/"}}},
                {"DataSource": {"S3DataSource": {"S3Uri": "s3://data/test"}}}],
            "OutputDataConfig": {"S3OutputPath": "s3://out/anna"},
            "CheckpointConfig": {"S3Uri": "s3://ckpt/anna/j", "LocalPath": "/opt/ml/checkpoints"},
            "DebugHookConfig": {"S3OutputPath": "s3://out/debug/"},
            "HyperParameters": {
                "sagemaker_submit_directory": "\"s3:\\/\\/code\\u002fx.tar.gz\"",
                "sagemaker_s3_output": "\"s3://out/more\"",
                "list": "[\"s3://list/a\", {\"deep\": \"s3://list/b\"}]",
                "text": "see s3://elsewhere", "number": "3"},
            "Environment": {"SAGEMAKER_SUBMIT_DIRECTORY": "s3://code/y.tar.gz"},
        });
        let shown = |uris: &[S3Uri]| {
            let mut shown: Vec<_> = uris.iter().map(ToString::to_string).collect();
            shown.sort();
            shown
        };
        let found = locations(&request);
        assert_eq!(
            shown(&found.read),
            [
                "s3://ckpt/anna/j",
                "s3://code/x.tar.gz",
                "s3://code/y.tar.gz",
                "s3://data/test",
                "s3://data/train/",
                "s3://list/a",
                "s3://list/b"
            ]
        );
        assert_eq!(shown(&found.written), ["s3://ckpt/anna/j/", "s3://out/anna/", "s3://out/debug/", "s3://out/more/"]);
        assert_eq!(locations(&json!({"S3Uri": "s3://A"})).unreadable, ["s3://A"]);
    }

    #[test]
    fn those_in_ranges_and_lists_count_as_what_uses_them_reads_them() {
        let found = locations(&json!({
            "ParameterRanges": {"CategoricalParameterRanges": [
                {"Name": "sagemaker_s3_output", "Values": ["s3://private/ben/", "\"s3://private/eva\""]},
                {"Name": "data", "Values": ["s3://data/a"]}]},
            "RuleParameters": {"other_trial_0": " s3://private/one", "other_trials": "None, s3://private/two"},
        }));
        let shown = |uris: &[S3Uri]| Vec::from_iter(uris.iter().map(ToString::to_string));
        assert_eq!(shown(&found.written), ["s3://private/ben/", "s3://private/eva/"]);
        assert_eq!(shown(&found.read), ["s3://data/a", "s3://private/one", "s3://private/two"]);
    }
}
