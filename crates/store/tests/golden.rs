//! Data directories of every format that was ever released stay readable: `golden/v<format>/` holds
//! the databases that had it as SQL.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use shoal_encryption::{CustomerKey, KeyRing, KeySource};
use shoal_store::{
    Bounds, DataDir, Journal, LogDirection, LogLines, LogQuery, Objects, PutCondition, ResourceFilter, ResourceKind,
    ResourceRow, ResourceSort, Rows, SqliteJournal, SqliteRows, StoreError, Summary, Telemetry, TrialFilter,
    Versioning,
};

/// Each database and its present format.
const DATABASES: [(&str, u32); 3] = [("shoal", 6), ("objects", 9), ("telemetry", 9)];

#[expect(clippy::unwrap_used, reason = "a test stops where it fails")]
fn golden(name: &str, format: u32) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{format}/{name}.sql")))
        .unwrap()
}

#[test]
fn format_1_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path();
    fs::write(root.join("VERSION"), "1\n").unwrap();
    fs::write(root.join("id"), "00112233aabbccdd\n").unwrap();
    for (name, _) in DATABASES {
        Connection::open(root.join(format!("{name}.db"))).unwrap().execute_batch(&golden(name, 1)).unwrap();
    }
    for (file, bytes) in [("df35ee0fa1a46deefad0815422bdb153", "hello"), ("070e6a42d5051505f1de01a9de1afc91", "part")] {
        let shard = root.join("objects").join(&file[..2]);
        fs::create_dir_all(&shard).unwrap();
        fs::write(shard.join(file), bytes).unwrap();
    }

    let dir = DataDir::open(root).unwrap();
    assert_eq!(dir.id(), "00112233aabbccdd");
    let journal = SqliteJournal::open(&dir.journal_path()).unwrap();
    assert_eq!(journal.snapshot().unwrap(), Some((2, b"one two".to_vec())));
    assert_eq!(journal.version().unwrap(), 3);
    assert_eq!(journal.rows().resource(ResourceKind::TRAINING_JOB, "titanic").unwrap(), Some(titanic(None)));
    assert_eq!(journal.rows().checkpoints("titanic", ("", 0), 9).unwrap(), []);

    let objects = Objects::open(&dir).unwrap();
    let (meta, mut file) = objects.read("data", "train/a.csv").unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), meta.size, meta.etag.as_str()), ("hello", 5, "5d41402abc4b2a76b9719d911017c592"));
    assert_eq!(meta.attributes.content_type.as_deref(), Some("text/csv"));
    assert_eq!(meta.attributes.headers, BTreeMap::from([("cache-control".to_owned(), "no-store".to_owned())]));
    assert_eq!(meta.attributes.checksums, BTreeMap::from([("crc32".to_owned(), "NhCmhg==".to_owned())]));
    let upload = &objects.uploads("data", "").unwrap()[0];
    assert_eq!(objects.parts(&upload.id).unwrap()[0].size, 4);

    let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
    assert_eq!(telemetry.acked("0123abcd-1", 1).unwrap(), 7);
    let stream = &telemetry.streams("titanic/", None, 9).unwrap()[0];
    assert_eq!((stream.lines, stream.last_ms), (2, Some(1_700_000_000_600)));
    let page = telemetry.read_logs(&LogQuery { stream: stream.name.clone(), ..LogQuery::default() }).unwrap().unwrap();
    assert_eq!(page.events[1].text, "done");
    assert_eq!(telemetry.read_points("titanic", "train:rmse", 0, u64::MAX).unwrap().len(), 1);
}

#[test]
fn format_2_of_the_journal_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("shoal.db");
    Connection::open(&path).unwrap().execute_batch(&golden("shoal", 2)).unwrap();
    let rows = SqliteJournal::open(&path).unwrap().rows();
    assert_eq!(rows.resource(ResourceKind::TRAINING_JOB, "titanic").unwrap(), Some(titanic(None)));
    let receipt = &rows.checkpoints("titanic", ("", 0), 9).unwrap()[0];
    assert_eq!(
        (receipt.path.as_str(), receipt.host, receipt.bytes, receipt.saved_ms),
        ("epoch-1/model.pt", 2, 5, 1_700_000_000_900)
    );
    assert!(receipt.sha256.starts_with("2cf24dba"));
    assert_eq!(rows.resource(ResourceKind::TUNING_JOB, "titanic").unwrap(), None);
}

