//! Metrics that users put by themselves: series of namespace, name and dimensions. What is stored
//! are statistic sets; a single value is the set of itself, and equal values of one moment are one
//! row.
//!
//! Old sets become coarser, as CloudWatch's do: one a minute after 3 hours, one in 5 minutes after
//! 15 days, one an hour after 63 days; none is kept longer than 455 days. Percentiles are lost with
//! that, the other statistics are not.

use rusqlite::{Connection, OptionalExtension, params};

use crate::{StoreError, Telemetry};

pub(crate) const TABLES: &str = "
    CREATE TABLE own_series (
        id INTEGER PRIMARY KEY, namespace TEXT NOT NULL, name TEXT NOT NULL, dimensions TEXT NOT NULL,
        last_ms INTEGER NOT NULL, UNIQUE (namespace, name, dimensions));
    CREATE TABLE own_set (
        series INTEGER NOT NULL, at_ms INTEGER NOT NULL, unit TEXT NOT NULL, low REAL NOT NULL, high REAL NOT NULL,
        count REAL NOT NULL, sum REAL NOT NULL, is_short INTEGER NOT NULL,
        PRIMARY KEY (series, at_ms, unit, low, high)) WITHOUT ROWID;
    CREATE INDEX own_set_by_age ON own_set (is_short, at_ms);
    ";

/// Milliseconds of an hour and of a day.
const HOUR_MS: u64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// How old sets are when they become one in this many milliseconds. `is_short` counts these steps.
const STEPS: [(u64, u64); 3] = [(3 * HOUR_MS, 60_000), (15 * DAY_MS, 300_000), (63 * DAY_MS, HOUR_MS)];

/// Nothing is kept longer.
const LONGEST_MS: u64 = 455 * DAY_MS;

/// Sets that one transaction makes coarser or removes.
const MAX_CHANGED: usize = 5_000;

/// Bytes of a set on disk, with its place in the index.
pub(crate) const SET_BYTES: u64 = 96;

/// What a user's series is known by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnMetric {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Names and values; their order does not matter.
    pub dimensions: Vec<(String, String)>,
}

impl OwnMetric {
    /// As stored: sorted, each text behind its length, so that no two lists have one text.
    fn dimensions_text(&self) -> String {
        let mut pairs: Vec<_> = self.dimensions.iter().collect();
        pairs.sort_unstable();
        pairs.iter().map(|(name, value)| format!("{}:{name}{}:{value}", name.len(), value.len())).collect()
    }

    fn dimensions_of(text: &str) -> Vec<(String, String)> {
        let mut rest = text;
        let mut next = || {
            let (length, after) = rest.split_once(':')?;
            let (part, behind) = after.split_at_checked(length.parse().ok()?)?;
            rest = behind;
            Some(part.to_owned())
        };
        std::iter::from_fn(|| Some((next()?, next()?))).collect()
    }
}

/// The values of a moment, as far as they are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StatisticSet {
    /// How many values.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

impl From<f64> for StatisticSet {
    fn from(value: f64) -> Self {
        Self { count: 1.0, sum: value, low: value, high: value }
    }
}

/// A set with its place in a series.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnPoint {
    /// Milliseconds since the epoch: the start of the stretch that the set is of.
    pub at_ms: u64,
    /// As CloudWatch names units.
    pub unit: String,
    /// Values.
    pub set: StatisticSet,
    /// It was made of older, finer sets.
    pub is_thinned: bool,
}

/// Which series to name. All conditions that are set must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OwnMetricQuery {
    /// Of this namespace.
    pub namespace: Option<String>,
    /// Of this name.
    pub name: Option<String>,
    /// With these dimensions, among others; one without a value may have any.
    pub dimensions: Vec<(String, Option<String>)>,
    /// With a value at or after this time, in milliseconds since the epoch.
    pub active_since_ms: Option<u64>,
    /// Behind the series of this number.
    pub after: i64,
    /// The most series.
    pub limit: usize,
}

impl Telemetry {
    /// Adds values to users' series.
    ///
    /// # Errors
    /// The storage's; then nothing is added.
    pub fn put_own(&self, data: &[(OwnMetric, Vec<OwnPoint>)]) -> Result<(), StoreError> {
        self.database.write_beside_reserve(|tx| {
            let series = "INSERT INTO own_series (namespace, name, dimensions, last_ms) VALUES (?1, ?2, ?3, ?4)
                ON CONFLICT (namespace, name, dimensions) DO UPDATE SET last_ms = max(last_ms, ?4) RETURNING id";
            let mut series = tx.prepare_cached(series)?;
            for (metric, points) in data {
                let Some(last_ms) = points.iter().map(|point| point.at_ms).max() else { continue };
                let named = params![metric.namespace, metric.name, metric.dimensions_text(), last_ms];
                let id: i64 = series.query_row(named, |row| row.get(0))?;
                points.iter().try_for_each(|point| add(tx, id, point, 0))?;
            }
            Ok(())
        })
    }

