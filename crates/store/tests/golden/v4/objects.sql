PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE bucket (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL, tags TEXT NOT NULL DEFAULT '{}');
INSERT INTO "bucket" VALUES(1,'data',1795248496762,'{"kind":"raw"}');
CREATE TABLE object (
  bucket INTEGER NOT NULL, key TEXT NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, attributes TEXT NOT NULL, PRIMARY KEY (bucket, key)) WITHOUT ROWID;
INSERT INTO "object" VALUES(1,'train/a.csv','df35ee0fa1a46deefad0815422bdb153',5,'5d41402abc4b2a76b9719d911017c592',1795248496763,'{"content_type":"text/csv","headers":{"cache-control":"no-store"},"user":{"k":"v"},"checksums":{"crc32":"NhCmhg=="}}');
CREATE TABLE part (
  upload TEXT NOT NULL, number INTEGER NOT NULL, file TEXT NOT NULL, size INTEGER NOT NULL, etag TEXT NOT NULL,
  modified_ms INTEGER NOT NULL, checksums TEXT NOT NULL, shared TEXT, slot INTEGER, PRIMARY KEY (upload, number)) WITHOUT ROWID;
INSERT INTO "part" VALUES('b998152bfe243e81f2ae3a616fa45d1b',1,'1f0e2d3c4b5a69788796a5b4c3d2e1f0',4096,'880a24c744f0957afae5da899b5333dd',1795248496765,'{"crc32":"AAAAAA=="}','5c3d0a7e9f1b42688d7c6e5f4a3b2c1d',4096);
INSERT INTO "part" VALUES('b998152bfe243e81f2ae3a616fa45d1b',2,'2a3b4c5d6e7f80919293a4b5c6d7e8f9',4,'f4c9385f1902f7334b00b9b4ecd164de',1795248496766,'{"crc32":"AAAAAA=="}','5c3d0a7e9f1b42688d7c6e5f4a3b2c1d',4096);
INSERT INTO "part" VALUES('b998152bfe243e81f2ae3a616fa45d1b',3,'070e6a42d5051505f1de01a9de1afc91',4,'f4c9385f1902f7334b00b9b4ecd164de',1795248496767,'{"crc32":"AAAAAA=="}',NULL,NULL);
CREATE TABLE upload (
  id TEXT PRIMARY KEY, bucket INTEGER NOT NULL, key TEXT NOT NULL, created_ms INTEGER NOT NULL,
  attributes TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "upload" VALUES('b998152bfe243e81f2ae3a616fa45d1b',1,'model',1795248496764,'{"content_type":"text/csv","headers":{"cache-control":"no-store"},"user":{"k":"v"},"checksums":{"crc32":"NhCmhg=="}}');
CREATE TABLE unsynced (number INTEGER PRIMARY KEY, file TEXT NOT NULL, content BLOB NOT NULL);
INSERT INTO "unsynced" VALUES(3,'df35ee0fa1a46deefad0815422bdb153',X'68656C6C6F');
CREATE TABLE block_sums (file TEXT PRIMARY KEY, sums BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "block_sums" VALUES('1f0e2d3c4b5a69788796a5b4c3d2e1f0',X'B6463FB66CF582E3');
INSERT INTO "block_sums" VALUES('2a3b4c5d6e7f80919293a4b5c6d7e8f9',X'BFE9586F077593A1');
INSERT INTO "block_sums" VALUES('070e6a42d5051505f1de01a9de1afc91',X'BFE9586F077593A1');
COMMIT;
