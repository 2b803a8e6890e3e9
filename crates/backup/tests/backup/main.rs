//! Backups of a data directory that is written to, targets that fail, and what comes back.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

mod damage;
mod lock;
mod slow;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use shoal_backup::{
    BackupError, Directory, Follow, Follower, Guard, Restore, Restored, Target, back_up, list, restore,
};
use shoal_store::{Attributes, CaptureSource, DataDir, Objects, Opened, SqliteJournal, Telemetry, verify};

/// What a server has open.
struct Server {
    root: PathBuf,
    _dir: DataDir,
    objects: Objects,
    _journal: SqliteJournal,
    _telemetry: Telemetry,
}

impl Server {
    fn at(root: &Path) -> Self {
        let dir = DataDir::open(root).unwrap();
        let objects = Objects::open(&dir).unwrap();
        let journal = SqliteJournal::open(&dir.journal_path()).unwrap();
        let telemetry = Telemetry::open(&dir.telemetry_path()).unwrap();
        if objects.bucket("b").unwrap().is_none() {
            objects.create_bucket("b").unwrap();
        }
        Self { root: root.to_owned(), _dir: dir, objects, _journal: journal, _telemetry: telemetry }
    }

    fn put(&self, key: &str, content: &[u8]) {
        self.objects.put("b", key, content, &Attributes::default()).unwrap();
    }

    fn source(&self) -> CaptureSource {
        CaptureSource::open(&self.root).unwrap()
    }
}

/// Every object of the data directory, as a server that starts there reads it.
fn objects_of(root: &Path) -> BTreeMap<String, Vec<u8>> {
    assert_eq!(verify(root, &mut |_| {}).unwrap().damages, []);
    let server = Server::at(root);
    let page = server.objects.list("b", "", None, None, 100_000).unwrap();
    let read = |key: &str| server.objects.reader("b", key).unwrap().read_all().unwrap();
    page.objects.iter().map(|meta| (meta.key.clone(), read(&meta.key))).collect()
}

fn quiet(_: shoal_backup::Step<'_>) {}

fn take(server: &Server, target: &dyn Target, keep: Option<usize>) -> shoal_backup::Taken {
    back_up(&server.source(), target, keep, &mut quiet).unwrap()
}

fn bring_back(target: &dyn Target, root: &Path, options: &Restore) -> Result<Restored, BackupError> {
    restore(target, root, options, &mut quiet)
}

#[test]
fn each_backup_copies_what_is_new_and_old_ones_go() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    fs::write(server.root.join("shoal.toml"), "# mine").unwrap();
    let target = Directory::at(&temp.path().join("target"));
    let large = vec![7; 300_000];
    (0..20).for_each(|number| server.put(&format!("k{number}"), &large));
    let upload = server.objects.create_upload("b", "u", &Attributes::default(), None).unwrap();
    let part = vec![5; 128 << 10];
    let mut writer = server.objects.part_writer(&upload, 2, Some(part.len() as u64)).unwrap();
    writer.append(&part).unwrap();
    server.objects.commit_part(writer, &upload, 2, &BTreeMap::new()).unwrap();
    let first = take(&server, &target, None).head;
    assert_eq!(first.contents, 21);
    assert!(first.written_bytes > 20 * 300_000);
    server.put("k20", b"new");
    server.objects.delete("b", "k3").unwrap();
    let second = take(&server, &target, None).head;
    assert!(second.written_bytes < 20_000, "{second:?}");
    let listed = list(&target).unwrap().whole;
    assert_eq!(listed.iter().map(|it| &it.head).collect::<Vec<_>>(), [&first, &second]);

    let old = temp.path().join("old");
    let options = Restore { backup: Some(first.id.clone()), ..Restore::default() };
    let restored = bring_back(&target, &old, &options).unwrap();
    assert_eq!((restored.ticks, restored.until_ms, restored.is_another), (0, first.taken_ms, true));
    assert_eq!(objects_of(&old).len(), 20);
    assert_eq!(fs::read(old.join("shoal.toml")).unwrap(), b"# mine");
    assert_ne!(shoal_store::id_of(&old).unwrap(), shoal_store::id_of(&server.root).unwrap());
    // The upload continues where it was.
    let again = Server::at(&old);
    let mut writer = again.objects.part_writer(&upload, 1, Some(part.len() as u64)).unwrap();
    writer.append(&part).unwrap();
    let etag = again.objects.commit_part(writer, &upload, 1, &BTreeMap::new()).unwrap().etag;
    let chosen = [(1, etag.clone()), (2, etag)];
    again.objects.complete_upload(&upload, &chosen, &BTreeMap::new(), &shoal_store::PutCondition::Always).unwrap();
    drop(again);
    assert_eq!(objects_of(&old)["u"].len(), 2 * part.len());

    let third = take(&server, &target, Some(2));
    assert_eq!(third.removed, [first.id]);
    // Of the object that only the first backup had, nothing is left.
    assert_eq!(target.list("objects").unwrap().len(), 21);
    let gone = bring_back(&target, &temp.path().join("gone"), &options).unwrap_err();
    assert!(gone.to_string().contains("has no backup"), "{gone}");
    let root = server.root.clone();
    drop(server);
    // The directory is lost: what is restored takes its place, with its id.
    fs::rename(&root, temp.path().join("lost")).unwrap();
    let options = Restore { take_over: true, ..Restore::default() };
    let restored = bring_back(&target, &root, &options).unwrap();
    assert!(!restored.is_another);
    assert_eq!(shoal_store::id_of(&root).unwrap(), shoal_store::id_of(&temp.path().join("lost")).unwrap());
    assert_eq!(objects_of(&root), objects_of(&temp.path().join("lost")));
}