    /// A user's values from `from_ms` (inclusive) to `to_ms` (exclusive) by time, of one unit if it
    /// is given. Values of different units are never added up elsewhere.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_own(
        &self,
        metric: &OwnMetric,
        unit: Option<&str>,
        from_ms: u64,
        to_ms: u64,
    ) -> Result<Vec<OwnPoint>, StoreError> {
        let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        self.database.read(|connection| {
            let sql = "SELECT at_ms, unit, count, sum, low, high, is_short FROM own_set
                WHERE series = (SELECT id FROM own_series WHERE namespace = ? AND name = ? AND dimensions = ?)
                AND at_ms >= ? AND at_ms < ? AND (?6 IS NULL OR unit = ?6) ORDER BY at_ms, unit, low, high";
            let mut select = connection.prepare_cached(sql)?;
            let dimensions = metric.dimensions_text();
            let params = params![metric.namespace, metric.name, dimensions, time(from_ms), time(to_ms), unit];
            Ok(select.query_map(params, point)?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Users' series, each with its number, in the order of their first values.
    ///
    /// # Errors
    /// The storage's.
    pub fn own_metrics(&self, query: &OwnMetricQuery) -> Result<Vec<(i64, OwnMetric)>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT id, namespace, name, dimensions FROM own_series WHERE id > ?1
                AND (?2 IS NULL OR namespace = ?2) AND (?3 IS NULL OR name = ?3) AND (?4 IS NULL OR last_ms >= ?4) \
                       ORDER BY id";
            let mut select = connection.prepare_cached(sql)?;
            let params = params![query.after, query.namespace, query.name, query.active_since_ms];
            let series = select.query_map(params, |row| {
                let dimensions: String = row.get(3)?;
                let metric = OwnMetric {
                    namespace: row.get(1)?,
                    name: row.get(2)?,
                    dimensions: OwnMetric::dimensions_of(&dimensions),
                };
                Ok((row.get(0)?, metric))
            })?;
            let mut found = Vec::new();
            for series in series {
                let (id, metric) = series?;
                let has = |(name, value): &(String, Option<String>)| {
                    metric.dimensions.iter().any(|(own, of)| own == name && value.as_ref().is_none_or(|it| it == of))
                };
                if query.dimensions.iter().all(has) {
                    found.push((id, metric));
                    if found.len() == query.limit {
                        break;
                    }
                }
            }
            Ok(found)
        })
    }

    /// Makes old sets coarser and removes the oldest; a limited number in one call.
    pub(crate) fn thin_own(&self, now_ms: u64, oldest_ms: u64) -> Result<(), StoreError> {
        let oldest_ms = oldest_ms.max(now_ms.saturating_sub(LONGEST_MS));
        self.remove_own(Some(oldest_ms))?;
        for (step, (age_ms, length_ms)) in (1_i64..).zip(STEPS) {
            self.database.write(|tx| shorten(tx, step, now_ms.saturating_sub(age_ms), length_ms))?;
        }
        Ok(())
    }

    /// Removes the oldest sets, those before a time if it is given; returns whether there were any.
    pub(crate) fn remove_own(&self, before_ms: Option<u64>) -> Result<bool, StoreError> {
        let before = before_ms.map_or(i64::MAX, |ms| i64::try_from(ms).unwrap_or(i64::MAX));
        self.database.write(|tx| {
            // The index has the age within each class.
            let of_class = |class: usize| {
                format!(
                    "SELECT * FROM (SELECT series, at_ms, unit, low, high FROM own_set WHERE is_short = {class} \
                     AND at_ms < ?1 ORDER BY at_ms LIMIT ?2)"
                )
            };
            let oldest = Vec::from_iter((0..=STEPS.len()).map(of_class)).join(" UNION ALL ");
            let delete = format!(
                "DELETE FROM own_set WHERE (series, at_ms, unit, low, high) IN ({oldest} ORDER BY at_ms LIMIT ?2)"
            );
            let removed = tx.prepare_cached(&delete)?.execute(params![before, MAX_CHANGED])?;
            if removed > 0 {
                let empty = "DELETE FROM own_series WHERE NOT EXISTS (SELECT 1 FROM own_set WHERE series = id)";
                tx.prepare_cached(empty)?.execute([])?;
            }
            Ok(removed > 0)
        })
    }

    /// Bytes that users' values take, about.
    pub(crate) fn own_bytes(connection: &Connection) -> Result<u64, StoreError> {
        let sets: u64 = connection.prepare_cached("SELECT count(*) FROM own_set")?.query_row([], |row| row.get(0))?;
        Ok(sets * SET_BYTES)
    }
}

