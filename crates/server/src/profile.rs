//! The profile of a training job, from what was measured of it and from the events that its
//! programs wrote to S3.

use std::sync::Arc;

use shoal_link::metric;
use shoal_plane::{Host, JobView};
use shoal_profile::{EVENTS, HostUse, Profile, RankSteps, RuleOutcome, Series, StepFold, host_of, parse};
use shoal_store::{
    HostSystemMetrics, ObjectMeta, Objects, ResourceKind, ResourceRow, Rows, StoreError, SystemPoint, Telemetry,
};
use shoal_wire::{CreateTrainingJob, RuleConfiguration};

use crate::{error_chain::describe, requests};

/// Points of a metric.
const MOST_POINTS: usize = 240;
/// Bytes of events that are read for one profile.
const MOST_BYTES: u64 = 64 << 20;
const PAGE: usize = 1000;

/// Where profiles come from.
#[derive(Clone)]
pub(crate) struct Profiles {
    pub(crate) rows: Arc<dyn Rows>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) objects: Arc<Objects>,
}

impl Profiles {
    /// The profile of a job; none where there is no such job. `now_ms` counts while it runs.
    ///
    /// # Errors
    /// What cannot be read.
    pub(crate) fn of(&self, job: &str, now_ms: u64) -> Result<Option<Profile>, String> {
        let row = self.rows.resource(ResourceKind::TRAINING_JOB, job).map_err(|error| describe(&error))?;
        row.map(|row| self.of_row(&row, now_ms)).transpose()
    }

    fn of_row(&self, row: &ResourceRow, now_ms: u64) -> Result<Profile, String> {
        let view: JobView = serde_json::from_slice(&row.view).map_err(|error| error.to_string())?;
        let request = requests::training_job(row).map_err(|error| error.message)?;
        let metrics = self.telemetry.read_system(&row.name, None, 0, u64::MAX).map_err(|error| describe(&error))?;
        // Before the first sample the program cannot have begun.
        let sampled = |pick: fn(u64, u64) -> u64| {
            let points = metrics.iter().flat_map(|host| host.columns.values().flatten().map(|point| point.at_ms));
            points.reduce(pick)
        };
        let started_ms = view.training_start.map_or(now_ms, |time| time.0);
        let begin_ms = sampled(u64::min).unwrap_or(started_ms).max(started_ms);
        let end_ms = view.training_end.map_or(now_ms, |time| time.0);
        let end_ms = if view.ended { sampled(u64::max).unwrap_or(end_ms) } else { end_ms };
        let cores = metrics.iter().flat_map(|host| host.columns.iter().filter(|(it, _)| it.metric == metric::CORES));
        let samples = cores.flat_map(|(_, points)| points.iter().map(|point| u64::from(point.count))).sum();
        let mut notes = Vec::new();
        let ranks = self.steps(&request, begin_ms, &mut notes)?;
        Ok(Profile {
            job: row.name.clone(),
            status: view.status.name().to_owned(),
            begin_s: begin_ms as f64 / 1000.0,
            end_s: end_ms.max(begin_ms) as f64 / 1000.0,
            hosts: metrics.into_iter().map(|host| used(host, begin_ms)).collect(),
            samples,
            ranks,
            rules: rules(&request, &view),
            stacks: Vec::new(),
            notes,
        })
    }

