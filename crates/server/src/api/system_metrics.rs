//! CloudWatch: system metrics of training jobs' instances. AWS's five are in its namespace with the
//! dimension `Host`; further ones, and those of single GPUs and ranks, are in a namespace of ours.

use std::collections::BTreeMap;

use shoal_link::metric::{self, CPU, DISK, GPU, GPU_MEMORY, MEMORY};
use shoal_store::{Point, SystemColumn, SystemPoint, SystemQuery, Telemetry};
use shoal_wire::{Error, ListMetrics, Metric, Span};

use super::metrics::NAMESPACE;
use crate::{
    internal::internal,
    statistics::{Series, periods},
};

/// Of what AWS does not have.
const OURS: &str = "Shoal/TrainingJobs";
/// `NAME-OF-JOB/algo-1`
const HOST: &str = "Host";
/// A rank's number in the whole job.
const RANK: &str = "Rank";
/// A GPU's number on its machine.
const GPU_NUMBER: &str = "GPU";
/// What AWS measures of an instance.
const OF_AWS: [&str; 5] = [CPU, MEMORY, DISK, GPU, GPU_MEMORY];
/// Most instances that are looked at for a page.
const MAX_HOSTS: usize = 500;

/// Where the next page begins, if there is one: after this job and host, or where this one began.
type NextPage = Option<Option<(String, u32)>>;

/// What a request names.
#[derive(Debug, PartialEq, Eq)]
struct Named<'a> {
    job: &'a str,
    host: u32,
    gpu: Option<u32>,
    rank: Option<u32>,
}

impl<'a> Named<'a> {
    fn parse(dimensions: &'a [(String, String)]) -> Option<Self> {
        let (mut of, mut gpu, mut rank) = (None, None, None);
        for (name, value) in dimensions {
            match name.as_str() {
                HOST if of.is_none() => of = Some(host_of(value)?),
                GPU_NUMBER if gpu.is_none() => gpu = Some(value.parse().ok()?),
                RANK if rank.is_none() => rank = Some(value.parse().ok()?),
                _ => return None,
            }
        }
        let (job, host) = of?;
        Some(Self { job, host, gpu, rank })
    }
}

/// Job and host number of `job/algo-1`.
fn host_of(value: &str) -> Option<(&str, u32)> {
    let (job, host) = value.split_once('/')?;
    Some((job, host.strip_prefix("algo-")?.parse().ok()?))
}

/// As CloudWatch names units.
fn unit_of(name: &str) -> &'static str {
    match name {
        metric::MEMORY_BYTES => "Bytes",
        metric::CORES => "Count",
        name if name.ends_with("BytesPerSecond") => "Bytes/Second",
        name if name.ends_with("Utilization") => "Percent",
        _ => "None",
    }
}

/// Whether the metrics of a namespace are measured here.
pub(super) fn has(namespace: &str) -> bool {
    [NAMESPACE, OURS].contains(&namespace)
}

/// A series by periods. In AWS's namespace GPUs are summed, as AWS sums
/// them.
pub(super) fn read(telemetry: &Telemetry, metric: &Metric, unit: Option<&str>, span: Span) -> Result<Series, Error> {
    let own_unit = unit_of(&metric.name);
    let is_sum = metric.namespace == NAMESPACE;
    let named = Named::parse(&metric.dimensions).filter(|named| {
        let is_there = match is_sum {
            true => OF_AWS.contains(&metric.name.as_str()) && named.gpu.is_none() && named.rank.is_none(),
            false => metric.namespace == OURS,
        };
        is_there && unit.is_none_or(|unit| unit == own_unit)
    });
    let Some(named) = named else { return Ok(Series::of(own_unit, Vec::new())) };
    let hosts = telemetry
        .read_system(named.job, Some(named.host), span.start_ms, span.end_ms)
        .map_err(|error| internal(&error))?;
    let series = hosts.into_iter().flat_map(|host| host.columns).filter(|(column, _)| {
        column.metric == metric.name && column.rank == named.rank && (is_sum || column.gpu == named.gpu)
    });
    let points = sum(series.map(|(_, points)| points));
    let values = points.into_iter().flat_map(|point| {
        point.values().map(move |value| Point { at_ms: point.at_ms.max(span.start_ms), value, host: None })
    });
    Ok(Series::of(own_unit, periods(&values.collect::<Vec<_>>(), span)))
}

/// Series of one moment each, added.
fn sum(series: impl Iterator<Item = Vec<SystemPoint>>) -> Vec<SystemPoint> {
    let mut all = BTreeMap::<u64, SystemPoint>::new();
    for point in series.flatten() {
        all.entry(point.at_ms)
            .and_modify(|sum| {
                sum.count = sum.count.max(point.count);
                sum.low += point.low;
                sum.mean += point.mean;
                sum.high += point.high;
            })
            .or_insert(point);
    }
    all.into_values().collect()
}

