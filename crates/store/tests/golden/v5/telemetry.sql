PRAGMA user_version = 5;
BEGIN TRANSACTION;
CREATE TABLE ack (attempt TEXT NOT NULL, host INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (attempt, host)) WITHOUT ROWID;
INSERT INTO "ack" VALUES('0123abcd-1',1,7);
CREATE TABLE line (
  stream INTEGER NOT NULL, position INTEGER NOT NULL, at_ms INTEGER NOT NULL, ingested_ms INTEGER NOT NULL,
  text TEXT NOT NULL, PRIMARY KEY (stream, position)) WITHOUT ROWID;
CREATE TABLE point (
  series INTEGER NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL, value REAL, host INTEGER,
  PRIMARY KEY (series, at_ms, position)) WITHOUT ROWID;
INSERT INTO "point" VALUES(1,1700000000500,1,0.5,NULL);
INSERT INTO "point" VALUES(1,1700000000600,2,0.25,2);
CREATE TABLE series (
  id INTEGER PRIMARY KEY, job TEXT NOT NULL, metric TEXT NOT NULL, points INTEGER NOT NULL DEFAULT 0, UNIQUE (job, metric));
INSERT INTO "series" VALUES(1,'titanic','train:rmse',2);
CREATE TABLE step (
  series INTEGER NOT NULL, step INTEGER NOT NULL, at_ms INTEGER NOT NULL, position INTEGER NOT NULL,
  PRIMARY KEY (series, step, at_ms, position)) WITHOUT ROWID;
INSERT INTO "step" VALUES(1,3,1700000000500,1);
CREATE TABLE warm_pool (
  job TEXT PRIMARY KEY, status TEXT NOT NULL, since_ms INTEGER, retained_s INTEGER, reused_by TEXT) WITHOUT ROWID;
INSERT INTO "warm_pool" VALUES('titanic','Reused',NULL,12,'olympic');
CREATE INDEX warm_pool_by_status ON warm_pool (status);
CREATE TABLE log_stream (
    id INTEGER PRIMARY KEY, log_group TEXT NOT NULL, name TEXT NOT NULL, created_ms INTEGER NOT NULL,
    lines INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0, tail_bytes INTEGER NOT NULL DEFAULT 0,
    dropped INTEGER NOT NULL DEFAULT 0, dropped_points INTEGER NOT NULL DEFAULT 0,
    first_ms INTEGER, last_ms INTEGER, ingested_ms INTEGER, UNIQUE (log_group, name));
CREATE INDEX log_stream_to_seal ON log_stream (id) WHERE tail_bytes >= 65536;
CREATE TABLE log_segment (
    id INTEGER PRIMARY KEY, stream INTEGER NOT NULL, file TEXT NOT NULL UNIQUE, bytes INTEGER NOT NULL, last_ms INTEGER NOT NULL,
    ingested_ms INTEGER NOT NULL);
CREATE INDEX log_segment_by_stream ON log_segment (stream);
CREATE INDEX log_segment_by_age ON log_segment (ingested_ms);
CREATE TABLE log_block (
    stream INTEGER NOT NULL, position INTEGER NOT NULL, lines INTEGER NOT NULL, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL,
    ingested_ms INTEGER NOT NULL, bytes INTEGER NOT NULL, segment INTEGER, offset INTEGER, length INTEGER, body BLOB,
    PRIMARY KEY (stream, position));
CREATE INDEX log_block_by_segment ON log_block (segment) WHERE segment IS NOT NULL;
CREATE TABLE log_group (name TEXT PRIMARY KEY, created_ms INTEGER NOT NULL, retention_days INTEGER) WITHOUT ROWID;
INSERT INTO "log_stream" VALUES(1,'/aws/sagemaker/TrainingJobs','titanic/algo-1-1700000000',1795248496768,3,115,17,0,0,1700000000400,1700000000600,1795248496770);
INSERT INTO "log_segment" VALUES(1,1,'00112233445566778899aabbccddeeff',59,1700000000500,1795248496768);
INSERT INTO "log_block" VALUES(1,0,2,1700000000400,1700000000500,1795248496768,85,1,0,59,NULL);
INSERT INTO "log_block" VALUES(1,2,1,1700000000600,1700000000600,1795248496770,30,NULL,NULL,NULL,X'b0a9abfef9628482b1d2bf6804646f6e65');
INSERT INTO "log_group" VALUES('mine',1795248496768,7);
COMMIT;
