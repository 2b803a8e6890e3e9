//! What was acknowledged survives `kill -9`, whole, and what was not leaves nothing behind.
//!
//! The parent starts this program again as a writer that prints a line after each durable write,
//! kills it at a random moment, opens the directory and looks; ten times over the same directory.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use shoal_encryption::{KeyRing, KeySource};
use shoal_store::{
    Attributes, Batch, BucketEncryption, DataDir, Expired, Ingest, Journal, LogLines, LogQuery, Objects, PutCondition,
    ResourceKind, ResourceRow, RowChange, Rows, SqliteJournal, Telemetry, VersionPlace, Versioning,
};

const ROUNDS: u32 = 10;
const TEST: &str = "acknowledged_writes_survive_kill";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("writer") => write_until_killed(Path::new(&arguments[2])),
        // What libtest prints, for those who list and count tests.
        Some("--list") => println!("{TEST}: test"),
        _ => {
            println!("\nrunning 1 test");
            acknowledged_writes_survive_kill();
            println!(
                "test {TEST} ... ok\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
            );
        }
    }
}

/// Versions of the key that has some.
const KEPT: usize = 3;

/// Parts of this length are written to their places in the object's file.
const SLOT: usize = 96 << 10;

/// The content that belongs to a key, of up to 40 kB, or of four parts that are no small ones.
fn content(key: &str) -> Vec<u8> {
    let seed = key.bytes().fold(7_u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let length = if key.starts_with("long-") { 3 * SLOT as u32 + 70_000 } else { seed % 40_000 };
    (0..length).map(|n| seed.wrapping_add(n.wrapping_mul(2_654_435_761)).to_le_bytes()[3]).collect()
}

/// The same key for all rounds.
fn keys(data_dir: &Path) -> Arc<KeyRing> {
    let path = data_dir.with_extension("key");
    if !path.exists() {
        std::fs::write(&path, "0b".repeat(32)).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let sources = BTreeMap::from([("team".to_owned(), KeySource::File(path))]);
    Arc::new(KeyRing::open(&sources, "us-east-1", "123456789012").unwrap())
}

fn write_until_killed(path: &Path) {
    let dir = DataDir::open(path).unwrap();
    let objects = Objects::open(&dir).unwrap().with_keys(keys(path));
    let mut journal = SqliteJournal::open(&dir.journal_path()).unwrap();
    let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
    if objects.bucket("b").unwrap().is_none() {
        objects.create_bucket("b").unwrap();
    }
    if objects.bucket("kept").unwrap().is_none() {
        objects.create_bucket("kept").unwrap();
    }
    objects.set_versioning("kept", Versioning::Enabled).unwrap();
    objects.set_bucket_lifecycle("kept", Some("rules")).unwrap();
    let said = |line: String| println!("{line}");
    for turn in 0_u64.. {
        let key = format!("{}-{turn}", std::process::id());
        // Every other turn's objects are encrypted.
        let rule = BucketEncryption { kms: "team".to_owned(), bucket_key: false };
        objects
            .set_bucket_encryption(
                "b",
                Some(&rule).filter(|_| (u64::from(std::process::id()) + turn).is_multiple_of(2)),
            )
            .unwrap();
        objects.put("b", &key, &content(&key), &Attributes::default()).unwrap();
        said(format!("object {key}"));

        let replaced = objects.put("b", "replaced", &content(&key), &Attributes::default()).unwrap();
        said(format!("replaced {}", replaced.etag));

        // Earlier versions stay, but for those that expire: all but the newest few.
        let version = objects.put("kept", "k", &content(&key), &Attributes::default()).unwrap().version;
        println!("version {} {key}", version.id());
        let all = objects.walk_versions("kept", &VersionPlace::default(), usize::MAX).unwrap();
        let expired: Vec<_> = all.iter().skip(KEPT).map(|old| Expired::Noncurrent(old.into())).collect();
        objects.expire("kept", "rules", &expired).unwrap().unwrap();

        let upload = objects.create_upload("b", &format!("joined-{key}"), &Attributes::default(), None).unwrap();
        let body = content(&format!("joined-{key}"));
        let parts = [(1, &body[..body.len() / 2]), (2, &body[body.len() / 2..])].map(|(number, half)| {
            let writer = objects.writer().unwrap();
            let mut writer = objects.seal_part(writer, &objects.upload(&upload).unwrap(), None).unwrap();
            writer.append(half).unwrap();
            (number, objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap().etag)
        });
        objects.complete_upload(&upload, &parts, &BTreeMap::new(), &PutCondition::Always).unwrap();
        said(format!("object joined-{key}"));

        let upload = objects.create_upload("b", &format!("long-{key}"), &Attributes::default(), None).unwrap();
        let body = content(&format!("long-{key}"));
        let parts: Vec<_> = (1..)
            .zip(body.chunks(SLOT))
            .map(|(number, part)| {
                let writer = objects.part_writer(&upload, number, Some(part.len() as u64)).unwrap();
                let mut writer = objects.seal_part(writer, &objects.upload(&upload).unwrap(), None).unwrap();
                writer.append(part).unwrap();
                (number, objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap().etag)
            })
            .collect();
        said(format!("upload {upload}"));
        objects.complete_upload(&upload, &parts, &BTreeMap::new(), &PutCondition::Always).unwrap();
        said(format!("object long-{key}"));

        let next = journal.version().unwrap() + 1;
        let events: Vec<_> = (next..next + 1 + turn % 3).map(|version| version.to_string().into_bytes()).collect();
        let row =
            ResourceRow { view: events.last().unwrap().clone(), ..ResourceRow::new(ResourceKind::TRAINING_JOB, "job") };
        let version = journal.append(&Batch { events, rows: vec![RowChange::Put(Box::new(row))] }).unwrap();
        said(format!("journal {version}"));

        // As an agent does after a reconnection: once more what is acknowledged, then what is not.
        let acked = telemetry.acked("attempt", 1).unwrap();
        for seq in [acked, acked + 1] {
            // So long that segments are made, too.
            let logs = vec![LogLines {
                stream: "s".to_owned(),
                lines: vec![(seq, format!("{seq}{}", " ".repeat(300_000)))],
                ..LogLines::default()
            }];
            let report = Ingest { attempt: "attempt".to_owned(), host: 1, seq, logs, ..Ingest::default() };
            let acked = telemetry.ingest(&report).unwrap();
            said(format!("report {acked}"));
        }
    }
}

/// What the writer was told is durable.
#[derive(Default)]
struct Acknowledged {
    objects: Vec<String>,
    /// Versions of one key, in their order: id, and whose content it has.
    versions: Vec<(String, String)>,
    /// The newest upload that has all its parts.
    whole_upload: Option<String>,
    version: u64,
    seq: u64,
}

fn acknowledged_writes_survive_kill() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("data");
    let mut acknowledged = Acknowledged::default();
    for round in 0..ROUNDS {
        let before = acknowledged.objects.len();
        write_and_kill(&path, &mut acknowledged);
        check(&path, &acknowledged);
        let objects = acknowledged.objects.len() - before;
        println!("round {round}: {objects} objects, version {}, report {}", acknowledged.version, acknowledged.seq);
    }
    assert!(acknowledged.objects.len() > 20, "the writer was hardly heard");
}

fn write_and_kill(path: &Path, acknowledged: &mut Acknowledged) {
    let mut writer =
        Command::new(std::env::current_exe().unwrap()).arg("writer").arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut random = [0; 2];
    getrandom::fill(&mut random).unwrap();
    let first = lines.next().unwrap().unwrap();
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_micros(u64::from(u16::from_le_bytes(random)) * 6));
        writer.kill().unwrap();
        writer.wait().unwrap();
    });
    // A line this short goes into the pipe at once: the kill cuts none.
    for line in [Ok(first)].into_iter().chain(lines) {
        let line = line.unwrap();
        match line.split_once(' ') {
            Some(("object", key)) => acknowledged.objects.push(key.to_owned()),
            Some(("journal", version)) => acknowledged.version = version.parse().unwrap(),
            Some(("report", seq)) => acknowledged.seq = seq.parse().unwrap(),
            Some(("upload", id)) => acknowledged.whole_upload = Some(id.to_owned()),
            Some(("version", named)) => {
                let (id, of) = named.split_once(' ').unwrap();
                acknowledged.versions.push((id.to_owned(), of.to_owned()));
            }
            Some(("replaced", _)) => {}
            _ => panic!("what is `{line}`?"),
        }
    }
    killer.join().unwrap();
}

