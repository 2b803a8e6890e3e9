//! CloudWatch: the metrics of training jobs as series of namespace, name and dimensions. Those of
//! their instances are in `system_metrics`, those that users put in `own_metrics`.

use std::time::Duration;

use shoal_store::{SeriesQuery, Telemetry};
use shoal_wire::{
    Datapoint, Error, GetMetricData, GetMetricStatistics, ListMetrics, Metric, MetricQuery, MetricResult, Reply, Span,
};

use super::{Api, blocking, own_metrics, system_metrics, token};
use crate::{
    clock::now_ms,
    internal::internal,
    statistics::{Period, Series, of_sets, periods},
};

/// AWS's namespace.
pub(super) const NAMESPACE: &str = "/aws/sagemaker/TrainingJobs";
/// The dimension of what a job reports by itself: whose metric it is.
const DIMENSION: &str = "TrainingJobName";
/// The unit of such values.
const UNIT: &str = "None";
/// Metrics on a page of ListMetrics, as AWS has it.
const MAX_METRICS: usize = 500;
/// How long a metric counts as active after its last value.
const ACTIVE: Duration = Duration::from_secs(3 * 3600);

impl Api {
    pub(super) async fn metric_statistics(&self, request: GetMetricStatistics) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        blocking(move || {
            let series = read(&telemetry, &request.metric, request.unit.as_deref(), request.span)?;
            let point = |it: Period| {
                let values =
                    request.statistics.iter().map(|(_, asked)| of_sets(*asked, &it.sets)).collect::<Option<_>>();
                Some(Datapoint { at_ms: it.start_ms, unit: it.unit, values: values? })
            };
            let datapoints: Vec<_> = series.periods.into_iter().filter_map(point).collect();
            Ok(Reply::get_metric_statistics(&request.metric.name, &request.statistics, &datapoints))
        })
        .await
    }

    pub(super) async fn metric_data(&self, request: GetMetricData) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        blocking(move || {
            let question = token::question(&(&request.queries, request.newest_first))?;
            let skipped = match &request.next_token {
                Some(given) => token::open(&question, given)?.parse().map_err(|error| internal(&error))?,
                None => 0,
            };
            let values = |query: &MetricQuery| {
                let series = read(&telemetry, &query.metric, query.unit.as_deref(), query.span)?;
                let mut values = series.values(query.statistic);
                if request.newest_first {
                    values.reverse();
                }
                Ok((values, series.message(query.statistic, query.span)))
            };
            let all = request.queries.iter().map(values).collect::<Result<Vec<_>, Error>>()?;
            let (all, messages): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            let most = request.max_datapoints as usize;
            let total: usize = all.iter().map(Vec::len).sum();
            let result = |((query, message), (values, complete)): ((&MetricQuery, _), _)| MetricResult {
                id: query.id.clone(),
                label: query.label.clone(),
                values,
                complete,
                message,
            };
            let queries = request.queries.iter().zip(messages);
            let results: Vec<_> = queries.zip(page(all, skipped, most)).map(result).collect();
            let end = skipped + most;
            let next_token = (end < total).then(|| token::seal(&question, &end.to_string()));
            Ok(Reply::get_metric_data(&results, next_token.as_deref()))
        })
        .await
    }

    pub(super) async fn list_metrics(&self, request: ListMetrics) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        blocking(move || {
            let question =
                token::question(&(&request.namespace, &request.name, &request.dimensions, request.recently_active))?;
            let place = match &request.next_token {
                Some(given) => Place::parse(&token::open(&question, given)?),
                None => Place::Jobs(None),
            };
            let (found, next) = list(&telemetry, &request, &place)?;
            let next = next.map(|place| token::seal(&question, &place.to_string()));
            Ok(Reply::list_metrics(&found, next.as_deref()))
        })
        .await
    }
}

/// Where a page of ListMetrics begins: what jobs report comes first, then what is measured of
/// instances, then what users put. Names of jobs have no space.
#[derive(Clone)]
enum Place {
    /// After this job and metric.
    Jobs(Option<(String, String)>),
    /// After this job and host.
    Hosts(Option<(String, u32)>),
    /// After the series of this number.
    Own(i64),
}

impl Place {
    fn parse(text: &str) -> Self {
        match text.split_once(' ') {
            Some(("", own)) if own.starts_with('#') => Self::Own(own[1..].parse().unwrap_or_default()),
            Some(("", host)) => {
                Self::Hosts(host.rsplit_once(' ').and_then(|(job, host)| Some((job.to_owned(), host.parse().ok()?))))
            }
            Some((job, metric)) => Self::Jobs(Some((job.to_owned(), metric.to_owned()))),
            None => Self::Jobs(None),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Jobs(None) => Ok(()),
            Self::Jobs(Some((job, metric))) => write!(formatter, "{job} {metric}"),
            Self::Hosts(None) => formatter.write_str(" "),
            Self::Hosts(Some((job, host))) => write!(formatter, " {job} {host}"),
            Self::Own(after) => write!(formatter, " #{after}"),
        }
    }
}

