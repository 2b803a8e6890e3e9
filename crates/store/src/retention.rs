//! What keeps telemetry bounded: old lines and points are removed by age and by the space that all
//! of them take, and free pages of the database are given back to the disk.

use rusqlite::{Connection, OptionalExtension, params};

use crate::log_deletions::DELETED_LINES;
use crate::log_sealing::{move_old_lines, seal_idle};
use crate::point_quota::POINT_BYTES;
use crate::{StoreError, Telemetry};

/// A stream without new lines for this long is compressed, whatever it has.
const IDLE_MS: u64 = 10 * 60 * 1000;

/// Segments of the first layout's lines that one call makes, so that it ends soon.
const MAX_MOVES: usize = 10;

/// Streams that one transaction shortens.
const REMOVED_TOGETHER: usize = 16;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes on disk of all lines and points. The oldest lines are removed first, and the older
    /// points of the job that has most if all points take more than all lines.
    pub bytes: u64,
    /// Lines and points before this time are removed, in milliseconds since the epoch; 0 keeps all.
    pub oldest_ms: u64,
}

impl Telemetry {
    /// Removes what is beyond the bounds or a log group's retention, compresses what is at rest,
    /// rolls series up, and gives space back. To be called every few seconds; each call does a
    /// limited amount of work.
    ///
    /// # Errors
    /// The storage's first; all else is done all the same, as a full disk or damaged lines must not
    /// keep what is too old.
    pub fn tidy(&self, now_ms: u64, bounds: &Bounds) -> Result<(), StoreError> {
        let moved = (0..MAX_MOVES).try_fold(true, |has_more, _| {
            if has_more { move_old_lines(&self.database, &self.segments) } else { Ok(false) }
        });
        let removed = self.remove_old(now_ms, bounds.oldest_ms);
        // Lines that are still to be moved take more space than they will, but not where they
        // cannot be moved.
        let shortened = if matches!(moved, Ok(true)) { Ok(()) } else { self.keep_within(bounds.bytes) };
        let given_back = self.database.give_back_space();
        let sealed = seal_idle(&self.database, &self.segments, now_ms.saturating_sub(IDLE_MS));
        let rolled_up = self.roll_up();
        let short = self.shorten_system(now_ms);
        moved.map(drop).and(removed).and(shortened).and(given_back).and(sealed).and(rolled_up).and(short)
    }

    fn keep_within(&self, bytes: u64) -> Result<(), StoreError> {
        while self.stored_bytes()? > bytes && self.remove_some()? {}
        Ok(())
    }

    /// Bytes on disk that lines and points take; free pages of the database are not counted.
    ///
    /// # Errors
    /// The storage's.
    pub fn stored_bytes(&self) -> Result<u64, StoreError> {
        self.database.read(|connection| {
            let sum = "SELECT coalesce(sum(bytes), 0) FROM log_segment";
            let segments: u64 = connection.prepare_cached(sum)?.query_row([], |row| row.get(0))?;
            let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
            Ok(segments + (pragma("page_count")? - pragma("freelist_count")?) * pragma("page_size")?)
        })
    }

