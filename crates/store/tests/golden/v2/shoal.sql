PRAGMA user_version = 2;
BEGIN TRANSACTION;
CREATE TABLE event (version INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
INSERT INTO "event" VALUES(3,X'7468726565');
CREATE TABLE job (
  name TEXT NOT NULL UNIQUE, uid TEXT NOT NULL, arn TEXT NOT NULL,
  created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, ended_ms INTEGER,
  status TEXT NOT NULL, secondary TEXT NOT NULL, ended INTEGER NOT NULL,
  request BLOB NOT NULL, view BLOB NOT NULL, tags BLOB NOT NULL);
INSERT INTO "job" VALUES('titanic','0123abcd','arn:aws:sagemaker:us-east-1:123456789012:training-job/titanic',1700000000000,1700000001000,1700000002000,'Completed','Completed',1,X'7B22547261696E696E674A6F624E616D65223A22746974616E6963227D',X'7B22737461747573223A22436F6D706C65746564227D',X'5B5D');
CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, bytes BLOB NOT NULL);
INSERT INTO "snapshot" VALUES(1,2,X'6F6E652074776F');
CREATE INDEX job_by_creation ON job (created_ms, name, status, modified_ms);
CREATE INDEX job_by_status ON job (status, name, created_ms, modified_ms);
CREATE INDEX job_of_status_by_creation ON job (status, created_ms, name, modified_ms);
CREATE TABLE checkpoint (
  job TEXT NOT NULL, path TEXT NOT NULL, host INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
  saved_ms INTEGER NOT NULL, PRIMARY KEY (job, path, host)) WITHOUT ROWID;
INSERT INTO "checkpoint" VALUES('titanic','epoch-1/model.pt',2,5,'2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824',1700000000900);
COMMIT;