/// A launcher's record names jobs that run: of a copy, its server would end them.
#[test]
fn only_a_take_over_knows_what_was_started_for_the_original() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let run = server.root.join("runs/job-1");
    fs::create_dir_all(&run).unwrap();
    for name in ["attempt.json", "slurm.json", "kubernetes.json"] {
        fs::write(run.join(name), "{}").unwrap();
    }
    let target = Directory::at(&temp.path().join("target"));
    take(&server, &target, None);
    let files = |root: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(root.join("runs/job-1")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let id = shoal_store::id_of(&server.root).unwrap();
    let take_over = Restore { take_over: true, ..Restore::default() };
    let error = bring_back(&target, &temp.path().join("second"), &take_over).unwrap_err();
    assert!(error.to_string().contains("is still here"), "{error}");
    assert!(!temp.path().join("second").exists());

    // The original's path is nothing that another machine has: it is a copy all the same.
    let moved = temp.path().join("moved");
    fs::rename(&server.root, &moved).unwrap();
    let copy = temp.path().join("copy");
    assert!(bring_back(&target, &copy, &Restore::default()).unwrap().is_another);
    assert_ne!(shoal_store::id_of(&copy).unwrap(), id);
    assert_eq!(files(&copy), BTreeSet::from(["attempt.json".to_owned()]));

    let second = temp.path().join("second");
    assert!(!bring_back(&target, &second, &take_over).unwrap().is_another);
    assert_eq!(shoal_store::id_of(&second).unwrap(), id);
    assert_eq!(files(&second), files(&moved));
}

#[test]
fn two_at_a_time_and_foreign_places_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let target = Directory::at(&temp.path().join("target"));
    let guard = target.lock().unwrap();
    let error = back_up(&server.source(), &target, None, &mut quiet).unwrap_err();
    assert!(matches!(&error, BackupError::Busy { holder, .. } if holder.starts_with("process ")), "{error}");
    drop(guard);
    take(&server, &target, None);

    let other = Server::at(&temp.path().join("other"));
    let error = back_up(&other.source(), &target, None, &mut quiet).unwrap_err();
    assert!(error.to_string().contains("another data directory"), "{error}");
    let home = Directory::at(&temp.path().join("home"));
    fs::create_dir(temp.path().join("home")).unwrap();
    fs::write(temp.path().join("home/thesis"), b"").unwrap();
    let error = back_up(&server.source(), &home, None, &mut quiet).unwrap_err();
    assert!(error.to_string().contains("has other files (thesis)"), "{error}");
    assert!(matches!(list(&home), Err(BackupError::Unusable { .. })));
    let error = bring_back(&target, &server.root, &Restore::default()).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
    let inside = Directory::at(&server.root.join("backups"));
    let error = back_up(&server.source(), &inside, None, &mut quiet).unwrap_err();
    assert!(error.to_string().contains("is inside of the data directory"), "{error}");
}

/// A target whose process is killed after some operations.
#[derive(Debug)]
struct Dying {
    inner: Directory,
    left: AtomicI64,
}

impl Dying {
    fn ensure(&self) -> Result<(), BackupError> {
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            left if left > 0 => Ok(()),
            _ => Err(BackupError::Outrun),
        }
    }
}

impl Target for Dying {
    fn location(&self) -> String {
        self.inner.location()
    }
    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        self.ensure()?;
        self.inner.put(name, bytes)
    }
    fn put_all(&self, mut files: Vec<(String, Opened)>) -> Result<u64, BackupError> {
        if self.ensure().is_err() {
            // Some of them are there.
            files.truncate(files.len() / 2);
            self.inner.put_all(files)?;
        } else {
            return self.inner.put_all(files);
        }
        self.ensure().map(|()| 0)
    }
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, BackupError> {
        self.inner.read(name)
    }
    fn read_range(&self, name: &str, at: u64, length: usize) -> Result<Vec<u8>, BackupError> {
        self.inner.read_range(name, at, length)
    }
    fn fetch(&self, name: &str, to: &File, at: u64) -> Result<Option<u64>, BackupError> {
        self.inner.fetch(name, to, at)
    }
    fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>, BackupError> {
        self.inner.list(folder)
    }
    fn remove(&self, names: &[String]) -> Result<(), BackupError> {
        for name in names {
            self.ensure()?;
            self.inner.remove(std::slice::from_ref(name))?;
        }
        Ok(())
    }
    fn lock(&self) -> Result<Box<dyn Guard>, BackupError> {
        self.inner.lock()
    }
}

