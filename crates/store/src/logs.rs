//! Log streams: reading their lines.

use std::ops::ControlFlow;

use rusqlite::{Connection, OptionalExtension, params};

use crate::log_block::read_block;
use crate::{LINE_OVERHEAD, LogEvent, StoreError, TRAINING_JOBS, Telemetry};

/// How often a read begins again because a segment was removed under it.
const MAX_TRIES: usize = 5;

/// Which lines to read. A *position* is a place between two lines: `n` has `n` lines before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogQuery {
    /// The log group's name.
    pub group: String,
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
    /// Most bytes of text to return, each line counted with [`LINE_OVERHEAD`] more; a longer line
    /// comes alone.
    pub max_bytes: usize,
}

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
            group: TRAINING_JOBS.to_owned(),
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
    /// Position before the first line, from which to go on backward; where the query started if
    /// nothing was found.
    pub backward: u64,
    /// Position after the last line, from which to go on forward; where the query started if
    /// nothing was found.
    pub forward: u64,
}

impl Telemetry {
    /// Lines of a stream; `None` if there is no such stream.
    ///
    /// # Errors
    /// The storage's.
    pub fn read_logs(&self, query: &LogQuery) -> Result<Option<LogPage>, StoreError> {
        let mut tries = 1;
        loop {
            // A segment that is still missing then was not deleted meanwhile, but is lost.
            let is_last = tries == MAX_TRIES;
            if let Some(result) = self.database.read(|connection| self.try_read(connection, query, is_last))? {
                return Ok(result);
            }
            tries += 1;
        }
    }

    /// `None` if a segment is missing and this is not the last try: it was deleted after this view
    /// of the database was taken.
    fn try_read(
        &self,
        connection: &Connection,
        query: &LogQuery,
        is_last: bool,
    ) -> Result<Option<Option<LogPage>>, StoreError> {
        let find = "SELECT id, lines FROM log_stream WHERE log_group = ? AND name = ?";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found = connection.prepare_cached(find)?.query_row([&query.group, &query.stream], row).optional()?;
        let Some((stream, lines)): Option<(i64, u64)> = found else { return Ok(Some(None)) };
        let start = match query.direction {
            LogDirection::Forward => query.from.unwrap_or(0),
            LogDirection::Backward => query.from.unwrap_or(lines),
        };
        let mut page = PageWriter { query, start: start.min(lines), left: query.max_bytes, events: Vec::new() };
        // Lines of the first layout are before all blocks.
        let is_whole = match query.direction {
            LogDirection::Forward => match page.old_lines(connection, stream)? {
                ControlFlow::Continue(()) => page.blocks(self, connection, stream, is_last)?,
                ControlFlow::Break(()) => Some(()),
            },
            LogDirection::Backward => {
                let read = page.blocks(self, connection, stream, is_last)?;
                if read.is_some() && !page.is_full() {
                    let _ = page.old_lines(connection, stream)?;
                }
                read
            }
        };
        Ok(is_whole.map(|()| Some(page.finish())))
    }
}

/// The line that stands in the place of so many lines from a position on which cannot be read.
pub(crate) fn damaged_lines(position: u64, lines: u64) -> String {
    format!(
        "[shoal] lines {} to {} are damaged and cannot be read; `shoal verify` says what else is",
        position + 1,
        position + lines
    )
}

/// The lines of a page, in the order in which they are found.
struct PageWriter<'a> {
    query: &'a LogQuery,
    start: u64,
    left: usize,
    events: Vec<LogEvent>,
}

