//! What a tuning job's study knows, and how many of its trials run: operations of Shoal's own.

use std::sync::PoisonError;

use serde::Serialize;
use serde_json::Value as Json;
use shoal_plane::{Command, JobView, SecondaryStatus, TrialView, TuningView, trial_state};
use shoal_store::{Cursor, ResourceRow, TrialFilter, TrialRow, TrialSort};
use shoal_tuner::{Direction, Domain, Scaling, Study};
use shoal_wire::{
    CreateTuningJob, DescribeStudy, Error, Reply, StudyDefinition, StudyDescription, StudyImportance, StudyObjective,
    StudyParameter, StudyTrial, UpdateTuningJob,
};

use super::{Api, Records, best_model, blocking, refused, resources::place, token, tuning::ended};
use crate::{
    internal::internal,
    requests,
    tuning::{self, Design, Looks},
};

/// Trials of one page.
const PAGE: usize = 200;

impl Api {
    pub(super) async fn update_tuning_job(&self, update: UpdateTuningJob) -> Result<Reply, Error> {
        let name = update.hyper_parameter_tuning_job_name;
        let ended = ended(&self.tuning_row(&name).await?)?;
        let command =
            Command::ChangeParallel { name: name.into(), max_parallel: update.max_parallel_training_jobs, ended };
        self.core.ask(command, None).await.map_err(|refusal| refused(&refusal))?;
        Ok(Reply::done())
    }

    pub(super) async fn describe_study(&self, request: DescribeStudy) -> Result<Reply, Error> {
        let row = self.tuning_row(&request.hyper_parameter_tuning_job_name).await?;
        let question = format!("study {} {}", row.uid, request.live_only);
        let after = place(&question, request.next_token.as_deref())?;
        let filter = TrialFilter {
            tuning: row.name.clone(),
            status: request.live_only.then(|| "InProgress".to_owned()),
            sort: TrialSort::CreationTime,
            after,
            limit: PAGE,
            ..TrialFilter::default()
        };
        let (records, looks) = (self.records.clone(), self.looks.clone());
        let (mut description, next) = blocking(move || describe(&records, &looks, &row, &filter)).await?;
        description.next_token = next.map(|cursor| token::seal(&question, &cursor.to_string()));
        Ok(Reply::describe_study(&description))
    }
}

fn describe(
    records: &Records,
    looks: &Looks,
    row: &ResourceRow,
    filter: &TrialFilter,
) -> Result<(StudyDescription, Option<Cursor>), Error> {
    let request = requests::tuning_job(row)?;
    let view: TuningView = serde_json::from_slice(&row.view).map_err(|error| internal(&error))?;
    let designs = tuning::designs(&request, tuning::seed(&request, &row.uid), &*records.images)?;
    let is_whole = filter.status.is_none();
    let page = records.rows.list_trials(filter).map_err(|error| internal(&error))?;
    let looked = looks.of(row);
    let mut seen = looked.lock().unwrap_or_else(PoisonError::into_inner);
    seen.catch_up(&*records.rows, row, &designs).map_err(|error| internal(&*error))?;
    // What takes long to find out is not told with a look at live trials only.
    let nothing = (Vec::new(), Vec::new());
    let (studies, (weights, fronts)) = if is_whole {
        let (studies, findings) = seen.findings();
        (studies, (&findings.weights, &findings.fronts))
    } else {
        (seen.studies(), (&nothing.0, &nothing.1))
    };
    let mut trials = page
        .rows
        .iter()
        .map(|(trial, job)| told(row, &view, studies, fronts, trial, job))
        .collect::<Result<Vec<_>, _>>()?;
    if is_whole {
        add_times(records, &request, &mut trials)?;
    }
    let warning = if is_whole { best_model::warning(&*records.rows, &records.objects, &view)? } else { None };
    let notes = designs.iter().find_map(|design| design.note.clone());
    let messages: Vec<String> =
        super::near::failure_reason(records, row, &view)?.or(notes).into_iter().chain(warning).collect();
    let description = StudyDescription {
        hyper_parameter_tuning_job_name: row.name.clone(),
        hyper_parameter_tuning_job_status: row.status.clone(),
        message: Some(messages.join(". ")).filter(|message| !message.is_empty()),
        creation_time: seconds(row.created_ms),
        end_time: row.ended_ms.map(seconds),
        max_trials: request.limits.max_jobs,
        max_parallel: view.max_parallel,
        running: view.active.saturating_sub(view.waiting),
        waiting: view.waiting,
        paused: view.training.in_progress.saturating_sub(view.active),
        best_trial: view.best.as_ref().map(|best| number(row, &best.job)),
        definitions: studies
            .iter()
            .zip(&designs)
            .zip(&request.definitions)
            .enumerate()
            .map(|(at, ((study, design), it))| {
                definition(study, design, it, weights.get(at).map_or(&[][..], Vec::as_slice))
            })
            .collect(),
        trials,
        next_token: None,
    };
    Ok((description, page.next))
}

