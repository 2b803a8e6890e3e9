//! Rows of tuning jobs' trials and of their tuners' records, on SQLite.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::sqlite_resources::{COLUMNS, resource_of, time};
use crate::{
    Cursor, EachRecord, RecordRow, ResourceKind, SortOrder, StoreError, TrialFilter, TrialPage, TrialProgress,
    TrialRow, TrialSort,
};

/// What format 3 adds.
pub(crate) const TABLES: &str = "
    CREATE TABLE tuning (
        name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, arn TEXT NOT NULL,
        created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, ended_ms INTEGER,
        status TEXT NOT NULL, ended INTEGER NOT NULL,
        request BLOB NOT NULL, view BLOB NOT NULL, tags BLOB NOT NULL);
    CREATE INDEX tuning_by_creation ON tuning (created_ms, name, status, modified_ms);
    CREATE INDEX tuning_by_status ON tuning (status, name, created_ms, modified_ms);
    CREATE TABLE trial (
        job TEXT NOT NULL UNIQUE, tuning TEXT NOT NULL, created_ms INTEGER NOT NULL, status TEXT NOT NULL, value REAL,
        tuned BLOB NOT NULL, view BLOB NOT NULL);
    CREATE INDEX trial_by_name ON trial (tuning, job, status);
    CREATE INDEX trial_by_creation ON trial (tuning, created_ms, job, status);
    CREATE INDEX trial_by_status ON trial (tuning, status, job);
    CREATE INDEX trial_by_value ON trial (tuning, value, job, status) WHERE value IS NOT NULL;
    CREATE TABLE tuner_record (
        tuning TEXT NOT NULL, seq INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (tuning, seq)) WITHOUT ROWID;
    ";

/// What belongs to a tuning job, when that is deleted.
pub(crate) fn forget_tuning(tx: &Connection, name: &str) -> Result<(), StoreError> {
    for delete in ["DELETE FROM trial WHERE tuning = ?", "DELETE FROM tuner_record WHERE tuning = ?"] {
        tx.prepare_cached(delete)?.execute([name])?;
    }
    Ok(())
}

pub(crate) fn put_trial(tx: &Connection, row: &TrialRow) -> Result<(), StoreError> {
    let upsert =
        "INSERT INTO trial (job, tuning, created_ms, status, value, tuned, view) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
        ON CONFLICT (job) DO UPDATE SET tuning = ?2, created_ms = ?3, status = ?4, value = ?5, tuned = ?6, view = ?7";
    let TrialRow { tuning, job, created_ms, status, value, tuned, view } = row;
    tx.prepare_cached(upsert)?.execute(params![job, tuning, created_ms, status, value, tuned, view])?;
    Ok(())
}

pub(crate) fn advance_trial(tx: &Connection, progress: &TrialProgress) -> Result<(), StoreError> {
    let update = "UPDATE trial SET value = ?2, view = ?3 WHERE job = ?1";
    tx.prepare_cached(update)?.execute(params![progress.job, progress.value, progress.view])?;
    Ok(())
}

/// The training job of this name has this status now.
pub(crate) fn follow_job(tx: &Connection, job: &str, status: &str) -> Result<(), StoreError> {
    tx.prepare_cached("UPDATE trial SET status = ?2 WHERE job = ?1 AND status <> ?2")?.execute([job, status])?;
    Ok(())
}

pub(crate) fn forget_job(tx: &Connection, job: &str) -> Result<(), StoreError> {
    tx.prepare_cached("DELETE FROM trial WHERE job = ?")?.execute([job])?;
    Ok(())
}

pub(crate) fn put_record(tx: &Connection, row: &RecordRow) -> Result<(), StoreError> {
    let upsert = "INSERT OR REPLACE INTO tuner_record (tuning, seq, bytes) VALUES (?, ?, ?)";
    tx.prepare_cached(upsert)?.execute(params![row.tuning, row.seq, row.bytes])?;
    Ok(())
}

