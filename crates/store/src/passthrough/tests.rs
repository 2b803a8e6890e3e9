use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};

use md5::Md5;

use super::*;
use crate::foreign::{ForeignBucket, NewForeign};
use crate::{Attributes, DataDir, DeleteCondition, PutCondition, Version};

/// A bucket in memory.
#[derive(Debug, Default)]
struct Fake {
    contents: Mutex<BTreeMap<String, (Vec<u8>, Attributes)>>,
    fetched: Mutex<usize>,
}

impl Fake {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Vec<u8>, Attributes)>> {
        self.contents.lock().unwrap()
    }

    fn meta(key: &str, (content, attributes): &(Vec<u8>, Attributes)) -> ObjectMeta {
        ObjectMeta {
            key: key.to_owned(),
            size: content.len() as u64,
            etag: hex(&Md5::digest(content)),
            modified_ms: 1000,
            id: String::new(),
            attributes: attributes.clone(),
            version: Version::default(),
            passthrough: None,
        }
    }

    fn same(&self, meta: &ObjectMeta) -> Option<Vec<u8>> {
        let contents = self.lock();
        let found = contents.get(&meta.key)?;
        (Self::meta(&meta.key, found).etag == meta.etag).then(|| found.0.clone())
    }
}

impl ForeignBucket for Fake {
    fn location(&self) -> String {
        "s3://theirs".to_owned()
    }

    fn head(&self, key: &str) -> Result<Option<ObjectMeta>, StoreError> {
        Ok(self.lock().get(key).map(|found| Self::meta(key, found)))
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        delimiter: Option<&str>,
        max: usize,
    ) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        let mut last = None;
        for (key, found) in self.lock().iter().filter(|(key, _)| key.starts_with(prefix)) {
            let common = common_prefix(key, prefix, delimiter);
            if after.is_some_and(|after| key.as_str() <= after) || common.is_some() && common == last.as_deref() {
                continue;
            }
            if listing.objects.len() + listing.common_prefixes.len() == max {
                listing.next = last;
                break;
            }
            last = Some(common.unwrap_or(key).to_owned());
            match common {
                Some(common) => listing.common_prefixes.push(common.to_owned()),
                None => listing.objects.push(Self::meta(key, found)),
            }
        }
        Ok(listing)
    }

    fn read(&self, meta: &ObjectMeta, at: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let at = usize::try_from(at).unwrap();
        Ok(self.same(meta).map(|content| content[at..at + length].to_vec()))
    }

    fn fetch(&self, meta: &ObjectMeta, to: &File, is_cancelled: &dyn Fn() -> bool) -> Result<bool, StoreError> {
        if is_cancelled() {
            return Err(StoreError::Cancelled);
        }
        *self.fetched.lock().unwrap() += 1;
        let Some(content) = self.same(meta) else { return Ok(false) };
        to.write_all_at(&content, 0).unwrap();
        Ok(true)
    }

    fn put(&self, object: NewForeign<'_>) -> Result<String, StoreError> {
        let mut content = vec![0; usize::try_from(object.size).unwrap()];
        object.file.read_exact_at(&mut content, 0).unwrap();
        let etag = hex(&Md5::digest(&content));
        self.lock().insert(object.key.to_owned(), (content, object.attributes.clone()));
        Ok(etag)
    }

    fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.lock().remove(key);
        Ok(())
    }
}

fn open(dir: &DataDir, fake: &Arc<Fake>, is_read_only: bool, cache_bytes: u64) -> Objects {
    let shown = Passthrough { bucket: fake.clone(), is_read_only };
    let objects = Objects::open(dir).unwrap();
    objects.with_passthrough([("team".to_owned(), shown)].into(), cache_bytes).unwrap()
}

fn fault<T>(result: Result<T, StoreError>) -> ForeignFault {
    match result {
        Err(StoreError::Foreign(error)) => error.fault,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was done"),
    }
}

