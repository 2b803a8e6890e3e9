//! What the index has about contents in a store elsewhere: one row for each object that is long
//! enough to go there, in the transaction of the object's own row.

use rusqlite::{Connection, OptionalExtension, params};

use crate::object_writer::SMALL;
use crate::sqlite::Database;
use crate::{ObjectMeta, StoreError};

/// Waits to be sent; nothing of it was ever sent.
const WAITS: u8 = 0;
/// Being sent, or it was when the server ended.
const BEGUN: u8 = 1;
/// The store has it, and the local file may go.
const THERE: u8 = 2;
/// No object has it any more; the store's copy is to be removed.
const UNNAMED: u8 = 3;

/// A content that has to be sent or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) file: String,
    pub(super) size: u64,
    /// The upload in parts that was begun for it.
    pub(super) upload: Option<String>,
}

/// Whether an object of this length goes elsewhere.
pub(crate) fn is_sent(size: u64) -> bool {
    size > SMALL as u64
}

/// Notes that an object's content has to go elsewhere.
pub(crate) fn keep(connection: &Connection, meta: &ObjectMeta) -> Result<(), StoreError> {
    if is_sent(meta.size) {
        let insert = "INSERT INTO content_elsewhere (file, size, state) VALUES (?, ?, ?)";
        connection.prepare_cached(insert)?.execute(params![meta.id, meta.size, WAITS])?;
    }
    Ok(())
}

/// Notes that no object has this content any more.
pub(crate) fn forget(connection: &Connection, file: &str) -> Result<(), StoreError> {
    let delete = "DELETE FROM content_elsewhere WHERE file = ? AND state = ?";
    if connection.prepare_cached(delete)?.execute(params![file, WAITS])? == 0 {
        let update = "UPDATE content_elsewhere SET state = ? WHERE file = ?";
        connection.prepare_cached(update)?.execute(params![UNNAMED, file])?;
    }
    Ok(())
}

/// Notes all objects that are not noted: what was stored before there was a store elsewhere.
pub(super) fn adopt(index: &Database) -> Result<(), StoreError> {
    index.write(|tx| {
        let insert = "INSERT OR IGNORE INTO content_elsewhere (file, size, state) SELECT file, size, ?1 FROM object \
                      WHERE size > ?2 UNION ALL SELECT file, size, ?1 FROM version WHERE size > ?2";
        tx.prepare_cached(insert)?.execute(params![WAITS, SMALL as u64])?;
        Ok(())
    })
}

/// What waits to be sent.
pub(super) fn unsent(index: &Database) -> Result<Vec<Row>, StoreError> {
    select(index, "state < ?", THERE, u32::MAX)
}

/// What waits to be removed.
pub(super) fn unnamed(index: &Database, most: u32) -> Result<Vec<Row>, StoreError> {
    select(index, "state = ?", UNNAMED, most)
}

/// What the store has.
pub(super) fn there(index: &Database) -> Result<Vec<Row>, StoreError> {
    select(index, "state = ?", THERE, u32::MAX)
}

fn select(index: &Database, which: &str, state: u8, most: u32) -> Result<Vec<Row>, StoreError> {
    let sql = format!("SELECT file, size, upload FROM content_elsewhere WHERE {which} LIMIT ?");
    index.read(|connection| {
        let mut select = connection.prepare_cached(&sql)?;
        let rows = select.query_map(params![state, most], |row| {
            Ok(Row { file: row.get(0)?, size: row.get(1)?, upload: row.get(2)? })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
}

/// Notes that a content is being sent; `false`: no object has it any more.
pub(super) fn begin(index: &Database, file: &str) -> Result<bool, StoreError> {
    let sql = "UPDATE content_elsewhere SET state = ?, upload = NULL WHERE file = ? AND state <= ?";
    update(index, sql, params![BEGUN, file, BEGUN])
}

/// The upload in parts that was begun for a content, and has not ended.
pub(super) fn upload(index: &Database, file: &str) -> Result<Option<String>, StoreError> {
    index.read(|connection| {
        let mut select = connection.prepare_cached("SELECT upload FROM content_elsewhere WHERE file = ?")?;
        Ok(select.query_row([file], |row| row.get(0)).optional()?.flatten())
    })
}

/// Notes the upload in parts that is begun for it, so that a server that is killed leaves no part.
pub(super) fn note_upload(index: &Database, file: &str, upload: &str) -> Result<(), StoreError> {
    let sql = "UPDATE content_elsewhere SET upload = ? WHERE file = ?";
    update(index, sql, params![upload, file]).map(drop)
}

/// Notes that the store has it; `false`: no object has it any more.
pub(super) fn end(index: &Database, file: &str, sha256: &[u8; 32]) -> Result<bool, StoreError> {
    let sql = "UPDATE content_elsewhere SET state = ?, upload = NULL, sha256 = ? WHERE file = ? AND state = ?";
    update(index, sql, params![THERE, sha256, file, BEGUN])
}

fn update(index: &Database, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Result<bool, StoreError> {
    index.write(|tx| Ok(tx.prepare_cached(sql)?.execute(values)? > 0))
}

/// The store has it no more.
pub(super) fn removed(index: &Database, rows: &[Row]) -> Result<(), StoreError> {
    index.write(|tx| {
        let mut delete = tx.prepare_cached("DELETE FROM content_elsewhere WHERE file = ?")?;
        rows.iter().try_for_each(|row| delete.execute([&row.file]).map(drop))?;
        Ok(())
    })
}

/// The SHA-256 of a content that the store has.
pub(crate) fn sha256(connection: &Connection, file: &str) -> Result<Option<[u8; 32]>, StoreError> {
    let select = "SELECT sha256 FROM content_elsewhere WHERE file = ? AND state = ?";
    Ok(connection.prepare_cached(select)?.query_row(params![file, THERE], |row| row.get(0)).optional()?)
}

/// Length and SHA-256 of a content that the store has: of an object or, for trees that hold it, of
/// one that has gone.
pub(super) fn content(index: &Database, file: &str) -> Result<Option<(u64, [u8; 32])>, StoreError> {
    let select = "SELECT size, sha256 FROM content_elsewhere WHERE file = ? AND state >= ? AND sha256 IS NOT NULL";
    index.read(|connection| {
        let mut select = connection.prepare_cached(select)?;
        Ok(select.query_row(params![file, THERE], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
    })
}

/// Condition on `object.file`: its content belongs to this directory, not to a store elsewhere; in
/// an index of any format.
pub(crate) fn is_local(connection: &Connection) -> Result<&'static str, StoreError> {
    let mut table = connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'content_elsewhere'")?;
    Ok(match table.exists([])? {
        true => "file NOT IN (SELECT file FROM content_elsewhere WHERE state = 2)",
        false => "true",
    })
}

/// Whether the store has a content.
pub(crate) fn is_there(connection: &Connection, file: &str) -> Result<bool, StoreError> {
    let select = "SELECT 1 FROM content_elsewhere WHERE file = ? AND state = ?";
    Ok(connection.prepare_cached(select)?.exists(params![file, THERE])?)
}

/// Forgets everything: all contents are local again.
pub(super) fn clear(index: &Database) -> Result<(), StoreError> {
    index.write(|tx| {
        tx.prepare_cached("DELETE FROM content_elsewhere")?.execute([])?;
        Ok(())
    })
}
