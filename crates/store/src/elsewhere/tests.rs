use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use super::*;
use crate::{Attributes, DataDir, DeleteCondition, Objects, PutCondition, Versioning};

/// A store in memory that can be away, or fail at any call, before or after it has done its work.
#[derive(Debug, Default)]
struct Fake {
    state: Mutex<FakeState>,
}

#[derive(Debug, Default)]
struct FakeState {
    contents: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, String>,
    drawn: u64,
    owner: Option<String>,
    is_away: bool,
    /// Calls until one fails, and with it all that follow, as for a server that is killed.
    calls_left: Option<u32>,
    reads: usize,
}

impl Fake {
    fn lock(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// A step of a call.
    fn step<T>(&self, work: impl FnOnce(&mut FakeState) -> T) -> Result<T, StoreError> {
        let mut state = self.lock();
        let away = || StoreError::Elsewhere("the fake does not answer".to_owned());
        match &mut state.calls_left {
            Some(0) => return Err(away()),
            Some(left) => {
                *left -= 1;
                if *left == 0 {
                    // It is done, and answered with an error.
                    work(&mut state);
                    return Err(away());
                }
            }
            None => {}
        }
        if state.is_away { Err(away()) } else { Ok(work(&mut state)) }
    }

    fn names(&self) -> Vec<String> {
        self.lock().contents.keys().cloned().collect()
    }
}

impl ContentStore for Fake {
    fn location(&self) -> String {
        "the fake".to_owned()
    }

    fn claim(&self, owner: &str, has_contents: bool) -> Result<(), StoreError> {
        self.step(|state| match &state.owner {
            Some(present) if present == owner => Ok(()),
            None if !has_contents => {
                state.owner = Some(owner.to_owned());
                Ok(())
            }
            _ => Err(StoreError::BadElsewhere("it is another's".to_owned())),
        })?
    }

    fn send(&self, content: Outgoing<'_>) -> Result<(), StoreError> {
        let upload = self.step(|state| {
            state.drawn += 1;
            let id = state.drawn.to_string();
            state.uploads.insert(id.clone(), content.name.to_owned());
            id
        })?;
        (content.begun)(&upload)?;
        let (mut bytes, half) = (Vec::new(), content.size / 2);
        for (at, length) in [(0, half), (half, content.size - half)] {
            bytes.extend((content.read)(at, usize::try_from(length).unwrap())?);
            self.step(|_| ())?;
        }
        self.step(|state| {
            state.uploads.remove(&upload);
            state.contents.insert(content.name.to_owned(), bytes);
        })
    }

    fn abort(&self, _name: &str, upload: &str) -> Result<(), StoreError> {
        self.step(|state| drop(state.uploads.remove(upload)))
    }

    fn read(&self, name: &str, at: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError> {
        self.step(|state| {
            state.reads += 1;
            let at = usize::try_from(at).unwrap();
            state.contents.get(name).map(|content| content[at..at + length].to_vec())
        })
    }

    fn fetch(&self, name: &str, to: &File) -> Result<Option<u64>, StoreError> {
        let content = self.step(|state| state.contents.get(name).cloned())?;
        Ok(content.map(|content| {
            to.write_all_at(&content, 0).unwrap();
            content.len() as u64
        }))
    }

    fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        self.step(|state| names.iter().for_each(|name| drop(state.contents.remove(name))))
    }

