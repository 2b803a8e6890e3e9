//! SageMaker's own metrics: series of trial components. Those of a training job's component are the
//! job's: they stand beside those that were read from its log lines, and CloudWatch shows both.

use std::collections::BTreeMap;

use shoal_store::{MetricPoint, ResourceKind, ResourceRow, Rows};
use shoal_wire::{
    BatchPutMetrics, Error, ErrorCode, RawMetric, Reply, SeriesAxis, SeriesQuery, SeriesResult, SeriesStatistic, Span,
    arn,
};

use super::{Api, TRIAL_COMPONENT, blocking, component_of, component_series, open_to_jobs::Place, resources::found};
use crate::{
    internal::internal,
    key_ring::Holder,
    statistics::{deviation, periods, statistic},
};

/// Whose series a component has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    Job(String),
    /// Its row's name, and the series' name.
    Component(String, String),
}

impl Owner {
    fn of_row(row: &ResourceRow) -> Self {
        match &row.parent {
            Some(job) => Self::Job(job.clone()),
            None => Self::Component(row.name.clone(), component_series(row)),
        }
    }

    /// Of a component's name, which is in lower case; of a job's name for short.
    fn of(rows: &dyn Rows, component: &str, holder: &Holder) -> Result<Self, Error> {
        if let Holder::Attempt { job, .. } = holder {
            if [component_of(job), job.to_lowercase()].iter().any(|own| own == component) {
                return Ok(Self::Job(job.to_string()));
            }
            let is_open = Place::of(rows, job)?.map(|place| place.has_component(rows, component)).transpose()?;
            if is_open != Some(true) {
                let own = component_of(job);
                return Err(Error::new(
                    ErrorCode::AccessDenied,
                    format!("this training job's keys open its own trial component and those of its experiment: {own}"),
                ));
            }
        }
        match found(rows, TRIAL_COMPONENT, component)? {
            Some(row) => Ok(Self::of_row(&row)),
            None => job_of_component(rows, component).map(Self::Job),
        }
    }

    /// The name of its series.
    fn series(&self) -> &str {
        match self {
            Self::Job(job) => job,
            Self::Component(_, series) => series,
        }
    }
}

impl Api {
    pub(super) async fn put_metrics(&self, request: BatchPutMetrics, holder: &Holder) -> Result<Reply, Error> {
        let BatchPutMetrics { component, metrics } = request;
        let (rows, holder, telemetry) = (self.rows.clone(), holder.clone(), self.telemetry.clone());
        let (job_changes, search, quota) = (self.job_changes.clone(), self.search.clone(), self.log_quota);
        let append = move || {
            let owner = Owner::of(&*rows, &component, &holder)?;
            let Points { points, steps, places, mut errors } = Points::of(metrics);
            let fits =
                telemetry.append_steps(owner.series(), &points, &steps, quota).map_err(|error| internal(&error))?;
            match &owner {
                Owner::Job(job) => {
                    job_changes.grown(job, 0, points.len());
                    search.note_metrics(job);
                }
                Owner::Component(name, _) => search.note(TRIAL_COMPONENT, name),
            }
            let refused = places.into_iter().zip(fits).filter(|(_, fits)| !fits);
            errors.extend(refused.map(|(at, _)| ("METRIC_LIMIT_EXCEEDED", at)));
            errors.sort_by_key(|(_, at)| *at);
            Ok::<_, Error>(errors)
        };
        Ok(Reply::batch_put_metrics(&self.writing(append).await?))
    }

    pub(super) async fn get_metrics(&self, queries: Vec<SeriesQuery>) -> Result<Reply, Error> {
        let mut results = Vec::with_capacity(queries.len());
        for query in queries {
            results.push(match self.series_of(&query.resource_arn).await {
                Ok(series) => self.series(series, query).await?,
                Err(error) if error.code.is_server_fault() => return Err(error),
                Err(error) => SeriesResult::Refused(error.message),
            });
        }
        Ok(Reply::batch_get_metrics(&results))
    }

    /// The series of the training job or trial component of an ARN.
    async fn series_of(&self, resource_arn: &str) -> Result<String, Error> {
        match arn::resource(resource_arn) {
            Some(it) if it.kind == TRIAL_COMPONENT.name() => {
                let (rows, name) = (self.rows.clone(), it.name.to_lowercase());
                blocking(move || Ok(Owner::of(&*rows, &name, &Holder::Owner)?.series().to_owned())).await
            }
            _ => self.job_of(resource_arn).await,
        }
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
}

/// The points of a request that have a time.
#[derive(Default)]
struct Points {
    points: Vec<MetricPoint>,
    steps: Vec<Option<u32>>,
    /// Their places in the request.
    places: Vec<usize>,
    errors: Vec<(&'static str, usize)>,
}

impl Points {
    fn of(metrics: Vec<RawMetric>) -> Self {
        let mut all = Self::default();
        for (at, metric) in metrics.into_iter().enumerate() {
            match metric.at_ms {
                Some(at_ms) => {
                    all.points.push(MetricPoint { metric: metric.name, at_ms, value: metric.value });
                    all.steps.push(metric.step);
                    all.places.push(at);
                }
                None => all.errors.push(("VALIDATION_ERROR", at)),
            }
        }
        all
    }
}

/// The training job of a component for which nothing is stored; it has the job's name in lower
/// case.
fn job_of_component(rows: &dyn Rows, component: &str) -> Result<String, Error> {
    let job = component.strip_suffix(&component_of("")).unwrap_or(component);
    if found(rows, ResourceKind::TRAINING_JOB, job)?.is_some() {
        return Ok(job.to_owned());
    }
    match rows.names(ResourceKind::TRAINING_JOB, job).map_err(|error| internal(&error))?.as_slice() {
        [name] => Ok(name.clone()),
        [] => Err(Error::new(
            ErrorCode::ResourceNotFound,
            format!(
                "There is no trial component {component}: CreateTrialComponent creates one, and each training job has \
                 one, named {} in lower case.",
                component_of("<job>")
            ),
        )),
        several => Err(Error::validation(format!(
            "The trial component {component} is that of {}: their names differ only in case.",
            several.join(" and ")
        ))),
    }
}
