//! Buckets and objects as rows of `objects.db`.

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::block_sums;
use crate::content_seals;
use crate::elsewhere::rows;
use crate::version_rows::{Next, make_way};
use crate::{ObjectMeta, PutCondition, StoreError, Version, Versioning};

/// What every operation needs of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketRow {
    pub(crate) id: i64,
    pub(crate) versioning: Versioning,
}

pub(crate) fn bucket_row(connection: &Connection, bucket: &str) -> Result<BucketRow, StoreError> {
    let row = connection
        .prepare_cached("SELECT id, versioning FROM bucket WHERE name = ? AND passthrough < 2")?
        .query_row([bucket], |row| Ok(BucketRow { id: row.get(0)?, versioning: Versioning::of(row.get(1)?) }))
        .optional()?;
    row.ok_or_else(|| StoreError::NoSuchBucket(bucket.to_owned()))
}

pub(crate) fn bucket_id(connection: &Connection, bucket: &str) -> Result<i64, StoreError> {
    Ok(bucket_row(connection, bucket)?.id)
}

pub(crate) fn file_column(
    connection: &Connection,
    sql: &str,
    params: impl rusqlite::Params,
) -> Result<Vec<String>, StoreError> {
    Ok(connection.prepare_cached(sql)?.query_map(params, |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

/// In an index of any format.
pub(crate) const OBJECT_COLUMNS: &str = "key, file, size, etag, modified_ms, attributes";
/// For [`versioned_object_of`].
pub(crate) const VERSIONED_COLUMNS: &str = "key, file, size, etag, modified_ms, attributes, version";

pub(crate) fn object_of(row: &Row<'_>) -> Result<ObjectMeta, StoreError> {
    Ok(ObjectMeta {
        key: row.get(0)?,
        id: row.get(1)?,
        size: row.get(2)?,
        etag: row.get(3)?,
        modified_ms: row.get(4)?,
        attributes: from_json(row.get_ref(5)?.as_str().map_err(rusqlite::Error::from)?)?,
        version: Version::default(),
        passthrough: None,
    })
}

pub(crate) fn versioned_object_of(row: &Row<'_>, versioning: Versioning) -> Result<ObjectMeta, StoreError> {
    Ok(ObjectMeta { version: Version::of(row.get(6)?, versioning), ..object_of(row)? })
}

/// What came of a new object.
#[derive(Debug)]
pub(crate) struct Put {
    /// The version that it is.
    pub(crate) version: Version,
    /// Files that no row names any more.
    pub(crate) removed: Vec<String>,
}

/// Makes an object the current one of its key.
pub(crate) fn put_row(
    connection: &Connection,
    bucket: &str,
    meta: &ObjectMeta,
    condition: &PutCondition,
) -> Result<Put, StoreError> {
    let row = bucket_row(connection, bucket)?;
    let mut select = connection.prepare_cached("SELECT file, etag FROM object WHERE bucket = ? AND key = ?")?;
    let present: Option<(String, String)> =
        select.query_row(params![row.id, meta.key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let holds = match (condition, &present) {
        (PutCondition::Always, _) | (PutCondition::Absent, None) => true,
        (PutCondition::Matches(etag), Some((_, present))) => etag == present,
        (PutCondition::Absent, Some(_)) => false,
        (PutCondition::Matches(_), None) => {
            return Err(StoreError::NoSuchKey { bucket: bucket.to_owned(), key: meta.key.clone() });
        }
    };
    if !holds {
        return Err(StoreError::PreconditionFailed { key: meta.key.clone() });
    }
    let next = match row.versioning {
        Versioning::Never => Next { removed: present.map(|(file, _)| file).into_iter().collect(), ..Next::default() },
        Versioning::Enabled | Versioning::Suspended => make_way(connection, row, &meta.key, meta.modified_ms)?,
    };
    let upsert = "INSERT OR REPLACE INTO object (bucket, key, file, size, etag, modified_ms, attributes, place, \
                  version) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let attributes = to_json(&meta.attributes);
    connection.prepare_cached(upsert)?.execute(params![
        row.id,
        meta.key,
        meta.id,
        meta.size,
        meta.etag,
        meta.modified_ms,
        attributes,
        next.place,
        next.id
    ])?;
    next.removed.iter().try_for_each(|file| forget_file(connection, file))?;
    Ok(Put { version: Version::of(next.id, row.versioning), removed: next.removed })
}

/// No object's row names this file any more.
pub(crate) fn forget_file(connection: &Connection, file: &str) -> Result<(), StoreError> {
    block_sums::forget(connection, file)?;
    content_seals::forget(connection, file)?;
    rows::forget(connection, file)
}

pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("maps of strings are always JSON")
}

pub(crate) fn from_json<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, StoreError> {
    let corrupt =
        |error: serde_json::Error| StoreError::Corrupt { path: "objects.db".into(), detail: error.to_string() };
    serde_json::from_str(text).map_err(corrupt)
}
