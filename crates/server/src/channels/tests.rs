//! Which objects a channel has, and trees of them.

use shoal_store::{Attributes, DataDir};
use shoal_wire::{InputMode, RecordWrapper};

use super::*;

fn house(keys: &[&str]) -> (tempfile::TempDir, DataDir, Arc<Objects>) {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let objects = Arc::new(Objects::open(&dir).unwrap());
    objects.create_bucket("bkt").unwrap();
    for key in keys {
        objects.put("bkt", key, key.as_bytes(), &Attributes::default()).unwrap();
    }
    (temp, dir, objects)
}

fn channel(uri: &str, data_type: S3DataType, distribution: Distribution) -> Channel {
    Channel {
        name: "train".to_owned(),
        data_type,
        uri: uri.parse().unwrap(),
        distribution,
        content_type: None,
        record_wrapper: RecordWrapper::None,
        input_mode: InputMode::File,
        shuffle_seed: None,
        instance_groups: Vec::new(),
    }
}

fn paths(objects: &Objects, uri: &str) -> Vec<String> {
    let channel = channel(uri, S3DataType::S3Prefix, Distribution::FullyReplicated);
    objects_of(objects, &channel).unwrap().into_iter().map(|(path, _)| path).collect()
}

#[test]
fn paths_start_where_users_expect() {
    let (_temp, _dir, objects) = house(&["d/", "d/a.csv", "d/sub/b.csv", "d2.csv", "top.csv"]);
    for (uri, expected) in [
        ("s3://bkt/d/", &["a.csv", "sub/b.csv"][..]),
        ("s3://bkt/d", &["a.csv", "sub/b.csv", "d2.csv"]),
        ("s3://bkt/d/a.csv", &["a.csv"]),
        ("s3://bkt/d/sub", &["b.csv"]),
        ("s3://bkt/to", &["top.csv"]),
        ("s3://bkt", &["d/a.csv", "d/sub/b.csv", "d2.csv", "top.csv"]),
        ("s3://bkt/none", &[]),
    ] {
        assert_eq!(paths(&objects, uri), expected, "{uri}");
    }
}

