//! Versions against a model of them, and against what else needs their files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rusqlite::Connection;

use crate::{
    Attributes, DataDir, DeleteCondition, Deletion, ObjectMeta, Objects, PutCondition, StoreError, Version,
    VersionMeta, Versioning, contents_of, verify,
};

fn open(dir: &DataDir) -> Objects {
    Objects::open(dir).unwrap()
}

fn put(objects: &Objects, key: &str, content: &str) -> ObjectMeta {
    objects.put("b", key, content.as_bytes(), &Attributes::default()).unwrap()
}

fn delete(objects: &Objects, key: &str, version: Option<&str>) -> Deletion {
    objects.delete_if("b", key, version, &DeleteCondition::default()).unwrap()
}

fn files(objects: &Objects) -> usize {
    let shards = crate::deletions::entries(&objects.files).unwrap();
    shards.iter().map(|shard| crate::deletions::entries(shard).unwrap().len()).sum()
}

fn listed(objects: &Objects) -> Vec<VersionMeta> {
    objects.list_versions("b", "", None, None, usize::MAX).unwrap().versions
}

/// What a bucket has of one key, the newest first: the id, and the content unless it is a marker.
type Model = Vec<(Version, Option<String>)>;

/// The current version of a suspended bucket takes the place of the null version.
fn add(model: &mut Model, version: Version, content: Option<String>, versioning: Versioning) {
    match versioning {
        Versioning::Never => model.clear(),
        Versioning::Enabled => {}
        Versioning::Suspended => model.retain(|(version, _)| *version != Version::Null),
    }
    model.insert(0, (version, content));
}

#[test]
fn any_history_leaves_the_versions_that_s3_leaves() {
    const KEYS: [&str; 3] = ["a", "a/b", "c"];
    for seed in 1..=15_u64 {
        let temp = tempfile::tempdir().unwrap();
        let dir = DataDir::open(temp.path()).unwrap();
        let mut objects = open(&dir);
        objects.create_bucket("b").unwrap();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap()
        };
        let mut models: BTreeMap<&str, Model> = KEYS.into_iter().map(|key| (key, Model::new())).collect();
        let mut versioning = Versioning::Never;
        for turn in 0..40 {
            let key = KEYS[draw(3)];
            let model = models.get_mut(key).unwrap();
            let content = format!("{seed} {turn}");
            match draw(10) {
                0 => {
                    versioning = if draw(2) == 0 { Versioning::Enabled } else { Versioning::Suspended };
                    objects.set_versioning("b", versioning).unwrap();
                    let null = |version: &mut Version| {
                        if *version == Version::Only {
                            *version = Version::Null;
                        }
                    };
                    models.values_mut().flatten().for_each(|(version, _)| null(version));
                }
                1..=4 => {
                    let meta = put(&objects, key, &content);
                    add(model, meta.version, Some(content), versioning);
                }
                5 | 6 => {
                    let existed = model.first().is_some_and(|(_, content)| content.is_some());
                    let done = delete(&objects, key, None);
                    assert_eq!((done.existed, done.is_marker), (existed, versioning != Versioning::Never));
                    match versioning {
                        Versioning::Never => model.clear(),
                        _ => add(model, done.version, None, versioning),
                    }
                }
                7 | 8 if !model.is_empty() => {
                    let (version, content) = model.remove(draw(model.len()));
                    let done = delete(&objects, key, Some(version.id()));
                    assert_eq!((done.existed, done.is_marker), (true, content.is_none()));
                    assert_eq!(done.version.id(), version.id());
                    assert!(!delete(&objects, key, Some(version.id())).existed, "it is gone");
                }
                _ => {
                    drop(objects);
                    objects = open(&dir);
                }
            }
            compare(&objects, &models, &format!("seed {seed}, turn {turn}"));
        }
        assert_eq!(verify(temp.path(), &mut |_| {}).unwrap().damages, []);
        let bytes = models.values().flatten().filter_map(|(_, content)| Some(content.as_ref()?.len() as u64));
        assert_eq!(objects.stored_bytes("b", "").unwrap(), bytes.sum::<u64>());
        let all: Vec<_> =
            models.into_iter().flat_map(|(key, model)| model.into_iter().map(move |it| (key, it))).collect();
        for (left, (key, (version, _))) in (1..=all.len()).rev().zip(&all) {
            assert!(matches!(objects.delete_bucket("b"), Err(StoreError::BucketNotEmpty(_))), "{left} are left");
            assert!(delete(&objects, key, Some(version.id())).existed);
        }
        objects.delete_bucket("b").unwrap();
        assert_eq!(files(&objects), 0);
    }
}

