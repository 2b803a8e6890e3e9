//! Minutes of instances with samples that belong into the profiler's files, until these are
//! written.

use rusqlite::{OptionalExtension, params};

use crate::system_tables::{Minute, SystemTable};
use crate::{StoreError, Telemetry};

/// A minute of an instance that has samples for the profiler's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfiledMinute {
    /// Whose.
    pub job: String,
    /// Its number, from 1.
    pub host: u32,
    /// When it began, in milliseconds since the epoch.
    pub minute_ms: u64,
    /// The instance has samples of a later one, so that no more will come of this.
    pub is_over: bool,
}

/// The samples of such a minute.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfiledSamples {
    /// Only those for the files.
    pub tables: Vec<SystemTable>,
    /// What was stored when it was read.
    bytes: u64,
}

impl Telemetry {
    /// Minutes with samples for the profiler's files that were not written so far, the oldest
    /// first.
    ///
    /// # Errors
    /// The storage's.
    pub fn profiled_minutes(&self, limit: usize) -> Result<Vec<ProfiledMinute>, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT job, host, minute,
                EXISTS (SELECT 1 FROM system_minute AS later WHERE later.source = one.source AND later.minute > \
                       one.minute)
                FROM system_minute AS one JOIN system_source ON id = source WHERE to_export = 1 ORDER BY minute LIMIT ?";
            let mut select = connection.prepare_cached(sql)?;
            let minute = |row: &rusqlite::Row<'_>| {
                Ok(ProfiledMinute {
                    job: row.get(0)?,
                    host: row.get(1)?,
                    minute_ms: row.get(2)?,
                    is_over: row.get(3)?,
                })
            };
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            Ok(select.query_map([limit], minute)?.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// The samples of such a minute.
    ///
    /// # Errors
    /// The storage's.
    pub fn profiled_samples(&self, minute: &ProfiledMinute) -> Result<ProfiledSamples, StoreError> {
        self.database.read(|connection| {
            let sql = "SELECT body FROM system_source JOIN system_minute ON source = id WHERE job = ? AND host = ? AND \
                       minute = ?";
            let found: Option<Vec<u8>> = connection
                .prepare_cached(sql)?
                .query_row(params![minute.job, minute.host, minute.minute_ms], |row| row.get(0))
                .optional()?;
            let body = found.unwrap_or_default();
            let Some(Minute::Samples(mut tables)) = Minute::decode(&body) else {
                return Ok(ProfiledSamples { tables: Vec::new(), bytes: body.len() as u64 });
            };
            for table in &mut tables {
                table.rows.retain(|row| row.is_profiled);
            }
            tables.retain(|table| !table.rows.is_empty());
            Ok(ProfiledSamples { tables, bytes: body.len() as u64 })
        })
    }

    /// Its file is durable, unless samples have come since.
    ///
    /// # Errors
    /// The storage's.
    pub fn set_exported(&self, minute: &ProfiledMinute, samples: &ProfiledSamples) -> Result<(), StoreError> {
        self.database.write(|tx| {
            let sql = "UPDATE system_minute SET to_export = 0 WHERE minute = ? AND length(body) = ?
                AND source = (SELECT id FROM system_source WHERE job = ? AND host = ?)";
            let values = params![minute.minute_ms, samples.bytes, minute.job, minute.host];
            tx.prepare_cached(sql)?.execute(values)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Bounds;
    use crate::system_metrics::tests::{DAY_MS, report, telemetry};

    #[test]
    fn a_profiled_minute_is_exported_when_it_is_over_and_not_again() {
        let (_temp, telemetry) = telemetry();
        telemetry.ingest(&report("job", 1, 1, 10..20, false)).unwrap();
        telemetry.ingest(&report("job", 1, 2, 30..40, true)).unwrap();
        let minutes = || telemetry.profiled_minutes(9).unwrap();
        assert_eq!(minutes().iter().map(|it| (it.minute_ms, it.is_over)).collect::<Vec<_>>(), [(0, false)]);
        let read = telemetry.profiled_samples(&minutes()[0]).unwrap();
        assert_eq!(read.tables[0].rows.len(), 10, "only the profiler's");
        // Samples come between reading and writing: the file is to be written again.
        telemetry.ingest(&report("job", 1, 3, 40..70, true)).unwrap();
        let all = minutes();
        telemetry.set_exported(&all[0], &read).unwrap();
        assert_eq!(
            minutes().iter().map(|it| (it.minute_ms, it.is_over)).collect::<Vec<_>>(),
            [(0, true), (60_000, false)]
        );
        telemetry.tidy(DAY_MS, &Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
        let read = telemetry.profiled_samples(&all[0]).unwrap();
        assert_eq!(read.tables[0].rows.len(), 30, "what is not exported is not shortened");
        telemetry.set_exported(&all[0], &read).unwrap();
        assert_eq!(minutes().len(), 1);
        telemetry.tidy(DAY_MS, &Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
        assert_eq!(telemetry.profiled_samples(&all[0]).unwrap().tables, []);
    }
}
