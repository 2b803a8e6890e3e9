PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE bucket (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL, tags TEXT NOT NULL DEFAULT '{}');
INSERT INTO "bucket" VALUES(1,'data',1795248496762,'{"kind":"raw"}');
CREATE TABLE object (
  bucket INTEGER NOT NULL, key TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (bucket, key)) WITHOUT ROWID;
INSERT INTO "object" VALUES(1,'train/a.csv','df35ee0fa1a46deefad0815422bdb153',5,'5d41402abc4b2a76b9719d911017c592',1795248496763,'{"content_type":"text/csv","headers":{"cache-control":"no-store"},"user":{"k":"v"},"checksums":{"crc32":"NhCmhg=="}}');
CREATE TABLE part (
  upload TEXT NOT NULL, number INTEGER NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, checksums TEXT NOT NULL, PRIMARY KEY (upload, number)) WITHOUT ROWID;
INSERT INTO "part" VALUES('b998152bfe243e81f2ae3a616fa45d1b',1,'070e6a42d5051505f1de01a9de1afc91',4,'f4c9385f1902f7334b00b9b4ecd164de',1795248496765,'{"crc32":"AAAAAA=="}');
CREATE TABLE upload (
  id TEXT PRIMARY KEY, bucket INTEGER NOT NULL, key TEXT NOT NULL, created_ms INTEGER NOT NULL,
  attributes TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "upload" VALUES('b998152bfe243e81f2ae3a616fa45d1b',1,'model',1795248496764,'{"content_type":"text/csv","headers":{"cache-control":"no-store"},"user":{"k":"v"},"checksums":{"crc32":"NhCmhg=="}}');
CREATE TABLE unsynced (number INTEGER PRIMARY KEY, file TEXT NOT NULL, content BLOB NOT NULL);
INSERT INTO "unsynced" VALUES(3,'df35ee0fa1a46deefad0815422bdb153',X'68656C6C6F');
CREATE TABLE block_sums (file TEXT PRIMARY KEY, sums BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "block_sums" VALUES('070e6a42d5051505f1de01a9de1afc91',X'BFE9586F077593A1');
COMMIT;