    fn address(&self, name: &str, _valid: Duration) -> Result<Option<String>, StoreError> {
        Ok(Some(format!("http://fake/{name}")))
    }
}

const LONG: usize = 200_000;

fn bytes(seed: u8) -> Vec<u8> {
    (0..LONG).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn open(dir: &DataDir, fake: &Arc<Fake>, local_bytes: usize) -> Objects {
    let options = ElsewhereOptions { store: Arc::clone(fake) as _, local_bytes: local_bytes as u64 };
    let objects = Objects::open_with(dir, Some(options)).unwrap();
    if objects.bucket("b").unwrap().is_none() {
        objects.create_bucket("b").unwrap();
    }
    objects
}

fn put(objects: &Objects, key: &str, content: &[u8]) -> ObjectMeta {
    let mut writer = objects.writer_to_the_last().unwrap();
    writer.append(content).unwrap();
    objects.commit(writer, "b", key, &Attributes::default(), &PutCondition::Always).unwrap()
}

fn read(objects: &Objects, key: &str) -> Vec<u8> {
    objects.reader("b", key).unwrap().read_all().unwrap()
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} within 10 s");
}

fn is_idle(objects: &Objects) -> bool {
    let status = objects.elsewhere_status().unwrap();
    status.waiting == 0 && status.failure.is_none()
}

fn data_dir() -> (tempfile::TempDir, DataDir, Arc<Fake>) {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    (temp, dir, Arc::default())
}

#[test]
fn contents_go_there_and_are_read_there_or_brought_back() {
    let (_temp, dir, fake) = data_dir();
    // What was stored before goes, too.
    let early = Objects::open(&dir).unwrap();
    early.create_bucket("b").unwrap();
    put(&early, "early", &bytes(1));
    drop(early);
    let objects = open(&dir, &fake, LONG + 1000);
    let metas: Vec<_> = (2..5).map(|seed| put(&objects, &seed.to_string(), &bytes(seed))).collect();
    put(&objects, "small", &[7; 1000]);
    eventually("all are there", || fake.names().len() == 4 && is_idle(&objects));
    assert!(fake.lock().uploads.is_empty());
    assert!(fake.names().iter().any(|name| *name == format!("objects/{}/{}", &metas[0].id[..2], metas[0].id)));
    // One of them has room here; the others are read where they are, in ranges, too.
    let here = metas.iter().filter(|meta| objects.path(meta).exists()).count();
    assert!(here <= 1, "{here}");
    for (key, seed) in [("early", 1), ("2", 2), ("3", 3), ("4", 4)] {
        assert!(read(&objects, key) == bytes(seed), "{key}");
        let reader = objects.reader("b", key).unwrap();
        assert_eq!(reader.read(100, 103).unwrap(), bytes(seed)[100..103]);
    }
    assert!(fake.lock().reads > 0);
    // Those who need files get them.
    let tree = dir.channels_path().join("tree");
    let entries: Vec<_> = metas.iter().map(|meta| (meta.key.as_str(), meta)).collect();
    objects.link_tree(&tree, &entries, &|| false).unwrap();
    for seed in 2..5 {
        assert!(fs::read(tree.join(seed.to_string())).unwrap() == bytes(seed));
    }
    objects.copy(("b", &metas[0]), "b", "copy", &Attributes::default(), &PutCondition::Always).unwrap();
    assert!(objects.elsewhere_status().unwrap().cached_bytes <= (LONG + 1000) as u64);
    eventually("the copy is there", || fake.names().len() == 5 && is_idle(&objects));
    assert!(read(&objects, "copy") == bytes(2));
    // Without the store they are not to be had, which is an error of the start.
    drop(objects);
    let error = Objects::open(&dir).unwrap_err().to_string();
    assert!(error.contains("start the server with the setting objects"), "{error}");
    let objects = open(&dir, &fake, 10 * LONG);
    assert!(read(&objects, "3") == bytes(3));
    for key in ["early", "2", "3", "4", "copy", "small"] {
        assert!(objects.delete("b", key).unwrap());
    }
    eventually("nothing is left there", || fake.names().is_empty());
}

#[test]
fn a_store_that_is_away_delays_and_its_bound_refuses() {
    let (_temp, dir, fake) = data_dir();
    let objects = open(&dir, &fake, 2 * LONG);
    put(&objects, "there", &bytes(1));
    eventually("it is there", || fake.names().len() == 1 && is_idle(&objects));
    fake.lock().is_away = true;
    put(&objects, "2", &bytes(2));
    put(&objects, "3", &bytes(3));
    eventually("a failure is seen", || objects.elsewhere_status().unwrap().failure.is_some());
    let error = objects.writer().unwrap_err();
    assert!(error.to_string().contains("the last attempt failed: the fake does not answer"), "{error}");
    // What ends a job is stored, and what is here is read.
    put(&objects, "4", &bytes(4));
    assert!(read(&objects, "4") == bytes(4));
    for error in [objects.read("b", "there").unwrap_err(), {
        let reader = objects.reader("b", "there").unwrap();
        reader.read(0, 1).unwrap_err()
    }] {
        assert!(matches!(error, StoreError::Elsewhere(_)), "{error}");
    }
    // Deleting makes room at once.
    objects.delete("b", "2").unwrap();
    objects.delete("b", "3").unwrap();
    drop(objects.writer().unwrap());
    fake.lock().is_away = false;
    eventually("the rest is there", || fake.names().len() == 2 && is_idle(&objects));
    assert!(read(&objects, "there") == bytes(1) && read(&objects, "4") == bytes(4));
}

#[test]
fn damage_here_is_read_there_and_damage_there_is_found() {
    let (_temp, dir, fake) = data_dir();
    let objects = open(&dir, &fake, 9 * LONG);
    let meta = put(&objects, "k", &bytes(1));
    eventually("it is there", || is_idle(&objects));
    let flip = || {
        let file = fs::OpenOptions::new().write(true).open(objects.path(&meta)).unwrap();
        file.write_all_at(&[bytes(1)[9] ^ 8], 9).unwrap();
    };
    flip();
    assert!(read(&objects, "k") == bytes(1));
    assert!(!objects.path(&meta).exists());
    let mut content = Vec::new();
    objects.read("b", "k").unwrap().1.read_to_end(&mut content).unwrap();
    assert!(content == bytes(1) && objects.path(&meta).exists());
    fake.lock().contents.values_mut().for_each(|content| content[9] ^= 1);
    assert!(read(&objects, "k") == bytes(1), "the local file is read");
    fs::remove_file(objects.path(&meta)).unwrap();
    for error in [objects.read("b", "k").unwrap_err(), {
        let reader = objects.reader("b", "k").unwrap();
        reader.read(0, 10).unwrap_err()
    }] {
        assert!(error.to_string().contains("object `k` is damaged: its bytes 0 to"), "{error}");
    }
    fake.lock().contents.clear();
    let error = objects.read("b", "k").unwrap_err().to_string();
    assert!(error.contains("the fake does not have its content, objects/"), "{error}");
}

#[test]
fn what_is_read_stays_there_until_its_reader_ends() {
    let (_temp, dir, fake) = data_dir();
    let objects = open(&dir, &fake, 0);
    let error = objects.writer().unwrap_err();
    assert!(matches!(error, StoreError::Elsewhere(_)), "no room at all: {error}");
    put(&objects, "k", &bytes(1));
    eventually("it is there", || is_idle(&objects));
    let reader = objects.reader("b", "k").unwrap();
    objects.delete("b", "k").unwrap();
    thread::sleep(Duration::from_millis(50));
    assert!(reader.read_all().unwrap() == bytes(1));
    drop(reader);
    eventually("it goes", || fake.names().is_empty());
}

#[test]
fn earlier_versions_stay_there_until_they_are_removed() {
    let (_temp, dir, fake) = data_dir();
    // One that was stored before goes, too, though it is not the current one any more.
    let early = Objects::open(&dir).unwrap();
    early.create_bucket("b").unwrap();
    early.set_versioning("b", Versioning::Enabled).unwrap();
    let first = put(&early, "k", &bytes(1));
    early.delete("b", "k").unwrap();
    drop(early);
    let objects = open(&dir, &fake, 0);
    let second = put(&objects, "k", &bytes(2));
    objects.delete("b", "k").unwrap();
    eventually("both are there", || fake.names().len() == 2 && is_idle(&objects));
    drop(objects);
    let objects = open(&dir, &fake, 0);
    let of = |meta: &ObjectMeta| objects.version_reader("b", "k", Some(meta.version.id())).unwrap();
    assert!(of(&first).read_all().unwrap() == bytes(1) && of(&second).read_all().unwrap() == bytes(2));
    // A tree that a job has holds what is removed meanwhile.
    let tree = dir.channels_path().join("tree");
    objects.hold_tree(&tree, &[(second.id.as_str(), &second)], &|| false).unwrap();
    for meta in [&first, &second] {
        objects.delete_if("b", "k", Some(meta.version.id()), &DeleteCondition::default()).unwrap();
    }
    eventually("one goes", || fake.names() == [name_of(&second.id)]);
    objects.bring_held(&tree, &second.id).unwrap();
    assert!(fs::read(tree.join(&second.id)).unwrap() == bytes(2));
}

#[test]
fn a_tree_for_other_machines_holds_what_is_elsewhere() {
    let (_temp, dir, fake) = data_dir();
    let objects = open(&dir, &fake, 0);
    let metas = [put(&objects, "k", &bytes(1)), put(&objects, "small", b"text")];
    eventually("it is there alone", || is_idle(&objects) && !objects.path(&metas[0]).exists());
    let tree = dir.channels_path().join("tree");
    let entries: Vec<_> = metas.iter().map(|meta| (meta.id.as_str(), meta)).collect();
    objects.hold_tree(&tree, &entries, &|| false).unwrap();
    assert_eq!(fs::read(tree.join(&metas[1].id)).unwrap(), b"text");
    assert!(!tree.join(&metas[0].id).exists());
    // Not even after a start does it go.
    objects.delete("b", "k").unwrap();
    drop(objects);
    let objects = open(&dir, &fake, 0);
    thread::sleep(Duration::from_millis(100));
    let address = objects.content_address(&metas[0].id, Duration::from_secs(9)).unwrap().unwrap();
    assert_eq!(address.url, format!("http://fake/{}", name_of(&metas[0].id)));
    objects.bring_held(&tree, &metas[0].id).unwrap();
    assert!(fs::read(tree.join(&metas[0].id)).unwrap() == bytes(1));
    fake.lock().contents.values_mut().for_each(|content| content[0] ^= 1);
    let error = objects.bring_held(&tree, &metas[0].id).unwrap_err().to_string();
    assert!(error.contains("its SHA-256 differs"), "{error}");
    assert_eq!(objects.content_address(&metas[1].id, Duration::from_secs(9)).unwrap(), None);
    fs::remove_dir_all(&tree).unwrap();
    objects.delete("b", "small").unwrap();
    eventually("it goes with the tree", || fake.names().is_empty());
}

#[test]
fn an_upload_that_breaks_off_leaves_no_part() {
    let (_temp, dir, fake) = data_dir();
    let objects = open(&dir, &fake, 9 * LONG);
    // The claim is made; one call begins the upload, one more sends half of it.
    fake.lock().calls_left = Some(3);
    put(&objects, "k", &bytes(1));
    eventually("it fails", || objects.elsewhere_status().unwrap().failure.is_some());
    fake.lock().is_away = true;
    fake.lock().calls_left = None;
    assert_eq!(fake.lock().uploads.len(), 1);
    thread::sleep(Duration::from_millis(600));
    fake.lock().is_away = false;
    eventually("it is there", || is_idle(&objects) && fake.names().len() == 1);
    assert_eq!(fake.lock().uploads.len(), 0);
}

#[test]
fn a_store_is_one_directorys_alone() {
    let (temp, dir, fake) = data_dir();
    let objects = open(&dir, &fake, 9 * LONG);
    put(&objects, "k", &bytes(1));
    eventually("it is there", || is_idle(&objects) && fake.names().len() == 1);
    let options = |store: &Arc<Fake>| Some(ElsewhereOptions { store: Arc::clone(store) as _, local_bytes: 1 << 20 });
    let other = DataDir::open(&temp.path().join("other")).unwrap();
    let error = Objects::open_with(&other, options(&fake)).unwrap_err();
    assert!(matches!(error, StoreError::BadElsewhere(_)), "{error}");
    drop(objects);
    let error = Objects::open_with(&dir, options(&Arc::default())).unwrap_err();
    assert!(matches!(error, StoreError::BadElsewhere(_)), "an empty one does not have it: {error}");
    // One that has the contents may be away at a start, one that has none may not.
    fake.lock().is_away = true;
    let objects = open(&dir, &fake, 9 * LONG);
    assert!(objects.elsewhere_status().unwrap().failure.is_some());
    put(&objects, "later", &bytes(2));
    fake.lock().is_away = false;
    eventually("both are there", || is_idle(&objects) && fake.names().len() == 2);
    let away = Arc::new(Fake::default());
    away.lock().is_away = true;
    let error = Objects::open_with(&other, options(&away)).unwrap_err();
    assert!(matches!(error, StoreError::Elsewhere(_)), "{error}");
}

/// Any history with a server that is killed at any call ends with what was acknowledged, and with
/// nothing else in the store.
#[test]
fn a_server_that_is_killed_at_any_call_loses_nothing_and_leaves_nothing() {
    let first = std::env::var("SHOAL_SEED").ok().and_then(|seed| seed.parse().ok());
    let base = first.unwrap_or_else(|| u64::from(std::process::id()) * 1000);
    for seed in base..base + if first.is_some() { 1 } else { 10 } {
        println!("SHOAL_SEED={seed}");
        history(seed);
    }
}

fn history(seed: u64) {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (_temp, dir, fake) = data_dir();
    let local = usize::try_from(draw(5)).unwrap() * LONG;
    let mut acknowledged: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for _ in 0..4 {
        let objects = open(&dir, &fake, local);
        fake.lock().calls_left = Some(u32::try_from(draw(40)).unwrap() + 1);
        for _ in 0..1 + draw(8) {
            let (key, content) = (draw(4).to_string(), bytes(u8::try_from(draw(256)).unwrap()));
            match draw(5) {
                0 => {
                    objects.delete("b", &key).unwrap();
                    acknowledged.remove(&key);
                }
                1 => {
                    let read = objects.reader("b", &key).and_then(|reader| reader.read_all());
                    match (&read, acknowledged.get(&key)) {
                        (Ok(found), Some(expected)) => assert!(found == expected, "seed {seed}"),
                        (Err(StoreError::NoSuchKey { .. }), None) | (Err(StoreError::Elsewhere(_)), Some(_)) => {}
                        _ => panic!("seed {seed}: {:?}", read.map(|found| found.len())),
                    }
                }
                _ => {
                    put(&objects, &key, &content);
                    acknowledged.insert(key, content);
                }
            }
            thread::sleep(Duration::from_millis(draw(4)));
        }
        // Killed: nothing that it would still do reaches the store.
        fake.lock().calls_left = Some(0);
        drop(objects);
        fake.lock().calls_left = None;
    }
    let objects = open(&dir, &fake, local);
    let expected = || {
        let ids = acknowledged.keys().map(|key| objects.get("b", key).unwrap().unwrap().id);
        let mut names: Vec<_> = ids.map(|id| name_of(&id)).collect();
        names.sort();
        names
    };
    eventually(&format!("seed {seed}: all is there"), || is_idle(&objects) && fake.names() == expected());
    // An upload whose id was not noted has no part: its store removes it by its own rules.
    assert!(fake.lock().uploads.len() <= 4 * mover_count(), "seed {seed}");
    for (key, content) in &acknowledged {
        assert!(read(&objects, key) == *content, "seed {seed}");
    }
}

fn mover_count() -> usize {
    mover::AT_ONCE
}
