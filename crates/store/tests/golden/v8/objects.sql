PRAGMA user_version = 8;
BEGIN TRANSACTION;
CREATE TABLE bucket (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL, tags TEXT NOT NULL DEFAULT '{}', policy TEXT, versioning INTEGER NOT NULL DEFAULT 0, lifecycle TEXT);
INSERT INTO "bucket" VALUES(1,'data',1795248496762,'{}',NULL,0,NULL);
CREATE TABLE object (
  bucket INTEGER NOT NULL, key TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL, place INTEGER NOT NULL DEFAULT 0, version TEXT NOT NULL DEFAULT '', PRIMARY KEY (bucket, key)) WITHOUT ROWID;
INSERT INTO "object" VALUES(1,'sealed','cc0e6a42d5051505f1de01a9de1afc91',19,'f7e9fd736411c8d07ffe25b121f9551f',1795248496763,'{"encryption":{"holder":{"kms":"team"},"wrapped":"BwgJCgsMDQ4PEBESstWYFzO8p3SdwAYigee3N7MC06ysZO0OVoxisIwjpsEoR6lMXINwjWVHJs7w6KzV","bucket_key":true}}',0,'');
INSERT INTO "object" VALUES(1,'own','dd0e6a42d5051505f1de01a9de1afc91',16,'1f41a6bbca6012e42c6b9d119be5bd17',1795248496763,'{"encryption":{"holder":"customer","wrapped":"CQoLDA0ODxAREhMUPUVNtcqHH2b9avrlb8Sa6PeMY/2U/QLByuHWbTZE124dikz0vM3+Cv/ndnG6u4LG"}}',0,'');
CREATE TABLE part (
  upload TEXT NOT NULL, number INTEGER NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, checksums TEXT NOT NULL, shared TEXT, slot INTEGER, PRIMARY KEY (upload, number)) WITHOUT ROWID;
CREATE TABLE upload (
  id TEXT PRIMARY KEY, bucket INTEGER NOT NULL, key TEXT NOT NULL, created_ms INTEGER NOT NULL,
  attributes TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE unsynced (number INTEGER PRIMARY KEY, file TEXT NOT NULL, content BLOB NOT NULL);
INSERT INTO "unsynced" VALUES(1,'cc0e6a42d5051505f1de01a9de1afc91',X'10d5db6f389d59379ee6eeb5ceb870b22ecdb8');
INSERT INTO "unsynced" VALUES(2,'dd0e6a42d5051505f1de01a9de1afc91',X'ef4011c42158b421f7fdbec02fcae960');
CREATE TABLE block_sums (file TEXT PRIMARY KEY, sums BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE content_elsewhere (
  file TEXT PRIMARY KEY, size INTEGER NOT NULL, state INTEGER NOT NULL, upload TEXT, sha256 BLOB) WITHOUT ROWID;
CREATE INDEX content_under_way ON content_elsewhere (state) WHERE state <> 2;
CREATE TABLE version (
  bucket INTEGER NOT NULL, key TEXT NOT NULL, place INTEGER NOT NULL, version TEXT NOT NULL, file TEXT,
  size INTEGER NOT NULL, etag TEXT NOT NULL, modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL,
  noncurrent_ms INTEGER, PRIMARY KEY (bucket, key, place)) WITHOUT ROWID;
CREATE UNIQUE INDEX null_version ON version (bucket, key) WHERE version = '';
CREATE TABLE content_seals (file TEXT PRIMARY KEY, seals BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "content_seals" VALUES('cc0e6a42d5051505f1de01a9de1afc91',X'2122232425262728292a2b2c2d2e2f30039d8a0f2073dac68b16affc596ccaf3');
INSERT INTO "content_seals" VALUES('dd0e6a42d5051505f1de01a9de1afc91',X'42434445464748494a4b4c4d4e4f505117106b9e3ab10b1379875804e0e782e4');
CREATE TABLE bucket_encryption (bucket INTEGER PRIMARY KEY, rule TEXT NOT NULL);
INSERT INTO "bucket_encryption" VALUES(1,'{"kms":"team","bucket_key":true}');
COMMIT;
