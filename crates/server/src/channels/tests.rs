//! Which objects a channel has, and trees of them.

use shoal_encryption::{KeyRing, KeySource};
use shoal_store::{Attributes, BucketEncryption, DataDir};
use shoal_wire::{ChannelSource, S3DataType};

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
        source: ChannelSource::S3(S3Source {
            data_type,
            uri: uri.parse().unwrap(),
            distribution,
            attribute_names: Vec::new(),
            instance_groups: Vec::new(),
        }),
        content_type: None,
        record_wrapper: RecordWrapper::None,
        is_gzip: false,
        input_mode: InputMode::File,
        shuffle_seed: None,
    }
}

fn prepare(trees: &Trees, attempt: &str, channel: &Channel, hosts: u32) -> Result<Vec<PathBuf>, String> {
    let source = channel.s3().unwrap();
    let made = trees.prepare(&attempt.into(), channel, source, channel.input_mode, hosts);
    let made = made.map_err(|(NotPrepared::Failed(why) | NotPrepared::Delayed(why))| why)?;
    Ok(made.iter().map(|(input, _)| trees.path_of(input)).collect())
}

fn paths(objects: &Objects, uri: &str) -> Vec<String> {
    let channel = channel(uri, S3DataType::S3Prefix, Distribution::FullyReplicated);
    let found = objects_of(objects, channel.s3().unwrap(), &all_may_be_read(), &|| false).unwrap();
    found.into_iter().map(|(path, _)| path).collect()
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
fn lists_are_bounded_and_end_with_their_job() {
    let (_temp, _dir, objects) = house(&["d/a", "d/b"]);
    let uri = "s3://bkt/d/".parse().unwrap();
    assert_eq!(listing::below(&objects, &uri, 2, &|| false).unwrap().len(), 2);
    let error = listing::below(&objects, &uri, 1, &|| false).unwrap_err().to_string();
    assert!(error.contains("objects below s3://bkt/d/; divide them"), "{error}");
    let cancelled = listing::below(&objects, &uri, 2, &|| true);
    assert!(matches!(cancelled, Err(ChannelError::Store(StoreError::Cancelled))));
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
        match (objects_of(&objects, manifest.s3().unwrap(), &all_may_be_read(), &|| false), expected) {
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
    let made = prepare(&trees, "a-1", &channel, 3).unwrap();
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
    let made = prepare(&trees, "a-1", &channel, 1).unwrap().remove(0);
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
    let next = prepare(&trees, "b-1", &channel, 1).unwrap().remove(0);
    assert_ne!(next, made);
    std::fs::remove_file(next.join("manifest")).unwrap();
    assert_eq!(prepare(&trees, "c-1", &channel, 1).unwrap(), std::slice::from_ref(&next));
    assert!(next.join("manifest").exists());
    trees.release("a-1");
    assert!(!made.exists());
}

#[test]
fn encrypted_objects_are_decrypted_under_ids_that_no_cache_keeps() {
    let temp = tempfile::tempdir().unwrap();
    let dir = DataDir::open(&temp.path().join("data")).unwrap();
    let script = temp.path().join("kms");
    std::fs::write(&script, "#!/bin/sh\nexec tr A-Za-z N-ZA-Mn-za-m\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let sources = [("team".to_owned(), KeySource::Command(vec![script.display().to_string()]))].into();
    let keys = || Arc::new(KeyRing::open(&sources, "us-east-1", "123456789012").unwrap());
    let objects = Objects::open(&dir).unwrap().with_keys(keys());
    objects.create_bucket("bkt").unwrap();
    objects.put("bkt", "d/plain", b"plain", &Attributes::default()).unwrap();
    let rule = BucketEncryption { kms: "team".to_owned(), bucket_key: false };
    objects.set_bucket_encryption("bkt", Some(&rule)).unwrap();
    objects.put("bkt", "d/sealed", b"sealed", &Attributes::default()).unwrap();
    let trees = Trees::new(dir.channels_path(), Arc::new(objects));
    let channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::FullyReplicated);

    let local = prepare(&trees, "local", &channel, 1).unwrap().remove(0);
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!((read(&local.join("plain")), read(&local.join("sealed"))), ("plain".to_owned(), "sealed".to_owned()));
    let remote = trees.for_agents(true);
    let tree = prepare(&remote, "remote", &channel, 1).unwrap().remove(0);
    let name = tree.file_name().unwrap().to_str().unwrap();
    let manifest = read(&remote.manifest(name));
    let ids = Vec::from_iter(manifest.lines().map(|line| serde_json::from_str::<ManifestEntry>(line).unwrap().id));
    assert_eq!(ids.iter().map(|id| id.starts_with(PRIVATE_ID)).collect::<Vec<_>>(), [false, true]);
    assert_eq!(read(&remote.bring(name, &ids[1]).unwrap()), "sealed");
    for attempt in ["local", "remote"] {
        trees.release(attempt);
    }
    assert!(!local.exists() && !tree.exists());

    // A command that does not answer delays; a key that is gone fails.
    std::fs::write(&script, "#!/bin/sh\nexit 1\n").unwrap();
    let source = channel.s3().unwrap();
    drop((trees, remote));
    let again = |keys| {
        let objects = Objects::open(&dir).unwrap().with_keys(keys);
        let trees = Trees::new(dir.channels_path(), Arc::new(objects));
        trees.prepare(&"again".into(), &channel, source, InputMode::File, 1).map(drop).unwrap_err()
    };
    let delayed = again(keys());
    assert!(matches!(&delayed, NotPrepared::Delayed(why) if why.contains("unwrap team ended")), "{delayed:?}");
    let failed = again(Arc::default());
    assert!(matches!(&failed, NotPrepared::Failed(why) if why.contains("no key \"team\"")), "{failed:?}");
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
        let of_channel: Vec<_> = (0..30).map(|number| prepare(&trees, &format!("b-{number}"), &channel, 1)).collect();
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
    assert_eq!(prepare(&trees, "a-1", &channel, 1), Err("channel train: cancelled".to_owned()));
    assert_eq!(std::fs::read_dir(dir.channels_path()).unwrap().count(), 0);
    prepare(&trees, "b-1", &channel, 1).expect("another attempt's is");
    trees.release("a-1");
    assert!(!trees.is_cancelled(&"a-1".into()));
}

#[test]
fn a_tree_lives_as_long_as_its_readers() {
    let (_temp, dir, objects) = house(&["d/a", "d/b"]);
    let channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::FullyReplicated);
    let trees = Trees::new(dir.channels_path(), objects.clone());
    let first = prepare(&trees, "a-1", &channel, 2).unwrap();
    assert_eq!(first[0], first[1], "hosts share what they all see");
    assert_eq!(prepare(&trees, "b-1", &channel, 1).unwrap(), first[..1], "attempts share the same objects");
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

#[test]
fn a_pipe_has_a_manifest_in_the_order_of_the_stream() {
    let (_temp, dir, objects) = house(&["d/a", "d/a/b", "d/c"]);
    let entries_of = |trees: &Trees, path: &Path| {
        let text = std::fs::read_to_string(trees.manifest(path.to_str().unwrap())).unwrap();
        Vec::from_iter(text.lines().map(|line| serde_json::from_str::<ManifestEntry>(line).unwrap()))
    };
    let mut channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::ShardedByS3Key);
    channel.input_mode = InputMode::Pipe;
    channel.shuffle_seed = Some(3);
    channel.is_gzip = true;
    let trees = Trees::new(dir.channels_path(), objects);
    let source = channel.s3().unwrap();
    let made = trees.prepare(&"a-1".into(), &channel, source, InputMode::Pipe, 2).unwrap();
    let [(Input::Local(tree), Delivery::Pipe(first)), (other, Delivery::Pipe(second))] = &made[..] else {
        panic!("{made:?}")
    };
    assert_eq!(Input::Local(tree.clone()), *other, "hosts differ by their shards alone");
    let shard = |index| Pipe {
        is_gzip: true,
        is_record_io: false,
        shuffle_seed: Some(3),
        entries_per_sample: 1,
        shard: Some(Shard { index, count: 2 }),
    };
    assert_eq!((*first, *second), (shard(0), shard(1)));
    let entries = entries_of(&trees, Path::new(tree));
    assert_eq!(entries.iter().map(|it| &*it.path).collect::<Vec<_>>(), ["a", "a/b", "c"], "no files, so no conflict");
    assert_eq!(std::fs::read(Path::new(tree).join(&entries[1].id)).unwrap(), b"d/a/b");
}

#[test]
fn an_augmented_manifest_is_its_attributes_in_order() {
    let (_temp, _dir, objects) = house(&["d/1.png", "d/2.png"]);
    let source = S3Source {
        data_type: S3DataType::AugmentedManifestFile,
        uri: "s3://bkt/m".parse().unwrap(),
        distribution: Distribution::FullyReplicated,
        attribute_names: ["image-ref", "label", "box"].map(str::to_owned).into(),
        instance_groups: Vec::new(),
    };
    let object = |key: &str| Streamed::Object(key.to_owned(), Box::new(objects.get("bkt", key).unwrap().unwrap()));
    let text = |text: &str| Streamed::Text(text.to_owned());
    for (manifest, expected) in [
        (
            "{\"box\": [1, {\"a\": null}], \"other\": 1, \"image-ref\": \"s3://bkt/d/2.png\", \"label\": \"a cat\"}\n\n\
             {\"image-ref\": \"s3://bkt/d/1.png\", \"label\": 1.50, \"box\": true}",
            Ok(vec![
                object("d/2.png"),
                text("a cat"),
                text("[1,{\"a\":null}]"),
                object("d/1.png"),
                text("1.5"),
                text("true"),
            ]),
        ),
        ("", Ok(Vec::new())),
        ("[1]", Err("line 1: invalid type")),
        ("{\"image-ref\": \"s3://bkt/d/1.png\", \"label\": 1}", Err("line 1: it has no attribute \"box\"")),
        ("\n{\"image-ref\": \"s3://bkt/d/3.png\"}", Err("line 2: image-ref: there is no object s3://bkt/d/3.png")),
        ("{\"image-ref\": \"s3://none/d\"}", Err("there is no object s3://none/d")),
        ("{\"image-ref\": \"d/1.png\"}", Err("image-ref: \"d/1.png\": it must begin with s3://")),
        ("{\"image-ref\": 7}", Err("image-ref is no text")),
    ] {
        objects.put("bkt", "m", manifest.as_bytes(), &Attributes::default()).unwrap();
        match (streamed_of(&objects, &source, &all_may_be_read(), &|| false), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{manifest}: {error}"),
            (found, expected) => panic!("{manifest}: {found:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn what_a_manifest_names_is_open_to_the_creator_or_refused() {
    let (_temp, _, objects) = house(&["own/1", "others/1"]);
    let may_read: MayRead = Arc::new(|_, key| !key.starts_with("others/"));
    let of = |data_type, manifest: &str| {
        objects.put("bkt", "m", manifest.as_bytes(), &Attributes::default()).unwrap();
        let mut channel = channel("s3://bkt/m", data_type, Distribution::FullyReplicated);
        if let ChannelSource::S3(source) = &mut channel.source {
            source.attribute_names = vec!["image-ref".to_owned()];
        }
        let found = streamed_of(&objects, channel.s3().unwrap(), &may_read, &|| false);
        found.map(|found| found.len()).map_err(|error| error.to_string())
    };
    let augmented = |key: &str| format!("{{\"image-ref\": \"s3://bkt/{key}\"}}");
    assert_eq!(of(S3DataType::ManifestFile, "[{\"prefix\": \"s3://bkt/own/\"}, \"1\"]"), Ok(1));
    assert_eq!(of(S3DataType::AugmentedManifestFile, &augmented("own/1")), Ok(1));
    for refused in [
        of(S3DataType::ManifestFile, "[{\"prefix\": \"s3://bkt/others/\"}, \"1\"]"),
        of(S3DataType::AugmentedManifestFile, &augmented("others/1")),
    ] {
        assert!(
            refused.is_err_and(|error| error.contains("s3://bkt/others/1 that the key which created the job may read"))
        );
    }
}

#[test]
fn a_seed_decides_what_shards_of_files_have() {
    let keys: Vec<String> = (0..20).map(|n| format!("d/{n:02}")).collect();
    let (_temp, dir, objects) = house(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let trees = Trees::new(dir.channels_path(), objects);
    let mut channel = channel("s3://bkt/d/", S3DataType::S3Prefix, Distribution::ShardedByS3Key);
    let plain = prepare(&trees, "a-1", &channel, 2).unwrap();
    channel.shuffle_seed = Some(5);
    let shuffled = prepare(&trees, "b-1", &channel, 2).unwrap();
    assert!(shuffled.iter().all(|tree| !plain.contains(tree)));
    assert_eq!(prepare(&trees, "c-1", &channel, 2).unwrap(), shuffled);
    let count = |tree: &PathBuf| std::fs::read_dir(tree).unwrap().count();
    assert_eq!(shuffled.iter().map(count).collect::<Vec<_>>(), [10, 10]);
}

#[test]
fn a_directory_of_the_owners_is_never_removed() {
    let (temp, dir, objects) = house(&[]);
    let own = temp.path().join("srv");
    std::fs::create_dir(&own).unwrap();
    let trees = Trees::new(dir.channels_path(), objects);
    trees.claim(&own, "a-1");
    trees.release("a-1");
    assert!(own.exists());
}

fn all_may_be_read() -> MayRead {
    Arc::new(|_, _| true)
}