/// Adds a set to what a series has of its moment.
fn add(tx: &Connection, series: i64, point: &OwnPoint, step: i64) -> Result<(), StoreError> {
    let OwnPoint { at_ms, unit, set, .. } = point;
    let insert = "INSERT INTO own_set (series, at_ms, unit, low, high, count, sum, is_short) VALUES (?, ?, ?, ?, ?, \
                  ?, ?, ?) ON CONFLICT (series, at_ms, unit, low, high) DO UPDATE SET count = count + excluded.count, \
                  sum = sum + excluded.sum, is_short = max(is_short, excluded.is_short)";
    let values = params![series, at_ms, unit, set.low, set.high, set.count, set.sum, step];
    tx.prepare_cached(insert)?.execute(values)?;
    Ok(())
}

fn point(row: &rusqlite::Row<'_>) -> rusqlite::Result<OwnPoint> {
    let set = StatisticSet { count: row.get(2)?, sum: row.get(3)?, low: row.get(4)?, high: row.get(5)? };
    Ok(OwnPoint { at_ms: row.get(0)?, unit: row.get(1)?, set, is_thinned: row.get::<_, i64>(6)? > 0 })
}

/// Joins the sets of one stretch that are before a time and not as coarse yet, at its start.
fn shorten(tx: &Connection, step: i64, before_ms: u64, length_ms: u64) -> Result<(), StoreError> {
    // Whole stretches only: a part would be joined twice, which loses nothing but costs a write.
    let before_ms = before_ms / length_ms * length_ms;
    let first = "SELECT series, at_ms FROM own_set WHERE is_short = ? AND at_ms < ? ORDER BY at_ms LIMIT 1";
    let mut changed = 0;
    while changed < MAX_CHANGED {
        let mut found = None;
        // One class at a time: the index has the age within each.
        for class in 0..step {
            let mut first = tx.prepare_cached(first)?;
            let row =
                first.query_row(params![class, before_ms], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, u64>(1)?)));
            found = row.optional()?;
            if found.is_some() {
                break;
            }
        }
        let Some((series, at_ms)) = found else { break };
        let (from, to) = (at_ms / length_ms * length_ms, at_ms / length_ms * length_ms + length_ms);
        let delete = "DELETE FROM own_set WHERE series = ? AND at_ms >= ? AND at_ms < ? RETURNING at_ms, unit, count, \
                      sum, low, high, is_short";
        let mut sets: Vec<OwnPoint> =
            tx.prepare_cached(delete)?.query_map(params![series, from, to], point)?.collect::<rusqlite::Result<_>>()?;
        changed += sets.len();
        sets.sort_by(|one, other| one.unit.cmp(&other.unit));
        for of_unit in sets.chunk_by(|one, other| one.unit == other.unit) {
            let joined = of_unit.iter().map(|point| point.set).reduce(|one, other| StatisticSet {
                count: one.count + other.count,
                sum: one.sum + other.sum,
                low: one.low.min(other.low),
                high: one.high.max(other.high),
            });
            if let (Some(set), [one, ..]) = (joined, of_unit) {
                add(tx, series, &OwnPoint { at_ms: from, unit: one.unit.clone(), set, is_thinned: true }, step)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telemetry() -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        (temp, telemetry)
    }

    fn metric(name: &str, dimensions: &[(&str, &str)]) -> OwnMetric {
        let dimensions = dimensions.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        OwnMetric { namespace: "Mine".to_owned(), name: name.to_owned(), dimensions }
    }

    fn at(at_ms: u64, value: f64) -> OwnPoint {
        OwnPoint { at_ms, unit: "None".to_owned(), set: value.into(), is_thinned: false }
    }

    fn read(telemetry: &Telemetry, metric: &OwnMetric) -> Vec<(u64, f64, f64)> {
        let points = telemetry.read_own(metric, None, 0, u64::MAX).unwrap();
        points.iter().map(|point| (point.at_ms, point.set.count, point.set.sum)).collect()
    }

    #[test]
    fn a_series_is_its_namespace_name_and_dimensions_in_any_order() {
        let (_temp, telemetry) = telemetry();
        let (one, other) = (metric("a", &[("x", "1"), ("y", "2:")]), metric("a", &[("y", "2:"), ("x", "1")]));
        let bare = metric("a", &[]);
        telemetry.put_own(&[(one.clone(), vec![at(5, 1.0), at(5, 1.0)]), (bare.clone(), vec![at(6, 2.0)])]).unwrap();
        telemetry.put_own(&[(other.clone(), vec![at(5, 1.0), at(5, 3.0)])]).unwrap();
        assert_eq!(read(&telemetry, &one), [(5, 3.0, 3.0), (5, 1.0, 3.0)], "equal values are one row");
        assert_eq!(read(&telemetry, &other), read(&telemetry, &one));
        assert_eq!(read(&telemetry, &bare), [(6, 1.0, 2.0)]);
        assert_eq!(read(&telemetry, &metric("b", &[])), []);
        let list = |query: OwnMetricQuery| {
            let found = telemetry.own_metrics(&OwnMetricQuery { limit: 9, ..query }).unwrap();
            found.into_iter().map(|(id, metric)| (id, metric.dimensions.len())).collect::<Vec<_>>()
        };
        assert_eq!(list(OwnMetricQuery::default()), [(1, 2), (2, 0)]);
        assert_eq!(list(OwnMetricQuery { after: 1, ..OwnMetricQuery::default() }), [(2, 0)]);
        assert_eq!(list(OwnMetricQuery { active_since_ms: Some(6), ..OwnMetricQuery::default() }), [(2, 0)]);
        let with = |value: Option<&str>| vec![("y".to_owned(), value.map(str::to_owned))];
        for (value, expected) in [(None, 1), (Some("2:"), 1), (Some("3"), 0)] {
            let query = OwnMetricQuery { dimensions: with(value), ..OwnMetricQuery::default() };
            assert_eq!(list(query).len(), expected, "{value:?}");
        }
        assert_eq!(list(OwnMetricQuery { namespace: Some("Other".to_owned()), ..OwnMetricQuery::default() }), []);
    }

    #[test]
    fn old_values_become_coarser_and_go() {
        let (_temp, telemetry) = telemetry();
        let one = metric("a", &[]);
        let now = 500 * DAY_MS;
        let ages = [LONGEST_MS + 1, 64 * DAY_MS, 64 * DAY_MS - 600_000, 16 * DAY_MS, 4 * HOUR_MS, 4 * HOUR_MS - 1_000];
        let points: Vec<_> = (0_u32..).zip(ages).map(|(n, age)| at(now - age, f64::from(n))).collect();
        telemetry.put_own(&[(one.clone(), points)]).unwrap();
        telemetry.put_own(&[(one.clone(), vec![at(now - 1, 9.0), at(now - 2, 9.0)])]).unwrap();
        telemetry.thin_own(now, 0).unwrap();
        telemetry.thin_own(now, 0).unwrap();
        let expected = [
            (now - 64 * DAY_MS, 2.0, 3.0),
            (now - 16 * DAY_MS, 1.0, 3.0),
            (now - 4 * HOUR_MS, 2.0, 9.0),
            (now - 2, 1.0, 9.0),
            (now - 1, 1.0, 9.0),
        ];
        assert_eq!(read(&telemetry, &one), expected);
        let points = telemetry.read_own(&one, None, 0, now).unwrap();
        assert_eq!(points.iter().map(|point| point.is_thinned).collect::<Vec<_>>(), [true, true, true, false, false]);
        assert_eq!((points[0].set.low, points[0].set.high), (1.0, 2.0));
        telemetry.thin_own(now, now).unwrap();
        assert_eq!(telemetry.own_metrics(&OwnMetricQuery { limit: 9, ..OwnMetricQuery::default() }).unwrap(), []);
    }

    #[test]
    fn units_stay_apart_when_values_become_coarser() {
        let (_temp, telemetry) = telemetry();
        let one = metric("a", &[]);
        let bytes = OwnPoint { unit: "Bytes".to_owned(), ..at(1, 2.0) };
        telemetry.put_own(&[(one.clone(), vec![at(1, 1.0), at(2, 3.0), bytes])]).unwrap();
        telemetry.thin_own(DAY_MS, 0).unwrap();
        let sum = |unit| {
            let points = telemetry.read_own(&one, Some(unit), 0, 9).unwrap();
            points.iter().map(|point| point.set.sum).collect::<Vec<_>>()
        };
        assert_eq!((sum("None"), sum("Bytes"), sum("Count")), (vec![4.0], vec![2.0], vec![]));
    }
}