/// Metrics of instances that a request lists, of at least one instance; and, if there are more,
/// after which job and host they come (`Some(None)`: where this page began).
pub(super) fn list(
    telemetry: &Telemetry,
    request: &ListMetrics,
    active_since_ms: Option<u64>,
    after: Option<(String, u32)>,
    room: usize,
) -> Result<(Vec<Metric>, NextPage), Error> {
    let mut job = None;
    for (name, value) in &request.dimensions {
        match (name.as_str(), value) {
            (HOST, Some(value)) => match host_of(value) {
                Some((named, _)) => job = Some(named.to_owned()),
                None => return Ok((Vec::new(), None)),
            },
            (HOST | RANK | GPU_NUMBER, _) => {}
            _ => return Ok((Vec::new(), None)),
        }
    }
    let query = SystemQuery { job, active_since_ms, after, limit: MAX_HOSTS + 1 };
    let hosts = telemetry.system_columns(&query).map_err(|error| internal(&error))?;
    let has_more = hosts.len() > MAX_HOSTS;
    let (mut found, mut last) = (Vec::new(), None);
    for (job, host, columns) in hosts.into_iter().take(MAX_HOSTS) {
        let of_host: Vec<_> = metrics(&job, host, &columns).filter(|metric| is_listed(metric, request)).collect();
        // An instance's are not divided among pages.
        if found.len() + of_host.len() > room && !(found.is_empty() && room > 0 && last.is_none()) {
            return Ok((found, Some(last)));
        }
        found.extend(of_host);
        last = Some((job, host));
    }
    Ok((found, has_more.then_some(last)))
}

fn metrics(job: &str, host: u32, columns: &[SystemColumn]) -> impl Iterator<Item = Metric> {
    let host = (HOST.to_owned(), format!("{job}/algo-{host}"));
    let names: Vec<&str> = columns.iter().filter(|column| column.rank.is_none()).map(|it| it.metric.as_str()).collect();
    let of_aws: Vec<Metric> = OF_AWS
        .iter()
        .filter(|name| names.contains(name))
        .map(|name| Metric {
            namespace: NAMESPACE.to_owned(),
            name: (*name).to_owned(),
            dimensions: vec![host.clone()],
        })
        .collect();
    let ours: Vec<Metric> = columns
        .iter()
        .filter(|column| column.gpu.is_some() || column.rank.is_some() || !OF_AWS.contains(&column.metric.as_str()))
        .map(|column| {
            let mut dimensions = vec![host.clone()];
            dimensions.extend(column.gpu.map(|gpu| (GPU_NUMBER.to_owned(), gpu.to_string())));
            dimensions.extend(column.rank.map(|rank| (RANK.to_owned(), rank.to_string())));
            Metric { namespace: OURS.to_owned(), name: column.metric.clone(), dimensions }
        })
        .collect();
    of_aws.into_iter().chain(ours)
}

fn is_listed(metric: &Metric, request: &ListMetrics) -> bool {
    let has = |(name, value): &(String, Option<String>)| {
        metric.dimensions.iter().any(|(own, of)| own == name && value.as_ref().is_none_or(|value| value == of))
    };
    request.namespace.as_ref().is_none_or(|namespace| *namespace == metric.namespace)
        && request.name.as_ref().is_none_or(|name| *name == metric.name)
        && request.dimensions.iter().all(has)
}

#[cfg(test)]
mod tests {
    use shoal_store::{Ingest, SystemRow, SystemTable};

    use super::*;

    fn column(metric: &str, gpu: Option<u32>, rank: Option<u32>) -> SystemColumn {
        SystemColumn { metric: metric.to_owned(), gpu, rank }
    }

    /// Two hosts with two GPUs and a rank each, sampled at seconds 60 to 179.
    fn telemetry(dir: &std::path::Path) -> Telemetry {
        let telemetry = Telemetry::open(&dir.join("telemetry.db")).unwrap();
        let columns = vec![
            column(CPU, None, None),
            column(metric::DISK_READ, None, None),
            column(GPU, Some(2), None),
            column(GPU, Some(3), None),
            column(CPU, None, Some(7)),
        ];
        let row = |second: u64| SystemRow {
            at_ms: second * 1000,
            is_profiled: false,
            values: vec![second as f32, 5.0, 30.0, 40.0, 99.0],
        };
        for host in [1, 2] {
            let system = vec![SystemTable { columns: columns.clone(), rows: (60..180).map(row).collect() }];
            let attempt = "a".to_owned();
            telemetry
                .ingest(&Ingest { attempt, host, seq: 1, job: "job".to_owned(), system, ..Ingest::default() })
                .unwrap();
        }
        telemetry
    }

