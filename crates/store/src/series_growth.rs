//! What has come to a series since a reader was there: its new points alone, or that there is more
//! to it than new points.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::points::value;
use crate::{Sample, StoreError, Telemetry};

/// How far a host's points may be behind those of others, in milliseconds, to be read as new ones.
const MAX_DELAY_MS: u64 = 5_000;
/// More new points are not worth reading one by one.
const MAX_NEW_POINTS: u64 = 10_000;

/// Where a reader of a series is: it knows all points that had come by then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeriesPosition {
    /// The series; none has the number 0.
    pub series: i64,
    /// Time of the oldest point: it changes when points are removed, or one comes that is older
    /// than all.
    pub first_ms: u64,
    /// How many points have arrived.
    pub points: u64,
    /// By host: how many points it has, and the time of the last one.
    pub hosts: BTreeMap<Option<u32>, (u64, u64)>,
}

/// What has come to a series.
#[derive(Debug, Clone, PartialEq)]
pub enum SeriesGrowth {
    /// Points at its end, by host; none where nothing has come.
    Points {
        /// In their order, with their numbers in the host's series.
        hosts: BTreeMap<Option<u32>, Vec<Sample>>,
        /// Where the reader is then.
        position: SeriesPosition,
    },
    /// It has to be read again: it is new to the reader, points have come late or were removed,
    /// another host has begun, or there are too many new points.
    Changed,
}

