use std::path::Path;

use shoal_wire::timestamp;

use super::*;
use crate::{AuditFault, AuditReport, audit::verify};

pub(in crate::audit) fn owner() -> AccessKeys {
    AccessKeys { access_key_id: "AKIA0".to_owned(), secret_access_key: "secret".to_owned(), session_token: None }
}

pub(in crate::audit) fn record(operation: &str, user: &str) -> Record {
    Record {
        time: "2026-11-27T00:00:00.000Z".to_owned(),
        id: format!("id-{operation}-{user}"),
        user: user.to_owned(),
        arn: format!("arn:aws:iam::123456789012:user/{user}"),
        service: "sagemaker".to_owned(),
        operation: operation.to_owned(),
        ..Record::default()
    }
}

/// Writes this many lines, `full` bytes to a file.
pub(in crate::audit) fn write(dir: &Path, lines: usize, full: u64) {
    let (log, thread) = AuditLog::open_with(Directory::new(dir), owner(), full, None).unwrap();
    for at in 0..lines {
        log.note(record(&format!("Stop{at}"), "anna"));
        if at % 3 == 2 {
            log.flush();
        }
    }
    log.end();
    thread.join().unwrap();
}

#[test]
fn a_chain_goes_on_over_files_and_starts() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        write(dir.path(), 7, 600);
    }
    let files = Directory::new(dir.path()).files().unwrap();
    assert!(files.len() > 3, "{files:?}");
    for file in &files {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let report = verify(dir.path(), &owner()).unwrap();
    assert_eq!((report.lines, report.faults), (21, vec![]));
}

#[test]
fn files_that_are_too_old_go_and_are_not_missed() {
    const NOON: u64 = 1_700_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::new(dir.path());
    let mut writer = Writer { days: NonZeroU32::new(3), ..Writer::open(directory.clone(), owner(), 1 << 20).unwrap() };
    let lost = AtomicU64::new(0);
    // Two lines a day, for six days.
    for half in 0..12 {
        let now = NOON + half * DAY_MS / 2;
        writer.append(Record { time: timestamp::iso8601_ms(now), ..record("Stop", "anna") }, &lost);
        writer.expire(now).unwrap();
    }
    let files = directory.files().unwrap();
    let firsts = Vec::from_iter(files.iter().filter_map(|path| first_of(path)));
    assert_eq!(firsts, [4, 7, 10], "{files:?}");
    let report = verify(dir.path(), &owner()).unwrap();
    assert_eq!((report.lines, report.faults), (9, vec![]));
    // A kill between the seal and the removal: what is before the seal's first line counts no more.
    let oldest = std::fs::read(&files[0]).unwrap();
    writer.expire(NOON + 9 * DAY_MS).unwrap();
    std::fs::write(&files[0], oldest).unwrap();
    drop(writer);
    assert_eq!(verify(dir.path(), &owner()).unwrap().faults, []);
    write(dir.path(), 1, 1 << 20);
    assert_eq!(verify(dir.path(), &owner()).unwrap().faults, []);
    // What stays must be there.
    std::fs::remove_file(directory.current()).unwrap();
    assert!(!verify(dir.path(), &owner()).unwrap().faults.is_empty());
}

#[test]
fn nothing_that_was_removed_before_is_hidden_by_what_is_too_old() {
    const NOON: u64 = 1_700_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let directory = Directory::new(dir.path());
    let mut writer = Writer { days: NonZeroU32::new(9), ..Writer::open(directory.clone(), owner(), 1 << 20).unwrap() };
    for day in 0..4 {
        let time = timestamp::iso8601_ms(NOON + day * DAY_MS);
        writer.append(Record { time, ..record("Stop", "anna") }, &AtomicU64::new(0));
        writer.expire(NOON + (day + 1) * DAY_MS).unwrap();
    }
    let files = directory.files().unwrap();
    std::fs::remove_file(&files[1]).unwrap();
    let error = writer.expire(NOON + 30 * DAY_MS).unwrap_err().to_string();
    assert!(error.contains("line 2 was removed"), "{error}");
    assert!(files[0].exists());
    assert_eq!(verify(dir.path(), &owner()).unwrap().faults, [AuditFault::Removed(2, 2)]);
}