fn check(path: &Path, acknowledged: &Acknowledged) {
    let dir = DataDir::open(path).unwrap();
    let objects = Objects::open(&dir).unwrap().with_keys(keys(path));
    let read = |key: &str| {
        let reader = objects.reader("b", key).unwrap();
        let bytes = reader.read_all().unwrap();
        assert_eq!(reader.meta.size, bytes.len() as u64);
        bytes
    };
    for key in &acknowledged.objects {
        assert!(objects.get("b", key).unwrap().is_some(), "{key} was acknowledged and is gone");
    }
    // Whatever is there is whole, acknowledged or not.
    let listing = objects.list("b", "", None, None, usize::MAX).unwrap();
    for meta in &listing.objects {
        let bytes = read(&meta.key);
        assert!(meta.key == "replaced" || bytes == content(&meta.key), "{} is not whole", meta.key);
    }
    let versions = check_versions(&objects, acknowledged);
    let mut parts_files = 0;
    for upload in objects.uploads("b", "").unwrap() {
        let parts = objects.parts(&upload.id).unwrap();
        let is_long = upload.key.starts_with("long-");
        // The long ones share a file.
        parts_files += if is_long { parts.len().min(1) } else { parts.len() };
        // What was acknowledged can be completed after the crash.
        if acknowledged.whole_upload.as_ref() == Some(&upload.id) {
            assert!(is_long && parts.len() == 4, "{parts:?}");
            let chosen: Vec<_> = parts.into_iter().map(|part| (part.number, part.etag)).collect();
            objects.complete_upload(&upload.id, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap();
            assert!(read(&upload.key) == content(&upload.key), "{} is not whole", upload.key);
        }
    }
    let files = walk(&dir.objects_path());
    assert_eq!(files, listing.objects.len() + versions + parts_files, "files without rows are swept");

    let journal = SqliteJournal::open(&dir.journal_path()).unwrap();
    let version = journal.version().unwrap();
    assert!(version >= acknowledged.version);
    let mut expected = 0;
    let mut next = |at: u64, bytes: &[u8]| {
        expected += 1;
        assert_eq!((at, bytes), (expected, expected.to_string().as_bytes()));
        Ok(())
    };
    journal.events_after(0, &mut next).unwrap();
    assert_eq!(expected, version);
    let row = journal.rows().resource(ResourceKind::TRAINING_JOB, "job").unwrap();
    assert_eq!(
        row.map_or(0, |row| String::from_utf8(row.view).unwrap().parse().unwrap()),
        version,
        "rows go with their events"
    );

    let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
    let seq = telemetry.acked("attempt", 1).unwrap();
    assert!(seq >= acknowledged.seq);
    let lines =
        telemetry.read_logs(&LogQuery { stream: "s".to_owned(), limit: usize::MAX, ..LogQuery::default() }).unwrap();
    let lines: Vec<u64> =
        lines.map_or(Vec::new(), |page| page.events.iter().map(|event| event.text.trim().parse().unwrap()).collect());
    assert_eq!(lines, (1..=seq).collect::<Vec<_>>(), "every report counts once");
    let segments = walk(&path.join("logs"));
    assert!(segments as u64 >= seq / 100, "{segments} segments after {seq} reports");
}

/// The newest versions are there, those before them went with their files; returns how many are
/// left. One that was durable before it was acknowledged is among the newest as well.
fn check_versions(objects: &Objects, acknowledged: &Acknowledged) -> usize {
    if objects.bucket("kept").unwrap().is_none() {
        return 0;
    }
    let found = objects.walk_versions("kept", &VersionPlace::default(), usize::MAX).unwrap();
    let is_left = |(id, _): &&(String, String)| found.iter().any(|it| it.version.id() == *id);
    let newest = || acknowledged.versions.iter().rev();
    let left = newest().take_while(is_left).count();
    assert!(!newest().skip(left).any(|it| is_left(&it)), "an earlier version outlives a later one");
    assert!(found.len() >= KEPT.min(acknowledged.versions.len()), "{} versions are left", found.len());
    for (id, of) in newest().take(left) {
        let reader = objects.reader_with("kept", "k", Some(id), None).unwrap();
        assert!(reader.read_all().unwrap() == content(of), "version {id} is not whole");
    }
    // One may have been made, and nothing expired, when the writer was killed.
    assert!(found.len() <= KEPT + 1, "{} versions are left", found.len());
    found.len()
}

fn walk(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}
