//! Versions as rows of `objects.db`. The current object of a key is in the table `object`, as in a
//! bucket that keeps no versions, so that reading and listing current objects costs nothing more.
//! All others are in `version`, and so is every delete marker, the current one, too: then the key
//! has no row in `object`. `place` orders the versions of a key, the newest first.

use rusqlite::{Connection, OptionalExtension, params};

use crate::data_dir::random_hex;
use crate::object_rows::{BucketRow, forget_file};
use crate::version::{id_at, id_in_row, place_of};
use crate::{StoreError, Version, Versioning};

/// Where the next version of a key comes.
#[derive(Debug, Default)]
pub(crate) struct Next {
    pub(crate) place: i64,
    /// Its id, empty for the null version.
    pub(crate) id: String,
    /// Files of what it replaces.
    pub(crate) removed: Vec<String>,
}

/// A row of a version, or of a delete marker.
#[derive(Debug)]
pub(crate) struct Row {
    /// The table that has it.
    pub(crate) table: &'static str,
    pub(crate) place: i64,
    pub(crate) version: Version,
    /// None: a delete marker.
    pub(crate) file: Option<String>,
    pub(crate) etag: String,
    pub(crate) size: u64,
    pub(crate) modified_ms: u64,
}

/// What is current becomes an earlier version; in a bucket that keeps none any more, the null
/// version goes. The caller adds a row, of an object or of a delete marker.
pub(crate) fn make_way(connection: &Connection, bucket: BucketRow, key: &str, now_ms: u64) -> Result<Next, StoreError> {
    let at = params![bucket.id, key];
    let newest = "SELECT min(place) FROM (SELECT place FROM object WHERE bucket = ?1 AND key = ?2 UNION ALL SELECT \
                  min(place) FROM version WHERE bucket = ?1 AND key = ?2)";
    let newest: Option<i64> = connection.prepare_cached(newest)?.query_row(at, |row| row.get(0))?;
    let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
    let place = newest.map_or(-now, |newest| (-now).min(newest - 1));
    let mut next = Next { place, ..Next::default() };
    match bucket.versioning {
        Versioning::Enabled => next.id = id_at(place, &random_hex::<16>()?),
        Versioning::Never | Versioning::Suspended => {
            for table in ["object", "version"] {
                let sql = format!("DELETE FROM {table} WHERE bucket = ? AND key = ? AND version = '' RETURNING file");
                let removed: Option<Option<String>> =
                    connection.prepare_cached(&sql)?.query_row(at, |row| row.get(0)).optional()?;
                next.removed.extend(removed.flatten());
            }
        }
    }
    let moves = "INSERT INTO version (bucket, key, place, version, file, size, etag, modified_ms, attributes, \
                 noncurrent_ms) SELECT bucket, key, place, version, file, size, etag, modified_ms, attributes, ?3 \
                 FROM object WHERE bucket = ?1 AND key = ?2";
    if connection.prepare_cached(moves)?.execute(params![bucket.id, key, now_ms])? > 0 {
        connection.prepare_cached("DELETE FROM object WHERE bucket = ? AND key = ?")?.execute(at)?;
    } else if let Some(newest) = newest {
        let ends = "UPDATE version SET noncurrent_ms = ? WHERE bucket = ? AND key = ? AND place = ? AND noncurrent_ms \
                    IS NULL";
        connection.prepare_cached(ends)?.execute(params![now_ms, bucket.id, key, newest])?;
    }
    Ok(next)
}

/// Adds the row of a delete marker, which is current.
pub(crate) fn put_marker(
    connection: &Connection,
    bucket: BucketRow,
    key: &str,
    next: &Next,
    now_ms: u64,
) -> Result<(), StoreError> {
    let insert = "INSERT INTO version (bucket, key, place, version, size, etag, modified_ms, attributes) VALUES (?, ?, \
                  ?, ?, 0, '', ?, '{}')";
    connection.prepare_cached(insert)?.execute(params![bucket.id, key, next.place, next.id, now_ms])?;
    next.removed.iter().try_for_each(|file| forget_file(connection, file))
}

