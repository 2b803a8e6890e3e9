//! What the instances of a training job use, in short.

use shoal_store::{HostSystemMetrics, ResourceKind, SystemColumn, SystemPoint};
use shoal_wire::{DescribeUtilization, Error, HostUtilization, MetricUtilization, Reply};

use super::{Api, blocking, resources::missing};
use crate::{clock::now_ms, internal::internal};

impl Api {
    pub(super) async fn describe_utilization(&self, request: DescribeUtilization) -> Result<Reply, Error> {
        let (rows, telemetry) = (self.rows.clone(), self.telemetry.clone());
        blocking(move || {
            let job = &request.training_job_name;
            if rows.resource(ResourceKind::TRAINING_JOB, job).map_err(|error| internal(&error))?.is_none() {
                return Err(missing(ResourceKind::TRAINING_JOB, job));
            }
            let from_ms = request.last_seconds.map_or(0, |s| now_ms().saturating_sub(u64::from(s) * 1000));
            let hosts = telemetry.read_system(job, None, from_ms, u64::MAX).map_err(|error| internal(&error))?;
            let hosts: Vec<_> = hosts.into_iter().filter_map(host).collect();
            Ok(Reply::describe_utilization(&hosts))
        })
        .await
    }
}

fn host(host: HostSystemMetrics) -> Option<HostUtilization> {
    let at_ms = host.columns.values().filter_map(|points| points.last()).map(|point| point.at_ms).max()?;
    let metrics = host.columns.into_iter().filter_map(metric).collect();
    Some(HostUtilization { host: format!("algo-{}", host.host), at_ms, metrics })
}

fn metric((column, points): (SystemColumn, Vec<SystemPoint>)) -> Option<MetricUtilization> {
    let latest = points.last()?.mean;
    let all = points.iter().copied().reduce(SystemPoint::joined)?;
    Some(MetricUtilization {
        name: column.metric,
        gpu: column.gpu,
        rank: column.rank,
        latest: latest.into(),
        average: all.mean.into(),
        maximum: all.high.into(),
        samples: all.count.into(),
    })
}