/// The training job of the golden journals.
fn titanic(parent: Option<&str>) -> ResourceRow {
    ResourceRow {
        uid: "0123abcd".to_owned(),
        arn: "arn:aws:sagemaker:us-east-1:123456789012:training-job/titanic".to_owned(),
        created_ms: 1_700_000_000_000,
        modified_ms: 1_700_000_001_000,
        ended_ms: Some(1_700_000_002_000),
        status: "Completed".to_owned(),
        ended: true,
        parent: parent.map(str::to_owned),
        keys: [Some("Completed".into()), None],
        request: b"{\"TrainingJobName\":\"titanic\"}".to_vec(),
        view: b"{\"status\":\"Completed\"}".to_vec(),
        tags: b"[]".to_vec(),
        ..ResourceRow::new(ResourceKind::TRAINING_JOB, "titanic")
    }
}

/// Training jobs and tuning jobs of format 3 had a table each and are resources from format 4 on;
/// from format 5 on they have specs, from format 6 on creators.
#[test]
fn formats_3_to_6_of_the_journal_are_read() {
    let with_spec = "{\"v\":1}";
    for (format, spec, creator) in [(3, "", None), (4, "", None), (5, with_spec, None), (6, with_spec, Some("anna"))] {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("shoal.db");
        Connection::open(&path).unwrap().execute_batch(&golden("shoal", format)).unwrap();
        for _ in ["first", "again"] {
            let rows = SqliteJournal::open(&path).unwrap().rows();
            read_tuned(&rows, spec.as_bytes(), creator);
            assert_eq!(rows.without_spec().unwrap().len(), if spec.is_empty() { 2 } else { 0 });
        }
    }
}

#[expect(clippy::unwrap_used, reason = "a test stops where it fails")]
fn read_tuned(rows: &SqliteRows, spec: &[u8], creator: Option<&str>) {
    let tuning = ResourceKind::TUNING_JOB;
    let job = ResourceRow { spec: spec.to_owned(), creator: creator.map(str::to_owned), ..titanic(Some("tune")) };
    let expected = ResourceRow {
        uid: "4567cdef".to_owned(),
        arn: "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/tune".to_owned(),
        request: b"{\"HyperParameterTuningJobName\":\"tune\"}".to_vec(),
        kind: tuning,
        name: "tune".to_owned(),
        parent: None,
        keys: [None, None],
        ..job.clone()
    };
    assert_eq!(rows.resource(tuning, "tune").unwrap(), Some(expected.clone()));
    for sort in [ResourceSort::Name, ResourceSort::CreationTime, ResourceSort::Status] {
        let list = |kind| rows.list(&ResourceFilter { sort, ..ResourceFilter::new(kind) }).unwrap().rows;
        assert_eq!((list(job.kind), list(tuning)), (vec![job.clone()], vec![expected.clone()]));
    }
    let of_tune = ResourceFilter { parent: Some("tune".to_owned()), ..ResourceFilter::new(job.kind) };
    assert_eq!(rows.count(&of_tune).unwrap(), 1);
    let page = rows.list_trials(&TrialFilter { tuning: "tune".to_owned(), ..TrialFilter::default() }).unwrap();
    let (trial, of_trial) = &page.rows[0];
    assert_eq!((trial.value, trial.tuned.as_slice(), of_trial), (Some(0.75), &b"{\"eta\":\"0.1\"}"[..], &job));
    let mut records = Vec::new();
    let mut each = |seq: u64, bytes: &[u8]| {
        records.push((seq, bytes.to_vec()));
        Ok(())
    };
    rows.records("tune", 0, &mut each).unwrap();
    assert_eq!(records, [(1, b"one".to_vec()), (2, b"two".to_vec())]);
}

#[test]
fn format_2_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 2)).unwrap();
    // A crash has lost the file of the object; the part was durable.
    fs::create_dir_all(dir.objects_path().join("07")).unwrap();
    fs::write(dir.objects_path().join("07/070e6a42d5051505f1de01a9de1afc91"), "part").unwrap();
    let objects = Objects::open(&dir).unwrap();
    let mut text = String::new();
    objects.read("data", "train/a.csv").unwrap().1.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(objects.parts(&objects.uploads("data", "").unwrap()[0].id).unwrap()[0].size, 4);
}

#[test]
fn format_3_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 3)).unwrap();
    fs::create_dir_all(dir.objects_path().join("07")).unwrap();
    fs::write(dir.objects_path().join("07/070e6a42d5051505f1de01a9de1afc91"), "part").unwrap();
    let objects = Objects::open(&dir).unwrap();
    assert_eq!(objects.bucket_tags("data").unwrap(), BTreeMap::from([("kind".to_owned(), "raw".to_owned())]));
    // The part's sum is that of its content, so the object that is made of it is read by it.
    let upload = &objects.uploads("data", "").unwrap()[0].id;
    let chosen = [(1, objects.parts(upload).unwrap()[0].etag.clone())];
    objects.complete_upload(upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap();
    assert_eq!(objects.reader("data", "model").unwrap().read_all().unwrap(), b"part");
}

