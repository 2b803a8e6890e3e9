//! What a warm start knows: the finished trials of earlier tuning jobs.

use std::collections::{BTreeMap, HashMap};

use shoal_plane::TrialView;
use shoal_store::{Rows, StoreError, TrialFilter};
use shoal_tuner::Outcome;

use crate::requests;

/// A trial of a parent that a child learns from.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Finished {
    /// Index of its definition.
    pub(super) definition: usize,
    /// Its training job.
    pub(super) job: String,
    /// All its hyperparameters.
    pub(super) hyperparameters: BTreeMap<String, String>,
    /// How it did.
    pub(super) outcome: Outcome,
}

/// The finished trials of these tuning jobs, in the order of the parents, then of names.
///
/// A trial that was stopped counts as completed if none of its definition came further: that is how
/// trials of Hyperband end that were never behind. The value of one that was stopped earlier is of
/// less training than others', and teaches nothing about them.
///
/// # Errors
/// The storage's.
pub(super) fn finished(rows: &dyn Rows, parents: &[String]) -> Result<Vec<Finished>, StoreError> {
    let mut known = Vec::new();
    let mut furthest: HashMap<usize, u32> = HashMap::new();
    for parent in parents {
        let mut filter = TrialFilter { tuning: parent.clone(), limit: 1000, ..TrialFilter::default() };
        loop {
            let page = rows.list_trials(&filter)?;
            for (trial, job) in page.rows {
                let view = serde_json::from_slice::<TrialView>(&trial.view).ok();
                let (definition, resource) = view.map_or((0, 0), |view| (view.definition as usize, view.resource));
                let greatest = furthest.entry(definition).or_default();
                *greatest = resource.max(*greatest);
                let (outcome, is_whole) = match (trial.value, trial.status.as_str()) {
                    (Some(value), "Completed") => (Outcome::Completed { values: vec![value] }, true),
                    (Some(value), "Stopped") => (Outcome::Completed { values: vec![value] }, false),
                    (_, "Failed") => (Outcome::Failed, true),
                    _ => continue,
                };
                let Ok(request) = requests::training_job(&job) else { continue };
                let finished =
                    Finished { definition, job: trial.job, hyperparameters: request.hyperparameters, outcome };
                known.push((finished, resource, is_whole));
            }
            let Some(next) = page.next else { break };
            filter.after = Some(next);
        }
    }
    let is_told = |(finished, resource, is_whole): &(Finished, u32, bool)| {
        *is_whole || (*resource > 0 && furthest.get(&finished.definition) == Some(resource))
    };
    Ok(known.into_iter().filter(is_told).map(|(finished, ..)| finished).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shoal_store::{Batch, Journal as _, ResourceKind, ResourceRow, RowChange, SqliteJournal, SqliteRows, TrialRow};
    use shoal_wire::{CreateTrainingJob, Stored as _};

    use super::*;

    fn job(name: &str) -> ResourceRow {
        let request = json!({
            "TrainingJobName": name,
            "RoleArn": "arn:aws:iam::123456789012:role/r",
            "AlgorithmSpecification": {
                "TrainingImage": "shoal/host", "TrainingInputMode": "File", "ContainerEntrypoint": ["true"]},
            "HyperParameters": {"x": name},
            "OutputDataConfig": {"S3OutputPath": "s3://bkt/"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
            "StoppingCondition": {"MaxRuntimeInSeconds": 60},
        });
        let spec = CreateTrainingJob::from_raw(request.clone()).unwrap().to_stored();
        let request = request.to_string().into_bytes();
        ResourceRow { request, spec, ..ResourceRow::new(ResourceKind::TRAINING_JOB, name) }
    }

    /// Parents with these trials: name, definition, units of resource, status and value.
    fn parents(trials: &[(&str, u32, u32, &str, Option<f64>)]) -> (tempfile::TempDir, SqliteRows) {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = SqliteJournal::open(&dir.path().join("shoal.db")).unwrap();
        let mut changes = Vec::new();
        for (name, definition, resource, status, value) in trials {
            let view = json!({"tuning": "p", "definition": definition, "trial": 0, "resource": resource, "to": null,
                "objective": value, "paused": false});
            let trial = TrialRow {
                tuning: name.split('-').next().unwrap().to_owned(),
                job: (*name).to_owned(),
                created_ms: 1,
                status: (*status).to_owned(),
                value: *value,
                tuned: b"{}".to_vec(),
                view: view.to_string().into_bytes(),
            };
            let job = ResourceRow { status: (*status).to_owned(), ended: *status != "InProgress", ..job(name) };
            changes.extend([RowChange::Put(Box::new(job)), RowChange::PutTrial(Box::new(trial))]);
        }
        journal.append(&Batch { events: Vec::new(), rows: changes }).unwrap();
        (dir, journal.rows())
    }

    fn known((_, rows): &(tempfile::TempDir, SqliteRows), parents: &[&str]) -> Vec<String> {
        let parents: Vec<_> = parents.iter().map(|parent| (*parent).to_owned()).collect();
        let of = |it: Finished| match it.outcome {
            Outcome::Completed { values } => format!("{} {} {values:?}", it.definition, it.job),
            Outcome::Failed => format!("{} {} failed", it.definition, it.job),
            Outcome::Stopped => panic!("{it:?}"),
        };
        finished(rows, &parents).unwrap().into_iter().map(of).collect()
    }

    #[test]
    fn a_warm_start_learns_from_trials_that_came_to_their_end() {
        let journal = parents(&[
            ("p-1", 0, 9, "Completed", Some(0.5)),
            ("p-2", 0, 3, "Stopped", Some(0.1)),
            ("p-3", 0, 9, "Stopped", Some(0.4)),
            ("p-4", 0, 0, "Failed", None),
            ("p-5", 0, 9, "InProgress", None),
            ("p-6", 0, 9, "Stopped", None),
            ("p-7", 0, 2, "Completed", None),
            // Of another definition three units are the furthest.
            ("p-8", 1, 3, "Stopped", Some(0.7)),
            // Nothing shows how far these were.
            ("p-9", 2, 0, "Stopped", Some(0.2)),
        ]);
        let expected = ["0 p-1 [0.5]", "0 p-3 [0.4]", "0 p-4 failed", "1 p-8 [0.7]"];
        assert_eq!(known(&journal, &["p"]), expected, "one that was stopped early teaches nothing");
    }

    #[test]
    fn parents_are_compared_with_each_other_and_come_in_their_order() {
        let journal = parents(&[("b-1", 0, 9, "Completed", Some(1.0)), ("a-1", 0, 3, "Stopped", Some(2.0))]);
        assert_eq!(known(&journal, &["a"]), ["0 a-1 [2.0]"], "the furthest of its own");
        assert_eq!(known(&journal, &["a", "b"]), ["0 b-1 [1.0]"], "the other one's came further");
        assert_eq!(known(&journal, &["b", "none"]), ["0 b-1 [1.0]"]);
        let journal = parents(&[("b-1", 0, 9, "Completed", Some(1.0)), ("a-1", 0, 9, "Completed", Some(2.0))]);
        assert_eq!(known(&journal, &["b", "a"]), ["0 b-1 [1.0]", "0 a-1 [2.0]"]);
    }

    #[test]
    fn every_trial_is_read_whatever_the_pages_are() {
        let names: Vec<String> = (0..1203).map(|number| format!("p-{number:04}")).collect();
        let trials: Vec<_> = names.iter().map(|name| (name.as_str(), 0, 1, "Completed", Some(0.5))).collect();
        let known = known(&parents(&trials), &["p"]);
        assert_eq!(known.len(), names.len());
        assert!(known.is_sorted());
    }
}