/// Cut short after every operation, thinning included: what is listed is whole, and the backup
/// before it is there until the new one is.
#[test]
fn what_was_cut_short_is_no_backup() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let path = temp.path().join("target");
    server.put("first", &[1; 100_000]);
    take(&server, &Directory::at(&path), None);
    let mut cuts = 0;
    for operations in 0.. {
        let key = format!("k{operations}");
        server.put(&key, &vec![2; 70_000 + operations]);
        server.objects.delete("b", &format!("k{}", operations.saturating_sub(1))).unwrap();
        let before: Vec<_> = list(&Directory::at(&path)).unwrap().whole.into_iter().map(|it| it.head.id).collect();
        let target = Dying { inner: Directory::at(&path), left: AtomicI64::new(operations as i64) };
        let done = back_up(&server.source(), &target, Some(1), &mut quiet);
        let whole = list(&Directory::at(&path)).unwrap().whole;
        assert!(!whole.is_empty());
        for it in &whole {
            let new = temp.path().join("new");
            let options = Restore { backup: Some(it.head.id.clone()), ..Restore::default() };
            let restored = bring_back(&Directory::at(&path), &new, &options).unwrap();
            let objects = objects_of(&new);
            assert_eq!(objects["first"], [1; 100_000]);
            let is_new = !before.contains(&restored.head.id);
            assert_eq!(objects.contains_key(&key), is_new, "after {operations} operations");
            fs::remove_dir_all(&new).unwrap();
        }
        match done {
            Ok(taken) => {
                assert_eq!(whole.len(), 1, "thinned to one");
                assert!(!taken.removed.is_empty());
                break;
            }
            Err(_) => cuts += 1,
        }
    }
    assert!(cuts > 5, "{cuts}");
}

/// While objects come and go, at random moments: everything that was acknowledged before the last
/// tick began is there, whole.
#[test]
fn what_follows_has_what_was_acknowledged() {
    let temp = tempfile::tempdir().unwrap();
    let server = Server::at(&temp.path().join("data"));
    let target: Arc<dyn Target> = Arc::new(Directory::at(&temp.path().join("target")));
    let (ends, acknowledged) = (AtomicBool::new(false), AtomicU32::new(0));
    let content = |number: u32| vec![(number % 251) as u8; 100 + (number as usize * 7919) % 90_000];
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            while !ends.load(Ordering::SeqCst) {
                server.put(&format!("k{number:05}"), &content(number));
                if number % 3 == 2 {
                    server.objects.delete("b", &format!("k{:05}", number - 1)).unwrap();
                }
                number += 1;
                acknowledged.store(number, Ordering::SeqCst);
                fs::write(server.root.join("shoal.toml"), format!("# {number}")).unwrap();
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let options = Follow { pause: Duration::from_millis(5), keep: Some(2), ..Follow::default() };
            let (mut follower, first) =
                Follower::begin(server.source(), Arc::clone(&target), options, &mut quiet).unwrap();
            for turn in 0..12 {
                let before = acknowledged.load(Ordering::SeqCst);
                follower.turn().unwrap();
                if turn % 4 != 3 {
                    continue;
                }
                let new = temp.path().join(format!("new-{turn}"));
                let restored = bring_back(&*target, &new, &Restore::default()).unwrap();
                assert!(restored.ticks > 0 && restored.head.id == first.head.id);
                let objects = objects_of(&new);
                for number in (0..before).filter(|number| number % 3 != 1 && number + 2 < before) {
                    assert_eq!(objects.get(&format!("k{number:05}")), Some(&content(number)), "turn {turn}: {number}");
                }
                let settings = fs::read_to_string(new.join("shoal.toml")).unwrap();
                assert!(settings.trim_start_matches("# ").parse::<u32>().unwrap_or(before) + 1 >= before);
            }
            follower
        }));
        ends.store(true, Ordering::SeqCst);
        let mut follower = outcome.unwrap();
        let lag = follower.lag();
        assert!(lag.ticks >= 12 && lag.backups == 1, "{lag:?}");
        follower.turn().unwrap();
        follower.end().unwrap();
    });
    let new = temp.path().join("new");
    bring_back(&*target, &new, &Restore::default()).unwrap();
    let all = objects_of(&new);
    drop(server);
    assert_eq!(all, objects_of(&temp.path().join("data")));
    // A tick in the middle is damaged: what comes before it can be had.
    let ticks = target.list("ticks").unwrap();
    let (name, _) = ticks.iter().nth(ticks.len() / 2).unwrap();
    let path = temp.path().join("target").join(name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = bring_back(&*target, &temp.path().join("none"), &Restore::default()).unwrap_err().to_string();
    let before = error.split("--until-tick ").nth(1).unwrap().parse().unwrap();
    let options = Restore { until_tick: Some(before), ..Restore::default() };
    assert_eq!(bring_back(&*target, &temp.path().join("part"), &options).unwrap().ticks, before);
}