fn compare(objects: &Objects, models: &BTreeMap<&str, Model>, case: &str) {
    let expected: Vec<_> = models
        .iter()
        .flat_map(|(key, model)| {
            model
                .iter()
                .enumerate()
                .map(move |(at, (version, content))| (*key, version.id(), content.is_some(), at == 0))
        })
        .collect();
    let found = listed(objects);
    let found: Vec<_> = found
        .iter()
        .map(|it| (it.key.as_str(), it.version.id(), it.object.is_some(), it.noncurrent_ms.is_none()))
        .collect();
    assert_eq!(found, expected, "{case}");
    let mut current = Vec::new();
    for (key, model) in models {
        for (version, content) in model {
            match (objects.version_reader("b", key, Some(version.id())), content) {
                (Ok(reader), Some(content)) => {
                    assert_eq!(reader.read_all().unwrap(), content.as_bytes(), "{case}");
                    assert_eq!(reader.meta.version, *version, "{case}");
                }
                (Err(StoreError::DeleteMarker { is_named: true, .. }), None) => {}
                (found, _) => panic!("{case}: {found:?}"),
            }
        }
        let by_name = objects.version("b", key, None);
        match model.first() {
            Some((_, Some(content))) => {
                current.push(*key);
                assert_eq!(objects.reader("b", key).unwrap().read_all().unwrap(), content.as_bytes(), "{case}");
                assert_eq!(by_name.unwrap(), objects.get("b", key).unwrap().unwrap());
            }
            Some((marker, None)) => match by_name {
                Err(StoreError::DeleteMarker { version, is_named: false, .. }) => assert_eq!(version, marker.id()),
                found => panic!("{case}: {found:?}"),
            },
            None => assert!(matches!(by_name, Err(StoreError::NoSuchKey { .. })), "{case}"),
        }
        if model.first().is_none_or(|(_, content)| content.is_none()) {
            assert!(matches!(objects.read("b", key), Err(StoreError::NoSuchKey { .. })), "{case}");
        }
    }
    let keys: Vec<_> = objects.list("b", "", None, None, 99).unwrap().objects.into_iter().map(|it| it.key).collect();
    assert_eq!(keys, current, "{case}");
    let contents = models.values().flatten().filter(|(_, content)| content.is_some()).count();
    assert_eq!(files(objects), contents, "{case}");
}

