//! A name that nothing has: whether it is of the other kind of job, or nearly one's name.

use serde_json::{Value, json};
use shoal_tuner::near;

use super::{Client, ClientError, Noun};

/// Names that are looked through, the newest.
const MOST: usize = 500;

impl Client {
    /// An error about a job, in words: where there is none of this name, what there is instead.
    /// `verb` is what was to be done to it.
    pub(crate) fn explained(&self, error: ClientError, noun: Noun, verb: &str, name: &str) -> anyhow::Error {
        if !error.is_not_found() {
            return error.about_a(noun, name);
        }
        let instead = self.instead(noun, verb, name);
        ClientError::NoJob(noun, name.to_owned(), instead).into()
    }

    /// Nothing if the server does not tell: the error itself is the news.
    fn instead(&self, noun: Noun, verb: &str, name: &str) -> String {
        let (other, describe, member) = match noun {
            Noun::TuningJob => (Noun::TrainingJob, "DescribeTrainingJob", "TrainingJobName"),
            _ => (Noun::TuningJob, "DescribeHyperParameterTuningJob", "HyperParameterTuningJobName"),
        };
        if self.sagemaker(describe, &json!({member: name})).is_ok() {
            return of_the_other_kind(other, verb, name);
        }
        let (list, key, member) = match noun {
            Noun::TuningJob => {
                ("ListHyperParameterTuningJobs", "HyperParameterTuningJobSummaries", "HyperParameterTuningJobName")
            }
            _ => ("ListTrainingJobs", "TrainingJobSummaries", "TrainingJobName"),
        };
        let newest = json!({"SortBy": "CreationTime", "SortOrder": "Descending"});
        let known: Vec<Value> = self.list(list, key, newest, MOST).unwrap_or_default();
        near(name, known.iter().filter_map(|summary| summary[member].as_str()))
    }
}

fn of_the_other_kind(kind: Noun, verb: &str, name: &str) -> String {
    let (family, verbs): (_, &[&str]) = match kind {
        Noun::TuningJob => ("tuning", &["show", "stop"]),
        _ => ("jobs", &["show", "stop"]),
    };
    let verb = if verbs.contains(&verb) { verb } else { "show" };
    format!("; {name} is a {kind}: shoal {family} {verb} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_kind_is_named_with_its_command() {
        for (kind, verb, expected) in [
            (Noun::TuningJob, "logs", "; kt is a tuning job: shoal tuning show kt"),
            (Noun::TuningJob, "stop", "; kt is a tuning job: shoal tuning stop kt"),
            (Noun::TrainingJob, "parallel", "; kt is a training job: shoal jobs show kt"),
        ] {
            assert_eq!(of_the_other_kind(kind, verb, "kt"), expected);
            let error = ClientError::NoJob(Noun::TrainingJob, "kt".to_owned(), expected.to_owned());
            assert!(error.is_not_found() && error.to_string() == format!("there is no training job kt{expected}"));
        }
    }
}
