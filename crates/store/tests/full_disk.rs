//! A full disk is told as such, nothing is half written, and when there is room again all goes on.
//!
//! The disk is a small tmpfs in a mount namespace that this program starts itself again in.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::path::Path;
use std::process::{Command, Output};

use shoal_store::{
    Attributes, Batch, Bounds, DataDir, Ingest, Journal, LogLines, Objects, ResourceKind, ResourceRow, RowChange, Rows,
    SqliteJournal, StoreError, Telemetry,
};

const TEST: &str = "a_full_disk_is_told_and_survived";
const ENTER: &str = r#"mount -t tmpfs -o size=32m tmpfs "$1" && exec "$2" inside "$1""#;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("inside") => fill(Path::new(&arguments[2])),
        Some("--list") => println!("{TEST}: test"),
        _ => {
            println!("\nrunning 1 test");
            let skipped = !in_own_mounts(&["true"]).is_ok_and(|output| output.status.success());
            if skipped {
                println!("test {TEST} ... ignored, needs user namespaces");
            } else {
                let (disk, program) = (tempfile::tempdir().unwrap(), std::env::current_exe().unwrap());
                let output =
                    in_own_mounts(&["sh", "-c", ENTER, "sh", disk.path().to_str().unwrap(), program.to_str().unwrap()])
                        .unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                println!("test {TEST} ... ok");
            }
            let (passed, ignored) = if skipped { (0, 1) } else { (1, 0) };
            println!("\ntest result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured; 0 filtered out");
        }
    }
}

fn in_own_mounts(command: &[&str]) -> std::io::Result<Output> {
    Command::new("unshare").args(["--user", "--map-root-user", "--mount"]).args(command).output()
}

fn fill(disk: &Path) {
    let dir = DataDir::open(&disk.join("data")).unwrap();
    let objects = Objects::open(&dir).unwrap();
    objects.create_bucket("b").unwrap();
    let mut journal = SqliteJournal::open(&dir.journal_path()).unwrap();
    let put = |key: &str| objects.put("b", key, &[7; 300_000], &Attributes::default());
    let row = |version: u64| ResourceRow {
        view: version.to_string().into_bytes(),
        ..ResourceRow::new(ResourceKind::TRAINING_JOB, "job")
    };
    let batch = |version| Batch { events: vec![vec![0; 50_000]], rows: vec![RowChange::Put(Box::new(row(version)))] };

    let ballast = disk.join("ballast");
    std::fs::write(&ballast, vec![0; 12 << 20]).unwrap();
    let (mut stored, mut version) = (0, 0);
    let full = loop {
        match put(&stored.to_string()) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Full(_)), "{full:?}");
    let full = loop {
        match journal.append(&batch(version + 1)) {
            Ok(now) => version = now,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Full(_)), "{full:?}");
    assert!(full.to_string().starts_with("no space left"), "{full}");

    let check = |journal: &SqliteJournal, version: u64| {
        assert_eq!(journal.version().unwrap(), version);
        assert_eq!(
            journal.rows().resource(ResourceKind::TRAINING_JOB, "job").unwrap().map(|row| row.view),
            Some(version.to_string().into_bytes())
        );
    };
    check(&journal, version);
    assert_eq!(objects.list("b", "", None, None, 1000).unwrap().objects.len(), stored);

    std::fs::remove_file(&ballast).unwrap();
    put("more").unwrap();
    let version = journal.append(&batch(version + 1)).unwrap();
    check(&journal, version);
    drop((journal, objects, dir));

    let dir = DataDir::open(&disk.join("data")).unwrap();
    let objects = Objects::open(&dir).unwrap();
    assert_eq!(objects.list("b", "", None, None, 1000).unwrap().objects.len(), stored + 1);
    check(&SqliteJournal::open(&dir.journal_path()).unwrap(), version);
    for number in 1..stored {
        objects.delete("b", &number.to_string()).unwrap();
    }
    log_until_full(&dir, &objects, disk);
}

/// Log lines never use the reserve: facts, deletes, acknowledgements and a start find room while
/// nothing else does.
fn log_until_full(dir: &DataDir, objects: &Objects, disk: &Path) {
    let mut journal = SqliteJournal::open(&dir.journal_path()).unwrap();
    dir.ensure_room().unwrap();
    let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
    let report = |seq: u64, lines: u64| Ingest {
        attempt: "u-1".to_owned(),
        host: 1,
        seq,
        logs: vec![LogLines {
            stream: "job/algo-1".to_owned(),
            lines: (0..lines).map(|line| (line, noise(seq * 100 + line))).collect(),
            ..LogLines::default()
        }],
        job: "job".to_owned(),
        ..Ingest::default()
    };
    let mut acked = 0;
    let full = loop {
        match telemetry.ingest(&report(acked + 1, 100)) {
            Ok(now) => acked = now,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Full(_)), "{full:?}");
    let fill = || {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(disk.join("ballast")).unwrap();
        while std::io::Write::write(&mut file, &[0; 4096]).is_ok_and(|written| written > 0) {}
    };
    fill();
    assert_eq!(std::fs::metadata(disk.join("data/reserve")).unwrap().len(), 8 << 20, "log lines have used the reserve");
    // Something else on the disk takes what the reserve gives, at once.
    std::fs::remove_file(disk.join("data/reserve")).unwrap();
    fill();
    for _ in 0..20 {
        let row = ResourceRow {
            view: (journal.version().unwrap() + 1).to_string().into_bytes(),
            ..ResourceRow::new(ResourceKind::TRAINING_JOB, "job")
        };
        journal.append(&Batch { events: vec![vec![0; 500]], rows: vec![RowChange::Put(Box::new(row))] }).unwrap();
        fill();
    }
    assert!(objects.delete("b", "0").unwrap());
    acked = telemetry.ingest(&report(acked + 1, 0)).unwrap();
    assert!(matches!(telemetry.ingest(&report(acked + 1, 1)), Err(StoreError::Full(_))));
    drop(telemetry);
    let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
    assert_eq!(telemetry.acked("u-1", 1).unwrap(), acked);
    telemetry.delete_streams("job/").unwrap();
    telemetry.delete_series("job").unwrap();
    telemetry.tidy(0, &Bounds { bytes: u64::MAX, oldest_ms: 0 }).unwrap();
    std::fs::remove_file(disk.join("ballast")).unwrap();
    let first = acked;
    while let Ok(now) = telemetry.ingest(&report(acked + 1, 100)) {
        acked = now;
    }
    assert!(acked - first > first / 2, "the space of {first} reports holds only {}", acked - first);
}

/// A line of a thousand characters that hardly compresses.
fn noise(seed: u64) -> String {
    let mut state = seed.wrapping_mul(2) + 1;
    let mut digit = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    };
    (0..1000).map(|_| digit()).collect()
}
