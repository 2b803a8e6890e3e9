//! Log streams: dropping them.

use rusqlite::{Connection, OptionalExtension, params};

use crate::{StoreError, TRAINING_JOBS, Telemetry};

/// Lines of the first layout that one transaction deletes.
pub(crate) const DELETED_LINES: usize = 20_000;

impl Telemetry {
    /// Drops the streams whose name starts with `prefix`, with their lines.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_streams(&self, prefix: &str) -> Result<(), StoreError> {
        let names: Vec<_> = self.streams(prefix, None, usize::MAX)?.into_iter().map(|stream| stream.name).collect();
        for name in names {
            self.delete_log_stream(TRAINING_JOBS, &name)?;
        }
        Ok(())
    }

    /// Removes a stream with its lines, if there is one of that name.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_log_stream(&self, group: &str, name: &str) -> Result<(), StoreError> {
        self.delete_old_lines(group, name)?;
        let files = self.database.write(|tx| match find(tx, group, name)? {
            Some(stream) => remove_stream(tx, stream),
            None => Ok(Vec::new()),
        })?;
        self.segments.remove(&files);
        Ok(())
    }

    /// Removes a stream's lines of the first layout.
    pub(crate) fn delete_old_lines(&self, group: &str, name: &str) -> Result<(), StoreError> {
        // A full disk has no room for the log of one large transaction. The last lines go first:
        // what a crash leaves has no gaps.
        let some = "DELETE FROM line WHERE stream = ?1 AND position >=
            (SELECT min(position) FROM (SELECT position FROM line WHERE stream = ?1 ORDER BY position DESC LIMIT ?2))";
        while self.database.write(|tx| match find(tx, group, name)? {
            Some(stream) => Ok(tx.prepare_cached(some)?.execute(params![stream, DELETED_LINES])?),
            None => Ok(0),
        })? > 0
        {}
        Ok(())
    }
}

fn find(connection: &Connection, group: &str, name: &str) -> Result<Option<i64>, StoreError> {
    let find = "SELECT id FROM log_stream WHERE log_group = ? AND name = ?";
    Ok(connection.prepare_cached(find)?.query_row([group, name], |row| row.get(0)).optional()?)
}

/// Removes the rows of a stream; returns the files that are to be removed after the commit.
pub(crate) fn remove_stream(tx: &Connection, stream: i64) -> Result<Vec<String>, StoreError> {
    let mut delete = tx.prepare_cached("DELETE FROM log_segment WHERE stream = ? RETURNING file")?;
    let files = delete.query_map([stream], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
    tx.prepare_cached("DELETE FROM log_block WHERE stream = ?")?.execute([stream])?;
    tx.prepare_cached("DELETE FROM line WHERE stream = ?")?.execute([stream])?;
    tx.prepare_cached("DELETE FROM log_stream WHERE id = ?")?.execute([stream])?;
    Ok(files)
}
