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