    fn metric_of(namespace: &str, name: &str, dimensions: &[(&str, &str)]) -> Metric {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Metric {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            dimensions: dimensions.iter().map(pair).collect(),
        }
    }

    #[test]
    fn a_series_is_named_as_clients_of_aws_name_it() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = telemetry(dir.path());
        let span = Span { start_ms: 0, end_ms: 180_000, period_ms: 60_000 };
        let read = |namespace, name, dimensions: &[(&str, &str)], unit| {
            let series = read(&telemetry, &metric_of(namespace, name, dimensions), unit, span).unwrap();
            let means = series.values(shoal_wire::Statistic::Average);
            (series.unit, means.into_iter().map(|(at, mean)| (at / 1000, mean)).collect::<Vec<_>>())
        };
        let host = ("Host", "job/algo-2");
        let cpu = vec![(60, 89.5), (120, 149.5)];
        assert_eq!(read(NAMESPACE, CPU, &[host], None), ("Percent".to_owned(), cpu.clone()));
        assert_eq!(read(NAMESPACE, CPU, &[host], Some("Percent")).1, cpu);
        assert_eq!(read(NAMESPACE, GPU, &[host], None).1, [(60, 70.0), (120, 70.0)], "the sum of its GPUs");
        assert_eq!(read(OURS, GPU, &[host, ("GPU", "3")], None).1[0], (60, 40.0));
        assert_eq!(read(OURS, CPU, &[("Rank", "7"), host], None).1[0], (60, 99.0));
        let read_bytes = read(OURS, metric::DISK_READ, &[host], None);
        assert_eq!(read_bytes, ("Bytes/Second".to_owned(), vec![(60, 5.0), (120, 5.0)]));
        for (namespace, name, dimensions, unit) in [
            (NAMESPACE, metric::DISK_READ, vec![host], None),
            (NAMESPACE, CPU, vec![host], Some("Bytes")),
            (NAMESPACE, CPU, vec![host, ("Rank", "7")], None),
            (NAMESPACE, CPU, vec![("Host", "job/algo-3")], None),
            (NAMESPACE, CPU, vec![("Host", "job")], None),
            (NAMESPACE, CPU, vec![host, host], None),
            (OURS, CPU, vec![("Rank", "7")], None),
            ("AWS/EC2", CPU, vec![host], None),
        ] {
            assert!(read(namespace, name, &dimensions, unit).1.is_empty(), "{namespace} {name} {dimensions:?}");
        }
    }

    #[test]
    fn metrics_are_listed_by_host_on_pages_of_any_size() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = telemetry(dir.path());
        let request = |namespace: Option<&str>, name: Option<&str>, dimensions: &[(&str, Option<&str>)]| ListMetrics {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            dimensions: dimensions.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect(),
            recently_active: false,
            next_token: None,
        };
        let all = |request: &ListMetrics, room| {
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let (page, next) = list(&telemetry, request, None, after.clone(), room).unwrap();
                found.extend(page);
                match next {
                    Some(next) => after = next.or(after),
                    None => return found,
                }
            }
        };
        let everything = request(None, None, &[]);
        let names: Vec<_> = all(&everything, 500)
            .into_iter()
            .map(|it| format!("{} {} {}", it.namespace, it.name, it.dimensions.len()))
            .collect();
        let of_host = [
            "/aws/sagemaker/TrainingJobs CPUUtilization 1",
            "/aws/sagemaker/TrainingJobs GPUUtilization 1",
            "Shoal/TrainingJobs DiskReadBytesPerSecond 1",
            "Shoal/TrainingJobs GPUUtilization 2",
            "Shoal/TrainingJobs GPUUtilization 2",
            "Shoal/TrainingJobs CPUUtilization 2",
        ];
        assert_eq!(names, [of_host, of_host].concat());
        for room in [1, 6, 7, 12] {
            assert_eq!(all(&everything, room).len(), 12, "{room}");
        }
        let count = |request: ListMetrics| all(&request, 500).len();
        assert_eq!(count(request(Some(NAMESPACE), None, &[])), 4);
        assert_eq!(count(request(None, Some(CPU), &[("Host", Some("job/algo-1"))])), 2);
        assert_eq!(count(request(None, None, &[("Rank", None)])), 2);
        assert_eq!(count(request(None, None, &[("TrainingJobName", Some("job"))])), 0);
        assert_eq!(count(request(Some("AWS/EC2"), None, &[])), 0);
        // A page without room is followed by the same instance.
        assert_eq!(list(&telemetry, &everything, None, None, 0).unwrap().1, Some(None));
    }
}
