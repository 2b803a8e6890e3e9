//! Log streams: reading and dropping them.

use rusqlite::{OptionalExtension, params};

use crate::{StoreError, Telemetry};

/// A log stream. Times are milliseconds since the epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// When its first line came in.
    pub created_ms: u64,
    /// Number of lines.
    pub lines: u64,
    /// Time of its earliest line; `None` if it has none.
    pub first_ms: Option<u64>,
    /// Time of its latest line.
    pub last_ms: Option<u64>,
    /// When its last line came in.
    pub ingested_ms: Option<u64>,
}

/// A line of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEvent {
    /// When it was written, in milliseconds since the epoch, as its writer says.
    pub at_ms: u64,
    /// When it came in.
    pub ingested_ms: u64,
    /// The line.
    pub text: String,
    /// Lines before it in its stream.
    pub position: u64,
}

/// Which lines to read. A *position* is a place between two lines: `n` has `n` lines before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// The stream's name.
    pub stream: String,
    /// Start here; `None` is the start of the stream for forward reads, its end for backward ones.
    pub from: Option<u64>,
    /// Which way to go from there.
    pub direction: LogDirection,
    /// Only lines at or after this time.
    pub start_ms: Option<u64>,
    /// Only lines before this time.
    pub end_ms: Option<u64>,
    /// Most lines to return.
    pub limit: usize,
    /// Most bytes of text to return, each line counted with [`LINE_OVERHEAD`] more; a longer line comes alone.
    pub max_bytes: usize,
}

/// Bytes that a line counts beside its text, as at AWS.
pub const LINE_OVERHEAD: usize = 26;

/// Which way to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogDirection {
    /// Lines after the position.
    Forward,
    /// Lines before the position, the nearest ones.
    Backward,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self {
            stream: String::new(),
            from: None,
            direction: LogDirection::Forward,
            start_ms: None,
            end_ms: None,
            limit: 10_000,
            max_bytes: usize::MAX,
        }
    }
}

/// What a query found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// Always in the stream's order.
    pub events: Vec<LogEvent>,
    /// Position before the first line, from which to go on backward; where the query started if nothing was found.
    pub backward: u64,
    /// Position after the last line, from which to go on forward; where the query started if nothing was found.
    pub forward: u64,
}

impl Telemetry {
    /// At most `limit` streams whose name starts with `prefix` and comes after `after`, by name.
    ///
    /// # Errors
    /// The storage's.
    pub fn streams(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<StreamInfo>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT name, created_ms, lines, first_ms, last_ms, ingested_ms FROM stream WHERE name >= ? AND name > ? ORDER BY name LIMIT ?";
            let mut select = connection.prepare_cached(sql)?;
            let mut rows = select.query(params![prefix, after.unwrap_or_default(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
            let mut streams = Vec::new();
            while let Some(row) = rows.next()? {
                let name: String = row.get(0)?;
                if !name.starts_with(prefix) {
                    break;
                }
                streams.push(StreamInfo {
                    name,
                    created_ms: row.get(1)?,
                    lines: row.get(2)?,
                    first_ms: row.get(3)?,
                    last_ms: row.get(4)?,
                    ingested_ms: row.get(5)?,
                });
            }
            Ok(streams)
        })
    }

    /// Lines of a stream; `None` if there is no such stream.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_logs(&self, query: &LogQuery) -> Result<Option<LogPage>, StoreError> {
        self.database.read(|connection| {
            let find = "SELECT id, lines FROM stream WHERE name = ?";
            let found = connection.prepare_cached(find)?.query_row([&query.stream], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((stream, lines)): Option<(i64, u64)> = found else { return Ok(None) };
            let (beyond, order, start) = match query.direction {
                LogDirection::Forward => (">=", "ASC", query.from.unwrap_or(0)),
                LogDirection::Backward => ("<", "DESC", query.from.unwrap_or(lines)),
            };
            let start = start.min(lines);
            let sql = format!(
                "SELECT position, at_ms, ingested_ms, text FROM line
                 WHERE stream = ? AND position {beyond} ? AND at_ms >= ? AND at_ms < ? ORDER BY position {order} LIMIT ?"
            );
            let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
            let (from_ms, to_ms) = (time(query.start_ms.unwrap_or(0)), time(query.end_ms.unwrap_or(u64::MAX)));
            let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
            let mut select = connection.prepare_cached(&sql)?;
            let rows = select.query_map(params![stream, start, from_ms, to_ms, limit], |row| {
                Ok(LogEvent { position: row.get(0)?, at_ms: row.get(1)?, ingested_ms: row.get(2)?, text: row.get(3)? })
            })?;
            let mut rows = within(rows, query.max_bytes)?;
            if query.direction == LogDirection::Backward {
                rows.reverse();
            }
            let backward = rows.first().map_or(start, |event| event.position);
            let forward = rows.last().map_or(start, |event| event.position + 1);
            Ok(Some(LogPage { events: rows, backward, forward }))
        })
    }

    /// Drops the streams whose name starts with `prefix`, with their lines.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_streams(&self, prefix: &str) -> Result<(), StoreError> {
        let names = self.streams(prefix, None, usize::MAX)?;
        self.database.write(|tx| {
            for StreamInfo { name, .. } in &names {
                tx.prepare_cached("DELETE FROM line WHERE stream = (SELECT id FROM stream WHERE name = ?)")?.execute([name])?;
                tx.prepare_cached("DELETE FROM stream WHERE name = ?")?.execute([name])?;
            }
            Ok(())
        })
    }
}