/// Two parts lie in one file, the third has its own; a crash left something half written behind
/// them.
#[test]
fn format_4_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 4)).unwrap();
    let parts = [vec![b'p'; 4096], b"part".to_vec(), b"part".to_vec()];
    let shared = [&parts[0][..], &parts[1], &[9; 8000]].concat();
    for (file, bytes) in
        [("5c3d0a7e9f1b42688d7c6e5f4a3b2c1d", &shared), ("070e6a42d5051505f1de01a9de1afc91", &parts[2])]
    {
        fs::create_dir_all(dir.objects_path().join(&file[..2])).unwrap();
        fs::write(dir.objects_path().join(&file[..2]).join(file), bytes).unwrap();
    }
    let objects = Objects::open(&dir).unwrap();
    assert_eq!(shoal_store::verify(temp.path(), &mut |_| {}).unwrap().damages, []);
    let upload = &objects.uploads("data", "").unwrap()[0].id;
    let chosen: Vec<_> = objects.parts(upload).unwrap().into_iter().map(|part| (part.number, part.etag)).collect();
    objects.complete_upload(upload, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap();
    let reader = objects.reader("data", "model").unwrap();
    assert_eq!(reader.read_all().unwrap(), parts.concat());
    let path = objects.path(&reader.meta);
    assert!(path.ends_with("5c/5c3d0a7e9f1b42688d7c6e5f4a3b2c1d"), "{}", path.display());
    assert_eq!(fs::metadata(path).unwrap().len(), reader.meta.size);
}

/// What another implementation has encrypted, under a key of the owner and under a customer's.
#[test]
fn format_8_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 8)).unwrap();
    let file = temp.path().join("team.key");
    fs::write(&file, "0b".repeat(32)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let sources = BTreeMap::from([("team".to_owned(), KeySource::File(file))]);
    let keys = KeyRing::open(&sources, "us-east-1", "123456789012").unwrap();
    let objects = Objects::open(&dir).unwrap().with_keys(Arc::new(keys));
    assert_eq!(objects.reader("data", "sealed").unwrap().read_all().unwrap(), b"plaintext of sealed");
    let customer = CustomerKey::of(&[b'k'; 32]).unwrap();
    assert_eq!(
        objects.reader_with("data", "own", None, Some(&customer)).unwrap().read_all().unwrap(),
        b"plaintext of own"
    );
    let rule = objects.bucket_encryption("data").unwrap().unwrap();
    assert_eq!((rule.kms.as_str(), rule.bucket_key), ("team", true));
    assert_eq!(shoal_store::verify(dir.root(), &mut |_| {}).unwrap().damages, []);
}

/// A bucket of its own, one that shows another store's, and one that did.
#[test]
fn format_9_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 9)).unwrap();
    let names = |objects: &Objects| Vec::from_iter(objects.buckets().unwrap().into_iter().map(|bucket| bucket.name));
    let objects = Objects::open(&dir).unwrap();
    assert_eq!(names(&objects), ["data", "shown"]);
    assert_eq!(objects.bucket_tags("shown").unwrap()["team"], "vision");
    let objects = objects.with_passthrough(BTreeMap::new(), 0).unwrap();
    assert_eq!(names(&objects), ["data"]);
    objects.create_bucket("hidden").unwrap();
    assert_eq!(names(&objects), ["data", "hidden"]);
}

/// One object waits to be sent elsewhere, one is there alone.
#[test]
fn format_5_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 5)).unwrap();
    let waits = dir.objects_path().join("aa/aa0e6a42d5051505f1de01a9de1afc91");
    fs::create_dir_all(waits.parent().unwrap()).unwrap();
    fs::write(&waits, vec![b'w'; 70_000]).unwrap();
    let error = Objects::open(&dir).unwrap_err();
    assert!(matches!(error, StoreError::ContentsElsewhere { objects: 1, bytes: 80_000 }), "{error}");
    let report = shoal_store::verify(temp.path(), &mut |_| {}).unwrap();
    assert_eq!((report.elsewhere, report.damages), (1, vec![]));

    // Its owner brings it.
    let there = dir.objects_path().join("bb/bb0e6a42d5051505f1de01a9de1afc91");
    fs::create_dir_all(there.parent().unwrap()).unwrap();
    fs::write(&there, vec![b't'; 80_000]).unwrap();
    let objects = Objects::open(&dir).unwrap();
    assert_eq!(objects.reader("data", "there").unwrap().read_all().unwrap(), vec![b't'; 80_000]);
    assert_eq!(shoal_store::verify(temp.path(), &mut |_| {}).unwrap().objects, 2);
}

