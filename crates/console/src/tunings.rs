//! The list of tuning jobs.

use askama::Template;
use http::Response;
use shoal_plane::{TuningStatus, TuningView};
use shoal_store::{ResourceFilter, ResourceKind, ResourceRow, ResourceSort, SortOrder};
use shoal_wire::CreateTuningJob;

use super::{
    Console, Visit, amounts, blocking,
    frame::{Frame, PageError, rendered},
    listed::{Listed, Position},
    now_ms,
    query::address,
    responses::Body,
    sources::{Sources, Study},
    status::Badge,
};

#[derive(Template)]
#[template(path = "tunings.html")]
struct TuningsPage {
    frame: Frame,
    search: String,
    lines: Vec<Line>,
    /// The server has no tuning job at all.
    fresh: bool,
    older: Option<String>,
    /// Not the first page.
    later: bool,
    live: bool,
}

struct Line {
    name: String,
    badge: Badge,
    detail: String,
    /// Metric and best value.
    best: Option<(String, String)>,
    strategy: String,
    trials: String,
    created_ms: u64,
    duration: u64,
    /// Since when it runs, while it does.
    since_ms: Option<u64>,
}

/// What a tuning job's status looks like.
pub(super) fn badge(status: TuningStatus) -> Badge {
    let (kind, word) = match status {
        TuningStatus::InProgress => ("running", "Running"),
        TuningStatus::Stopping => ("stopping", "Stopping"),
        TuningStatus::Completed => ("completed", "Completed"),
        TuningStatus::Failed => ("failed", "Failed"),
        TuningStatus::Stopped => ("stopped", "Stopped"),
    };
    Badge { kind, word }
}

impl Console {
    pub(super) async fn tunings_page(&self, visit: &Visit) -> Result<Response<Body>, PageError> {
        let search = visit.query.get("q").unwrap_or_default().to_owned();
        let position = Position::of(visit);
        let later = !position.is_first();
        let filter = ResourceFilter {
            name_contains: Some(search.clone()).filter(|text| !text.is_empty()),
            sort: ResourceSort::CreationTime,
            order: SortOrder::Descending,
            ..ResourceFilter::new(ResourceKind::TUNING_JOB)
        };
        let sources = self.sources.clone();
        let (lines, next) = blocking(move || {
            let listed = Listed::read(&sources, filter, position)?;
            let lines = listed.rows.iter().map(|row| line(&sources, row)).collect::<Result<Vec<_>, _>>()?;
            Ok((lines, listed.after))
        })
        .await?;
        let page = TuningsPage {
            frame: visit.frame("Tuning jobs"),
            fresh: lines.is_empty() && search.is_empty() && !later,
            live: lines.iter().any(|line| line.since_ms.is_some()),
            older: next.map(|cursor| address("/console/tuning", &[("q", &search), ("after", &cursor.to_string())])),
            later,
            lines,
            search,
        };
        Ok(rendered(&page))
    }
}

fn line(sources: &Sources, row: &ResourceRow) -> Result<Line, PageError> {
    let view: TuningView = serde_json::from_slice(&row.view).map_err(|error| PageError::ours(&error))?;
    let Study { request, strategy, .. } = sources.server.study(row)?;
    let end_ms = view.ended.map_or_else(now_ms, |end| end.0);
    Ok(Line {
        name: row.name.clone(),
        badge: badge(view.status),
        detail: view.failure_reason.as_deref().and_then(|reason| reason.lines().next()).unwrap_or_default().to_owned(),
        best: best(&request, &view),
        strategy,
        trials: trials(&request, &view),
        created_ms: row.created_ms,
        duration: end_ms.saturating_sub(view.created.0),
        since_ms: view.ended.is_none().then_some(view.created.0),
    })
}

/// Metric and value of the best trial.
pub(super) fn best(request: &CreateTuningJob, view: &TuningView) -> Option<(String, String)> {
    let best = view.best.as_ref()?;
    let definition = request.definitions.get(best.definition as usize)?;
    Some((definition.objective.metric.clone(), amounts::value(best.value)))
}

/// `7 of 30, 1 failed`: trials that are over, of how many.
pub(super) fn trials(request: &CreateTuningJob, view: &TuningView) -> String {
    let counts = &view.training;
    let failed = counts.retryable_error + counts.non_retryable_error;
    let over = amounts::count(u64::from(counts.completed + counts.stopped + failed));
    let most = request.limits.max_jobs.map_or(String::new(), |most| format!(" of {}", amounts::count(u64::from(most))));
    let failed = if failed > 0 { format!(", {} failed", amounts::count(u64::from(failed))) } else { String::new() };
    format!("{over}{most}{failed}")
}
