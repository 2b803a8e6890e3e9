//! SageMaker's own metrics. Every training job has a trial component, `<job>-aws-training-job` in
//! lower case; the values that are put there stand beside those that were read from the job's log
//! lines, and CloudWatch tells both.

use std::collections::BTreeMap;

use shoal_store::{MetricPoint, ResourceKind};
use shoal_wire::{
    BatchPutMetrics, Error, ErrorCode, Reply, SeriesAxis, SeriesQuery, SeriesResult, SeriesStatistic, Span,
};

use super::{Api, blocking};
use crate::{
    admission::internal,
    key_ring::Holder,
    statistics::{deviation, periods, statistic},
};

/// What the component of a job has behind the job's name.
const SUFFIX: &str = "-aws-training-job";

impl Api {
    pub(super) async fn put_metrics(&self, request: BatchPutMetrics, holder: &Holder) -> Result<Reply, Error> {
        let job = match holder {
            Holder::Attempt { job, .. } if job.to_lowercase() == of_component(&request.component) => job.clone(),
            Holder::Attempt { job, .. } => {
                let own = format!("{}{SUFFIX}", job.to_lowercase());
                return Err(Error::new(
                    ErrorCode::AccessDenied,
                    format!("this training job's keys open its own trial component only: {own}"),
                ));
            }
            Holder::Owner | Holder::Session(_) => self.job_of_component(&request.component).await?.into(),
        };
        let (mut points, mut steps, mut places, mut errors) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (at, metric) in request.metrics.into_iter().enumerate() {
            match metric.at_ms {
                Some(at_ms) => {
                    points.push(MetricPoint { metric: metric.name, at_ms, value: metric.value });
                    steps.push(metric.step);
                    places.push(at);
                }
                None => errors.push(("VALIDATION_ERROR", at)),
            }
        }
        let (telemetry, job_changes, quota) = (self.telemetry.clone(), self.job_changes.clone(), self.log_quota);
        let append = move || {
            let fits = telemetry.append_steps(&job, &points, &steps, quota).map_err(|error| internal(&error))?;
            job_changes.grown(&job, 0, points.len());
            Ok::<_, Error>(fits)
        };
        let fits = self.writing(append).await?;
        errors.extend(
            places.into_iter().zip(fits).filter(|(_, fits)| !fits).map(|(at, _)| ("METRIC_LIMIT_EXCEEDED", at)),
        );
        errors.sort_by_key(|(_, at)| *at);
        Ok(Reply::batch_put_metrics(&errors))
    }

    pub(super) async fn get_metrics(&self, queries: Vec<SeriesQuery>) -> Result<Reply, Error> {
        let mut results = Vec::with_capacity(queries.len());
        for query in queries {
            results.push(match self.job_of(&query.resource_arn).await {
                Ok(job) => self.series(job, query).await?,
                Err(error) if error.code.is_server_fault() => return Err(error),
                Err(error) => SeriesResult::Refused(error.message),
            });
        }
        Ok(Reply::batch_get_metrics(&results))
    }

    async fn series(&self, job: String, query: SeriesQuery) -> Result<SeriesResult, Error> {
        let telemetry = self.telemetry.clone();
        blocking(move || {
            let (start, end) = (query.start.unwrap_or(0), query.end.unwrap_or(u64::MAX));
            let values: Vec<(u64, Vec<f64>)> = match query.axis {
                SeriesAxis::Step => {
                    let values =
                        telemetry.read_steps(&job, &query.name, start, end).map_err(|error| internal(&error))?;
                    let mut steps: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
                    values.into_iter().for_each(|(step, value)| steps.entry(step).or_default().push(value));
                    steps.into_iter().collect()
                }
                SeriesAxis::Time(period_ms) => {
                    let (start_ms, end_ms) = (
                        start.saturating_mul(1000) / period_ms * period_ms,
                        end.saturating_add(1).saturating_mul(1000),
                    );
                    let points =
                        telemetry.read_points(&job, &query.name, start_ms, end_ms).map_err(|error| internal(&error))?;
                    let periods = periods(&points, Span { start_ms, end_ms, period_ms });
                    periods.into_iter().map(|(at_ms, values)| (at_ms / 1000, values)).collect()
                }
            };
            let value = |values: &[f64]| match query.statistic {
                SeriesStatistic::Of(asked) => statistic(asked, values),
                SeriesStatistic::StdDev => deviation(values),
                SeriesStatistic::Last => values.last().copied().unwrap_or(f64::NAN),
            };
            Ok(SeriesResult::Complete(values.iter().map(|(x, values)| (*x, value(values))).collect()))
        })
        .await
    }

    /// The training job of a trial component, which has the job's name in lower case.
    async fn job_of_component(&self, component: &str) -> Result<String, Error> {
        let found = self.named(ResourceKind::TRAINING_JOB, of_component(component)).await?;
        match found.as_slice() {
            [name] => Ok(name.clone()),
            [] => Err(Error::new(
                ErrorCode::ResourceNotFound,
                format!(
                    "There is no trial component {component}: Shoal has those of training jobs, named <job>{SUFFIX} in \
                     lower case."
                ),
            )),
            several => Err(Error::validation(format!(
                "The trial component {component} is that of {}: their names differ only in case.",
                several.join(" and ")
            ))),
        }
    }
}

fn of_component(component: &str) -> &str {
    component.strip_suffix(SUFFIX).unwrap_or(component)
}
