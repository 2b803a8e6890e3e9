//! The tables of `telemetry.db`, by format.

use crate::{own_metrics, sqlite::Schema, summaries};

pub(crate) const SCHEMA: Schema = Schema {
    formats: &[
        "
    CREATE TABLE ack (attempt TEXT NOT NULL, host INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (attempt, host)) \
         WITHOUT ROWID;
    CREATE TABLE stream (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL, lines INTEGER NOT NULL DEFAULT \
         0,
        first_ms INTEGER, last_ms INTEGER, ingested_ms INTEGER);
    CREATE TABLE line (
        stream INTEGER NOT NULL, position INTEGER NOT NULL, at_ms INTEGER NOT NULL, ingested_ms INTEGER NOT NULL,
        text TEXT NOT NULL, PRIMARY KEY (stream, position)) WITHOUT ROWID;
    CREATE TABLE series (
        id INTEGER PRIMARY KEY, job TEXT NOT NULL, metric TEXT NOT NULL, points INTEGER NOT NULL DEFAULT 0, UNIQUE \
         (job, metric));
    CREATE TABLE point (
        series INTEGER NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL, value REAL,
        PRIMARY KEY (series, at_ms, position)) WITHOUT ROWID;
    ",
        "
    CREATE TABLE step (
        series INTEGER NOT NULL, step INTEGER NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL,
        PRIMARY KEY (series, step, at_ms, position)) WITHOUT ROWID;
    ",
        "
    CREATE TABLE warm_pool (
        job TEXT PRIMARY KEY, status TEXT NOT NULL, since_ms INTEGER, retained_s INTEGER, reused_by TEXT) WITHOUT ROWID;
    CREATE INDEX warm_pool_by_status ON warm_pool (status);
    ",
        // `log_block.body` or (`segment`, `offset`, `length`) has the lines. `line` held them, one
        // row each, up to format 3 and is emptied by `log_sealing::move_old_lines`; streams were in
        // one log group.
        "
    CREATE TABLE log_stream (
        id INTEGER PRIMARY KEY, log_group TEXT NOT NULL, name TEXT NOT NULL, created_ms INTEGER NOT NULL,
        lines INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, tail_bytes INTEGER NOT NULL DEFAULT 0,
        dropped INTEGER NOT NULL DEFAULT 0, dropped_points INTEGER NOT NULL DEFAULT 0,
        first_ms INTEGER, last_ms INTEGER, ingested_ms INTEGER, UNIQUE (log_group, name));
    CREATE INDEX log_stream_to_seal ON log_stream (id) WHERE tail_bytes >= 65536;
    CREATE TABLE log_segment (
        id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL, last_ms \
         INTEGER NOT NULL,
        ingested_ms INTEGER NOT NULL);
    CREATE INDEX log_segment_by_stream ON log_segment (stream);
    CREATE INDEX log_segment_by_age ON log_segment (ingested_ms);
    CREATE TABLE log_block (
        stream INTEGER NOT NULL, position INTEGER NOT NULL, lines INTEGER NOT NULL, first_ms INTEGER NOT NULL, last_ms \
         INTEGER NOT NULL,
        ingested_ms INTEGER NOT NULL, bytes INTEGER NOT NULL, segment INTEGER, offset INTEGER, length INTEGER, body \
         BLOB,
        PRIMARY KEY (stream, position));
    CREATE INDEX log_block_by_segment ON log_block (segment) WHERE segment IS NOT NULL;
    CREATE TABLE log_group (name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, retention_days INTEGER) WITHOUT ROWID;
    INSERT INTO log_stream (id, log_group, name, created_ms, lines, first_ms, last_ms, ingested_ms)
        SELECT id, '/aws/sagemaker/TrainingJobs', name, created_ms, lines, first_ms, last_ms, ingested_ms FROM stream;
    DROP TABLE stream;
    ",
        "
    ALTER TABLE point ADD COLUMN host INTEGER;
    ",
        "
    ALTER TABLE series ADD COLUMN rolled_points INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE series ADD COLUMN rolled_ms INTEGER;
    CREATE TABLE roll_up (
        series INTEGER NOT NULL, since_ms INTEGER NOT NULL, since_position INTEGER NOT NULL, host INTEGER NOT NULL,
        until_ms INTEGER NOT NULL, until_position INTEGER NOT NULL, points INTEGER NOT NULL,
        low_step INTEGER NOT NULL, low_ms INTEGER NOT NULL, low REAL, high_step INTEGER NOT NULL, high_ms INTEGER NOT \
         NULL, high REAL,
        last_ms INTEGER NOT NULL, last REAL,
        PRIMARY KEY (series, since_ms, since_position, host)) WITHOUT ROWID;
    ",
        // `body` is as `system_tables.rs` has it. `bytes` is the sum of the bodies' lengths.
        "
    CREATE TABLE system_source (
        id INTEGER PRIMARY KEY, job TEXT NOT NULL, host INTEGER NOT NULL, columns BLOB NOT NULL,
        bytes INTEGER NOT NULL DEFAULT 0, UNIQUE (job, host));
    CREATE TABLE system_minute (
        source INTEGER NOT NULL, minute INTEGER NOT NULL, is_short INTEGER NOT NULL, to_export INTEGER NOT NULL,
        body BLOB NOT NULL, PRIMARY KEY (source, minute));
    CREATE INDEX system_minute_by_age ON system_minute (minute);
    CREATE INDEX system_minute_to_shorten ON system_minute (minute) WHERE is_short = 0;
    CREATE INDEX system_minute_to_export ON system_minute (minute) WHERE to_export = 1;
    ",
        summaries::TABLE,
        own_metrics::TABLES,
    ],
    gives_back_space: true,
};