/// Files in `objects/`.
fn files(objects: &Objects) -> usize {
    let shards = fs::read_dir(&objects.files).unwrap();
    shards.map(|shard| fs::read_dir(shard.unwrap().path()).unwrap().count()).sum()
}

#[test]
fn objects_are_written_and_read_where_they_are() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let fake = Arc::new(Fake::default());
    let objects = open(&dir, &fake, false, 1 << 20);
    let attributes = Attributes { content_type: Some("text/csv".to_owned()), ..Attributes::default() };
    let long: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 251) as u8).collect();
    let put = objects.put("team", "a//long", &long, &attributes).unwrap();
    assert_eq!(objects.get("team", "a//long").unwrap().map(|meta| meta.id), Some(put.id));
    assert_eq!(fake.lock()["a//long"].1, attributes);
    assert!(objects.reader("team", "a//long").unwrap().read_all().unwrap() == long);
    objects.put("team", "b", b"text", &attributes).unwrap();
    let page = objects.list("team", "", None, Some("/"), 1).unwrap();
    assert_eq!((page.common_prefixes, page.next.as_deref()), (vec!["a/".to_owned()], Some("a/")));
    let page = objects.list("team", "", Some("a/"), Some("/"), 1).unwrap();
    assert_eq!((page.objects[0].key.as_str(), page.next), ("b", None));

    let conditions = [(PutCondition::Absent, false), (PutCondition::Matches("0".to_owned()), false)];
    for (condition, expected) in conditions.into_iter().chain([(PutCondition::Matches(put.etag), true)]) {
        let writer = objects.writer().unwrap();
        let done = objects.commit(writer, "team", "a//long", &attributes, &condition);
        assert_eq!(done.is_ok(), expected, "{condition:?}");
    }
    let exists = DeleteCondition { etag: Some("0".to_owned()), ..DeleteCondition::default() };
    assert!(objects.delete_if("team", "b", None, &exists).is_err());
    assert!(objects.delete_if("team", "b", Some("null"), &DeleteCondition::default()).is_ok());
    assert!(objects.delete_if("team", "b", Some(&"0".repeat(32)), &DeleteCondition::default()).is_err());
    assert_eq!(objects.get("team", "b").unwrap(), None);
    assert_eq!(files(&objects), 0, "nothing of them is here");
    assert_eq!(objects.stored_bytes("team", "").unwrap(), 0);
}

#[test]
fn copies_and_uploads_in_parts_go_both_ways() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let fake = Arc::new(Fake::default());
    let objects = open(&dir, &fake, false, 1 << 20);
    objects.create_bucket("own").unwrap();
    let always = PutCondition::Always;
    let none = Attributes::default();
    let own = objects.put("own", "k", b"content", &none).unwrap();
    let there = objects.copy(("own", &own), "team", "there", &none, &always).unwrap();
    let again = objects.copy(("team", &there), "team", "again", &none, &always).unwrap();
    let back = objects.copy(("team", &again), "own", "back", &none, &always).unwrap();
    assert_eq!((back.etag, back.passthrough), (own.etag, None));
    assert_eq!(objects.reader("own", "back").unwrap().read_all().unwrap(), b"content");

    let upload = objects.create_upload("team", "parts", &none, None).unwrap();
    let parts: Vec<_> = (1..=3)
        .map(|number| {
            let mut writer = objects.part_writer(&upload, number, Some(200_000)).unwrap();
            writer.append(&vec![u8::try_from(number).unwrap(); 200_000]).unwrap();
            (number, objects.commit_part(writer, &upload, number, &BTreeMap::new()).unwrap().etag)
        })
        .collect();
    let failed = objects.complete_upload(&upload, &parts, &BTreeMap::new(), &PutCondition::Matches("0".to_owned()));
    assert!(failed.is_err());
    assert_eq!(objects.parts(&upload).unwrap().len(), 3, "it is as it was");
    let sent = objects.complete_upload(&upload, &parts, &BTreeMap::new(), &always).unwrap();
    assert_eq!(objects.sent_upload(&upload, &parts), Some(sent), "for a client that repeats it");
    assert_eq!(objects.sent_upload(&upload, &parts[1..]), None);
    assert_eq!(fake.lock()["parts"].0[200_000..200_002], [2, 2]);
    assert!(objects.upload(&upload).is_err());
    assert_eq!(files(&objects), 2, "those of the own bucket");
}