#[test]
fn pages_of_every_size_give_the_same_versions() {
    let temp = tempfile::tempdir().unwrap();
    let objects = open(&DataDir::open(temp.path()).unwrap());
    objects.create_bucket("b").unwrap();
    put(&objects, "a", "null");
    objects.set_versioning("b", Versioning::Enabled).unwrap();
    for key in ["a", "a/", "a/1", "a/1", "b", "b", "b", "c/x", "d"] {
        put(&objects, key, "content");
    }
    delete(&objects, "b", None);
    delete(&objects, "c/x", None);
    let all = "a1 a0 a/0 a/11 a/10 b3m b2 b1 b0 c/x1m c/x0 d0";
    for (prefix, delimiter, expected) in [
        ("", None, all.to_owned()),
        ("", Some("/"), "a1 a0 b3m b2 b1 b0 d0 | a/ c/".to_owned()),
        ("a/", Some("/"), "a/0 a/11 a/10".to_owned()),
        ("b", None, "b3m b2 b1 b0".to_owned()),
        ("zzz", None, String::new()),
    ] {
        for max in 1..=13 {
            let (mut versions, mut commons, mut after) = (Vec::new(), Vec::new(), None::<(String, Option<String>)>);
            loop {
                let from = after.as_ref().map(|(key, id)| (key.as_str(), id.as_deref()));
                let page = objects.list_versions("b", prefix, from, delimiter, max).unwrap();
                assert!(page.versions.len() + page.common_prefixes.len() <= max);
                versions.extend(page.versions);
                commons.extend(page.common_prefixes);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            let mut texts = Vec::new();
            for version in &versions {
                let older = versions.iter().filter(|it| it.key == version.key && it.place > version.place).count();
                let marker = if version.object.is_none() { "m" } else { "" };
                texts.push(format!("{}{older}{marker}", version.key));
            }
            let commons = if commons.is_empty() { String::new() } else { format!(" | {}", commons.join(" ")) };
            assert_eq!(texts.join(" ") + &commons, expected, "{prefix:?} {delimiter:?} by {max}");
        }
    }
    // A key's marker alone skips the key.
    let page = objects.list_versions("b", "", Some(("b", None)), None, 1).unwrap();
    assert_eq!(page.versions[0].key, "c/x");
}

/// As clients empty a bucket: each page is removed before the next is asked for.
#[test]
fn a_bucket_can_be_emptied_page_by_page() {
    let temp = tempfile::tempdir().unwrap();
    let objects = open(&DataDir::open(temp.path()).unwrap());
    objects.create_bucket("b").unwrap();
    put(&objects, "a", "null");
    objects.set_versioning("b", Versioning::Suspended).unwrap();
    put(&objects, "c", "null");
    objects.set_versioning("b", Versioning::Enabled).unwrap();
    for key in ["a", "a", "c", "c", "d"] {
        put(&objects, key, "content");
        delete(&objects, key, None);
    }
    for max in [1, 2, 3] {
        let mut after: Option<(String, Option<String>)> = None;
        loop {
            let from = after.as_ref().map(|(key, id)| (key.as_str(), id.as_deref()));
            let page = objects.list_versions("b", "", from, None, max).unwrap();
            for version in &page.versions {
                assert!(delete(&objects, &version.key, Some(version.version.id())).existed);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert!(listed(&objects).is_empty());
        put(&objects, "a", "again");
        put(&objects, "a", "again");
    }
}

#[test]
fn conditions_are_about_the_current_version() {
    let temp = tempfile::tempdir().unwrap();
    let objects = open(&DataDir::open(temp.path()).unwrap());
    objects.create_bucket("b").unwrap();
    objects.set_versioning("b", Versioning::Enabled).unwrap();
    let write = |condition: PutCondition| {
        let mut writer = objects.writer().unwrap();
        writer.append(b"content").unwrap();
        objects.commit(writer, "b", "k", &Attributes::default(), &condition)
    };
    let first = write(PutCondition::Absent).unwrap();
    assert!(matches!(write(PutCondition::Absent), Err(StoreError::PreconditionFailed { .. })));
    write(PutCondition::Matches(first.etag.clone())).unwrap();
    let wrong = DeleteCondition { size: Some(1), ..DeleteCondition::default() };
    for version in [None, Some(first.version.id())] {
        let refused = objects.delete_if("b", "k", version, &wrong);
        assert!(matches!(refused, Err(StoreError::PreconditionFailed { .. })));
    }
    delete(&objects, "k", None);
    assert!(matches!(write(PutCondition::Matches(first.etag.clone())), Err(StoreError::NoSuchKey { .. })));
    let exists = DeleteCondition { exists: true, ..DeleteCondition::default() };
    assert!(matches!(objects.delete_if("b", "k", None, &exists), Err(StoreError::PreconditionFailed { .. })));
    write(PutCondition::Absent).unwrap();
    assert_eq!(listed(&objects).len(), 4);
    // An earlier one has its own tags, and becomes the current one by being copied.
    let tags = BTreeMap::from([("kind".to_owned(), "old".to_owned())]);
    assert_eq!(objects.set_tags("b", "k", Some(first.version.id()), &tags).unwrap(), first.version);
    assert!(objects.get("b", "k").unwrap().unwrap().attributes.tags.is_empty());
    let source = objects.version("b", "k", Some(first.version.id())).unwrap();
    assert_eq!(source.attributes.tags, tags);
    let copy = objects.copy(("b", &source), "b", "k", &source.attributes, &PutCondition::Always).unwrap();
    assert_eq!(objects.get("b", "k").unwrap(), Some(copy));
    assert!(matches!(objects.set_tags("b", "k", Some("x"), &tags), Err(StoreError::NoSuchVersion { .. })));
}

/// Small contents that only the index has, sums of blocks, and files without rows.
#[test]
fn a_crash_loses_no_version() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    let objects = open(&dir);
    objects.create_bucket("b").unwrap();
    objects.set_versioning("b", Versioning::Enabled).unwrap();
    let long = "x".repeat(2_500_000);
    let first = put(&objects, "k", "small");
    let second = put(&objects, "k", &long);
    let third = put(&objects, "k", "newest");
    delete(&objects, "k", None);
    fs::remove_file(objects.path(&first)).unwrap();
    // Of a deletion whose row was gone before the file.
    let left = objects.path(&third).with_file_name(format!("{}{}", &third.id[..2], "0".repeat(30)));
    fs::write(&left, "left").unwrap();
    drop(objects);
    let objects = open(&dir);
    assert!(!left.exists());
    let read = |meta: &ObjectMeta| {
        objects.version_reader("b", "k", Some(meta.version.id())).and_then(|reader| reader.read_all())
    };
    assert_eq!((read(&first).unwrap(), read(&second).unwrap().len()), (b"small".to_vec(), long.len()));
    let report = verify(temp.path(), &mut |_| {}).unwrap();
    assert_eq!((report.objects, report.bytes, report.damages.len()), (3, 2_500_011, 0));

    // A backup has all of them, and a check names the one that is damaged.
    let ids: BTreeSet<String> = contents_of_objects(temp.path());
    assert_eq!(ids, [&first, &second, &third].into_iter().map(|meta| meta.id.clone()).collect());
    let mut bytes = fs::read(objects.path(&second)).unwrap();
    bytes[0] ^= 1;
    fs::write(objects.path(&second), bytes).unwrap();
    let damages = verify(temp.path(), &mut |_| {}).unwrap().damages;
    assert_eq!(damages[0].name, format!("s3://b/k?versionId={}", second.version.id()));
    assert!(matches!(read(&second), Err(StoreError::DamagedObject { .. })));
}

fn contents_of_objects(root: &std::path::Path) -> BTreeSet<String> {
    // The logs' database is asked for, too.
    drop(crate::Telemetry::open(&root.join("telemetry.db")).unwrap());
    let contents = contents_of(root).unwrap().into_iter().filter_map(|content| match content {
        crate::Content::Object { id, .. } => Some(id),
        crate::Content::Segment { .. } => None,
    });
    contents.collect()
}

/// Reading and listing current objects asks the table that has nothing else.
#[test]
fn earlier_versions_cost_readers_of_current_ones_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(temp.path()).unwrap();
    let objects = open(&dir);
    objects.create_bucket("b").unwrap();
    objects.set_versioning("b", Versioning::Enabled).unwrap();
    (0..5).for_each(|_| drop(put(&objects, "k", "content")));
    let count = |table: &str| -> u64 {
        let connection = Connection::open(dir.object_index_path()).unwrap();
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("object"), count("version")), (1, 4));
    delete(&objects, "k", None);
    assert_eq!((count("object"), count("version")), (0, 6));
}
