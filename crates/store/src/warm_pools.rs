//! What became of the instances that training jobs keep after their end (`WarmPoolStatus`).

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{StoreError, Telemetry};

/// The instances of an ended training job, or of one that is to keep them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmPoolRow {
    /// Training job's name.
    pub job: String,
    /// `InUse`, `Available`, `Reused` or `Terminated`.
    pub status: String,
    /// Since when they wait for another training job, in milliseconds since the epoch; while they
    /// are `Available`.
    pub since_ms: Option<u64>,
    /// For how many seconds they waited; once they wait no longer.
    pub retained_s: Option<u64>,
    /// Which training job has them; when they are `Reused`.
    pub reused_by: Option<String>,
}

impl Telemetry {
    /// Keeps rows in place of those of the same jobs, all or none.
    ///
    /// # Errors
    /// The storage's.
    pub fn put_warm_pools(&self, rows: &[WarmPoolRow]) -> Result<(), StoreError> {
        self.database.write(|tx| rows.iter().try_for_each(|row| put(tx, row)))
    }

    /// The row of a job, if it has one.
    ///
    /// # Errors
    /// The storage's.
    pub fn warm_pool(&self, job: &str) -> Result<Option<WarmPoolRow>, StoreError> {
        self.database.read(|connection| get(connection, job))
    }

    /// The same of several jobs, each in its place.
    ///
    /// # Errors
    /// The storage's.
    pub fn warm_pools_of(&self, jobs: &[&str]) -> Result<Vec<Option<WarmPoolRow>>, StoreError> {
        self.database.read(|connection| jobs.iter().map(|job| get(connection, job)).collect())
    }

    /// All rows of a status, by job.
    ///
    /// # Errors
    /// The storage's.
    pub fn warm_pools(&self, status: &str) -> Result<Vec<WarmPoolRow>, StoreError> {
        self.database.read(|connection| {
            let mut select = connection.prepare_cached(&format!("{SELECT} WHERE status = ? ORDER BY job"))?;
            Ok(select.query_map([status], read)?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Drops a job's row, if it has one.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_warm_pool(&self, job: &str) -> Result<(), StoreError> {
        self.database.write(|tx| {
            tx.execute("DELETE FROM warm_pool WHERE job = ?", [job])?;
            Ok(())
        })
    }
}

const SELECT: &str = "SELECT job, status, since_ms, retained_s, reused_by FROM warm_pool";

fn get(connection: &Connection, job: &str) -> Result<Option<WarmPoolRow>, StoreError> {
    let mut select = connection.prepare_cached(&format!("{SELECT} WHERE job = ?"))?;
    Ok(select.query_row([job], read).optional()?)
}

fn put(tx: &Connection, row: &WarmPoolRow) -> Result<(), StoreError> {
    let WarmPoolRow { job, status, since_ms, retained_s, reused_by } = row;
    let upsert =
        "INSERT OR REPLACE INTO warm_pool (job, status, since_ms, retained_s, reused_by) VALUES (?, ?, ?, ?, ?)";
    tx.prepare_cached(upsert)?.execute(params![job, status, since_ms, retained_s, reused_by])?;
    Ok(())
}

fn read(row: &Row<'_>) -> rusqlite::Result<WarmPoolRow> {
    Ok(WarmPoolRow {
        job: row.get(0)?,
        status: row.get(1)?,
        since_ms: row.get(2)?,
        retained_s: row.get(3)?,
        reused_by: row.get(4)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_job_and_by_status() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        let row = |job: &str, status: &str, retained_s| WarmPoolRow {
            job: job.to_owned(),
            status: status.to_owned(),
            since_ms: Some(7),
            retained_s,
            reused_by: None,
        };
        telemetry.put_warm_pools(&[row("b", "Available", None), row("a", "Available", None)]).unwrap();
        let of =
            |status: &str| telemetry.warm_pools(status).unwrap().into_iter().map(|row| row.job).collect::<Vec<_>>();
        assert_eq!((of("Available"), of("Reused").len()), (vec!["a".to_owned(), "b".to_owned()], 0));
        let reused = WarmPoolRow { reused_by: Some("c".to_owned()), ..row("a", "Reused", Some(3)) };
        telemetry.put_warm_pools(std::slice::from_ref(&reused)).unwrap();
        assert_eq!(telemetry.warm_pool("a").unwrap(), Some(reused.clone()));
        let available = row("b", "Available", None);
        assert_eq!(telemetry.warm_pools_of(&["b", "c", "a"]).unwrap(), [Some(available), None, Some(reused)]);
        assert_eq!((of("Available"), of("Reused")), (vec!["b".to_owned()], vec!["a".to_owned()]));
        telemetry.delete_warm_pool("a").unwrap();
        assert_eq!(telemetry.warm_pool("a").unwrap(), None);
    }
}