#[test]
fn what_was_changed_while_no_server_ran_stays_found() {
    let change = |dir: &Path, of: fn(&str) -> String| {
        let path = dir.join("audit.log");
        std::fs::write(&path, of(&std::fs::read_to_string(&path).unwrap())).unwrap();
    };
    let faults = |dir: &Path| verify(dir, &owner()).unwrap().faults;
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 3, 1 << 20);
    change(dir.path(), |text| text.replace("Stop2", "Nope2"));
    write(dir.path(), 1, 1 << 20);
    assert_eq!(faults(dir.path()), [AuditFault::Changed(3)]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 3, 1 << 20);
    change(dir.path(), |text| text.lines().next().unwrap().to_owned() + "\n");
    std::fs::remove_file(dir.path().join("audit.seal")).unwrap();
    write(dir.path(), 1, 1 << 20);
    assert_eq!(faults(dir.path()), [AuditFault::Changed(1)], "the seal was removed, too");
}

#[test]
fn a_key_that_is_refused_again_and_again_fills_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let (log, thread) = AuditLog::open_with(Directory::new(dir.path()), owner(), 1 << 20, None).unwrap();
    let refused = Record { error: "AccessDenied".to_owned(), ..record("Stop", "anna") };
    for _ in 0..MAX_REFUSALS + 5 {
        log.note(refused.clone());
    }
    log.note(Record { error: "AccessDenied".to_owned(), ..record("Stop", "ben") });
    log.end();
    thread.join().unwrap();
    let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("anna")).count(), MAX_REFUSALS as usize);
    assert!(text.lines().any(|line| line.contains("ben")), "others' are noted");
    let lost = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().record.lost);
    assert_eq!(lost.sum::<u64>(), 5, "and those counted");
}

#[test]
fn a_line_that_a_crash_cut_short_was_never_there() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 3, 1 << 20);
    let path = dir.path().join("audit.log");
    let mut torn = std::fs::read(&path).unwrap();
    torn.extend_from_slice(b"{\"number\":4,\"ti");
    std::fs::write(&path, torn).unwrap();
    write(dir.path(), 1, 1 << 20);
    assert_eq!(verify(dir.path(), &owner()).unwrap(), AuditReport { lines: 4, faults: vec![] });
}

#[test]
fn strangers_fill_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let (log, thread) = AuditLog::open(Directory::new(dir.path()), owner(), None).unwrap();
    for minute in ["00:00", "00:01"] {
        for _ in 0..150 {
            let time = format!("2026-11-27T{minute}:00.000Z");
            log.note(Record { time, arn: String::new(), ..record("Stop", "") });
        }
    }
    log.note(record("Stop", "anna"));
    log.end();
    thread.join().unwrap();
    let text = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    assert_eq!(text.lines().count(), 201);
    let lost = text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap().record.lost);
    assert_eq!(lost.sum::<u64>(), 100, "the others are counted");
}

#[test]
fn records_without_room_are_counted() {
    let (queue, _records) = sync_channel(1);
    let log = AuditLog { queue, lost: Arc::default(), refusals: Mutex::default() };
    for _ in 0..4 {
        log.note(record("Stop", "anna"));
    }
    assert_eq!(log.lost.load(Ordering::Relaxed), 3);
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::open(Directory::new(dir.path()), owner(), 1 << 20).unwrap();
    writer.append(record("Stop", "anna"), &log.lost);
    assert!(String::from_utf8_lossy(&writer.pending).contains("\"lost\":3"), "the next line has it");
    assert_eq!(log.lost.load(Ordering::Relaxed), 0);
}
