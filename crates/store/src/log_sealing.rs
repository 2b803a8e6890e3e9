//! From the database to segments: a stream's newest lines are blocks in `telemetry.db`, and when
//! there are enough of them they become a compressed file. The file is durable before the
//! transaction that puts its blocks' places where their bytes were, so a crash leaves either the
//! bytes in the database, or the places and the file; a file without places is removed at the next
//! start.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::{Connection, OptionalExtension, params};

use crate::log_block::{Block, BlockWriter, read_block};
use crate::log_line::counted;
use crate::log_segments::Segments;
use crate::sqlite::Database;
use crate::{LogEvent, StoreError};

/// Encoded lines of a stream that are worth a file.
pub(crate) const SEGMENT_BYTES: u64 = 4 << 20;

/// The same of a stream that gets no more lines at present; the index `log_stream_to_seal` has this
/// number.
const IDLE_SEGMENT_BYTES: u64 = 64 << 10;

/// Encoded lines of a compressed block: what is read for one line of it.
const BLOCK_BYTES: usize = 64 << 10;

/// Lines of the first layout that are moved in one transaction.
const MOVED_LINES: usize = 20_000;

/// Removes segments that no row names.
pub(crate) fn sweep(database: &Database, segments: &Segments) -> Result<(), StoreError> {
    let named: HashSet<String> = database.read(|connection| {
        let mut select = connection.prepare_cached("SELECT file FROM log_segment")?;
        Ok(select.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    })?;
    segments.retain(&named)
}

/// Makes segments in a thread of its own, which runs while there is something to do.
#[derive(Debug)]
pub(crate) struct Sealer {
    database: Arc<Database>,
    segments: Segments,
    is_running: Arc<AtomicBool>,
}

impl Sealer {
    pub(crate) fn new(database: &Arc<Database>, segments: &Segments) -> Self {
        Self { database: Arc::clone(database), segments: segments.clone(), is_running: Arc::default() }
    }

    /// Starts the thread if it is due and not running. What cannot be sealed now stays in the
    /// database until the next call.
    pub(crate) fn wake_if(&self, is_due: bool) {
        if !is_due || self.is_running.swap(true, Ordering::SeqCst) {
            return;
        }
        let (database, segments, is_running) =
            (Arc::clone(&self.database), self.segments.clone(), Arc::clone(&self.is_running));
        let started = thread::Builder::new().name("seal".to_owned()).spawn(move || {
            // A full disk, or one that fails: the lines are where they were.
            let _ = seal_due(&database, &segments);
            is_running.store(false, Ordering::SeqCst);
        });
        if started.is_err() {
            self.is_running.store(false, Ordering::SeqCst);
        }
    }
}

/// Seals every stream that has enough lines in the database.
pub(crate) fn seal_due(database: &Database, segments: &Segments) -> Result<(), StoreError> {
    seal_all(database, segments, SEGMENT_BYTES, u64::MAX)
}

/// Seals also streams that have less and got their last line before this time.
pub(crate) fn seal_idle(database: &Database, segments: &Segments, before_ms: u64) -> Result<(), StoreError> {
    seal_all(database, segments, IDLE_SEGMENT_BYTES, before_ms)
}

fn seal_all(database: &Database, segments: &Segments, least: u64, before_ms: u64) -> Result<(), StoreError> {
    let before_ms = i64::try_from(before_ms).unwrap_or(i64::MAX);
    let mut last = 0;
    loop {
        let due: Vec<i64> = database.read(|connection| {
            let sql = "SELECT id FROM log_stream WHERE tail_bytes >= 65536 AND tail_bytes >= ? AND ingested_ms < ? AND \
                       id > ? ORDER BY id LIMIT 100";
            let mut select = connection.prepare_cached(sql)?;
            Ok(select.query_map(params![least, before_ms, last], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
        })?;
        let Some(newest) = due.last() else { return Ok(()) };
        last = *newest;
        for stream in due {
            while seal(database, segments, stream)? {
                let sql = "SELECT tail_bytes >= 65536 AND tail_bytes >= ? FROM log_stream WHERE id = ?";
                let is_due = |connection: &Connection| {
                    Ok(connection
                        .prepare_cached(sql)?
                        .query_row(params![least, stream], |row| row.get(0))
                        .optional()?)
                };
                if database.read(is_due)? != Some(true) {
                    break;
                }
            }
        }
    }
}

/// Makes a segment of a stream's oldest blocks in the database; returns whether there were any.
fn seal(database: &Database, segments: &Segments, stream: i64) -> Result<bool, StoreError> {
    let (mut events, mut tail_bytes) = (Vec::new(), 0);
    database.read(|connection| {
        let sql = "SELECT position, body FROM log_block WHERE stream = ? AND body IS NOT NULL ORDER BY position";
        let mut select = connection.prepare_cached(sql)?;
        let mut rows = select.query([stream])?;
        while tail_bytes < SEGMENT_BYTES
            && let Some(row) = rows.next()?
        {
            let (position, body) = (row.get(0)?, row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?);
            match read_block(body, position) {
                Some(lines) => events.extend(lines),
                // Damaged lines stay where they are; those before and after them become segments of
                // their own.
                None if events.is_empty() => continue,
                None => break,
            }
            tail_bytes += body.len() as u64;
        }
        Ok(())
    })?;
    let count_out =
        "DELETE FROM log_block WHERE stream = ?1 AND position BETWEEN ?2 AND ?3 AND body IS NOT NULL RETURNING lines";
    let tail = "UPDATE log_stream SET tail_bytes = max(tail_bytes - ?2, 0) WHERE id = ?1";
    replace(database, segments, stream, &events, |tx, first, last| {
        let mut delete = tx.prepare_cached(count_out)?;
        let lines: u64 = delete
            .query_map(params![stream, first, last], |row| row.get::<_, u64>(0))?
            .sum::<rusqlite::Result<u64>>()?;
        tx.prepare_cached(tail)?.execute(params![stream, tail_bytes])?;
        Ok(lines)
    })
}

/// Makes a segment of lines that lie one row each in the first layout's table; returns whether
/// there were any.
pub(crate) fn move_old_lines(database: &Database, segments: &Segments) -> Result<bool, StoreError> {
    let mut events = Vec::new();
    let stream = database.read(|connection| {
        let sql = "SELECT stream, position, at_ms, ingested_ms, text FROM line ORDER BY stream, position";
        let mut select = connection.prepare_cached(sql)?;
        let mut rows = select.query([])?;
        let (mut of, mut bytes) = (None, 0);
        while events.len() < MOVED_LINES
            && bytes < SEGMENT_BYTES
            && let Some(row) = rows.next()?
        {
            let stream: i64 = row.get(0)?;
            if *of.get_or_insert(stream) != stream {
                break;
            }
            let event =
                LogEvent { position: row.get(1)?, at_ms: row.get(2)?, ingested_ms: row.get(3)?, text: row.get(4)? };
            bytes += event.text.len() as u64;
            events.push(event);
        }
        Ok(of)
    })?;
    let Some(stream) = stream else { return Ok(false) };
    let bytes: u64 = events.iter().map(|event| counted(&event.text)).sum();
    replace(database, segments, stream, &events, |tx, first, last| {
        let delete = "DELETE FROM line WHERE stream = ? AND position BETWEEN ? AND ?";
        let lines = tx.prepare_cached(delete)?.execute(params![stream, first, last])?;
        tx.prepare_cached("UPDATE log_stream SET bytes = bytes + ? WHERE id = ?")?.execute(params![bytes, stream])?;
        Ok(lines as u64)
    })
}

/// Writes these lines of a stream to a segment and puts its blocks in their place: `remove` deletes
/// the rows from the first to the last position and returns how many lines they had. A stream that
/// was deleted meanwhile stays deleted.
fn replace(
    database: &Database,
    segments: &Segments,
    stream: i64,
    events: &[LogEvent],
    remove: impl Fn(&Connection, u64, u64) -> Result<u64, StoreError>,
) -> Result<bool, StoreError> {
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(false) };
    let mut writer = segments.writer()?;
    let mut places: Vec<(u64, u64, Block, (u64, u64))> = Vec::new();
    let mut block = BlockWriter::default();
    let (mut position, mut bytes) = (first.position, 0);
    for (at, event) in events.iter().enumerate() {
        block.push(event.at_ms, event.ingested_ms, &event.text);
        bytes += counted(&event.text);
        if (block.len() >= BLOCK_BYTES || at + 1 == events.len())
            && let Some(mut complete) = block.take()
        {
            let place = writer.push(&std::mem::take(&mut complete.bytes));
            places.push((position, std::mem::take(&mut bytes), complete, place));
            position = event.position + 1;
        }
    }
    let (file, size) = writer.finish()?;
    let last_ms = places.iter().map(|(_, _, block, _)| block.last_ms).max();
    let replaced = database.write_beside_reserve(|tx| {
        if remove(tx, first.position, last.position)? != events.len() as u64 {
            return Err(StoreError::LogGone(stream));
        }
        let insert = "INSERT INTO log_segment (stream, file, bytes, last_ms, ingested_ms) VALUES (?, ?, ?, ?, ?)";
        tx.prepare_cached(insert)?.execute(params![stream, file, size, last_ms, last.ingested_ms])?;
        let segment = tx.last_insert_rowid();
        let insert = "INSERT INTO log_block (stream, position, lines, first_ms, last_ms, ingested_ms, bytes, segment, \
                      offset, length)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let mut insert = tx.prepare_cached(insert)?;
        for (position, bytes, block, (offset, length)) in &places {
            let Block { lines, first_ms, last_ms, ingested_ms, .. } = block;
            let place = (segment, offset, length);
            insert.execute(params![
                stream,
                position,
                lines,
                first_ms,
                last_ms,
                ingested_ms,
                bytes,
                place.0,
                place.1,
                place.2
            ])?;
        }
        Ok(())
    });
    match replaced {
        Ok(()) => Ok(true),
        Err(error) => {
            // After an fsync that failed the row may be there at the next start.
            if !matches!(error, StoreError::NotDurable(_)) {
                segments.remove([&file]);
            }
            if matches!(error, StoreError::LogGone(_)) { Ok(false) } else { Err(error) }
        }
    }
}