#[test]
fn jobs_read_copies_by_etag_and_few_of_them_stay() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let fake = Arc::new(Fake::default());
    let objects = open(&dir, &fake, true, 1000);
    for key in ["x/a", "x/b", "x/folder/"] {
        fake.lock().insert(key.to_owned(), (vec![key.len() as u8; 600], Attributes::default()));
    }
    fake.lock().insert("x/b".to_owned(), (vec![7; 600], Attributes::default()));
    let link = |name: &str| {
        let listed = objects.list("team", "x/", None, None, 10).unwrap().objects;
        let entries: Vec<_> = listed.iter().map(|meta| (&meta.key["x/".len()..], meta)).collect();
        let tree = dir.channels_path().join(name);
        objects.link_tree(&tree, &entries, &|| false).map(|()| tree)
    };
    let first = link("first").unwrap();
    assert_eq!(fs::read(first.join("b")).unwrap(), [7; 600]);
    assert_eq!(fs::read_dir(&first).unwrap().count(), 2);
    assert_eq!((*fake.fetched.lock().unwrap(), files(&objects)), (2, 1), "the second took the place of the first");
    objects.read("team", "x/b").unwrap();
    assert_eq!(*fake.fetched.lock().unwrap(), 2);
    // What is replaced is another content.
    let stale = objects.get("team", "x/b").unwrap().unwrap();
    fake.lock().insert("x/b".to_owned(), (vec![8; 600], Attributes::default()));
    let gone = objects.open_reader(&stale, None).unwrap().read(0, 600);
    assert!(matches!(gone, Err(StoreError::ObjectGone { .. })));
    assert_eq!(fs::read(link("second").unwrap().join("b")).unwrap(), [8; 600]);
    assert_eq!(fs::read(first.join("b")).unwrap(), [7; 600], "a tree does not change");
    drop(objects);
    assert_eq!(files(&Objects::open(&dir).unwrap()), 0);
}

#[test]
fn what_such_a_bucket_does_not_do_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let fake = Arc::new(Fake::default());
    let objects = open(&dir, &fake, false, 0);
    assert!(matches!(objects.create_bucket("team"), Err(StoreError::BucketExists(_))));
    assert_eq!(fault(objects.delete_bucket("team")), ForeignFault::Unsupported);
    assert_eq!(fault(objects.encryption_for("team", Some("key")).map(drop)), ForeignFault::Unsupported);
    let tagged = Attributes { tags: [("a".to_owned(), "b".to_owned())].into(), ..Attributes::default() };
    assert_eq!(fault(objects.put("team", "k", b"", &tagged)), ForeignFault::Unsupported);
    assert_eq!(fault(objects.create_upload("team", "k", &tagged, None)), ForeignFault::Unsupported);
    objects.set_bucket_policy("team", Some("{}")).unwrap();
    drop(objects);

    let objects = open(&dir, &fake, true, 0);
    assert_eq!(fault(objects.put("team", "k", b"", &Attributes::default())), ForeignFault::ReadOnly);
    assert_eq!(fault(objects.delete("team", "k")), ForeignFault::ReadOnly);
    assert_eq!(fault(objects.create_upload("team", "k", &Attributes::default(), None)), ForeignFault::ReadOnly);
    drop(objects);

    // Taken out of the settings it is hidden, and its name is free.
    let objects = Objects::open(&dir).unwrap().with_passthrough(BTreeMap::new(), 0).unwrap();
    assert_eq!(objects.buckets().unwrap(), Vec::new());
    assert!(matches!(objects.put("team", "k", b"", &Attributes::default()), Err(StoreError::NoSuchBucket(_))));
    drop(objects);
    let objects = open(&dir, &fake, false, 0);
    assert_eq!(objects.bucket_policy("team").unwrap().as_deref(), Some("{}"));
    drop(objects);
    let objects = Objects::open(&dir).unwrap().with_passthrough(BTreeMap::new(), 0).unwrap();
    objects.create_bucket("team").unwrap();
    assert_eq!(objects.bucket_policy("team").unwrap(), None);
    drop(objects);
    let shown = Passthrough { bucket: fake, is_read_only: false };
    let clash = Objects::open(&dir).unwrap().with_passthrough([("team".to_owned(), shown)].into(), 0);
    assert!(matches!(clash, Err(StoreError::BucketExists(name)) if name == "team"));
}

