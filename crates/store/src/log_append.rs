//! The ends of log streams, where lines are appended.

use rusqlite::{Connection, OptionalExtension, params};

use crate::clock::now_ms;
use crate::log_block::BlockWriter;
use crate::log_line::counted;
use crate::log_sealing::SEGMENT_BYTES;
use crate::{StoreError, TRAINING_JOBS, Telemetry};

/// Lines for the end of a log stream, which is made when it does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogLines {
    /// Its name.
    pub stream: String,
    /// When (milliseconds since the epoch) and what.
    pub lines: Vec<(u64, String)>,
    /// They are the server's or the agent's own: a job that is past its quota has some room for
    /// them.
    pub is_own: bool,
}

impl Telemetry {
    /// Appends lines that come from no report.
    ///
    /// # Errors
    /// The storage's.
    pub fn append_logs(&self, logs: &[LogLines]) -> Result<(), StoreError> {
        let now = now_ms();
        let mut is_due = false;
        self.database.write_beside_reserve(|tx| {
            for LogLines { stream, lines, .. } in logs {
                is_due |= Stream::find(tx, TRAINING_JOBS, stream, now)?.append(tx, &borrowed(lines), now)?;
            }
            Ok(())
        })?;
        self.sealer.wake_if(is_due);
        Ok(())
    }
}

pub(crate) fn borrowed(lines: &[(u64, String)]) -> Vec<(u64, &str)> {
    lines.iter().map(|(at_ms, text)| (*at_ms, text.as_str())).collect()
}

/// A log stream whose end is written.
pub(crate) struct Stream {
    pub(crate) id: i64,
    lines: u64,
    pub(crate) dropped: u64,
}

impl Stream {
    /// The stream of this name, made if there is none.
    pub(crate) fn find(tx: &Connection, group: &str, name: &str, now: u64) -> Result<Self, StoreError> {
        let select = "SELECT id, lines, dropped FROM log_stream WHERE log_group = ? AND name = ?";
        let read = |row: &rusqlite::Row<'_>| Ok(Self { id: row.get(0)?, lines: row.get(1)?, dropped: row.get(2)? });
        if let Some(found) = tx.prepare_cached(select)?.query_row([group, name], read).optional()? {
            return Ok(found);
        }
        let insert = "INSERT INTO log_stream (log_group, name, created_ms) VALUES (?, ?, ?)";
        tx.prepare_cached(insert)?.execute(params![group, name, now])?;
        Ok(Self { id: tx.last_insert_rowid(), lines: 0, dropped: 0 })
    }

    /// Appends a block of lines; returns whether the lines outside segments are enough for one.
    pub(crate) fn append(&mut self, tx: &Connection, lines: &[(u64, &str)], now: u64) -> Result<bool, StoreError> {
        let mut block = BlockWriter::default();
        lines.iter().for_each(|(at_ms, text)| block.push(*at_ms, now, text));
        let Some(block) = block.take() else { return Ok(false) };
        let bytes: u64 = lines.iter().map(|(_, text)| counted(text)).sum();
        let insert = "INSERT INTO log_block (stream, position, lines, first_ms, last_ms, ingested_ms, bytes, body) \
                      VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
        let row = params![self.id, self.lines, block.lines, block.first_ms, block.last_ms, now, bytes, block.bytes];
        tx.prepare_cached(insert)?.execute(row)?;
        self.lines += block.lines;
        let update = "UPDATE log_stream SET lines = ?2, first_ms = min(coalesce(first_ms, ?3), ?3), last_ms = \
                      max(coalesce(last_ms, ?4), ?4),
            ingested_ms = ?5, bytes = bytes + ?6, tail_bytes = tail_bytes + ?7 WHERE id = ?1 RETURNING tail_bytes";
        let row = params![self.id, self.lines, block.first_ms, block.last_ms, now, bytes, block.bytes.len()];
        let tail: u64 = tx.prepare_cached(update)?.query_row(row, |row| row.get(0))?;
        Ok(tail >= SEGMENT_BYTES)
    }
}