/// A key with an earlier version, a null version and a delete marker over them, and another one.
#[test]
fn format_7_of_the_objects_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    Connection::open(dir.object_index_path()).unwrap().execute_batch(&golden("objects", 7)).unwrap();
    for (file, bytes) in [
        ("c10e6a42d5051505f1de01a9de1afc91", "null"),
        ("c20e6a42d5051505f1de01a9de1afc91", "first"),
        ("c30e6a42d5051505f1de01a9de1afc91", "present"),
    ] {
        fs::create_dir_all(dir.objects_path().join(&file[..2])).unwrap();
        fs::write(dir.objects_path().join(&file[..2]).join(file), bytes).unwrap();
    }
    let objects = Objects::open(&dir).unwrap();
    assert_eq!(objects.versioning("data").unwrap(), Versioning::Suspended);
    assert_eq!(objects.bucket_lifecycle("data").unwrap().as_deref(), Some("{\"rules\":[]}"));
    let listed = objects.list_versions("data", "", None, None, 9).unwrap().versions;
    let listed: Vec<_> = listed
        .iter()
        .map(|version| (version.key.as_str(), version.version.id(), version.noncurrent_ms, version.object.is_some()))
        .collect();
    let ids =
        ["01a1fd26207f0123456789abcdef0123", "01a1fd26207e0123456789abcdef0123", "01a1fd2620800123456789abcdef0123"];
    assert_eq!(
        listed,
        [
            ("gone", ids[0], None, false),
            ("gone", ids[1], Some(1_795_248_496_767), true),
            ("gone", "null", Some(1_795_248_496_766), true),
            ("kept", ids[2], None, true)
        ]
    );
    let read = |key: &str, id: &str| objects.reader_with("data", key, Some(id), None).unwrap().read_all().unwrap();
    assert_eq!((read("gone", "null"), read("gone", ids[1])), (b"null".to_vec(), b"first".to_vec()));
    assert_eq!(objects.reader("data", "kept").unwrap().read_all().unwrap(), b"present");
    assert_eq!(shoal_store::verify(temp.path(), &mut |_| {}).unwrap().objects, 3);
}

#[test]
fn format_2_of_telemetry_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 2)).unwrap();
    let telemetry = Telemetry::open(&path).unwrap();
    assert_eq!(telemetry.read_steps("titanic", "train:rmse", 0, 9).unwrap(), [(3, 0.5)]);
    assert_eq!(telemetry.warm_pool("titanic").unwrap(), None);
}

#[test]
fn format_3_of_telemetry_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 3)).unwrap();
    let pool = Telemetry::open(&path).unwrap().warm_pool("titanic").unwrap().unwrap();
    assert_eq!(
        (pool.status.as_str(), pool.retained_s, pool.reused_by.as_deref()),
        ("Reused", Some(12), Some("olympic"))
    );
}

#[test]
fn format_4_of_telemetry_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 4)).unwrap();
    let segment = "00112233445566778899aabbccddeeff";
    fs::create_dir(temp.path().join("logs")).unwrap();
    fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v4").join(segment),
        temp.path().join("logs").join(segment),
    )
    .unwrap();
    let telemetry = Telemetry::open(&path).unwrap();
    let query = LogQuery { stream: "titanic/algo-1-1700000000".to_owned(), ..LogQuery::default() };
    let lines =
        || telemetry.read_logs(&query).unwrap().unwrap().events.into_iter().map(|event| event.text).collect::<Vec<_>>();
    assert_eq!(lines(), ["[0]#011train-rmse:0.5", "out of order", "done"]);
    telemetry.delete_streams("titanic/").unwrap();
    assert!(!temp.path().join("logs").join(segment).exists());
}

#[test]
fn format_5_of_telemetry_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 5)).unwrap();
    let points = Telemetry::open(&path).unwrap().read_points("titanic", "train:rmse", 0, u64::MAX).unwrap();
    assert_eq!(
        points.iter().map(|point| (point.value, point.host)).collect::<Vec<_>>(),
        [(0.5, None), (0.25, Some(2))]
    );
}

#[test]
fn format_6_of_telemetry_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 6)).unwrap();
    let hosts = Telemetry::open(&path).unwrap().read_stretches("titanic", "train:rmse", 2, 9).unwrap().hosts;
    let hosts = hosts.into_iter().map(|(host, series)| (host, series.total, series.stretches.len()));
    assert_eq!(
        hosts.collect::<Vec<_>>(),
        [(None, 1, 0), (Some(2), 1, 0)],
        "the block's point counts, and lies outside"
    );
}