pub(crate) fn trial(connection: &Connection, job: &str) -> Result<Option<TrialRow>, StoreError> {
    let mut select = connection
        .prepare_cached("SELECT tuning, job, created_ms, status, value, tuned, view FROM trial WHERE job = ?")?;
    Ok(select.query_row([job], |row| trial_of(row, 0)).optional()?)
}

fn trial_of(row: &Row<'_>, first: usize) -> rusqlite::Result<TrialRow> {
    Ok(TrialRow {
        tuning: row.get(first)?,
        job: row.get(first + 1)?,
        created_ms: row.get(first + 2)?,
        status: row.get(first + 3)?,
        value: row.get(first + 4)?,
        tuned: row.get(first + 5)?,
        view: row.get(first + 6)?,
    })
}

/// The page is found in an index; only its trials and their jobs are read.
pub(crate) fn trials(connection: &Connection, filter: &TrialFilter) -> Result<TrialPage, StoreError> {
    let mut conditions = vec!["tuning = ?"];
    let mut values = vec![Value::from(filter.tuning.clone())];
    if let Some(status) = &filter.status {
        conditions.push("status = ?");
        values.push(status.clone().into());
    }
    if filter.sort == TrialSort::Value {
        conditions.push("value IS NOT NULL");
    }
    let (beyond, direction) = match filter.order {
        SortOrder::Ascending => (">", "ASC"),
        SortOrder::Descending => ("<", "DESC"),
    };
    let column = match filter.sort {
        TrialSort::Name => None,
        TrialSort::CreationTime => Some("created_ms"),
        TrialSort::Status => Some("status"),
        TrialSort::Value => Some("value"),
    };
    let after = column.map_or_else(|| format!("job {beyond} ?"), |column| format!("({column}, job) {beyond} (?, ?)"));
    if let Some(cursor) = &filter.after {
        conditions.push(&after);
        match filter.sort {
            TrialSort::Name => {}
            TrialSort::CreationTime => values.push(time(cursor.number()?)),
            TrialSort::Status => values.push(cursor.value.clone().into()),
            TrialSort::Value => values.push(Value::Real(cursor.number()?)),
        }
        values.push(cursor.name.clone().into());
    }
    let order = |table: &str| {
        let column = column.map_or_else(String::new, |column| format!("{table}{column} {direction}, "));
        format!("{column}{table}job {direction}")
    };
    values.push(Value::Integer(i64::try_from(filter.limit.saturating_add(1)).unwrap_or(i64::MAX)));
    let page = format!("SELECT rowid FROM trial WHERE {} ORDER BY {} LIMIT ?", conditions.join(" AND "), order(""));
    let kind = ResourceKind::TRAINING_JOB;
    let columns: Vec<_> = COLUMNS.split(", ").map(|column| format!("resource.{column}")).collect();
    // A cross join keeps its order: the planner would rather read all training jobs first.
    let sql = format!(
        "SELECT {}, trial.tuning, trial.job, trial.created_ms, trial.status, trial.value, trial.tuned, trial.view
            FROM trial CROSS JOIN resource ON resource.kind = '{}' AND resource.name = trial.job WHERE trial.rowid IN \
            ({page}) ORDER BY {}",
        columns.join(", "),
        kind.name(),
        order("trial.")
    );
    let mut select = connection.prepare_cached(&sql)?;
    let read = |row: &Row<'_>| Ok((trial_of(row, columns.len())?, resource_of(kind, row)?));
    let mut rows = select.query_map(params_from_iter(values), read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    let more = rows.len() > filter.limit;
    rows.truncate(filter.limit);
    let next = rows.last().filter(|_| more).map(|(row, _)| Cursor::after_trial(row, filter.sort));
    Ok(TrialPage { rows, next })
}

pub(crate) fn records(
    connection: &Connection,
    tuning: &str,
    after: u64,
    each: &mut EachRecord<'_>,
) -> Result<(), StoreError> {
    let mut select =
        connection.prepare_cached("SELECT seq, bytes FROM tuner_record WHERE tuning = ? AND seq > ? ORDER BY seq")?;
    let mut rows = select.query(params![tuning, after])?;
    while let Some(row) = rows.next()? {
        each(row.get(0)?, row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?)?;
    }
    Ok(())
}