    fn remove_old(&self, now_ms: u64, oldest_ms: u64) -> Result<(), StoreError> {
        let [now_ms, oldest_ms] = [now_ms, oldest_ms].map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
        // (stream, before which time)
        let due: Vec<(i64, i64)> = self.database.read(|connection| {
            let sql = "SELECT id, max(?1, coalesce(?2 - retention_days * 86400000, 0)) AS oldest
                FROM log_stream LEFT JOIN log_group ON log_group.name = log_group WHERE first_ms < oldest";
            let mut select = connection.prepare_cached(sql)?;
            Ok(select
                .query_map(params![oldest_ms, now_ms], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?)
        })?;
        for streams in due.chunks(REMOVED_TOGETHER) {
            let files = self.database.write(|tx| {
                let mut files = Vec::new();
                for (stream, oldest) in streams {
                    let sql = "DELETE FROM log_segment WHERE stream = ? AND last_ms < ? RETURNING id, file";
                    files.extend(remove_segments(tx, sql, params![stream, oldest])?);
                    let sql = "DELETE FROM log_block WHERE stream = ? AND last_ms < ? AND segment IS NULL";
                    tx.prepare_cached(sql)?.execute(params![stream, oldest])?;
                    count_again(tx, *stream)?;
                }
                Ok(files)
            })?;
            self.segments.remove(&files);
        }
        let due: Vec<i64> = self.database.read(|connection| {
            let sql = "SELECT id FROM series WHERE EXISTS (SELECT 1 FROM point WHERE series = series.id AND at_ms < ?)";
            Ok(connection
                .prepare_cached(sql)?
                .query_map([oldest_ms], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?)
        })?;
        for series in due {
            self.remove_points(series, oldest_ms.cast_unsigned())?;
        }
        while self.remove_system(Some(oldest_ms.cast_unsigned()))? {}
        self.thin_own(now_ms.cast_unsigned(), oldest_ms.cast_unsigned())
    }

    /// Removes the oldest system metrics or the oldest values that users put, if they take most
    /// space; the older half of the points of the job that has most if points take more space than
    /// lines do; else the oldest lines. Returns whether there was anything.
    fn remove_some(&self) -> Result<bool, StoreError> {
        let most = self.database.read(takes_most)?;
        if (most == Most::System && self.remove_system(None)?) || (most == Most::Own && self.remove_own(None)?) {
            return Ok(true);
        }
        Ok(self.remove_some_points_or_lines()? || self.remove_system(None)? || self.remove_own(None)?)
    }

    fn remove_some_points_or_lines(&self) -> Result<bool, StoreError> {
        let (largest, is_more) = self.database.read(|connection| {
            let sql = "SELECT job, sum(points), sum(sum(points)) OVER () FROM series GROUP BY job ORDER BY 2 DESC \
                       LIMIT 1";
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, u64>(2)?));
            let largest = connection.prepare_cached(sql)?.query_row([], row).optional()?;
            let lines = lines_bytes(connection)?;
            let is_more = largest.as_ref().is_some_and(|(_, points)| points * POINT_BYTES > lines);
            Ok((largest.map(|(job, _)| job), is_more))
        })?;
        match largest {
            Some(job) if is_more || !self.remove_some_lines()? => self.halve_series(&job).map(|()| true),
            Some(_) => Ok(true),
            None => self.remove_some_lines(),
        }
    }

