//! Log groups and streams that users make.

use rusqlite::{OptionalExtension, params};

use crate::clock::now_ms;
use crate::log_append::Stream;
use crate::log_deletions::remove_stream;
use crate::{StoreError, Telemetry};

/// A log group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its name.
    pub name: String,
    /// When it was made, or its first stream was, in milliseconds since the epoch.
    pub created_ms: u64,
    /// Events are removed after so many days; `None` keeps them.
    pub retention_days: Option<u32>,
    /// Bytes of its lines, each with [`crate::LINE_OVERHEAD`] more.
    pub bytes: u64,
}

impl Telemetry {
    /// All groups, by name: those that were made, and those that have streams.
    ///
    /// # Errors
    /// The storage's.
    pub fn log_groups(&self) -> Result<Vec<GroupInfo>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT name, min(created_ms), max(retention_days), sum(bytes) FROM (
                SELECT name, created_ms, retention_days, 0 AS bytes FROM log_group
                UNION ALL SELECT log_group, min(created_ms), NULL, sum(bytes) FROM log_stream GROUP BY log_group) \
                       GROUP BY name ORDER BY name";
            let mut select = connection.prepare_cached(sql)?;
            let group = |row: &rusqlite::Row<'_>| {
                let (name, created_ms) = (row.get(0)?, row.get(1)?);
                Ok(GroupInfo { name, created_ms, retention_days: row.get(2)?, bytes: row.get(3)? })
            };
            Ok(select.query_map([], group)?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Makes a group; returns whether there was none of that name.
    ///
    /// # Errors
    /// The storage's.
    pub fn create_log_group(&self, name: &str) -> Result<bool, StoreError> {
        self.database.write_beside_reserve(|tx| {
            let insert = "INSERT INTO log_group (name, created_ms) SELECT ?1, ?2
                WHERE NOT EXISTS (SELECT 1 FROM log_stream WHERE log_group = ?1) ON CONFLICT DO NOTHING";
            Ok(tx.prepare_cached(insert)?.execute(params![name, now_ms()])? > 0)
        })
    }

    /// Sets after how many days a group's lines are removed.
    ///
    /// # Errors
    /// The storage's.
    pub fn set_log_retention(&self, group: &str, days: Option<u32>) -> Result<(), StoreError> {
        self.database.write(|tx| {
            let upsert = "INSERT INTO log_group (name, created_ms, retention_days) VALUES (?1, ?2, ?3)
                ON CONFLICT DO UPDATE SET retention_days = ?3";
            tx.prepare_cached(upsert)?.execute(params![group, now_ms(), days])?;
            Ok(())
        })
    }

    /// Removes a group with its streams: all of it or nothing but lines of the first layout.
    ///
    /// # Errors
    /// The storage's.
    pub fn delete_log_group(&self, group: &str) -> Result<(), StoreError> {
        for stream in self.streams_of(group, "", None, usize::MAX)? {
            self.delete_old_lines(group, &stream.name)?;
        }
        let files = self.database.write(|tx| {
            let mut streams = tx.prepare_cached("SELECT id FROM log_stream WHERE log_group = ?")?;
            let streams = streams.query_map([group], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
            let files = streams.into_iter().map(|stream| remove_stream(tx, stream)).collect::<Result<Vec<_>, _>>()?;
            tx.prepare_cached("DELETE FROM log_group WHERE name = ?")?.execute([group])?;
            Ok(files.concat())
        })?;
        self.segments.remove(&files);
        Ok(())
    }

    /// Makes a stream; returns whether there was none of that name.
    ///
    /// # Errors
    /// The storage's.
    pub fn create_log_stream(&self, group: &str, name: &str) -> Result<bool, StoreError> {
        self.database.write_beside_reserve(|tx| {
            let insert = "INSERT INTO log_stream (log_group, name, created_ms) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
            Ok(tx.prepare_cached(insert)?.execute(params![group, name, now_ms()])? > 0)
        })
    }

    /// Appends lines to a stream; returns whether there is one of that name.
    ///
    /// # Errors
    /// The storage's.
    pub fn put_log_events(&self, group: &str, name: &str, lines: &[(u64, String)]) -> Result<bool, StoreError> {
        let mut is_due = false;
        let is_there = self.database.write_beside_reserve(|tx| {
            let find = "SELECT 1 FROM log_stream WHERE log_group = ? AND name = ?";
            if tx.prepare_cached(find)?.query_row([group, name], |_| Ok(())).optional()?.is_none() {
                return Ok(false);
            }
            let now = now_ms();
            let lines: Vec<_> = lines.iter().map(|(at_ms, text)| (*at_ms, text.as_str())).collect();
            is_due = Stream::find(tx, group, name, now)?.append(tx, &lines, now)?;
            Ok(true)
        })?;
        self.sealer.wake_if(is_due);
        Ok(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogLines;

    #[test]
    fn a_group_goes_whole_or_not_at_all() {
        let temp = tempfile::tempdir().unwrap();
        let telemetry = Telemetry::open(&temp.path().join("telemetry.db")).unwrap();
        for stream in ["a", "b"] {
            let lines = vec![(1, "line".to_owned())];
            telemetry.append_logs(&[LogLines { stream: stream.to_owned(), lines, ..LogLines::default() }]).unwrap();
        }
        let execute = |sql: &str| telemetry.database.write(|tx| Ok(tx.execute_batch(sql)?)).unwrap();
        execute(
            "CREATE TRIGGER fails BEFORE DELETE ON log_stream WHEN old.name = 'b' BEGIN SELECT raise(ABORT, 'a disk \
             error'); END",
        );
        telemetry.delete_log_group(crate::TRAINING_JOBS).unwrap_err();
        assert_eq!(telemetry.streams("", None, 9).unwrap().len(), 2);
        execute("DROP TRIGGER fails");
        telemetry.delete_log_group(crate::TRAINING_JOBS).unwrap();
        assert!(telemetry.streams("", None, 9).unwrap().is_empty() && telemetry.log_groups().unwrap().is_empty());
    }
}