    fn steps(
        &self,
        request: &CreateTrainingJob,
        begin_ms: u64,
        notes: &mut Vec<String>,
    ) -> Result<Vec<RankSteps>, String> {
        let place = request.profiler.as_ref().and_then(|profiler| profiler.place(&request.name));
        let Some(place) = place else {
            notes.push(
                "There are no step times: they need a ProfilerConfig with an S3OutputPath in the request.".to_owned(),
            );
            return Ok(Vec::new());
        };
        let (mut fold, mut bytes, mut left_out) = (StepFold::new(1000 * begin_ms), 0_u64, 0_usize);
        let prefix = format!("{}{EVENTS}/", place.folder());
        for object in self.listed(&place.bucket, &prefix)? {
            let Some(host) = object.key.rsplit('/').next().and_then(host_of) else { continue };
            bytes = bytes.saturating_add(object.size);
            if bytes > MOST_BYTES {
                left_out += 1;
                continue;
            }
            // One that was replaced or removed meanwhile is left out.
            let Ok(text) = self.text(&place.bucket, &object.key) else { continue };
            parse(&text).iter().for_each(|step| fold.add(host, step));
        }
        let ranks = fold.finish();
        if ranks.is_empty() {
            notes.push(
                "No step times came: PyTorch's optimizers, Keras's batches and the rounds of boosting are the steps, in \
                 environments of frameworks."
                    .to_owned(),
            );
        }
        if left_out > 0 {
            notes.push(format!("The steps of {left_out} later files are left out: there are too many for one page."));
        }
        Ok(ranks)
    }

    fn listed(&self, bucket: &str, prefix: &str) -> Result<Vec<ObjectMeta>, String> {
        let (mut objects, mut after) = (Vec::new(), None::<String>);
        loop {
            match self.objects.list(bucket, prefix, after.as_deref(), None, PAGE) {
                Ok(page) => {
                    objects.extend(page.objects);
                    after = page.next;
                }
                Err(StoreError::NoSuchBucket(_)) => return Ok(Vec::new()),
                Err(error) => return Err(describe(&error)),
            }
            if after.is_none() {
                return Ok(objects);
            }
        }
    }

    fn text(&self, bucket: &str, key: &str) -> Result<String, StoreError> {
        let bytes = self.objects.reader(bucket, key)?.read_all()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn rules(request: &CreateTrainingJob, view: &JobView) -> Vec<RuleOutcome> {
    let debugger = &request.debugger;
    let outcome = |rule: &RuleConfiguration| {
        let (status, details, _) = view.rule_status(&rule.name);
        let details = details.unwrap_or_default().to_owned();
        RuleOutcome { name: rule.name.clone(), status: status.to_owned(), details }
    };
    debugger.rules.iter().chain(&debugger.profiler_rules).map(outcome).collect()
}

fn used(host: HostSystemMetrics, begin_ms: u64) -> HostUse {
    let is_cores = |name: &str| name == metric::CORES;
    let cores = host.columns.iter().find(|(column, _)| is_cores(&column.metric));
    let cores = cores.and_then(|(_, points)| points.last()).map_or(1.0, |point| f64::from(point.mean));
    let series = host.columns.into_iter().filter(|(column, _)| !is_cores(&column.metric)).map(|(column, points)| {
        Series { metric: column.metric, gpu: column.gpu, rank: column.rank, points: thinned(&points, begin_ms) }
    });
    HostUse { host: Host(host.host).to_string(), cores, series: series.collect() }
}

/// Points of equal numbers of samples.
fn thinned(points: &[SystemPoint], begin_ms: u64) -> Vec<(f64, f64, f64)> {
    let many = points.len().div_ceil(MOST_POINTS).max(1);
    let joined = points.chunks(many).filter_map(|part| part.iter().copied().reduce(SystemPoint::joined));
    let rounded = |value: f32| (f64::from(value) * 100.0).round() / 100.0;
    joined
        .map(|point| {
            let at_ms = point.at_ms.saturating_sub(begin_ms);
            (at_ms as f64 / 1000.0, rounded(point.mean), rounded(point.high))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_series_are_thinned_and_keep_their_peaks() {
        let point = |at: u64| {
            let value = if at == 777 { 400.0 } else { 50.0 };
            SystemPoint { at_ms: 5000 + 1000 * at, count: 1, low: value, mean: value, high: value }
        };
        let points = Vec::from_iter((0..1000).map(point));
        let found = thinned(&points, 5000);
        assert_eq!(found.len(), 200);
        assert_eq!((found[1].0, found[1].1), (5.0, 50.0));
        assert_eq!(found.iter().map(|it| it.2).fold(0.0, f64::max), 400.0);
        assert_eq!(thinned(&points[..3], 5000).len(), 3);
        assert_eq!(thinned(&[], 0), []);
    }
}
