//! A tuning job's page: best, counts, its trials, why some failed.

use askama::Template;
use http::Response;
use shoal_plane::{JobName, JobView, TrialState, TrialView, TuningView, trial_state};
use shoal_store::{ResourceKind, ResourceRow, SortOrder, TrialFilter, TrialRow, TrialSort};
use shoal_wire::{CreateTuningJob, Goal};

use super::{
    Console, Visit, amounts, blocking,
    frame::{Frame, PageError, rendered},
    now_ms,
    responses::{Body, see_other},
    sources::{Sources, Stop},
    status::Badge,
    tunings::{badge, best, trials},
};

/// Most trials of each table.
const MOST: usize = 30;
/// Most trials in the picture, the last ones.
const POINTS: usize = 500;
/// Its box.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 180.0;

#[derive(Template)]
#[template(path = "tuning.html")]
struct TuningPage {
    frame: Frame,
    name: String,
    arn: String,
    badge: Badge,
    live: bool,
    can_stop: bool,
    failure: Option<String>,
    /// What else its user should know.
    warning: Option<String>,
    /// Metric, value, training job.
    best: Option<(String, String, JobName)>,
    strategy: String,
    trials: String,
    at_work: u32,
    waiting: u32,
    paused: u32,
    created_ms: u64,
    duration: u64,
    since_ms: Option<u64>,
    picture: Option<Picture>,
    tables: Vec<Table>,
}

/// The objective of the trials, in the order in which they reported it last: that of their ends
/// would put all that rest to the search's end behind the best ones.
struct Picture {
    metric: String,
    dots: Vec<Dot>,
    /// Points of a polyline: the best so far.
    best: String,
    low: String,
    high: String,
}

struct Dot {
    x: String,
    y: String,
    kind: &'static str,
    title: String,
}

struct Table {
    id: &'static str,
    title: &'static str,
    lines: Vec<Line>,
    more: bool,
}

struct Line {
    name: String,
    badge: Badge,
    detail: String,
    value: String,
    resource: u32,
    setting: String,
}

impl Console {
    pub(super) async fn tuning_page(&self, visit: &Visit, name: &str) -> Result<Response<Body>, PageError> {
        let (sources, frame, name) = (self.sources.clone(), visit.frame(name), name.to_owned());
        blocking(move || {
            let row = row(&sources, &name)?;
            Ok(rendered(&page(&sources, frame, &row)?))
        })
        .await
    }

    /// The API's own call.
    pub(super) async fn stop_tuning(&self, name: &str) -> Result<Response<Body>, PageError> {
        let (sources, wanted) = (self.sources.clone(), name.to_owned());
        // One that is not there has a page of its own for that.
        blocking(move || row(&sources, &wanted)).await?;
        self.sources.server.stop(Stop::TuningJob(name.to_owned())).await?;
        Ok(see_other(&format!("/console/tuning/{name}")))
    }
}

fn row(sources: &Sources, name: &str) -> Result<ResourceRow, PageError> {
    let none = || PageError::not_found(&format!("There is no tuning job {name}. It may have been deleted."));
    sources.rows.resource(ResourceKind::TUNING_JOB, name)?.ok_or_else(none)
}

/// What trials are shown with.
struct Study<'a> {
    view: &'a TuningView,
    /// By definition: the greatest resource, if the scheduler has one.
    greatest_resources: Vec<Option<u32>>,
}

fn page(sources: &Sources, frame: Frame, row: &ResourceRow) -> Result<TuningPage, PageError> {
    let view: TuningView = serde_json::from_slice(&row.view).map_err(|error| PageError::ours(&error))?;
    let crate::Study { request, strategy, greatest_resources } = sources.server.study(row)?;
    let study = Study { view: &view, greatest_resources };
    let goal = request.definitions.first().map_or(Goal::Minimize, |definition| definition.objective.goal);
    let end_ms = view.ended.map_or_else(now_ms, |end| end.0);
    let job = view.best.as_ref().map(|best| best.job.clone()).unwrap_or_default();
    let can_stop = frame.may_change() && view.status == shoal_plane::TuningStatus::InProgress;
    Ok(TuningPage {
        frame,
        name: row.name.clone(),
        arn: row.arn.clone(),
        badge: badge(view.status),
        live: view.ended.is_none(),
        can_stop,
        failure: view.failure_reason.clone(),
        warning: sources.server.best_model_warning(&view)?,
        best: best(&request, &view).map(|(metric, value)| (metric, value, job)),
        strategy,
        trials: trials(&request, &view),
        at_work: view.active.saturating_sub(view.waiting),
        waiting: view.waiting,
        paused: view.training.in_progress.saturating_sub(view.active),
        created_ms: row.created_ms,
        duration: end_ms.saturating_sub(view.created.0),
        since_ms: view.ended.is_none().then_some(view.created.0),
        picture: picture(sources, row, &request, goal, &study)?,
        tables: tables(sources, row, goal, &study)?,
    })
}