impl PageWriter<'_> {
    fn is_full(&self) -> bool {
        self.events.len() >= self.query.limit || (self.left == 0 && !self.events.is_empty())
    }

    /// Takes a line if the query asks for it; breaks when the page is full. A line that is longer
    /// than a page comes alone.
    fn push(&mut self, event: LogEvent) -> ControlFlow<()> {
        let is_beyond = match self.query.direction {
            LogDirection::Forward => event.position < self.start,
            LogDirection::Backward => event.position >= self.start,
        };
        let (from_ms, to_ms) = (self.query.start_ms.unwrap_or(0), self.query.end_ms.unwrap_or(u64::MAX));
        if is_beyond || event.at_ms < from_ms || event.at_ms >= to_ms {
            return ControlFlow::Continue(());
        }
        if self.is_full() {
            return ControlFlow::Break(());
        }
        let taken = event.text.len().saturating_add(LINE_OVERHEAD);
        if taken > self.left && !self.events.is_empty() {
            self.left = 0;
            return ControlFlow::Break(());
        }
        self.left = self.left.saturating_sub(taken);
        self.events.push(event);
        if self.is_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Comparison, order and first place of rows in this direction.
    fn order(&self) -> (&'static str, &'static str) {
        match self.query.direction {
            LogDirection::Forward => (">=", "ASC"),
            LogDirection::Backward => ("<", "DESC"),
        }
    }

    fn times(&self) -> (i64, i64) {
        let time = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
        (time(self.query.start_ms.unwrap_or(0)), time(self.query.end_ms.unwrap_or(u64::MAX)))
    }

    /// Lines of the first layout.
    fn old_lines(&mut self, connection: &Connection, stream: i64) -> Result<ControlFlow<()>, StoreError> {
        let (beyond, order) = self.order();
        let sql = format!(
            "SELECT position, at_ms, ingested_ms, text FROM line
             WHERE stream = ? AND position {beyond} ? AND at_ms >= ? AND at_ms < ? ORDER BY position {order}"
        );
        let (from_ms, to_ms) = self.times();
        let mut select = connection.prepare_cached(&sql)?;
        let mut rows = select.query(params![stream, self.start, from_ms, to_ms])?;
        while let Some(row) = rows.next()? {
            let event =
                LogEvent { position: row.get(0)?, at_ms: row.get(1)?, ingested_ms: row.get(2)?, text: row.get(3)? };
            if self.push(event).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Lines of blocks, one line in the place of each that is damaged; `None` if a segment is
    /// missing and this is not the last try.
    fn blocks(
        &mut self,
        telemetry: &Telemetry,
        connection: &Connection,
        stream: i64,
        is_last: bool,
    ) -> Result<Option<()>, StoreError> {
        let (beyond, order) = self.order();
        // Forward, the start may be inside the block before it.
        let start: u64 = match self.query.direction {
            LogDirection::Backward => self.start,
            LogDirection::Forward => {
                let holds = "SELECT coalesce(max(position), 0) FROM log_block WHERE stream = ? AND position <= ?";
                connection.prepare_cached(holds)?.query_row(params![stream, self.start], |row| row.get(0))?
            }
        };
        let sql = format!(
            "SELECT position, segment, offset, length, body, lines, first_ms, ingested_ms FROM log_block
             WHERE stream = ? AND position {beyond} ? AND last_ms >= ? AND first_ms < ? ORDER BY position {order}"
        );
        let (from_ms, to_ms) = self.times();
        let mut select = connection.prepare_cached(&sql)?;
        let mut file = connection.prepare_cached("SELECT file FROM log_segment WHERE id = ?")?;
        let mut rows = select.query(params![stream, start, from_ms, to_ms])?;
        while let Some(row) = rows.next()? {
            let position: u64 = row.get(0)?;
            let events = match row.get::<_, Option<i64>>(1)? {
                None => {
                    let body = row.get_ref(4)?.as_blob().map_err(rusqlite::Error::from)?;
                    read_block(body, position)
                }
                Some(segment) => {
                    let file: String = file.query_row([segment], |row| row.get(0))?;
                    let (offset, length): (u64, usize) = (row.get(2)?, row.get(3)?);
                    match telemetry.segments.read(&file, offset, length) {
                        Ok(Some(block)) => read_block(&block, position),
                        Ok(None) if is_last => None,
                        Ok(None) => return Ok(None),
                        Err(StoreError::Corrupt { .. }) => None,
                        Err(error) => return Err(error),
                    }
                }
            };
            let lines: u64 = row.get(5)?;
            // So many lines it must be, lest those after them are told twice or not at all.
            let sound = events.filter(|events| events.len() as u64 == lines);
            let at_ms: u64 = row.get(6)?;
            let events = sound.unwrap_or(vec![LogEvent {
                position,
                at_ms: at_ms.max(self.query.start_ms.unwrap_or(0)),
                ingested_ms: row.get(7)?,
                text: damaged_lines(position, lines),
            }]);
            let is_full = match self.query.direction {
                LogDirection::Forward => events.into_iter().try_for_each(|event| self.push(event)),
                LogDirection::Backward => events.into_iter().rev().try_for_each(|event| self.push(event)),
            };
            if is_full.is_break() {
                break;
            }
        }
        Ok(Some(()))
    }

    fn finish(mut self) -> LogPage {
        if self.query.direction == LogDirection::Backward {
            self.events.reverse();
        }
        let backward = self.events.first().map_or(self.start, |event| event.position);
        let forward = self.events.last().map_or(self.start, |event| event.position + 1);
        LogPage { events: self.events, backward, forward }
    }
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
        telemetry.append_logs(&[LogLines { stream: "s".to_owned(), lines, ..LogLines::default() }]).unwrap();
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
            let query =
                LogQuery { stream: "s".to_owned(), from, direction, start_ms, end_ms, limit, ..LogQuery::default() };
            let page = telemetry.read_logs(&query).unwrap().unwrap();
            let text: String = page.events.iter().map(|event| event.text.as_str()).collect();
            assert_eq!((text.as_str(), page.backward, page.forward), expected, "{query:?}");
        }
    }

    #[test]
    fn damaged_blocks_are_one_line_and_the_rest_is_read() {
        for in_segment in [false, true] {
            let (temp, telemetry) = telemetry();
            let path = temp.path().join("telemetry.db");
            for block in 0..3 {
                let lines = (0..100).map(|n| (100 * block + n, format!("{block}-{n} {:1000}", ""))).collect();
                telemetry.append_logs(&[LogLines { stream: "s".to_owned(), lines, ..LogLines::default() }]).unwrap();
            }
            if in_segment {
                telemetry.tidy(u64::MAX, &crate::Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
            }
            let damage = |telemetry: &Telemetry| {
                telemetry
                    .database
                    .write(|tx| Ok(tx.execute("UPDATE log_block SET body = x'ff00ff' WHERE position = 100", [])?))
                    .unwrap()
            };
            let mut expected: Vec<String> = (0..100).map(|n| format!("0-{n}")).collect();
            if in_segment {
                let segment = std::fs::read_dir(temp.path().join("logs")).unwrap().next().unwrap().unwrap().path();
                let place = "SELECT position, lines, offset, length FROM log_block ORDER BY position LIMIT 1 OFFSET 1";
                let row = |row: &rusqlite::Row<'_>| {
                    Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?, row.get::<_, usize>(2)?, row.get::<_, usize>(3)?))
                };
                let (position, lines, offset, length) = telemetry
                    .database
                    .read(|connection| Ok(connection.prepare_cached(place)?.query_row([], row)?))
                    .unwrap();
                let mut bytes = std::fs::read(&segment).unwrap();
                // Of spaces alone a flipped bit may not change what is unpacked.
                bytes[offset + length / 2..offset + length].fill(0);
                std::fs::write(&segment, bytes).unwrap();
                let line = |n: u64| format!("{}-{}", n / 100, n % 100);
                expected = (0..position).map(line).collect();
                expected.push(damaged_lines(position, lines));
                expected.extend((position + lines..300).map(line));
            } else {
                assert_eq!(damage(&telemetry), 1);
                expected.push(
                    "[shoal] lines 101 to 200 are damaged and cannot be read; `shoal verify` says what else is"
                        .to_owned(),
                );
                expected.extend((0..100).map(|n| format!("2-{n}")));
            }
            for limit in [7, 1000] {
                let (mut from, mut found) = (None, Vec::new());
                loop {
                    let query = LogQuery { stream: "s".to_owned(), from, limit, ..LogQuery::default() };
                    let page = telemetry.read_logs(&query).unwrap().unwrap();
                    if page.events.is_empty() {
                        break;
                    }
                    from = Some(page.forward);
                    found.extend(page.events.into_iter().map(|event| event.text.trim().to_owned()));
                }
                assert_eq!(found, expected, "{in_segment} {limit}");
            }
            // What can be compressed is, and `verify` names the rest.
            telemetry.tidy(u64::MAX, &crate::Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
            let damages = crate::verify_logs::verify_logs(&path, &temp.path().join("logs")).unwrap();
            assert_eq!(damages.len(), 1, "{damages:?}");
            assert!(
                damages[0].name == "log stream s of /aws/sagemaker/TrainingJobs"
                    && damages[0].detail.contains("are damaged"),
                "{damages:?}"
            );
            if in_segment {
                std::fs::rename(temp.path().join("logs"), temp.path().join("lost")).unwrap();
                let page =
                    telemetry.read_logs(&LogQuery { stream: "s".to_owned(), ..LogQuery::default() }).unwrap().unwrap();
                assert!(
                    page.events.len() > 1 && page.events.iter().all(|event| event.text.starts_with("[shoal] lines ")),
                    "lost files"
                );
            }
        }
    }

    #[test]
    fn streams_are_found_by_prefix_and_dropped() {
        let (_temp, telemetry) = telemetry();
        let append = |stream: &str, lines: Vec<(u64, String)>| {
            telemetry.append_logs(&[LogLines { stream: stream.to_owned(), lines, ..LogLines::default() }]).unwrap();
        };
        append("job/algo-2", vec![(7, "x".to_owned()), (3, "y".to_owned())]);
        append("job/algo-1", vec![]);
        append("job2/algo-1", vec![(1, "z".to_owned())]);
        append("job/algo-2", vec![(5, "w".to_owned())]);
        let streams = telemetry.streams("job/", None, 9).unwrap();
        let shown: Vec<_> = streams.iter().map(|s| (s.name.as_str(), s.lines, s.first_ms, s.last_ms)).collect();
        assert_eq!(shown, [("job/algo-1", 0, None, None), ("job/algo-2", 3, Some(3), Some(7))]);
        telemetry.delete_streams("job/").unwrap();
        assert_eq!(telemetry.streams("", None, 9).unwrap().len(), 1);
        assert_eq!(
            telemetry.read_logs(&LogQuery { stream: "job/algo-2".to_owned(), ..LogQuery::default() }).unwrap(),
            None
        );
        // A new stream of an old name starts empty.
        append("job/algo-2", vec![(9, "new".to_owned())]);
        assert_eq!(telemetry.streams("job/", None, 9).unwrap()[0].lines, 1);
    }
}
