//! Long series in short form, for charts: of each block of points and each host how many there are,
//! and the least, the greatest and the last one.
//!
//! Blocks are made in the background, in order of time, and never of the newest points. A point
//! that comes late removes the blocks after it; whoever reads takes what no block has from the
//! points themselves.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use crate::points::value;
use crate::series_growth::first_ms;
use crate::{Point, Sample, SeriesPosition, StoreError, Telemetry};

/// Points of a block for each host that has some in it.
const BLOCK_POINTS: usize = 256;
/// Most points of a block, however many hosts there are.
const MOST_BLOCK_POINTS: usize = 16_384;
/// Blocks' worth of points that one call handles, so that it ends.
const MOST_TURNS: usize = 64;
/// A part of a series with fewer blocks is read from its points.
const LEAST_BLOCKS: usize = 200;
/// Stands for a point without host.
const NO_HOST: i64 = -1;

/// Consecutive points of a host's series: one, or some of which only these are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// The number of the first point, from 1.
    pub first_step: u64,
    /// The least value.
    pub low: Sample,
    /// The greatest value; one that is not a number is greater than all.
    pub high: Sample,
    /// The last point.
    pub last: Sample,
}

/// What a host has said of a metric.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostSeries {
    /// How many points there are in all.
    pub total: u64,
    /// The part that was requested, by time; no stretch reaches beyond it.
    pub stretches: Vec<Stretch>,
}

/// A metric as its hosts have reported it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stretches {
    /// By host.
    pub hosts: BTreeMap<Option<u32>, HostSeries>,
    /// Where its reader is now.
    pub position: SeriesPosition,
}

/// Place of a point in its series: its time, and its position, from 1, among those of one time.
type Place = (u64, u64);

/// Consecutive points of a series, as its roll-up has them; steps begin with 1.
#[derive(Debug, PartialEq)]
struct Block {
    since: Place,
    until: Place,
    hosts: BTreeMap<i64, Stretch>,
}

impl Stretch {
    fn of(sample: Sample) -> Self {
        Self { first_step: sample.step, low: sample, high: sample, last: sample }
    }

    /// How many points there are.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.last.step + 1 - self.first_step
    }

    /// With the stretch that follows.
    pub fn join(&mut self, next: &Self) {
        if next.low.value.total_cmp(&self.low.value).is_lt() {
            self.low = next.low;
        }
        if next.high.value.total_cmp(&self.high.value).is_gt() {
            self.high = next.high;
        }
        self.last = next.last;
    }

    /// As it is behind so many other points.
    fn after(mut self, points: u64) -> Self {
        self.first_step += points;
        for sample in [&mut self.low, &mut self.high, &mut self.last] {
            sample.step += points;
        }
        self
    }
}

/// Full blocks of these points, which are in order.
fn full_blocks(points: &[(Place, Point)]) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut hosts: BTreeMap<i64, Stretch> = BTreeMap::new();
    let mut since = 0;
    for (at, (place, point)) in points.iter().enumerate() {
        let host = point.host.map_or(NO_HOST, i64::from);
        let step = hosts.get(&host).map_or(1, |stretch| stretch.last.step + 1);
        let next = Stretch::of(Sample { step, at_ms: point.at_ms, value: point.value });
        hosts.entry(host).and_modify(|stretch| stretch.join(&next)).or_insert(next);
        if at + 1 - since >= (BLOCK_POINTS * hosts.len()).min(MOST_BLOCK_POINTS) {
            blocks.push(Block { since: points[since].0, until: *place, hosts: std::mem::take(&mut hosts) });
            since = at + 1;
        }
    }
    blocks
}