#[test]
fn format_7_of_telemetry_is_read() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 7)).unwrap();
    let telemetry = Telemetry::open(&path).unwrap();
    let host = telemetry.read_system("titanic", None, 0, u64::MAX).unwrap().remove(0);
    let points: Vec<_> = host.columns.iter().map(|(column, points)| (column.gpu, column.rank, points.len())).collect();
    assert_eq!((host.host, points), (2, vec![(None, None, 3), (None, Some(3), 3), (Some(1), None, 3)]));
    let short = host.columns.values().next().unwrap()[0];
    assert_eq!((short.at_ms, short.count, short.low, short.mean), (1_699_999_980_000, 60, 1.0, 50.0));
    let minute = telemetry.profiled_minutes(9).unwrap().remove(0);
    let rows = &telemetry.profiled_samples(&minute).unwrap().tables[0].rows;
    assert_eq!(rows.iter().map(|row| (row.at_ms, row.values[0])).collect::<Vec<_>>(), [(1_700_000_042_000, 100.5)]);
}

/// Earlier series get the summaries that they would have had.
#[test]
fn formats_6_to_9_of_telemetry_have_summaries() {
    for format in [6, 7, 8, 9] {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("telemetry.db");
        Connection::open(&path).unwrap().execute_batch(&golden("telemetry", format)).unwrap();
        let expected = Summary {
            metric: "train:rmse".to_owned(),
            points: 2,
            low: 0.25,
            high: 0.5,
            mean: 0.375,
            deviation: 0.125,
            last: 0.25,
            last_ms: 1_700_000_000_600,
        };
        assert_eq!(Telemetry::open(&path).unwrap().summaries("titanic").unwrap(), [expected], "format {format}");
    }
}

/// Lines of the first layout are read where they are, and moved by and by.
#[test]
fn old_lines_become_segments() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("telemetry.db");
    Connection::open(&path).unwrap().execute_batch(&golden("telemetry", 3)).unwrap();
    let telemetry = Telemetry::open(&path).unwrap();
    let stream = telemetry.streams("titanic/", None, 9).unwrap().remove(0);
    telemetry
        .append_logs(&[LogLines {
            stream: stream.name.clone(),
            lines: vec![(7, "more".to_owned())],
            ..LogLines::default()
        }])
        .unwrap();
    let page = |direction, limit| {
        let query = LogQuery { stream: stream.name.clone(), direction, limit, ..LogQuery::default() };
        telemetry.read_logs(&query).unwrap().unwrap().events.into_iter().map(|event| event.text).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(page(LogDirection::Forward, 9), ["[0]#011train-rmse:0.5", "done", "more"]);
        assert_eq!(page(LogDirection::Forward, 1), ["[0]#011train-rmse:0.5"]);
        assert_eq!(page(LogDirection::Backward, 2), ["done", "more"]);
        telemetry.tidy(0, &Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
    }
    let left: u64 =
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM line", [], |row| row.get(0)).unwrap();
    assert_eq!((left, fs::read_dir(temp.path().join("logs")).unwrap().count()), (0, 1));
}

/// Whoever changes a table makes a new format, with the code that brings the old one up to it.
#[test]
fn tables_change_only_with_the_format() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    SqliteJournal::open(&dir.journal_path()).unwrap();
    Objects::open(&dir).unwrap();
    Telemetry::open(&dir.telemetry_path()).unwrap();
    for (name, format) in DATABASES {
        let old = Connection::open_in_memory().unwrap();
        old.execute_batch(&golden(name, format)).unwrap();
        let new = Connection::open(temp.path().join(format!("{name}.db"))).unwrap();
        assert_eq!(schema(&new), schema(&old), "{name}.db");
    }
}

/// Version and definitions, whatever their line breaks.
#[expect(clippy::unwrap_used, reason = "a test stops where it fails")]
fn schema(connection: &Connection) -> (i64, Vec<String>) {
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    let mut select = connection.prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").unwrap();
    let definitions = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let words = |sql: String| sql.split_whitespace().collect::<Vec<_>>().join(" ");
    (version, definitions.map(|sql| words(sql.unwrap())).collect())
}

#[test]
fn a_database_of_a_newer_format_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("shoal.db");
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
    let error = SqliteJournal::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Format { .. }), "{error}");
    assert!(
        error.to_string().contains("has format 7, this version of shoal reads format 6; use the version that wrote it"),
        "{error}"
    );
}