/// As many lines as fit, at least one; what does not fit is not read.
fn within(rows: impl Iterator<Item = rusqlite::Result<LogEvent>>, max_bytes: usize) -> rusqlite::Result<Vec<LogEvent>> {
    let (mut fitting, mut left) = (Vec::new(), max_bytes);
    for row in rows {
        let row = row?;
        let taken = row.text.len().saturating_add(LINE_OVERHEAD);
        if taken > left && !fitting.is_empty() {
            break;
        }
        left = left.saturating_sub(taken);
        fitting.push(row);
    }
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogLines;

    fn telemetry() -> (tempfile::TempDir, Telemetry) {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        (temp, telemetry)
    }

    #[test]
    fn pages_go_both_ways() {
        let (_temp, telemetry) = telemetry();
        let lines = (0..5).map(|n| (n * 10, n.to_string())).collect();
        telemetry.append_logs(&[LogLines { stream: "s".to_owned(), lines }]).unwrap();
        use LogDirection::{Backward, Forward};
        // From, direction, start, end, limit; the lines, backward and forward positions.
        for (from, direction, start_ms, end_ms, limit, expected) in [
            (None, Forward, None, None, 9, ("01234", 0, 5)),
            (None, Forward, None, None, 2, ("01", 0, 2)),
            (Some(2), Forward, None, None, 2, ("23", 2, 4)),
            (Some(5), Forward, None, None, 2, ("", 5, 5)),
            (Some(99), Forward, None, None, 2, ("", 5, 5)),
            (None, Backward, None, None, 2, ("34", 3, 5)),
            (Some(3), Backward, None, None, 2, ("12", 1, 3)),
            (Some(1), Backward, None, None, 2, ("0", 0, 1)),
            (Some(0), Backward, None, None, 2, ("", 0, 0)),
            (None, Forward, Some(10), Some(30), 9, ("12", 1, 3)),
            (None, Backward, Some(10), Some(30), 1, ("2", 2, 3)),
        ] {
            let query = LogQuery { stream: "s".to_owned(), from, direction, start_ms, end_ms, limit, ..LogQuery::default() };
            let page = telemetry.read_logs(&query).unwrap().unwrap();
            let text: String = page.events.iter().map(|event| event.text.as_str()).collect();
            assert_eq!((text.as_str(), page.backward, page.forward), expected, "{query:?}");
        }
    }

    #[test]
    fn streams_are_found_by_prefix_and_dropped() {
        let (_temp, telemetry) = telemetry();
        let append =
            |stream: &str, lines: Vec<(u64, String)>| telemetry.append_logs(&[LogLines { stream: stream.to_owned(), lines }]).unwrap();
        append("job/algo-2", vec![(7, "x".to_owned()), (3, "y".to_owned())]);
        append("job/algo-1", vec![]);
        append("job2/algo-1", vec![(1, "z".to_owned())]);
        append("job/algo-2", vec![(5, "w".to_owned())]);
        let streams = telemetry.streams("job/", None, 9).unwrap();
        let shown: Vec<_> = streams.iter().map(|s| (s.name.as_str(), s.lines, s.first_ms, s.last_ms)).collect();
        assert_eq!(shown, [("job/algo-1", 0, None, None), ("job/algo-2", 3, Some(3), Some(7))]);
        telemetry.delete_streams("job/").unwrap();
        assert_eq!(telemetry.streams("", None, 9).unwrap().len(), 1);
        assert_eq!(telemetry.read_logs(&LogQuery { stream: "job/algo-2".to_owned(), ..LogQuery::default() }).unwrap(), None);
        // A new stream of an old name starts empty.
        append("job/algo-2", vec![(9, "new".to_owned())]);
        assert_eq!(telemetry.streams("job/", None, 9).unwrap()[0].lines, 1);
    }
}