/// Removes a row. If it was the current one, the newest of the others is current from now on.
pub(crate) fn remove_row(connection: &Connection, bucket: BucketRow, key: &str, row: &Row) -> Result<(), StoreError> {
    let sql = format!("DELETE FROM {} WHERE bucket = ? AND key = ? AND place = ?", row.table);
    connection.prepare_cached(&sql)?.execute(params![bucket.id, key, row.place])?;
    row.file.iter().try_for_each(|file| forget_file(connection, file))?;
    if bucket.versioning == Versioning::Never {
        return Ok(());
    }
    let at = params![bucket.id, key];
    let moves = "INSERT INTO object (bucket, key, file, size, etag, modified_ms, attributes, place, version) SELECT \
                 bucket, key, file, size, etag, modified_ms, attributes, place, version FROM version WHERE bucket = ?1 \
                 AND key = ?2 AND place = (SELECT min(place) FROM version WHERE bucket = ?1 AND key = ?2) AND file IS \
                 NOT NULL AND NOT EXISTS (SELECT 1 FROM object WHERE bucket = ?1 AND key = ?2)";
    if connection.prepare_cached(moves)?.execute(at)? > 0 {
        let delete = "DELETE FROM version WHERE bucket = ?1 AND key = ?2 AND place = (SELECT place FROM object WHERE \
                      bucket = ?1 AND key = ?2)";
        connection.prepare_cached(delete)?.execute(at)?;
    } else {
        let marker = "UPDATE version SET noncurrent_ms = NULL WHERE bucket = ?1 AND key = ?2 AND place = (SELECT \
                      min(place) FROM version WHERE bucket = ?1 AND key = ?2) AND file IS NULL AND NOT EXISTS (SELECT \
                      1 FROM object WHERE bucket = ?1 AND key = ?2)";
        connection.prepare_cached(marker)?.execute(at)?;
    }
    Ok(())
}

const COLUMNS: &str = "place, version, file, etag, size, modified_ms";

/// The row of the current object or marker; `None`: the key has none.
pub(crate) fn current(connection: &Connection, bucket: BucketRow, key: &str) -> Result<Option<Row>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM object WHERE bucket = ? AND key = ?");
    let found = select(connection, &sql, params![bucket.id, key], "object", bucket)?;
    if found.is_some() || bucket.versioning == Versioning::Never {
        return Ok(found);
    }
    let sql = format!("SELECT {COLUMNS} FROM version WHERE bucket = ? AND key = ? ORDER BY place LIMIT 1");
    select(connection, &sql, params![bucket.id, key], "version", bucket)
}

/// The row of the version with this id; `None`: there is none.
pub(crate) fn by_id(
    connection: &Connection,
    bucket: BucketRow,
    key: &str,
    id: &str,
) -> Result<Option<Row>, StoreError> {
    let in_row = id_in_row(id);
    let sql = format!("SELECT {COLUMNS} FROM object WHERE bucket = ? AND key = ? AND version = ?");
    let found = select(connection, &sql, params![bucket.id, key, in_row], "object", bucket)?;
    if found.is_some() {
        return Ok(found);
    }
    match place_of(id) {
        Some(place) => {
            let sql =
                format!("SELECT {COLUMNS} FROM version WHERE bucket = ? AND key = ? AND place = ? AND version = ?");
            select(connection, &sql, params![bucket.id, key, place, in_row], "version", bucket)
        }
        None if in_row.is_empty() => {
            let sql = format!("SELECT {COLUMNS} FROM version WHERE bucket = ? AND key = ? AND version = ''");
            select(connection, &sql, params![bucket.id, key], "version", bucket)
        }
        None => Ok(None),
    }
}

fn select(
    connection: &Connection,
    sql: &str,
    at: &[&dyn rusqlite::ToSql],
    table: &'static str,
    bucket: BucketRow,
) -> Result<Option<Row>, StoreError> {
    let found = connection.prepare_cached(sql)?.query_row(at, |row| {
        Ok(Row {
            table,
            place: row.get(0)?,
            version: Version::of(row.get(1)?, bucket.versioning),
            file: row.get(2)?,
            etag: row.get(3)?,
            size: row.get(4)?,
            modified_ms: row.get(5)?,
        })
    });
    Ok(found.optional()?)
}

/// The row of an object: the current one, or the version with this id.
///
/// # Errors
/// [`StoreError::NoSuchKey`], [`StoreError::NoSuchVersion`], [`StoreError::DeleteMarker`].
pub(crate) fn row_of(
    connection: &Connection,
    name: &str,
    bucket: &BucketRow,
    key: &str,
    version: Option<&str>,
) -> Result<Row, StoreError> {
    let found = match version {
        None => current(connection, *bucket, key)?
            .ok_or_else(|| StoreError::NoSuchKey { bucket: name.to_owned(), key: key.to_owned() })?,
        Some(id) => by_id(connection, *bucket, key, id)?
            .ok_or_else(|| StoreError::NoSuchVersion { key: key.to_owned(), version: id.to_owned() })?,
    };
    match found.file {
        Some(_) => Ok(found),
        None => Err(StoreError::DeleteMarker {
            key: key.to_owned(),
            version: found.version.id().to_owned(),
            modified_ms: found.modified_ms,
            is_named: version.is_some(),
        }),
    }
}

/// Whether an index, which may have any format, has the table of versions.
pub(crate) fn has_versions(connection: &Connection) -> Result<bool, StoreError> {
    let mut table = connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'version'")?;
    Ok(table.exists([])?)
}