fn tables(sources: &Sources, row: &ResourceRow, goal: Goal, study: &Study<'_>) -> Result<Vec<Table>, PageError> {
    let of = |status: Option<&str>, sort, order| TrialFilter {
        tuning: row.name.clone(),
        status: status.map(str::to_owned),
        sort,
        order,
        limit: MOST,
        ..TrialFilter::default()
    };
    let best_first = if goal == Goal::Maximize { SortOrder::Descending } else { SortOrder::Ascending };
    let wanted = [
        ("at-work", "At work", of(Some("InProgress"), TrialSort::CreationTime, SortOrder::Ascending)),
        ("best", "Best trials", of(None, TrialSort::Value, best_first)),
        ("failed", "Failed trials", of(Some("Failed"), TrialSort::CreationTime, SortOrder::Ascending)),
    ];
    let mut tables = Vec::new();
    for (id, title, filter) in wanted {
        let page = sources.rows.list_trials(&filter)?;
        let shown = page.rows.iter().filter(|(trial, _)| id != "best" || trial.value.is_some());
        let lines: Vec<Line> = shown.map(|(trial, job)| line(trial, job, study)).collect::<Result<_, _>>()?;
        if !lines.is_empty() {
            tables.push(Table { id, title, more: page.next.is_some() && lines.len() == MOST, lines });
        }
    }
    Ok(tables)
}

fn read<'a, T: serde::Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, PageError> {
    serde_json::from_slice(bytes).map_err(|error| PageError::ours(&error))
}

/// State and reason of a trial, and what is known of it.
fn state(
    trial: &TrialRow,
    job: &ResourceRow,
    study: &Study<'_>,
) -> Result<(TrialState, Option<String>, TrialView), PageError> {
    let (known, view): (TrialView, JobView) = (read(&trial.view)?, read(&job.view)?);
    let most = study.greatest_resources.get(known.definition as usize).copied().flatten();
    let (state, reason) = trial_state(&known, &view, study.view, most);
    Ok((state, reason, known))
}

fn line(trial: &TrialRow, job: &ResourceRow, study: &Study<'_>) -> Result<Line, PageError> {
    let (state, reason, known) = state(trial, job, study)?;
    let (kind, word) = match state {
        TrialState::Completed => ("completed", "Completed"),
        TrialState::Stopped => ("stopped", "Stopped early"),
        TrialState::MaxResource => ("stopped", "Stopped at MaxResource"),
        TrialState::Cancelled => ("stopped", "Cancelled"),
        TrialState::Failed => ("failed", "Failed"),
        TrialState::Paused => ("waiting", "Paused"),
        TrialState::Waiting => ("waiting", "Waiting"),
        TrialState::Running => ("running", "Running"),
    };
    let tuned: Vec<(String, String)> = read(&trial.tuned)?;
    let value = trial.value.or(known.objective).filter(|_| state != TrialState::Failed);
    Ok(Line {
        name: trial.job.clone(),
        badge: Badge { kind, word },
        detail: reason.as_deref().map(|reason| shoal_wire::headline(reason).into_owned()).unwrap_or_default(),
        value: value.map_or("–".to_owned(), amounts::value),
        resource: known.resource,
        setting: tuned.iter().map(|(name, value)| format!("{name}={}", rounded(value))).collect::<Vec<_>>().join("  "),
    })
}

/// Long fractions in few digits.
fn rounded(text: &str) -> String {
    match text.parse::<f64>() {
        Ok(value) if text.len() > 9 && value.is_finite() && value.fract() != 0.0 => amounts::value(value),
        _ => text.to_owned(),
    }
}

