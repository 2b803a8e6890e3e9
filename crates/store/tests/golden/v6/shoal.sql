PRAGMA user_version = 6;
BEGIN TRANSACTION;
CREATE TABLE event (version INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
INSERT INTO "event" VALUES(3,X'7468726565');
CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, bytes BLOB NOT NULL);
INSERT INTO "snapshot" VALUES(1,2,X'6F6E652074776F');
CREATE TABLE checkpoint (
  job TEXT NOT NULL, path TEXT NOT NULL, host INTEGER NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
  saved_ms INTEGER NOT NULL, PRIMARY KEY (job, path, host)) WITHOUT ROWID;
INSERT INTO "checkpoint" VALUES('titanic','epoch-1/model.pt',2,5,'2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824',1700000000900);
CREATE TABLE trial (
    job TEXT NOT NULL UNIQUE, tuning TEXT NOT NULL, created_ms INTEGER NOT NULL, status TEXT NOT NULL, value REAL,
    tuned BLOB NOT NULL, view BLOB NOT NULL);
CREATE INDEX trial_by_name ON trial (tuning, job, status);
CREATE INDEX trial_by_creation ON trial (tuning, created_ms, job, status);
CREATE INDEX trial_by_status ON trial (tuning, status, job);
CREATE INDEX trial_by_value ON trial (tuning, value, job, status) WHERE value IS NOT NULL;
CREATE TABLE tuner_record (
    tuning TEXT NOT NULL, seq INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (tuning, seq)) WITHOUT ROWID;
INSERT INTO "trial" VALUES('titanic','tune',1700000000000,'Completed',0.75,X'7B22657461223A22302E31227D',X'7B7D');
INSERT INTO "tuner_record" VALUES('tune',1,X'6F6E65');
INSERT INTO "tuner_record" VALUES('tune',2,X'74776F');
CREATE TABLE resource (
  kind TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL, arn TEXT NOT NULL,
  created_ms INTEGER NOT NULL, modified_ms INTEGER NOT NULL, ended_ms INTEGER,
  status TEXT NOT NULL, ended INTEGER NOT NULL, parent TEXT, key_1, key_2,
  request BLOB NOT NULL, view BLOB NOT NULL, tags BLOB NOT NULL, spec BLOB NOT NULL DEFAULT x'', creator TEXT, UNIQUE (kind, name));
INSERT INTO resource VALUES('training-job','titanic','0123abcd','arn:aws:sagemaker:us-east-1:123456789012:training-job/titanic',1700000000000,1700000001000,1700000002000,'Completed',1,'tune','Completed',NULL,X'7B22547261696E696E674A6F624E616D65223A22746974616E6963227D',X'7B22737461747573223A22436F6D706C65746564227D',X'5B5D',X'7B2276223A317D','anna');
INSERT INTO resource VALUES('hyper-parameter-tuning-job','tune','4567cdef','arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/tune',1700000000000,1700000001000,1700000002000,'Completed',1,NULL,NULL,NULL,X'7B224879706572506172616D6574657254756E696E674A6F624E616D65223A2274756E65227D',X'7B22737461747573223A22436F6D706C65746564227D',X'5B5D',X'7B2276223A317D','anna');
CREATE INDEX resource_by_creation ON resource (kind, created_ms, name, status, modified_ms);
CREATE INDEX resource_by_status ON resource (kind, status, name, created_ms, modified_ms);
CREATE INDEX resource_of_status_by_creation ON resource (kind, status, created_ms, name, modified_ms);
CREATE INDEX resource_of_parent_by_creation ON resource (kind, parent, created_ms, name) WHERE parent IS NOT NULL;
CREATE INDEX resource_by_key_1 ON resource (kind, key_1, name, status) WHERE key_1 IS NOT NULL AND kind <> 'training-job';
CREATE INDEX resource_by_key_2 ON resource (kind, key_2, name, status) WHERE key_2 IS NOT NULL AND kind <> 'training-job';
CREATE INDEX resource_without_spec ON resource (kind, name)
  WHERE spec = x'' AND kind IN ('training-job', 'hyper-parameter-tuning-job');
CREATE INDEX resource_of_creator_by_creation ON resource (kind, creator, created_ms, name) WHERE creator IS NOT NULL;
COMMIT;