    /// Removes the oldest lines; returns whether there were any.
    fn remove_some_lines(&self) -> Result<bool, StoreError> {
        // Those of the first layout are older than all others.
        let oldest = "DELETE FROM line WHERE (stream, position) IN (SELECT stream, position FROM line ORDER BY stream, \
                      position LIMIT ?)";
        if self.database.write(|tx| Ok(tx.prepare_cached(oldest)?.execute([DELETED_LINES])?))? > 0 {
            return Ok(true);
        }
        let files = self.database.write(|tx| {
            let sql = "DELETE FROM log_segment WHERE id = (SELECT id FROM log_segment ORDER BY ingested_ms, id LIMIT \
                       1) RETURNING id, file";
            remove_segments(tx, sql, params![])
        })?;
        self.segments.remove(&files);
        if !files.is_empty() {
            return Ok(true);
        }
        let streams: Vec<i64> = self.database.write(|tx| {
            let sql = "SELECT id FROM log_stream WHERE tail_bytes > 0 ORDER BY ingested_ms LIMIT ?";
            let found = tx
                .prepare_cached(sql)?
                .query_map([REMOVED_TOGETHER], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()?;
            for stream in &found {
                tx.prepare_cached("DELETE FROM log_block WHERE stream = ? AND segment IS NULL")?.execute([stream])?;
                count_again(tx, *stream)?;
            }
            Ok(found)
        })?;
        Ok(!streams.is_empty())
    }
}

/// Bytes that lines take.
fn lines_bytes(connection: &Connection) -> Result<u64, StoreError> {
    let sql = "SELECT (SELECT coalesce(sum(bytes), 0) FROM log_segment) + (SELECT coalesce(sum(tail_bytes), 0) FROM \
               log_stream)";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// What takes more space than all else.
#[derive(PartialEq, Eq)]
enum Most {
    System,
    Own,
    LinesOrPoints,
}

fn takes_most(connection: &Connection) -> Result<Most, StoreError> {
    let sum = "SELECT coalesce(sum(points), 0) FROM series";
    let points: u64 = connection.prepare_cached(sum)?.query_row([], |row| row.get(0))?;
    let others = lines_bytes(connection)?.max(points * POINT_BYTES);
    let (system, own) = (Telemetry::system_bytes(connection)?, Telemetry::own_bytes(connection)?);
    Ok(match system.max(own) {
        most if most <= others => Most::LinesOrPoints,
        most if most == own => Most::Own,
        _ => Most::System,
    })
}

/// Removes segments' rows by this statement, and those of their blocks; returns their files.
fn remove_segments(tx: &Connection, delete: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<String>, StoreError> {
    let mut delete = tx.prepare_cached(delete)?;
    let removed = delete
        .query_map(values, |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(i64, String)>>>()?;
    let mut blocks = tx.prepare_cached("DELETE FROM log_block WHERE segment = ? RETURNING stream")?;
    let mut streams = Vec::new();
    for (segment, _) in &removed {
        streams.extend(blocks.query_map([segment], |row| row.get::<_, i64>(0))?.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    streams.sort_unstable();
    streams.dedup();
    streams.into_iter().try_for_each(|stream| count_again(tx, stream))?;
    Ok(removed.into_iter().map(|(_, file)| file).collect())
}

/// Writes what a stream's row states about its blocks.
fn count_again(tx: &Connection, stream: i64) -> Result<(), StoreError> {
    let update = "UPDATE log_stream SET
        first_ms = (SELECT min(first_ms) FROM log_block WHERE stream = ?1), last_ms = (SELECT max(last_ms) FROM \
                  log_block WHERE stream = ?1),
        bytes = (SELECT coalesce(sum(bytes), 0) FROM log_block WHERE stream = ?1),
        tail_bytes = (SELECT coalesce(sum(length(body)), 0) FROM log_block WHERE stream = ?1 AND segment IS NULL)
        WHERE id = ?1";
    tx.prepare_cached(update)?.execute([stream])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogLines, LogQuery, MetricPoint};

    const ALL: Bounds = Bounds { bytes: u64::MAX, oldest_ms: 0 };

    fn telemetry() -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        (temp, telemetry)
    }

    /// Lines that hardly compress, each of this length.
    fn lines(count: u64, length: usize) -> Vec<(u64, String)> {
        let mut state = 1_u64;
        let mut digit = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (state >> 33) as u8 % 90)
        };
        (0..count).map(|at_ms| (at_ms, (0..length).map(|_| digit()).collect())).collect()
    }

    fn on_disk(temp: &tempfile::TempDir) -> u64 {
        // The log of the database keeps its size, as it is written from its beginning again.
        let segments =
            std::fs::read_dir(temp.path().join("logs")).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        segments.sum::<u64>() + std::fs::metadata(temp.path().join("telemetry.db")).unwrap().len()
    }

    fn count(telemetry: &Telemetry, stream: &str) -> usize {
        let query = LogQuery { stream: stream.to_owned(), limit: usize::MAX, ..LogQuery::default() };
        telemetry.read_logs(&query).unwrap().map_or(0, |page| page.events.len())
    }

    fn append(telemetry: &Telemetry, stream: &str, lines: &[(u64, String)]) {
        for lines in lines.chunks(1000) {
            telemetry
                .append_logs(&[LogLines { stream: stream.to_owned(), lines: lines.to_vec(), ..LogLines::default() }])
                .unwrap();
        }
    }

    #[test]
    fn a_deleted_log_gives_its_space_back() {
        let (temp, telemetry) = telemetry();
        let (written, text) = (20_000_000, lines(20_000, 1000));
        append(&telemetry, "job/algo-1", &text);
        // Every call does a limited amount of work, and the thread that compresses may be at it,
        // too.
        let comes_below = |bytes| {
            let is_below = |_| {
                telemetry.tidy(u64::MAX, &ALL).unwrap();
                on_disk(&temp) < bytes
            };
            assert!((0..100).any(is_below), "{} bytes of at most {bytes}", on_disk(&temp));
        };
        comes_below(written + (written >> 3));
        assert_eq!(count(&telemetry, "job/algo-1"), 20_000);
        telemetry.delete_streams("job/").unwrap();
        comes_below(written >> 3);
        assert!(std::fs::read_dir(temp.path().join("logs")).unwrap().next().is_none());
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let (_temp, telemetry) = telemetry();
        let text = lines(6_000, 1000);
        for stream in ["one/algo-1", "two/algo-1"] {
            append(&telemetry, stream, &text);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let points: Vec<_> = (0..9).map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms, value: 0.5 }).collect();
        telemetry.append_points("one", &points).unwrap();
        // The thread that compresses may be at it, too.
        let tail = |connection: &Connection| {
            Ok(connection.query_row("SELECT sum(tail_bytes) FROM log_stream", [], |row| row.get::<_, u64>(0))?)
        };
        while telemetry.database.read(tail).unwrap() > 0 {
            telemetry.tidy(u64::MAX, &ALL).unwrap();
        }
        let all = telemetry.stored_bytes().unwrap();
        telemetry.tidy(u64::MAX, &Bounds { bytes: all / 2, oldest_ms: 0 }).unwrap();
        assert!(telemetry.stored_bytes().unwrap() <= all / 2);
        let left = [count(&telemetry, "one/algo-1"), count(&telemetry, "two/algo-1")];
        assert!(left[0] < left[1], "{left:?}");
        assert_eq!(telemetry.read_points("one", "loss", 0, 99).unwrap().len(), 9);
        telemetry.tidy(u64::MAX, &Bounds { bytes: 0, oldest_ms: 0 }).unwrap();
        assert_eq!([count(&telemetry, "one/algo-1"), count(&telemetry, "two/algo-1")], [0, 0]);
        assert_eq!(telemetry.metrics("one").unwrap(), Vec::<String>::new());
        append(&telemetry, "two/algo-1", &lines(3, 9));
        let page =
            telemetry.read_logs(&LogQuery { stream: "two/algo-1".to_owned(), ..LogQuery::default() }).unwrap().unwrap();
        assert_eq!(page.events.iter().map(|event| event.position).collect::<Vec<_>>(), [6_000, 6_001, 6_002]);
    }

    #[test]
    fn points_that_take_more_than_lines_go_first() {
        let (_temp, telemetry) = telemetry();
        append(&telemetry, "few/algo-1", &lines(100, 1000));
        let points = |count| {
            (0..count).map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms, value: 0.5 }).collect::<Vec<_>>()
        };
        telemetry.append_points("few", &points(1_000)).unwrap();
        telemetry.append_points("many", &points(50_000)).unwrap();
        let all = telemetry.stored_bytes().unwrap();
        telemetry.tidy(u64::MAX, &Bounds { bytes: all / 2, oldest_ms: 0 }).unwrap();
        assert_eq!(count(&telemetry, "few/algo-1"), 100);
        assert_eq!(telemetry.series_lengths("few").unwrap(), [("loss".to_owned(), 1_000)]);
        let left = telemetry.read_points("many", "loss", 0, u64::MAX).unwrap();
        assert!(left.len() < 50_000 && left.last().is_some_and(|point| point.at_ms == 49_999), "{}", left.len());
    }

    #[test]
    fn what_cannot_be_compressed_stops_no_removal() {
        let (temp, telemetry) = telemetry();
        append(&telemetry, "old/algo-1", &[(3, "old".to_owned())]);
        append(&telemetry, "large/algo-1", &lines(3_000, 1000));
        // No segment can be made any more, as on a full disk.
        std::fs::rename(temp.path().join("logs"), temp.path().join("elsewhere")).unwrap();
        telemetry.tidy(u64::MAX, &Bounds { bytes: u64::MAX, oldest_ms: 4 }).unwrap_err();
        assert_eq!(
            [count(&telemetry, "old/algo-1"), count(&telemetry, "large/algo-1")],
            [0, 3_000],
            "by age: a block goes when all its lines may"
        );
        telemetry.tidy(u64::MAX, &Bounds { bytes: 300_000, oldest_ms: 0 }).unwrap();
        assert!(telemetry.stored_bytes().unwrap() <= 300_000, "by size: {}", telemetry.stored_bytes().unwrap());
    }

    #[test]
    fn lines_and_points_have_an_age() {
        let (_temp, telemetry) = telemetry();
        let points: Vec<_> = (0..9).map(|at_ms| MetricPoint { metric: "loss".to_owned(), at_ms, value: 0.5 }).collect();
        telemetry.append_points("job", &points).unwrap();
        telemetry.append_points("old", &points[..3]).unwrap();
        append(&telemetry, "job/algo-1", &[(3, "old".to_owned())]);
        append(&telemetry, "job/algo-1", &[(4, "old".to_owned()), (5, "new".to_owned())]);
        telemetry.tidy(9, &Bounds { bytes: u64::MAX, oldest_ms: 5 }).unwrap();
        assert_eq!(count(&telemetry, "job/algo-1"), 2, "a block goes when all its lines may");
        let stream = &telemetry.streams("job/", None, 9).unwrap()[0];
        assert_eq!((stream.first_ms, stream.last_ms, stream.lines), (Some(4), Some(5), 3));
        assert_eq!(telemetry.read_points("job", "loss", 0, 99).unwrap().len(), 4);
        assert_eq!(telemetry.metrics("old").unwrap(), Vec::<String>::new());
    }
}