fn picture(
    sources: &Sources,
    row: &ResourceRow,
    request: &CreateTuningJob,
    goal: Goal,
    study: &Study<'_>,
) -> Result<Option<Picture>, PageError> {
    let filter = TrialFilter {
        tuning: row.name.clone(),
        sort: TrialSort::CreationTime,
        order: SortOrder::Descending,
        limit: POINTS,
        ..TrialFilter::default()
    };
    let mut ended = Vec::new();
    for (trial, job) in sources.rows.list_trials(&filter)?.rows {
        if let Some(value) = trial.value.filter(|value| value.is_finite() && job.ended) {
            let (state, _, known) = state(&trial, &job, study)?;
            let definition = request.definitions.get(known.definition as usize);
            let summaries = sources.telemetry.summaries(&trial.job)?;
            let objective = summaries.iter().find(|it| definition.is_some_and(|of| of.objective.metric == it.metric));
            let at_ms = objective.map_or(job.created_ms, |it| it.last_ms);
            ended.push(Ended { value, state, at_ms, job: trial.job });
        }
    }
    // The newest trials were asked for.
    ended.reverse();
    ended.sort_by_key(|trial| trial.at_ms);
    let metric = request.definitions.first().map(|definition| definition.objective.metric.clone()).unwrap_or_default();
    Ok(drawn(metric, goal, &ended))
}

/// A trial that has ended with a value.
struct Ended {
    value: f64,
    state: TrialState,
    /// When it reported the value.
    at_ms: u64,
    job: String,
}

/// The picture of trials in this order; of one alone there is none.
fn drawn(metric: String, goal: Goal, ended: &[Ended]) -> Option<Picture> {
    if ended.len() < 2 {
        return None;
    }
    let values = || ended.iter().map(|trial| trial.value);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let span = if high > low { high - low } else { 1.0 };
    let x = |place: usize| 12.0 + (WIDTH - 24.0) * place as f64 / (ended.len() - 1) as f64;
    let y = |value: f64| 12.0 + (HEIGHT - 24.0) * (high - value) / span;
    let mut so_far: Option<f64> = None;
    let mut steps = Vec::new();
    for (place, value) in values().enumerate() {
        let is_better = so_far.is_none_or(|best| if goal == Goal::Maximize { value > best } else { value < best });
        if is_better {
            steps.extend(so_far.map(|best| format!("{:.1},{:.1}", x(place), y(best))));
            so_far = Some(value);
        }
        steps.push(format!("{:.1},{:.1}", x(place), y(so_far.unwrap_or(value))));
    }
    let dots = ended.iter().enumerate().map(|(place, trial)| Dot {
        x: format!("{:.1}", x(place)),
        y: format!("{:.1}", y(trial.value)),
        kind: if trial.state == TrialState::Completed { "completed" } else { "stopped" },
        title: format!("{}: {}", trial.job, amounts::value(trial.value)),
    });
    Some(Picture {
        metric,
        dots: dots.collect(),
        best: steps.join(" "),
        low: amounts::value(low),
        high: amounts::value(high),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_so_far_follows_the_trials_in_their_order() {
        let trial = |job: &str, value, state| Ended { value, state, at_ms: 0, job: job.to_owned() };
        let ended = [
            trial("a", 3.0, TrialState::Completed),
            trial("b", 5.0, TrialState::Stopped),
            trial("c", 1.0, TrialState::Completed),
        ];
        let picture = drawn("loss".to_owned(), Goal::Minimize, &ended).expect("three trials");
        let dots: Vec<_> =
            picture.dots.iter().map(|dot| (dot.x.as_str(), dot.y.as_str(), dot.kind, dot.title.as_str())).collect();
        let expected = [
            ("12.0", "90.0", "completed", "a: 3"),
            ("500.0", "12.0", "stopped", "b: 5"),
            ("988.0", "168.0", "completed", "c: 1"),
        ];
        assert_eq!(dots, expected, "the greatest value is at the top");
        assert_eq!(picture.best, "12.0,90.0 500.0,90.0 988.0,90.0 988.0,168.0");
        assert_eq!((picture.low.as_str(), picture.high.as_str(), picture.metric.as_str()), ("1", "5", "loss"));
        let best = drawn("auc".to_owned(), Goal::Maximize, &ended).expect("three trials").best;
        assert_eq!(best, "12.0,90.0 500.0,90.0 500.0,12.0 988.0,12.0");
        assert!(drawn("loss".to_owned(), Goal::Minimize, &ended[..1]).is_none());
    }

    #[test]
    fn equal_values_are_a_level_line() {
        let ended =
            ["a", "b"].map(|job| Ended { value: 2.0, state: TrialState::Completed, at_ms: 0, job: job.to_owned() });
        assert_eq!(drawn("loss".to_owned(), Goal::Minimize, &ended).expect("two trials").best, "12.0,12.0 988.0,12.0");
    }
}
