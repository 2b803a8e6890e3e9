//! Captures beside writers, and what follows from their logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::Connection;

use super::*;
use crate::{Attributes, DataDir, Objects, SqliteJournal, StoreError, Telemetry};

struct Server {
    _dir: DataDir,
    objects: Objects,
    _journal: SqliteJournal,
    _telemetry: Telemetry,
}

fn server(root: &Path) -> Server {
    let dir = DataDir::open(root).unwrap();
    let objects = Objects::open(&dir).unwrap();
    let journal = SqliteJournal::open(&dir.journal_path()).unwrap();
    let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
    if objects.bucket("b").unwrap().is_none() {
        objects.create_bucket("b").unwrap();
    }
    Server { _dir: dir, objects, _journal: journal, _telemetry: telemetry }
}

fn index(capture: &Capture) -> &DatabaseView {
    capture.databases.iter().find(|view| view.name() == "objects.db").unwrap()
}

/// Set when this is dropped, by a failed assertion, too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// All pages as they are read.
fn image(view: &DatabaseView) -> BTreeMap<u32, Vec<u8>> {
    let mut pages = view.pages().unwrap();
    let size = view.page_bytes() as usize;
    (1..=view.page_count())
        .map(|number| {
            let mut page = vec![0; size];
            pages.read(view, number, &mut page).unwrap();
            (number, page)
        })
        .collect()
}

fn keys(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let mut select = connection.prepare("SELECT key FROM object ORDER BY key").unwrap();
    select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

fn put(objects: &Objects, number: u32) {
    // Long enough that their rows, with the content, fill many pages.
    objects.put("b", &format!("k{number:05}"), &[7; 3000], &Attributes::default()).unwrap();
}

/// While others write, with logs that are begun again: each capture has what was acknowledged
/// before it, whole, and following the logs gives the same pages as reading all of them.
#[test]
fn what_is_followed_is_what_is_there() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("data");
    let server = server(&root);
    let source = CaptureSource::open(&root).unwrap();
    let ends = AtomicBool::new(false);
    let written = std::sync::atomic::AtomicU32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !ends.load(Ordering::SeqCst) {
                put(&server.objects, number);
                number += 1;
                written.store(number, Ordering::SeqCst);
                if number % 7 == 0 {
                    server.objects.delete("b", &format!("k{:05}", number - 3)).unwrap();
                }
            }
        });
        let _ends = Ends(&ends);
        let mut previous = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
        let mut followed = image(index(&previous));
        let mut position = index(&previous).position();
        let follow = |followed: &mut BTreeMap<u32, Vec<u8>>, position: &mut LogPosition, next: &DatabaseView| {
            followed.extend(next.changes(position)?);
            followed.retain(|page, _| *page <= next.page_count());
            *position = next.position();
            Ok::<_, StoreError>(())
        };
        let mut renewed = 0;
        for turn in 0..30 {
            let before = written.load(Ordering::SeqCst);
            let next = if turn % 5 == 4 {
                renewed += 1;
                let (next, ()) = source
                    .capture_renewed(previous, 1, |_, last| follow(&mut followed, &mut position, index(last)))
                    .unwrap();
                assert_eq!(index(&next).position(), position, "nothing was written under the locks");
                next
            } else {
                let next = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
                follow(&mut followed, &mut position, index(&next)).unwrap();
                drop(previous);
                next
            };
            if turn % 7 == 0 {
                assert!(image(index(&next)) == followed, "turn {turn}");
                let copy = temp.path().join("copy.db");
                index(&next).write_to(&copy).unwrap();
                let keys = keys(&copy);
                for number in (0..before).filter(|number| number % 7 != 4) {
                    assert!(keys.binary_search(&format!("k{number:05}")).is_ok(), "turn {turn}: {number} is missing");
                }
                assert_eq!(next.contents(&|_| false).unwrap().len(), keys.len());
            }
            previous = next;
            thread::sleep(std::time::Duration::from_millis(3));
        }
        assert!(renewed > 5 && written.load(Ordering::SeqCst) > 20);
    });
    let log = fs::metadata(root.join("objects.db-wal")).unwrap().len();
    assert!(log < 64 << 20, "the log was begun again: {log}");
}