/// Adds when trials reported their objectives last.
fn add_times(records: &Records, request: &CreateTuningJob, trials: &mut [StudyTrial]) -> Result<(), Error> {
    for trial in trials {
        let Some(definition) = request.definitions.get(trial.definition as usize) else { continue };
        let summaries = records.telemetry.summaries(&trial.training_job_name).map_err(|error| internal(&error))?;
        let objective = summaries.iter().find(|it| it.metric == definition.objective.metric);
        trial.value_time = objective.map(|it| seconds(it.last_ms));
    }
    Ok(())
}

fn definition(
    study: &Study,
    design: &Design,
    request: &shoal_wire::TuningDefinition,
    weights: &[f64],
) -> StudyDefinition {
    let space = study.space();
    let mut importance: Vec<StudyImportance> = space
        .parameters()
        .iter()
        .zip(weights)
        .map(|(parameter, &weight)| StudyImportance { name: parameter.name.clone(), weight })
        .collect();
    importance.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    StudyDefinition {
        name: request.name.clone(),
        objectives: design
            .objectives
            .iter()
            .map(|it| StudyObjective { metric_name: it.metric.clone(), maximize: it.direction == Direction::Maximize })
            .collect(),
        parameters: space.parameters().iter().enumerate().map(|(at, it)| parameter(it, space.scaling(at))).collect(),
        searcher: spec_kind(&study.spec().searcher),
        scheduler: spec_kind(&study.spec().scheduler),
        levels: study.spec().scheduler.levels(),
        importance,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a picture")]
fn parameter(parameter: &shoal_tuner::Parameter, scaling: Scaling) -> StudyParameter {
    let (min, max, values) = match &parameter.domain {
        Domain::Continuous { min, max, .. } => (Some(*min), Some(*max), None),
        Domain::Integer { min, max, .. } => (Some(*min as f64), Some(*max as f64), None),
        Domain::Categorical { values } => (None, None, Some(values.clone())),
    };
    StudyParameter { name: parameter.name.clone(), min, max, log: scaling == Scaling::Logarithmic, values }
}

/// A specification's kind, as its users write it.
pub(crate) fn spec_kind(spec: &impl Serialize) -> String {
    let json = serde_json::to_value(spec).unwrap_or_default();
    json.as_str().or_else(|| json.get("kind").and_then(Json::as_str)).unwrap_or_default().to_owned()
}

fn told(
    row: &ResourceRow,
    tuning: &TuningView,
    studies: &[Study],
    fronts: &[Vec<u32>],
    trial: &TrialRow,
    job: &ResourceRow,
) -> Result<StudyTrial, Error> {
    let known: TrialView = serde_json::from_slice(&trial.view).map_err(|error| internal(&error))?;
    let view: JobView = serde_json::from_slice(&job.view).map_err(|error| internal(&error))?;
    let study = studies.get(known.definition as usize);
    let history = study.and_then(|study| study.history().trial(known.trial));
    let directions = study.map_or(&[][..], |study| &study.spec().objectives);
    let as_seen = |(direction, value): (&Direction, &f64)| direction.minimised(*value);
    let first = directions.first().copied().unwrap_or_default();
    let curve = history.map_or(&[][..], |it| &it.reports).iter();
    let finals =
        directions.iter().zip(history.map_or(&[][..], |it| &it.values)).map(as_seen).filter(|it| it.is_finite());
    let mut objectives: Vec<f64> = finals.collect();
    // A program that was told to stop may have come to its end all the same: what Describe shows is
    // its last word.
    if let Some(value) = trial.value {
        objectives.splice(..objectives.len().min(1), [value]);
    }
    let most = study.and_then(|study| study.spec().scheduler.levels().last().copied());
    let (state, reason) = trial_state(&known, &view, tuning, most);
    let not_numbers =
        history.map_or(&[][..], |it| &it.reports).iter().filter(|it| !it.value.is_finite()).map(|it| it.resource);
    Ok(StudyTrial {
        number: number(row, &trial.job),
        training_job_name: trial.job.clone(),
        definition: known.definition,
        values: serde_json::from_slice(&trial.tuned).map_err(|error| internal(&error))?,
        state: state.name().to_owned(),
        reason,
        not_numbers: not_numbers.collect(),
        bracket: history.map_or(0, |it| it.bracket),
        to: known.to,
        curve: curve.filter(|it| it.value.is_finite()).map(|it| (it.resource, first.minimised(it.value))).collect(),
        objectives,
        start_time: view.training_start.map(|time| seconds(time.0)),
        end_time: view.training_end.map(|time| seconds(time.0)),
        value_time: None,
        front: fronts.get(known.definition as usize).is_some_and(|front| front.binary_search(&known.trial).is_ok()),
        billable_seconds: view.ran_ms.map(seconds).or_else(|| worked(&view)),
    })
}

/// Seconds in which its instances worked, of what was stored before views had them; none before it
/// is over.
fn worked(view: &JobView) -> Option<f64> {
    let end = view.training_end?;
    let working = [
        SecondaryStatus::Downloading,
        SecondaryStatus::Training,
        SecondaryStatus::Stopping,
        SecondaryStatus::Uploading,
    ];
    let spans = view.transitions.iter().filter(|it| working.contains(&it.status));
    Some(seconds(spans.map(|it| it.end.unwrap_or(end).0.saturating_sub(it.start.0)).sum()))
}

/// The number in a trial's name: `<tuning job>-<number>-<8 hexadecimal digits>`.
fn number(row: &ResourceRow, job: &str) -> u32 {
    let rest = job.strip_prefix(row.name.as_str()).unwrap_or_default().trim_start_matches('-');
    rest.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use shoal_plane::{JobStatus, Time, Transition};
    use shoal_store::ResourceKind;

    use super::*;

    #[test]
    fn a_trials_number_is_read_from_its_name_whatever_the_tuning_job_is_called() {
        for (tuning, job, expected) in [
            ("tune", "tune-007-0123abcd", 7),
            ("tune-2", "tune-2-012-0123abcd", 12),
            ("9", "9-1000000-0123abcd", 1_000_000),
            // Trials of a warm start's parents, and a name that no trial has.
            ("tune", "other-007-0123abcd", 0),
            ("tune", "tune", 0),
            ("tune", "tune-99999999999-0123abcd", 0),
        ] {
            assert_eq!(number(&ResourceRow::new(ResourceKind::TUNING_JOB, tuning), job), expected, "{job} of {tuning}");
        }
    }

    #[test]
    fn seconds_of_work_are_those_in_which_instances_worked() {
        let step = |status, start, end: Option<u64>| Transition {
            status,
            start: Time(start),
            end: end.map(Time),
            message: String::new(),
        };
        let mut view = JobView {
            status: JobStatus::Completed,
            secondary: SecondaryStatus::Completed,
            transitions: vec![
                step(SecondaryStatus::Pending, 0, Some(5000)),
                step(SecondaryStatus::Starting, 5000, Some(6000)),
                step(SecondaryStatus::Downloading, 6000, Some(6500)),
                step(SecondaryStatus::Training, 6500, Some(9000)),
                step(SecondaryStatus::Uploading, 9000, None),
            ],
            failure_reason: None,
            created: Time(0),
            modified: Time(9250),
            training_start: Some(Time(6500)),
            training_end: Some(Time(9250)),
            training_s: None,
            billable_s: None,
            ran_ms: None,
            final_metrics: Vec::new(),
            pending: None,
            attempt: None,
            ended: true,
            trial: None,
            stop: None,
            rules: Vec::new(),
        };
        assert_eq!(worked(&view), Some(3.25));
        view.training_end = None;
        assert_eq!(worked(&view), None, "it is not over");
    }

    #[test]
    fn a_specification_is_named_by_its_kind() {
        for (spec, expected) in [
            (serde_json::json!("random"), "random"),
            (serde_json::json!({"kind": "asha", "eta": 3}), "asha"),
            (serde_json::json!({"eta": 3}), ""),
            (serde_json::json!(null), ""),
        ] {
            assert_eq!(spec_kind(&spec), expected);
        }
    }
}
