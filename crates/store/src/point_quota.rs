//! What metric points count against a job's quota: about what they take on disk. A series costs its
//! name, so that a program which makes up names has no more room than one which has many values.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::{MetricPoint, StoreError};

/// Bytes of a point.
pub(crate) const POINT_BYTES: u64 = 48;

/// Bytes of a series beside the names of the job and the metric, which stand in its row and in the
/// index of rows.
const SERIES_BYTES: u64 = 96;

/// Metrics that a job may have: so few that all of them are counted at each report.
const MOST_METRICS: u64 = 2000;

/// Which of these points a job may still store.
pub(crate) fn fitting(
    tx: &Connection,
    job: &str,
    quota_bytes: u64,
    points: &[MetricPoint],
) -> Result<Vec<bool>, StoreError> {
    let series_bytes = |metric_bytes: u64| SERIES_BYTES + 2 * (job.len() as u64 + metric_bytes);
    let count = "SELECT points, length(CAST(metric AS BLOB)) FROM series WHERE job = ?";
    let (mut metrics, mut used) = (0, 0);
    for row in tx.prepare_cached(count)?.query_map([job], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?)))? {
        let (points, metric_bytes) = row?;
        metrics += 1;
        used += points * POINT_BYTES + series_bytes(metric_bytes);
    }
    let mut find = tx.prepare_cached("SELECT 1 FROM series WHERE job = ? AND metric = ?")?;
    let mut known = BTreeMap::new();
    let mut fits = Vec::with_capacity(points.len());
    for point in points {
        let is_known = match known.get(&*point.metric) {
            Some(is_known) => *is_known,
            None => find.query_row(params![job, point.metric], |_| Ok(())).optional()?.is_some(),
        };
        let bytes = POINT_BYTES + if is_known { 0 } else { series_bytes(point.metric.len() as u64) };
        let fit = used + bytes <= quota_bytes && (is_known || metrics < MOST_METRICS);
        if fit {
            used += bytes;
            metrics += u64::from(!is_known);
        }
        known.insert(&*point.metric, is_known || fit);
        fits.push(fit);
    }
    Ok(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Telemetry;

    fn point(metric: String) -> MetricPoint {
        MetricPoint { metric, at_ms: 1, value: 0.5 }
    }

    #[test]
    fn names_count_and_are_bounded() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("telemetry.db");
        let telemetry = Telemetry::open(&path).unwrap();
        let quota = 1 << 20;
        let mut stored = 0;
        for batch in 0..50 {
            let points: Vec<_> = (0..100).map(|n| point(format!("{batch:03}{n:0252}"))).collect();
            stored += telemetry
                .append_steps("long", &points, &[None; 100], quota)
                .unwrap()
                .iter()
                .filter(|fits| **fits)
                .count();
        }
        assert_eq!(telemetry.metrics("long").unwrap().len(), stored);
        let on_disk = telemetry.stored_bytes().unwrap();
        assert!((quota / 2..quota * 3 / 2).contains(&on_disk), "{on_disk} bytes on disk with a quota of {quota}");
        // What has a name already needs no more than a point.
        let points: Vec<_> = (0..2_100).map(|n| point(format!("m{n}"))).collect();
        let fits = telemetry.append_steps("many", &points, &[None; 2_100], u64::MAX).unwrap();
        assert_eq!(fits, (0..2_100).map(|n| n < 2_000).collect::<Vec<_>>());
        let fits = telemetry
            .append_steps("many", &[point("m7".to_owned()), point("new".to_owned())], &[None; 2], u64::MAX)
            .unwrap();
        assert_eq!(fits, [true, false]);
    }
}
