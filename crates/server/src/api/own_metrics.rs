//! CloudWatch: metrics that users put by themselves, in any namespace that is not AWS's or Shoal's.

use std::collections::BTreeMap;

use shoal_store::{OwnMetric, OwnMetricQuery, OwnPoint, StatisticSet, Telemetry};
use shoal_wire::{Error, ErrorCode, ListMetrics, Metric, MetricSample, PutMetricData, Reply, Span};

use super::Api;
use crate::{
    clock::now_ms,
    internal::internal,
    statistics::{Period, Series},
};

/// Milliseconds that a value may be old, and how far its time may lie ahead, as AWS has it.
const MAX_AGE_MS: u64 = 14 * 24 * 3600 * 1000;
const MAX_AHEAD_MS: u64 = 2 * 3600 * 1000;
/// The unit that answers have if no value has one.
const NO_UNIT: &str = "None";

impl Api {
    pub(super) async fn put_metric_data(&self, request: PutMetricData) -> Result<Reply, Error> {
        let (telemetry, changed) = (self.telemetry.clone(), self.changed_metrics.clone());
        self.writing(move || {
            let data = stored(request, now_ms())?;
            telemetry.put_own(&data).map_err(|error| internal(&error))?;
            changed.note(data.iter().map(|(metric, _)| metric));
            Ok(Reply::done())
        })
        .await
    }
}

/// What a request puts, by series.
fn stored(request: PutMetricData, now_ms: u64) -> Result<Vec<(OwnMetric, Vec<OwnPoint>)>, Error> {
    let mut all = BTreeMap::<OwnMetric, Vec<OwnPoint>>::new();
    for (place, datum) in (1..).zip(request.data) {
        let at_ms = datum.at_ms.unwrap_or(now_ms);
        if at_ms + MAX_AGE_MS < now_ms || at_ms > now_ms + MAX_AHEAD_MS {
            let (text, path) = (shoal_wire::timestamp::iso8601(at_ms), format!("MetricData.member.{place}.Timestamp"));
            return Err(Error::new(
                ErrorCode::InvalidParameterValue,
                format!(
                    "The value {text} for parameter {path} is invalid: it must be within the last two weeks and at most \
                     two hours ahead."
                ),
            ));
        }
        let resolution = if datum.is_high_resolution { 1_000 } else { 60_000 };
        let metric = OwnMetric { namespace: request.namespace.clone(), name: datum.name, dimensions: datum.dimensions };
        let point = |MetricSample { count, sum, low, high }: MetricSample| OwnPoint {
            at_ms: at_ms / resolution * resolution,
            unit: datum.unit.clone(),
            set: StatisticSet { count, sum, low, high },
            is_thinned: false,
        };
        all.entry(metric).or_default().extend(datum.samples.into_iter().map(point));
    }
    Ok(all.into_iter().collect())
}

/// A user's series by periods. Without a unit in the request values of all units are in it, each
/// unit's by themselves: values of different units are never added up.
pub(super) fn read(telemetry: &Telemetry, metric: &Metric, unit: Option<&str>, span: Span) -> Result<Series, Error> {
    let own = OwnMetric {
        namespace: metric.namespace.clone(),
        name: metric.name.clone(),
        dimensions: metric.dimensions.clone(),
    };
    let points = telemetry.read_own(&own, unit, span.start_ms, span.end_ms).map_err(|error| internal(&error))?;
    let unit = unit.or(points.first().map(|point| point.unit.as_str())).unwrap_or(NO_UNIT).to_owned();
    let mut series = Series { periods: Vec::new(), is_thinned: false, unit };
    for point in points {
        series.is_thinned |= point.is_thinned;
        let start_ms = point.at_ms - (point.at_ms - span.start_ms) % span.period_ms;
        let mut of_period = series.periods.iter_mut().rev().take_while(|it| it.start_ms == start_ms);
        match of_period.find(|it| it.unit == point.unit) {
            Some(period) => period.sets.push(point.set),
            None => series.periods.push(Period { start_ms, unit: point.unit, sets: vec![point.set] }),
        }
    }
    Ok(series)
}