impl Telemetry {
    /// What has come to each metric of a job since these positions.
    ///
    /// # Errors
    /// The storage's.
    pub fn series_growth(
        &self,
        job: &str,
        positions: &[SeriesPosition],
    ) -> Result<Vec<(String, SeriesGrowth)>, StoreError> {
        self.database.read(|connection| {
            let mut select =
                connection.prepare_cached("SELECT metric, id, points FROM series WHERE job = ? ORDER BY metric")?;
            let all = select.query_map([job], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            let all: Vec<(String, i64, u64)> = all.collect::<rusqlite::Result<_>>()?;
            let growth = |(metric, series, points)| {
                let growth = match positions.iter().find(|position| position.series == series) {
                    Some(position) => growth(connection, position, points)?,
                    None => SeriesGrowth::Changed,
                };
                Ok((metric, growth))
            };
            all.into_iter().map(growth).collect()
        })
    }
}

/// The time of a series' oldest point.
pub(crate) fn first_ms(connection: &Connection, series: i64) -> Result<Option<u64>, StoreError> {
    let first = "SELECT at_ms FROM point WHERE series = ? ORDER BY at_ms LIMIT 1";
    Ok(connection.prepare_cached(first)?.query_row([series], |row| row.get(0)).optional()?)
}

fn growth(connection: &Connection, position: &SeriesPosition, points: u64) -> Result<SeriesGrowth, StoreError> {
    let new = points.checked_sub(position.points).filter(|new| *new <= MAX_NEW_POINTS);
    let Some(new) = new.filter(|_| !position.hosts.is_empty()) else { return Ok(SeriesGrowth::Changed) };
    if first_ms(connection, position.series)? != Some(position.first_ms) {
        return Ok(SeriesGrowth::Changed);
    }
    let mut hosts: BTreeMap<Option<u32>, Vec<Sample>> = BTreeMap::new();
    let mut next = SeriesPosition { points, ..position.clone() };
    let ends = || position.hosts.values().map(|(_, last_ms)| *last_ms);
    let newest = ends().max().unwrap_or_default();
    let since = ends().min().unwrap_or_default().max(newest.saturating_sub(MAX_DELAY_MS));
    // A point's position is its number by arrival.
    let sql = "SELECT at_ms, value, host FROM point WHERE series = ? AND at_ms >= ? AND position > ? ORDER BY at_ms, \
               position";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(params![position.series, since, position.points])?;
    let mut found = 0;
    while new > found
        && let Some(row) = rows.next()?
    {
        let (at_ms, host): (u64, Option<u32>) = (row.get(0)?, row.get(2)?);
        let value = value(row, 1)?;
        let Some((total, last_ms)) = next.hosts.get_mut(&host).filter(|(_, last_ms)| *last_ms <= at_ms) else {
            return Ok(SeriesGrowth::Changed);
        };
        (*total, *last_ms) = (*total + 1, at_ms);
        hosts.entry(host).or_default().push(Sample { step: *total, at_ms, value });
        found += 1;
    }
    // If more are new than were found, the others lie before this range.
    Ok(if found == new { SeriesGrowth::Points { hosts, position: next } } else { SeriesGrowth::Changed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ingest, MetricPoint};

    fn open() -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        (temp, telemetry)
    }

    fn report(telemetry: &Telemetry, seq: u64, host: u32, times: &[u64]) {
        let points = times
            .iter()
            .map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms: *at_ms, value: *at_ms as f64 })
            .collect();
        telemetry
            .ingest(&Ingest { attempt: "a".to_owned(), host, seq, job: "j".to_owned(), points, ..Ingest::default() })
            .unwrap();
    }

    /// Hosts, steps and times of what is new; `None` if the series has to be read again.
    fn new(telemetry: &Telemetry, position: &mut SeriesPosition) -> Option<Vec<(u32, u64, u64)>> {
        let growth = telemetry.series_growth("j", std::slice::from_ref(position)).unwrap();
        assert_eq!(growth.len(), 1);
        match growth.into_iter().next().unwrap().1 {
            SeriesGrowth::Changed => {
                *position = telemetry.read_stretches("j", "loss", 1, u64::MAX).unwrap().position;
                None
            }
            SeriesGrowth::Points { hosts, position: next } => {
                let of_host = |(host, samples): (Option<u32>, Vec<Sample>)| {
                    samples.into_iter().map(move |it| (host.unwrap_or(0), it.step, it.at_ms)).collect::<Vec<_>>()
                };
                *position = next;
                // It is what a reader of everything would have.
                assert_eq!(*position, telemetry.read_stretches("j", "loss", 1, u64::MAX).unwrap().position);
                Some(hosts.into_iter().flat_map(of_host).collect())
            }
        }
    }

    #[test]
    fn new_points_come_alone_and_once() {
        let (_temp, telemetry) = open();
        let mut position = SeriesPosition::default();
        report(&telemetry, 1, 1, &[10, 20]);
        assert_eq!(new(&telemetry, &mut position), None, "the reader knows nothing");
        assert_eq!(new(&telemetry, &mut position), Some(vec![]));
        report(&telemetry, 2, 1, &[20, 20, 30]);
        assert_eq!(new(&telemetry, &mut position), Some(vec![(1, 3, 20), (1, 4, 20), (1, 5, 30)]));
        assert_eq!(new(&telemetry, &mut position), Some(vec![]));
        report(&telemetry, 1, 2, &[30]);
        assert_eq!(new(&telemetry, &mut position), None, "another host");
        report(&telemetry, 3, 1, &[50]);
        report(&telemetry, 2, 2, &[40]);
        assert_eq!(new(&telemetry, &mut position), Some(vec![(1, 6, 50), (2, 2, 40)]), "hosts report by turns");
    }

    #[test]
    fn what_is_more_than_new_points_is_read_again() {
        let (_temp, telemetry) = open();
        let mut position = SeriesPosition::default();
        report(&telemetry, 1, 1, &[10, 20, 9_000]);
        assert_eq!(new(&telemetry, &mut position), None);
        for (seq, times) in
            [(2, vec![8_999]), (3, vec![15, 9_500]), (4, vec![5]), (5, (9_500..9_500 + MAX_NEW_POINTS + 1).collect())]
        {
            report(&telemetry, seq, 1, &times);
            assert_eq!(new(&telemetry, &mut position), None, "{seq}");
            assert_eq!(new(&telemetry, &mut position), Some(vec![]), "{seq}");
        }
        // As many come as retention removes.
        telemetry.remove_points(1, 11).unwrap();
        report(&telemetry, 6, 1, &[30_000, 30_001, 30_002]);
        assert_eq!(new(&telemetry, &mut position), None);
        telemetry.delete_series("j").unwrap();
        assert!(telemetry.series_growth("j", std::slice::from_ref(&position)).unwrap().is_empty());
        report(&telemetry, 7, 1, &[20]);
        assert_eq!(new(&telemetry, &mut position), None);
    }
}