/// A page of metrics, and where the next one begins.
fn list(telemetry: &Telemetry, request: &ListMetrics, place: &Place) -> Result<(Vec<Metric>, Option<Place>), Error> {
    let active = u64::try_from(ACTIVE.as_millis()).unwrap_or(u64::MAX);
    let since_ms = request.recently_active.then(|| now_ms().saturating_sub(active));
    let mut found = Vec::new();
    let after = match place.clone() {
        Place::Jobs(after) => {
            if let Some(job) = job_of(request) {
                let query = SeriesQuery {
                    job,
                    metric: request.name.clone(),
                    active_since_ms: since_ms,
                    after,
                    limit: MAX_METRICS + 1,
                };
                let mut series = telemetry.series(&query).map_err(|error| internal(&error))?;
                let has_more = series.len() > MAX_METRICS;
                series.truncate(MAX_METRICS);
                let last = series.last().filter(|_| has_more).cloned();
                found = series.into_iter().map(|(job, name)| metric(name, job)).collect();
                if last.is_some() {
                    return Ok((found, Some(Place::Jobs(last))));
                }
            }
            Some(None)
        }
        Place::Hosts(after) => Some(after),
        Place::Own(_) => None,
    };
    if let Some(after) = after {
        let room = MAX_METRICS - found.len();
        let (of_hosts, last) = system_metrics::list(telemetry, request, since_ms, after.clone(), room)?;
        found.extend(of_hosts);
        if let Some(last) = last {
            return Ok((found, Some(Place::Hosts(last.or(after)))));
        }
    }
    let after = if let Place::Own(after) = place { *after } else { 0 };
    let room = MAX_METRICS.saturating_sub(found.len());
    let (own, last) = own_metrics::list(telemetry, request, since_ms, after, room)?;
    found.extend(own);
    Ok((found, last.map(Place::Own)))
}

/// Of which job a request lists what jobs report; `Some(None)`: of all. `None`: it lists none.
fn job_of(request: &ListMetrics) -> Option<Option<String>> {
    if request.namespace.as_deref().is_some_and(|namespace| namespace != NAMESPACE) {
        return None;
    }
    let mut job = None;
    for (name, value) in &request.dimensions {
        if name != DIMENSION || (job.is_some() && value.is_some() && job != *value) {
            return None;
        }
        job = job.or_else(|| value.clone());
    }
    Some(job)
}

fn metric(name: String, job: String) -> Metric {
    Metric { namespace: NAMESPACE.to_owned(), name, dimensions: vec![(DIMENSION.to_owned(), job)] }
}

/// A series; one that is not there has no periods.
pub(crate) fn read(telemetry: &Telemetry, metric: &Metric, unit: Option<&str>, span: Span) -> Result<Series, Error> {
    match metric.dimensions.as_slice() {
        [(name, job)] if name == DIMENSION && metric.namespace == NAMESPACE && unit.is_none_or(|unit| unit == UNIT) => {
            let points = telemetry.read_points(job, &metric.name, span.start_ms, span.end_ms);
            Ok(Series::of(UNIT, periods(&points.map_err(|error| internal(&error))?, span)))
        }
        _ if system_metrics::has(&metric.namespace) => system_metrics::read(telemetry, metric, unit, span),
        _ => own_metrics::read(telemetry, metric, unit, span),
    }
}

/// `most` values of all queries, one query after another, without the first `skipped`; and whether
/// a query's last value is among them or before them.
fn page(all: Vec<Vec<(u64, f64)>>, skipped: usize, most: usize) -> Vec<(Vec<(u64, f64)>, bool)> {
    let (mut skip, mut room) = (skipped, most);
    let narrow = |values: Vec<(u64, f64)>| {
        let behind = values.len().min(skip);
        let left = values.len() - behind;
        let page: Vec<_> = values.into_iter().skip(behind).take(room).collect();
        skip -= behind;
        room -= page.len();
        let complete = page.len() == left;
        (page, complete)
    };
    all.into_iter().map(narrow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_every_size_have_every_value_once() {
        let series = |count: u64, from: u64| (from..from + count).map(|at| (at, at as f64)).collect::<Vec<_>>();
        let all = vec![series(3, 10), vec![], series(5, 20), series(1, 30)];
        for most in 1..11 {
            let mut found = vec![Vec::new(); all.len()];
            for skipped in (0..9).step_by(most) {
                let last = skipped + most >= 9;
                for (at, (values, complete)) in page(all.clone(), skipped, most).into_iter().enumerate() {
                    found[at].extend(values);
                    assert_eq!(complete, found[at].len() == all[at].len(), "{most} {skipped} {at}");
                    assert!(complete || !last);
                }
            }
            assert_eq!(found, all, "by {most}");
        }
    }
}