/// A page of users' series, and where the next one begins, if there is one.
pub(super) fn list(
    telemetry: &Telemetry,
    request: &ListMetrics,
    active_since_ms: Option<u64>,
    after: i64,
    room: usize,
) -> Result<(Vec<Metric>, Option<i64>), Error> {
    let query = OwnMetricQuery {
        namespace: request.namespace.clone(),
        name: request.name.clone(),
        dimensions: request.dimensions.clone(),
        active_since_ms,
        after,
        limit: room + 1,
    };
    let mut found = telemetry.own_metrics(&query).map_err(|error| internal(&error))?;
    let has_more = found.len() > room;
    found.truncate(room);
    let last = found.last().map_or(after, |(id, _)| *id);
    let metric =
        |(_, own): (i64, OwnMetric)| Metric { namespace: own.namespace, name: own.name, dimensions: own.dimensions };
    Ok((found.into_iter().map(metric).collect(), has_more.then_some(last)))
}

#[cfg(test)]
mod tests {
    use shoal_wire::MetricDatum;

    use super::*;

    fn datum(name: &str, at_ms: Option<u64>, is_high_resolution: bool) -> MetricDatum {
        MetricDatum {
            name: name.to_owned(),
            dimensions: Vec::new(),
            at_ms,
            unit: "None".to_owned(),
            is_high_resolution,
            samples: vec![MetricSample { count: 1.0, sum: 2.0, low: 2.0, high: 2.0 }],
        }
    }

    #[test]
    fn times_have_the_resolution_of_the_metric_and_are_near() {
        let now = 100 * MAX_AGE_MS + 61_500;
        let times = |data: Vec<MetricDatum>| {
            let data = stored(PutMetricData { namespace: "Mine".to_owned(), data }, now)?;
            Ok(data.into_iter().flat_map(|(_, points)| points).map(|point| point.at_ms).collect::<Vec<_>>())
        };
        let minute = now / 60_000 * 60_000;
        assert_eq!(times(vec![datum("a", None, false), datum("b", None, true)]), Ok(vec![minute, minute + 1_000]));
        for (at_ms, expected) in [
            (now - MAX_AGE_MS, true),
            (now - MAX_AGE_MS - 1, false),
            (now + MAX_AHEAD_MS, true),
            (now + MAX_AHEAD_MS + 1, false),
        ] {
            let found: Result<_, Error> = times(vec![datum("a", Some(at_ms), true)]);
            assert_eq!(found.is_ok(), expected, "{at_ms}");
        }
    }

    #[test]
    fn values_of_each_unit_fall_into_periods() {
        let dir = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&dir.path().join("telemetry.db")).unwrap();
        let own = OwnMetric { namespace: "Mine".to_owned(), name: "m".to_owned(), dimensions: Vec::new() };
        let point = |at_ms, value: f64, unit: &str| OwnPoint {
            at_ms,
            unit: unit.to_owned(),
            set: value.into(),
            is_thinned: false,
        };
        let points = vec![
            point(60_000, 1.0, "Bytes"),
            point(60_500, 8.0, "None"),
            point(61_000, 2.0, "Bytes"),
            point(120_000, 4.0, "Count"),
        ];
        telemetry.put_own(&[(own, points)]).unwrap();
        let metric = Metric { namespace: "Mine".to_owned(), name: "m".to_owned(), dimensions: Vec::new() };
        let span = Span { start_ms: 60_000, end_ms: 180_000, period_ms: 60_000 };
        let sums = |unit: Option<&str>| {
            let series = read(&telemetry, &metric, unit, span).unwrap();
            let sum = |it: Period| (it.start_ms, it.unit, it.sets.iter().map(|set| set.sum).sum::<f64>());
            (series.unit, series.periods.into_iter().map(sum).collect::<Vec<_>>())
        };
        let [bytes, none, count] = [(60_000, "Bytes", 3.0), (60_000, "None", 8.0), (120_000, "Count", 4.0)]
            .map(|(at, unit, sum)| (at, unit.to_owned(), sum));
        assert_eq!(sums(None), ("Bytes".to_owned(), vec![bytes, none, count.clone()]));
        assert_eq!(sums(Some("Count")), ("Count".to_owned(), vec![count]));
        assert_eq!(sums(Some("Percent")), ("Percent".to_owned(), vec![]));
    }
}