#[test]
fn pages_that_do_not_go_on_are_errors() {
    let meta = |key: &&str| Fake::meta(key, &(Vec::new(), Attributes::default()));
    let page = |keys: &[&str], commons: &[&str], next: Option<&str>| Listing {
        objects: keys.iter().map(meta).collect(),
        common_prefixes: commons.iter().map(|common| (*common).to_owned()).collect(),
        next: next.map(str::to_owned),
    };
    for (keys, commons, next, start, is_right) in [
        (&["a", "b"][..], &[][..], Some("b"), None, true),
        (&["c"], &["d/"], None, Some("b"), true),
        // It does not know where to go on.
        (&["a", "b"], &[], Some("b"), Some("b"), false),
        (&[], &["a/"], Some("a/"), Some("a/"), false),
        (&[], &["a/"], None, Some("b/c"), false),
        // Of keys in the midst of a common prefix.
        (&[], &["a/"], None, Some("a/1"), true),
        // An order of its own does not matter in one page.
        (&["b", "a"], &[], None, None, true),
        (&["b", "a"], &[], Some("b"), None, false),
    ] {
        let found = in_order(&page(keys, commons, next), start);
        assert_eq!(found.is_ok(), is_right, "{keys:?} {commons:?} {next:?} {start:?}: {found:?}");
    }
    let mut one = meta(&"k");
    let id = |meta: &ObjectMeta| of_bucket("team", "s3://theirs", meta.clone()).id;
    let before = id(&one);
    one.modified_ms += 1000;
    assert_eq!(id(&one), before, "it has the same ETag");
    one.etag = String::new();
    let before = id(&one);
    one.modified_ms += 1000;
    assert_ne!(id(&one), before);
}

#[test]
fn a_job_that_ends_does_not_wait_for_a_copy() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let fake = Arc::new(Fake::default());
    let objects = open(&dir, &fake, true, 1000);
    fake.lock().insert("a".to_owned(), (vec![1; 600], Attributes::default()));
    let meta = objects.get("team", "a").unwrap().unwrap();
    let link = |is_cancelled: &dyn Fn() -> bool| {
        objects.link_tree(&dir.channels_path().join("one"), &[("a", &meta)], is_cancelled)
    };
    // Asked before the file, and then while it comes.
    let asked = std::cell::Cell::new(0);
    let second = || asked.replace(asked.get() + 1) == 1;
    assert!(matches!(link(&second), Err(StoreError::Cancelled)));
    assert_eq!((files(&objects), asked.get()), (0, 2), "no draft of it is left");
    // While another brings it.
    let turn = objects.passthrough.turn(u128::from_str_radix(&meta.id, 16).unwrap(), &|| false).unwrap();
    asked.set(0);
    assert!(matches!(link(&second), Err(StoreError::Cancelled)));
    drop(turn);
    link(&|| false).unwrap();
}
