//! Why a tuning job failed whose objective never appeared: with the lines of its first training job
//! that came near.

use shoal_plane::{TuningEnd, TuningView};
use shoal_store::{LogQuery, ResourceRow, TrialFilter, TrialSort};
use shoal_wire::Error;

use super::Records;
use crate::{internal::internal, requests, tuning};

/// Lines at the end of a log that are looked through.
const LINES: usize = 2000;

/// The failure reason of a tuning job.
///
/// # Errors
/// Rows or logs cannot be read.
pub(super) fn failure_reason(records: &Records, row: &ResourceRow, view: &TuningView) -> Result<Option<String>, Error> {
    let Some(reason) = view.failure_reason.clone() else { return Ok(None) };
    if view.end != Some(TuningEnd::NoObjective) {
        return Ok(Some(reason));
    }
    let filter = TrialFilter {
        tuning: row.name.clone(),
        status: Some("Completed".to_owned()),
        sort: TrialSort::CreationTime,
        limit: 1,
        ..TrialFilter::default()
    };
    let page = records.rows.list_trials(&filter).map_err(|error| internal(&error))?;
    let Some((trial, job)) = page.rows.first() else { return Ok(Some(reason)) };
    let known: shoal_plane::TrialView = serde_json::from_slice(&trial.view).map_err(|error| internal(&error))?;
    let request = requests::tuning_job(row)?;
    let Some(definition) = request.definitions.get(known.definition as usize) else { return Ok(Some(reason)) };
    let objective = &definition.objective.metric;
    let regex = definition.training.algorithm.metric_definitions.iter().find(|metric| metric.name == *objective);
    let mut lines = Vec::new();
    let streams = records.telemetry.streams(&format!("{}/", job.name), None, 1).map_err(|error| internal(&error))?;
    for stream in streams {
        let query = LogQuery {
            stream: stream.name,
            direction: shoal_store::LogDirection::Backward,
            limit: LINES,
            ..LogQuery::default()
        };
        let page = records.telemetry.read_logs(&query).map_err(|error| internal(&error))?;
        lines.extend(page.into_iter().flat_map(|page| page.events).map(|event| event.text));
    }
    let near =
        tuning::near_misses(lines.iter().map(String::as_str), objective, regex.map(|metric| metric.regex.as_str()));
    Ok(Some(if near.is_empty() {
        format!("{reason} The output of {} has no line that looks like a metric.", job.name)
    } else {
        format!(
            "{reason} Lines of {} that came near: {}.",
            job.name,
            near.iter().map(|line| format!("'{line}'")).collect::<Vec<_>>().join(", ")
        )
    }))
}
