//! Checks the log lines of a data directory: each block, in `telemetry.db` or in a compressed file,
//! must be what was written. Reads only.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};

use crate::StoreError;
use crate::log_block::read_block;
use crate::log_segments::Segments;
use crate::logs::damaged_lines;
use crate::verify::{Damage, open};

/// From this format on lines are blocks.
const FORMAT_WITH_BLOCKS: i64 = 4;

/// Where a block is.
struct Place {
    row: i64,
    position: u64,
    lines: u64,
    segment: Option<i64>,
}

/// Damaged lines of the database at this path, whose compressed files are in this directory.
///
/// # Errors
/// The database, or a file, cannot be read.
pub(crate) fn verify_logs(database: &Path, segments: &Path) -> Result<Vec<Damage>, StoreError> {
    let connection = open(database)?;
    let format: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let mut damages = Vec::new();
    if format < FORMAT_WITH_BLOCKS {
        return Ok(damages);
    }
    let segments = Segments::at(segments);
    let mut streams = connection.prepare("SELECT id, log_group, name FROM log_stream ORDER BY log_group, name")?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let streams: Vec<(i64, String, String)> = streams.query_map([], row)?.collect::<rusqlite::Result<_>>()?;
    let mut blocks = connection
        .prepare("SELECT rowid, position, lines, segment FROM log_block WHERE stream = ? ORDER BY position")?;
    for (stream, group, name) in streams {
        let place = |row: &rusqlite::Row<'_>| {
            Ok(Place { row: row.get(0)?, position: row.get(1)?, lines: row.get(2)?, segment: row.get(3)? })
        };
        for place in blocks.query_map([stream], place)?.collect::<rusqlite::Result<Vec<_>>>()? {
            // A running server may have moved or removed it meanwhile.
            if !is_sound(&connection, &segments, &place)? && is_present(&connection, &place)? {
                let detail = damaged_lines(place.position, place.lines).trim_start_matches("[shoal] ").to_owned();
                let detail = detail.split(" and ").next().unwrap_or_default().to_owned();
                damages.push(Damage { name: format!("log stream {name} of {group}"), detail });
            }
        }
    }
    Ok(damages)
}

fn is_sound(connection: &Connection, segments: &Segments, place: &Place) -> Result<bool, StoreError> {
    let sql = "SELECT body, file, offset, length FROM log_block LEFT JOIN log_segment ON log_segment.id = segment \
               WHERE log_block.rowid = ?";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    type Found = (Option<Vec<u8>>, Option<String>, Option<u64>, Option<usize>);
    let found: Option<Found> = connection.prepare_cached(sql)?.query_row([place.row], row).optional()?;
    let block = match found {
        Some((Some(body), ..)) => Some(body),
        Some((None, Some(file), Some(offset), Some(length))) => match segments.read(&file, offset, length) {
            Err(StoreError::Corrupt { .. }) => None,
            read => read?,
        },
        _ => None,
    };
    let events = block.and_then(|block| read_block(&block, place.position));
    Ok(events.is_some_and(|events| events.len() as u64 == place.lines))
}

fn is_present(connection: &Connection, place: &Place) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM log_block WHERE rowid = ? AND position = ? AND lines = ? AND segment IS ?";
    Ok(connection.prepare_cached(sql)?.exists(params![place.row, place.position, place.lines, place.segment])?)
}