impl Telemetry {
    /// Makes blocks of series that have enough points for some; a limited number.
    pub(crate) fn roll_up(&self) -> Result<(), StoreError> {
        let due: Vec<i64> = self.database.read(|connection| {
            let mut select = connection.prepare_cached("SELECT id FROM series WHERE points >= rolled_points + ?")?;
            Ok(select.query_map([BLOCK_POINTS], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
        })?;
        let mut turns = 0;
        for series in due {
            while turns < MOST_TURNS && self.database.write(|tx| roll_up_some(tx, series))? {
                turns += 1;
            }
        }
        Ok(())
    }

    /// Steps `from` to `to` of a job's metric, by host: its points, or where these are many,
    /// stretches of them.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_stretches(&self, job: &str, metric: &str, from: u64, to: u64) -> Result<Stretches, StoreError> {
        self.database.read(|connection| {
            let mut find = connection.prepare_cached("SELECT id, points FROM series WHERE job = ? AND metric = ?")?;
            let found = find.query_row([job, metric], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((series, points)) = found else { return Ok(Stretches::default()) };
            let mut read = Reading { connection, series, from, to, hosts: BTreeMap::new(), ends: BTreeMap::new() };
            read.all(&read_blocks(connection, series)?)?;
            let host = |host: i64| u32::try_from(host).ok();
            let end = |number: &i64, series: &HostSeries| {
                (host(*number), (series.total, read.ends.get(number).copied().unwrap_or_default()))
            };
            let position = SeriesPosition {
                series,
                first_ms: first_ms(connection, series)?.unwrap_or_default(),
                points,
                hosts: read.hosts.iter().map(|(number, series)| end(number, series)).collect(),
            };
            Ok(Stretches {
                hosts: read.hosts.into_iter().map(|(number, series)| (host(number), series)).collect(),
                position,
            })
        })
    }
}

/// Makes the next blocks of a series; returns whether there may be more.
fn roll_up_some(tx: &Connection, series: i64) -> Result<bool, StoreError> {
    let last = "SELECT until_ms, until_position FROM roll_up WHERE series = ? ORDER BY since_ms DESC, since_position \
                DESC LIMIT 1";
    let last: Option<Place> =
        tx.prepare_cached(last)?.query_row([series], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let points = read_places(tx, series, last, None, MOST_BLOCK_POINTS)?;
    let blocks = full_blocks(&points);
    let Some(end) = blocks.last().map(|block| block.until) else { return Ok(false) };
    let insert = "INSERT INTO roll_up VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let mut insert = tx.prepare_cached(insert)?;
    let mut rolled = 0;
    for Block { since, until, hosts } in &blocks {
        for (host, stretch) in hosts {
            let Stretch { low, high, last, .. } = stretch;
            rolled += stretch.points();
            insert.execute(params![
                series,
                since.0,
                since.1,
                host,
                until.0,
                until.1,
                stretch.points(),
                low.step,
                low.at_ms,
                low.value,
                high.step,
                high.at_ms,
                high.value,
                last.at_ms,
                last.value
            ])?;
        }
    }
    let update = "UPDATE series SET rolled_points = rolled_points + ?, rolled_ms = ? WHERE id = ?";
    tx.prepare_cached(update)?.execute(params![rolled, end.0, series])?;
    Ok(points.len() == MOST_BLOCK_POINTS)
}

/// Removes blocks with points after this time: one has come that belongs before these.
pub(crate) fn forget_after(tx: &Connection, series: i64, at_ms: u64) -> Result<(), StoreError> {
    tx.prepare_cached("DELETE FROM roll_up WHERE series = ? AND until_ms > ?")?.execute(params![series, at_ms])?;
    count_again(tx, series)
}

/// Removes blocks with points up to this time, which are about to be removed.
pub(crate) fn forget_until(tx: &Connection, series: i64, at_ms: i64) -> Result<(), StoreError> {
    tx.prepare_cached("DELETE FROM roll_up WHERE series = ? AND since_ms <= ?")?.execute(params![series, at_ms])?;
    count_again(tx, series)
}

fn count_again(tx: &Connection, series: i64) -> Result<(), StoreError> {
    let update = "UPDATE series SET (rolled_points, rolled_ms) =
        (SELECT coalesce(sum(points), 0), max(until_ms) FROM roll_up WHERE series = ?1) WHERE id = ?1";
    tx.prepare_cached(update)?.execute([series])?;
    Ok(())
}

/// Points after and up to these places.
fn read_places(
    connection: &Connection,
    series: i64,
    after: Option<Place>,
    until: Option<Place>,
    most: usize,
) -> Result<Vec<(Place, Point)>, StoreError> {
    let sql = "SELECT at_ms, position, value, host FROM point WHERE series = ?1 AND (at_ms, position) > (?2, ?3)
        AND (at_ms, position) <= (?4, ?5) ORDER BY at_ms, position LIMIT ?6";
    let bound = |place: Option<Place>, none| {
        place.map_or((none, none), |(at_ms, position)| (at_ms.cast_signed(), position.cast_signed()))
    };
    let (after, until) = (bound(after, -1), bound(until, i64::MAX));
    let mut select = connection.prepare_cached(sql)?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let points = select.query_map(params![series, after.0, after.1, until.0, until.1, most], |row| {
        let at_ms = row.get(0)?;
        Ok(((at_ms, row.get(1)?), Point { at_ms, value: value(row, 2)?, host: row.get(3)? }))
    })?;
    Ok(points.collect::<rusqlite::Result<_>>()?)
}

fn read_blocks(connection: &Connection, series: i64) -> Result<Vec<Block>, StoreError> {
    let sql = "SELECT since_ms, since_position, until_ms, until_position, host, points, low_step, low_ms, low, \
               high_step, high_ms, high,
        last_ms, last FROM roll_up WHERE series = ? ORDER BY since_ms, since_position, host";
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query([series])?;
    let mut blocks: Vec<Block> = Vec::new();
    while let Some(row) = rows.next()? {
        let (since, until): (Place, Place) = ((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?));
        let sample =
            |step, at| Ok::<_, rusqlite::Error>(Sample { step, at_ms: row.get(at)?, value: value(row, at + 1)? });
        let stretch = Stretch {
            first_step: 1,
            low: sample(row.get(6)?, 7)?,
            high: sample(row.get(9)?, 10)?,
            last: sample(row.get(5)?, 12)?,
        };
        match blocks.last_mut().filter(|block| block.since == since) {
            Some(block) => drop(block.hosts.insert(row.get(4)?, stretch)),
            None => blocks.push(Block { since, until, hosts: BTreeMap::from([(row.get(4)?, stretch)]) }),
        }
    }
    Ok(blocks)
}

/// Where a block lies to the part that was requested.
#[derive(PartialEq)]
enum Lies {
    Inside,
    Outside,
    Across,
}

/// A series that is read from its beginning.
struct Reading<'a> {
    connection: &'a Connection,
    series: i64,
    from: u64,
    to: u64,
    hosts: BTreeMap<i64, HostSeries>,
    /// Times of hosts' last points.
    ends: BTreeMap<i64, u64>,
}

impl Reading<'_> {
    fn all(&mut self, blocks: &[Block]) -> Result<(), StoreError> {
        let Some(first) = blocks.first() else { return self.points(None, None) };
        // Where older points were removed, the rest of a block has none.
        let before = (first.since.0, first.since.1 - 1);
        self.points(None, Some(before))?;
        let lies = self.lie(blocks);
        let is_short = lies.iter().filter(|lies| **lies == Lies::Inside).count() < LEAST_BLOCKS;
        for (at, (block, lies)) in blocks.iter().zip(lies).enumerate() {
            if lies == Lies::Across || (lies == Lies::Inside && is_short) {
                let after = at.checked_sub(1).map_or(before, |at| blocks[at].until);
                self.points(Some(after), Some(block.until))?;
            } else {
                block.hosts.iter().for_each(|(host, stretch)| self.add(*host, stretch));
            }
        }
        self.points(blocks.last().map(|block| block.until), None)
    }

    fn lie(&self, blocks: &[Block]) -> Vec<Lies> {
        let mut totals: BTreeMap<i64, u64> = self.hosts.iter().map(|(host, series)| (*host, series.total)).collect();
        let of_host = |stretch: Stretch| match (stretch.first_step >= self.from, stretch.last.step <= self.to) {
            _ if stretch.last.step < self.from || stretch.first_step > self.to => Lies::Outside,
            (true, true) => Lies::Inside,
            _ => Lies::Across,
        };
        let mut of_block = |block: &Block| {
            let mut all = Vec::with_capacity(block.hosts.len());
            for (host, stretch) in &block.hosts {
                let total = totals.entry(*host).or_default();
                all.push(of_host(stretch.after(*total)));
                *total += stretch.points();
            }
            all.dedup();
            if all.len() == 1 { all.remove(0) } else { Lies::Across }
        };
        blocks.iter().map(&mut of_block).collect()
    }

    fn points(&mut self, after: Option<Place>, until: Option<Place>) -> Result<(), StoreError> {
        for (_, point) in read_places(self.connection, self.series, after, until, usize::MAX)? {
            let host = point.host.map_or(NO_HOST, i64::from);
            self.add(host, &Stretch::of(Sample { step: 1, at_ms: point.at_ms, value: point.value }));
        }
        Ok(())
    }

    fn add(&mut self, host: i64, stretch: &Stretch) {
        let series = self.hosts.entry(host).or_default();
        let stretch = stretch.after(series.total);
        series.total += stretch.points();
        self.ends.insert(host, stretch.last.at_ms);
        if stretch.first_step >= self.from && stretch.last.step <= self.to {
            series.stretches.push(stretch);
        }
    }
}

#[cfg(test)]
mod tests;