#[test]
fn a_log_that_was_begun_again_behind_our_back_is_noticed() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("data");
    let server = server(&root);
    let source = CaptureSource::open(&root).unwrap();
    let first = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
    let position = index(&first).position();
    // Nothing keeps the log.
    drop(first);
    for number in 0..3 {
        put(&server.objects, number);
        let other = Connection::open(root.join("objects.db")).unwrap();
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    put(&server.objects, 9);
    let next = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
    assert!(matches!(index(&next).changes(&position), Err(StoreError::Corrupt { .. })));
    assert_eq!(image(index(&next)).len(), index(&next).page_count() as usize);
}

/// The index of a log has no sizes then.
#[test]
fn a_server_that_has_written_nothing_yet_is_captured() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("data");
    let server = server(&root);
    (0..50).for_each(|number| put(&server.objects, number));
    drop(server);
    for name in source::DATABASES {
        let connection = Connection::open(root.join(name)).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        drop(connection);
        // The last one to close removes the log.
        assert!(!root.join(format!("{name}-wal")).exists());
    }
    let server = self::server(&root);
    let source = CaptureSource::open(&root).unwrap();
    let first = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
    for view in &first.databases {
        assert_eq!(view.bytes(), fs::metadata(root.join(view.name())).unwrap().len(), "{}", view.name());
    }
    let (mut followed, position) = (image(index(&first)), index(&first).position());
    assert!(followed.len() > 10);
    put(&server.objects, 50);
    let next = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
    followed.extend(index(&next).changes(&position).unwrap());
    assert!(followed == image(index(&next)));
}

#[test]
fn what_is_no_data_directory_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    assert!(matches!(CaptureSource::open(temp.path()), Err(StoreError::NotADataDir(_))));
    let root = temp.path().join("data");
    drop(server(&root));
    let connection = Connection::open(root.join("telemetry.db")).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    assert!(matches!(CaptureSource::open(&root), Err(StoreError::Format { .. })));
}

#[test]
fn parts_of_an_upload_are_contents_of_their_own() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("data");
    let server = server(&root);
    let upload = server.objects.create_upload("b", "k", &Attributes::default(), None).unwrap();
    for number in [1, 2_u32] {
        let bytes = vec![u8::try_from(number).unwrap(); 128 << 10];
        let mut writer = server.objects.part_writer(&upload, number, Some(bytes.len() as u64)).unwrap();
        writer.append(&bytes).unwrap();
        server.objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap();
    }
    let source = CaptureSource::open(&root).unwrap();
    let capture = source.capture(1, |_| Ok(())).unwrap().0.remove(0);
    let contents = capture.contents(&|_| false).unwrap();
    assert_eq!(capture.contents(&|key| key == contents[0].key()).unwrap(), contents[1..]);
    let mut starts: Vec<(u64, u64)> =
        contents.iter().map(|content| content.open(&root).unwrap().unwrap()).map(|it| (it.start, it.size)).collect();
    starts.sort_unstable();
    assert_eq!(starts, [(0, 128 << 10), (128 << 10, 128 << 10)]);
    assert!(are_named(&root, &contents).unwrap());
    server.objects.abort_upload(&upload).unwrap();
    assert!(!are_named(&root, &contents).unwrap());
    assert_eq!(contents_of(&root).unwrap(), []);
}

#[test]
fn another_one_keeps_plans_and_nothing_else_of_attempts() {
    let temp = tempfile::tempdir().unwrap();
    let (root, kept) = (temp.path().join("data"), temp.path().join("kept"));
    drop(DataDir::open(&root).unwrap());
    let before = id_of(&root).unwrap();
    let run = root.join("runs/job-1");
    fs::create_dir_all(run.join("algo-1/opt/ml")).unwrap();
    fs::create_dir_all(&kept).unwrap();
    for path in [run.join("attempt.json"), run.join("slurm.json"), run.join("algo-1/opt/ml/a"), kept.join("a")] {
        fs::write(path, "{}").unwrap();
    }
    std::os::unix::fs::symlink(&kept, run.join("link")).unwrap();
    let id = make_another(&root).unwrap();
    assert!(id != before && id == id_of(&root).unwrap());
    let left = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(Vec::from_iter(left), ["attempt.json"]);
    assert!(kept.join("a").exists(), "what a link leads to");
}