#[test]
fn a_manifest_names_its_objects() {
    let (_temp, _dir, objects) = house(&["d/a.csv", "d/b.csv", "d/c.csv"]);
    let manifest = channel("s3://bkt/m.json", S3DataType::ManifestFile, Distribution::FullyReplicated);
    for (text, expected) in [
        (r#"[{"prefix": "s3://bkt/d/"}, "c.csv", "a.csv"]"#, Ok(vec!["c.csv", "a.csv"])),
        (r#"[{"prefix": "s3://bkt/d/"}, "x.csv"]"#, Err("there is no object s3://bkt/d/x.csv")),
        (r#"["a.csv"]"#, Err("the first entry has no prefix")),
        (r#"[{"prefix": "s3://bkt/d/"}, 7]"#, Err("7 is not a key")),
        ("a,b", Err("expected value")),
    ] {
        objects.put("bkt", "m.json", text.as_bytes(), &Attributes::default()).unwrap();
        match (objects_of(&objects, &manifest), expected) {
            (Ok(found), Ok(expected)) => {
                assert_eq!(found.into_iter().map(|(path, _)| path).collect::<Vec<_>>(), expected);
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{text}: {error}"),
            (found, expected) => panic!("{text}: {found:?}, wanted {expected:?}"),
        }
    }
}

#[test]
fn partitions_are_disjoint_and_whole() {
    let keys: Vec<String> = (0..7).map(|n| format!("d/{n}")).collect();
    let (_temp, dir, objects) = house(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let trees = Trees::new(dir.channels_path(), objects);
    let channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::ShardedByS3Key);
    let made = trees.prepare(&"a-1".into(), &channel, 3).unwrap();
    let mut seen = Vec::new();
    for tree in &made {
        let names = std::fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names: Vec<_> = names.collect();
        assert!((2..=3).contains(&names.len()), "{names:?}");
        seen.extend(names);
    }
    seen.sort();
    assert_eq!(seen, ["0", "1", "2", "3", "4", "5", "6"]);
}

#[test]
fn a_tree_of_objects_has_them_by_id_and_a_manifest() {
    let (_temp, dir, objects) = house(&["d/a.csv", "d/sub/b.csv"]);
    let channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::FullyReplicated);
    let trees = Trees::new(dir.channels_path(), objects.clone()).for_agents(true);
    let made = trees.prepare(&"a-1".into(), &channel, 1).unwrap().remove(0);
    let Input::Objects(ObjectTree { tree }) = trees.input(&made) else { panic!("no path is for other machines") };
    assert_eq!(trees.path_of(&trees.input(&made)), made);
    let manifest = std::fs::read_to_string(trees.manifest(&tree)).unwrap();
    let entries: Vec<ManifestEntry> = manifest.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), ["a.csv", "sub/b.csv"]);
    // It stays as it was when the object is replaced.
    objects.put("bkt", "d/a.csv", b"another", &Attributes::default()).unwrap();
    assert_eq!(std::fs::read(trees.object(&tree, &entries[0].id)).unwrap(), b"d/a.csv");
    assert_eq!(entries[0].size, 7);
    for id in ["", "..", "../../keys", "manifest"] {
        assert!(!trees.object(&tree, id).exists(), "{id}");
    }
    // A server that was killed before the manifest was written makes it again.
    let next = trees.prepare(&"b-1".into(), &channel, 1).unwrap().remove(0);
    assert_ne!(next, made);
    std::fs::remove_file(next.join("manifest")).unwrap();
    assert_eq!(trees.prepare(&"c-1".into(), &channel, 1).unwrap(), std::slice::from_ref(&next));
    assert!(next.join("manifest").exists());
    trees.release("a-1");
    assert!(!made.exists());
}

#[test]
fn objects_that_are_replaced_meanwhile_are_a_tree() {
    let (_temp, dir, objects) = house(&["d/state", "d/other"]);
    let trees = Trees::new(dir.channels_path(), objects.clone());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0_u32.. {
                if over.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                objects.put("bkt", "d/state", &round.to_le_bytes(), &Attributes::default()).unwrap();
            }
        });
        let uri = "s3://bkt/d".parse().unwrap();
        let made: Vec<_> =
            (0..30).map(|number| trees.prepare_checkpoints(&format!("a-{number}").into(), &uri)).collect();
        let channel = channel("s3://bkt/d", S3DataType::S3Prefix, Distribution::FullyReplicated);
        let of_channel: Vec<_> =
            (0..30).map(|number| trees.prepare(&format!("b-{number}").into(), &channel, 1)).collect();
        let object = "s3://bkt/d/state".parse().unwrap();
        let of_object: Vec<_> =
            (0..30).map(|number| trees.prepare_object(&format!("c-{number}").into(), &object)).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        for tree in made {
            assert!(tree.unwrap().unwrap().join("state").exists());
        }
        for tree in of_channel
            .into_iter()
            .map(|trees| trees.unwrap().remove(0))
            .chain(of_object.into_iter().map(Result::unwrap))
        {
            assert!(tree.join("state").exists());
        }
    });
}

#[test]
fn a_channel_of_a_cancelled_attempt_is_not_made() {
    let (_temp, dir, objects) = house(&["d/a", "d/b"]);
    let channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::FullyReplicated);
    let trees = Trees::new(dir.channels_path(), objects);
    trees.cancel(&"a-1".into());
    assert_eq!(trees.prepare(&"a-1".into(), &channel, 1), Err("channel train: cancelled".to_owned()));
    assert_eq!(std::fs::read_dir(dir.channels_path()).unwrap().count(), 0);
    trees.prepare(&"b-1".into(), &channel, 1).expect("another attempt's is");
    trees.release("a-1");
    assert!(!trees.is_cancelled(&"a-1".into()));
}

#[test]
fn a_tree_lives_as_long_as_its_readers() {
    let (_temp, dir, objects) = house(&["d/a", "d/b"]);
    let channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::FullyReplicated);
    let trees = Trees::new(dir.channels_path(), objects.clone());
    let first = trees.prepare(&"a-1".into(), &channel, 2).unwrap();
    assert_eq!(first[0], first[1], "hosts share what they all see");
    assert_eq!(trees.prepare(&"b-1".into(), &channel, 1).unwrap(), first[..1], "attempts share the same objects");
    trees.release("a-1");
    assert!(first[0].exists());
    // After a restart only the claims of attempts that live keep a tree.
    let again = Trees::new(dir.channels_path(), objects);
    again.claim(&first[0], "b-1");
    again.sweep();
    assert!(first[0].exists());
    again.release("b-1");
    assert!(!first[0].exists());
}
