//! CloudWatch: the metrics of training jobs as series of namespace, name and dimension.

use std::time::Duration;

use shoal_store::{SeriesQuery, Telemetry};
use shoal_wire::{
    Datapoint, Error, GetMetricData, GetMetricStatistics, ListMetrics, Metric, MetricQuery, MetricResult, Reply, Span,
};

use super::{Api, blocking, token};
use crate::{
    admission::internal,
    clock::now_ms,
    statistics::{periods, statistic},
};

/// The one namespace.
const NAMESPACE: &str = "/aws/sagemaker/TrainingJobs";
/// The one dimension: whose metric it is.
const DIMENSION: &str = "TrainingJobName";
/// The unit of all values.
const UNIT: &str = "None";
/// Metrics on a page of ListMetrics, as AWS has it.
const MOST_METRICS: usize = 500;
/// How long a metric counts as active after its last value.
const ACTIVE: Duration = Duration::from_secs(3 * 3600);

impl Api {
    pub(super) async fn metric_statistics(&self, request: GetMetricStatistics) -> Result<Reply, Error> {
        let telemetry = self.telemetry.clone();
        blocking(move || {
            let periods = read(&telemetry, &request.metric, request.unit.as_deref(), request.span)?;
            let point = |(at_ms, values): (u64, Vec<f64>)| Datapoint {
                at_ms,
                values: request.statistics.iter().map(|(_, asked)| statistic(*asked, &values)).collect(),
            };
            let datapoints: Vec<_> = periods.into_iter().map(point).collect();
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
                let periods = read(&telemetry, &query.metric, query.unit.as_deref(), query.span)?;
                let mut values: Vec<(u64, f64)> =
                    periods.into_iter().map(|(at_ms, values)| (at_ms, statistic(query.statistic, &values))).collect();
                if request.newest_first {
                    values.reverse();
                }
                Ok(values)
            };
            let all = request.queries.iter().map(values).collect::<Result<Vec<_>, Error>>()?;
            let most = request.max_datapoints as usize;
            let total: usize = all.iter().map(Vec::len).sum();
            let result = |(query, (values, complete)): (&MetricQuery, _)| MetricResult {
                id: query.id.clone(),
                label: query.label.clone(),
                values,
                complete,
            };
            let results: Vec<_> = request.queries.iter().zip(page(all, skipped, most)).map(result).collect();
            let end = skipped + most;
            let next_token = (end < total).then(|| token::seal(&question, &end.to_string()));
            Ok(Reply::get_metric_data(&results, next_token.as_deref()))
        })
        .await
    }

    pub(super) async fn list_metrics(&self, request: ListMetrics) -> Result<Reply, Error> {
        let mut job = None;
        let mut none = request.namespace.as_deref().is_some_and(|namespace| namespace != NAMESPACE);
        for (name, value) in &request.dimensions {
            none |= name != DIMENSION || (job.is_some() && value.is_some() && job != *value);
            job = job.or_else(|| value.clone());
        }
        if none {
            return Ok(Reply::list_metrics(&[], None));
        }
        let telemetry = self.telemetry.clone();
        blocking(move || {
            let question = token::question(&(&request.name, &job, request.recently_active))?;
            let after = match &request.next_token {
                Some(given) => {
                    let place = token::open(&question, given)?;
                    place.split_once(' ').map(|(job, metric)| (job.to_owned(), metric.to_owned()))
                }
                None => None,
            };
            let active = u64::try_from(ACTIVE.as_millis()).unwrap_or(u64::MAX);
            let query = SeriesQuery {
                job,
                metric: request.name,
                active_since_ms: request.recently_active.then(|| now_ms().saturating_sub(active)),
                after,
                limit: MOST_METRICS + 1,
            };
            let mut found = telemetry.series(&query).map_err(|error| internal(&error))?;
            let more = found.len() > MOST_METRICS;
            found.truncate(MOST_METRICS);
            // Names of jobs have no space.
            let last =
                found.last().filter(|_| more).map(|(job, metric)| token::seal(&question, &format!("{job} {metric}")));
            let metric = |(job, name)| Metric {
                namespace: NAMESPACE.to_owned(),
                name,
                dimensions: vec![(DIMENSION.to_owned(), job)],
            };
            Ok(Reply::list_metrics(&found.into_iter().map(metric).collect::<Vec<_>>(), last.as_deref()))
        })
        .await
    }
}

/// The values of a series by periods; a series that is not there has none.
fn read(telemetry: &Telemetry, metric: &Metric, unit: Option<&str>, span: Span) -> Result<Vec<(u64, Vec<f64>)>, Error> {
    let job = match metric.dimensions.as_slice() {
        [(name, job)] if name == DIMENSION && metric.namespace == NAMESPACE && unit.is_none_or(|unit| unit == UNIT) => {
            job
        }
        _ => return Ok(Vec::new()),
    };
    let points =
        telemetry.read_points(job, &metric.name, span.start_ms, span.end_ms).map_err(|error| internal(&error))?;
    Ok(periods(&points, span))
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
