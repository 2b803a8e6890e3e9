//! Encrypted contents: nothing of them is stored as it is, they come back whole and in ranges, and
//! what was changed, cut or exchanged does not.

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shoal_encryption::{CustomerKey, KeyError, KeyRing, KeySource};
use shoal_store::{
    Attributes, BucketEncryption, DataDir, Encryption, ObjectMeta, Objects, PutCondition, StoreError, verify,
};

/// Repeated all over the contents.
const MARK: &[u8] = b"plaintext that must not be on the disk. ";
/// Parts of this length are written to their places in the object's file.
const SLOT: usize = 5 << 20;

fn content(length: usize) -> Vec<u8> {
    MARK.iter().copied().cycle().take(length).collect()
}

fn keys(root: &Path, bytes: &[u8]) -> Arc<KeyRing> {
    let path = root.join("team.key");
    let lines = Vec::from_iter(bytes.iter().map(|byte| format!("{byte:02x}").repeat(32)));
    fs::write(&path, lines.join("\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let sources = ["team", "other"].map(|name| (name.to_owned(), KeySource::File(path.clone())));
    Arc::new(KeyRing::open(&BTreeMap::from(sources), "us-east-1", "123456789012").unwrap())
}

fn team() -> BucketEncryption {
    BucketEncryption { kms: "team".to_owned(), bucket_key: true }
}

struct Stage {
    _temp: tempfile::TempDir,
    root: PathBuf,
    open: Option<(DataDir, Objects)>,
}

impl Stage {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().to_owned();
        let mut stage = Self { _temp: temp, root, open: None };
        stage.reopen(&[1]);
        for bucket in ["sealed", "plain"] {
            stage.objects().create_bucket(bucket).unwrap();
        }
        stage.objects().set_bucket_encryption("sealed", Some(&team())).unwrap();
        stage
    }

    /// With these keys; after a crash, as far as the store knows.
    fn reopen(&mut self, bytes: &[u8]) {
        self.open = None;
        let dir = DataDir::open(&self.root.join("data")).unwrap();
        let objects = Objects::open(&dir).unwrap().with_keys(keys(&self.root, bytes));
        self.open = Some((dir, objects));
    }

    fn objects(&self) -> &Objects {
        &self.open.as_ref().unwrap().1
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    fn upload(
        &self,
        key: &str,
        parts: &[&[u8]],
        encryption: &Encryption,
        customer: Option<&CustomerKey>,
    ) -> ObjectMeta {
        let objects = self.objects();
        let id = objects.create_encrypted_upload("plain", key, &Attributes::default(), None, encryption).unwrap();
        let upload = objects.upload(&id).unwrap();
        let chosen = (1..).zip(parts).map(|(number, bytes)| {
            let writer = objects.part_writer(&id, number, Some(bytes.len() as u64)).unwrap();
            let mut writer = objects.seal_part(writer, &upload, customer).unwrap();
            bytes.chunks(70_000).for_each(|piece| writer.append(piece).unwrap());
            (number, objects.commit_part(writer, &id, number, &BTreeMap::new()).unwrap().etag)
        });
        let chosen = Vec::from_iter(chosen);
        objects.complete_upload(&id, &chosen, &BTreeMap::new(), &PutCondition::Always).unwrap()
    }
}

/// Files below a directory that have the mark in them.
fn with_mark(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(with_mark(&path));
        } else if fs::read(&path).unwrap().windows(MARK.len()).any(|window| window == MARK) {
            found.push(path);
        }
    }
    found
}

#[test]
fn nothing_of_an_encrypted_content_is_stored_as_it_is() {
    let mut stage = Stage::new();
    let (small, long, slot) = (content(1000), content(3_300_000), content(SLOT));
    let objects = stage.objects();
    let put = |key: &str, bytes: &[u8]| objects.put("sealed", key, bytes, &Attributes::default()).unwrap();
    put("small", &small);
    put("empty", b"");
    put("zeros", &vec![0; 2 << 20]);
    let meta = put("long", &long);
    assert_eq!((meta.size, meta.etag.len()), (long.len() as u64, 32));
    let envelope = meta.attributes.encryption.clone().unwrap();
    assert_eq!((envelope.kms_key(), envelope.bucket_key), (Some("team"), true));
    // What a caller gives for it counts for nothing.
    let attributes = Attributes::default();
    let copy = objects.copy(("sealed", &meta), "plain", "copy", &attributes, &PutCondition::Always).unwrap();
    let wrapped = copy.attributes.encryption.unwrap();
    assert_eq!((&wrapped.holder, wrapped.bucket_key), (&envelope.holder, true));
    assert_ne!(wrapped.wrapped, envelope.wrapped, "the data key is wrapped again");
    // In their places, from an early one, and joined.
    stage.upload("in-place", &[&slot, &slot, &small], &Encryption::Kms(team()), None);
    stage.upload("joined", &[&small, &long], &Encryption::Kms(team()), None);
    let mut writer = objects.seal(objects.writer().unwrap(), "plain", Some("other")).unwrap();
    for piece in long.chunks(777_777) {
        writer.append(piece).unwrap();
    }
    assert_eq!(writer.size(), long.len() as u64);
    objects.commit(writer, "plain", "named", &attributes, &PutCondition::Always).unwrap();

    let places = [slot.clone(), slot, small.clone()].concat();
    let expected: [(&str, &str, Vec<u8>); 8] = [
        ("sealed", "small", small.clone()),
        ("sealed", "empty", Vec::new()),
        ("sealed", "zeros", vec![0; 2 << 20]),
        ("sealed", "long", long.clone()),
        ("plain", "copy", long.clone()),
        ("plain", "in-place", places),
        ("plain", "joined", [small, long.clone()].concat()),
        ("plain", "named", long),
    ];
    // As they were written, after a start, and under a new key beside the old one.
    for keys in [&[1][..], &[1], &[2, 1]] {
        for (bucket, key, bytes) in &expected {
            let reader = stage.objects().reader(bucket, key).unwrap();
            assert!(reader.read_all().unwrap() == *bytes, "{key}");
            for (start, end) in [(0, 1), (bytes.len() / 2, bytes.len() / 2 + 10), (bytes.len().max(1) - 1, bytes.len())]
            {
                if start < end && end <= bytes.len() {
                    let piece = reader.read(start as u64, end as u64).unwrap();
                    assert!(!piece.is_empty() && bytes[start..].starts_with(&piece), "{key}: {start}");
                }
            }
            let (mut stream, mut text) = (reader.stream(0..u64::MAX), Vec::new());
            stream.read_to_end(&mut text).unwrap();
            assert!(text == *bytes, "{key}");
            assert!(matches!(stage.objects().read(bucket, key), Err(StoreError::Encrypted { .. })));
        }
        assert_eq!(with_mark(&stage.data()), Vec::<PathBuf>::new());
        let report = verify(&stage.data(), &mut |_| {}).unwrap();
        assert_eq!((report.objects, report.damages), (8, Vec::new()), "without any key");
        stage.reopen(keys);
    }
    stage.reopen(&[3]);
    for (bucket, key, _) in &expected {
        let error = stage.objects().reader(bucket, key).unwrap_err();
        assert!(matches!(error, StoreError::Key(KeyError::Wrong(_))), "{key}: {error}");
    }
    // A bucket that is created again knows nothing of it.
    for key in ["small", "empty", "zeros", "long"] {
        stage.objects().delete("sealed", key).unwrap();
    }
    stage.objects().delete_bucket("sealed").unwrap();
    stage.objects().create_bucket("sealed").unwrap();
    assert_eq!(stage.objects().bucket_encryption("sealed").unwrap(), None);
}

#[test]
fn a_customers_key_opens_its_objects_alone() {
    let stage = Stage::new();
    let objects = stage.objects();
    let (key, other) = (CustomerKey::of(&[5; 32]).unwrap(), CustomerKey::of(&[6; 32]).unwrap());
    let bytes = content(2_000_000);
    let customer = Encryption::Customer(key.clone());
    let mut writer = objects.encrypt(objects.writer().unwrap(), &customer).unwrap();
    writer.append(&bytes).unwrap();
    // Whatever the bucket has.
    objects.commit(writer, "sealed", "k", &Attributes::default(), &PutCondition::Always).unwrap();
    stage.upload("parts", &[&bytes, b"x"], &customer, Some(&key));
    for (bucket, name) in [("sealed", "k"), ("plain", "parts")] {
        let read =
            |key: Option<&CustomerKey>| objects.reader_with(bucket, name, None, key).and_then(|it| it.read_all());
        assert!(read(Some(&key)).unwrap().starts_with(&bytes));
        assert!(matches!(read(Some(&other)), Err(StoreError::Key(KeyError::WrongCustomerKey))));
        assert!(matches!(read(None), Err(StoreError::Key(KeyError::NoCustomerKey))));
        let meta = objects.get(bucket, name).unwrap().unwrap();
        let tree = stage.data().join("channels").join(name);
        let error = objects.link_tree(&tree, &[("a", &meta)], &|| false).unwrap_err();
        assert!(matches!(error, StoreError::CustomersObject { .. }), "{error}");
    }
    // A part under another key, or none, is none of the upload.
    let id = objects.create_encrypted_upload("plain", "k", &Attributes::default(), None, &customer).unwrap();
    let upload = objects.upload(&id).unwrap();
    let seal = |key| objects.seal_part(objects.writer().unwrap(), &upload, key).map(drop);
    assert!(matches!(seal(Some(&other)), Err(StoreError::Key(KeyError::WrongCustomerKey))));
    assert!(matches!(seal(None), Err(StoreError::Key(KeyError::NoCustomerKey))));
    let plain = objects.commit_part(objects.writer().unwrap(), &id, 1, &BTreeMap::new());
    assert!(matches!(plain, Err(StoreError::InvalidPart(1))));
    assert_eq!(with_mark(&stage.data()), Vec::<PathBuf>::new());
}

#[test]
fn a_tree_has_decrypted_copies_that_go_with_it() {
    let stage = Stage::new();
    let (objects, tree) = (stage.objects(), stage.data().join("channels/tree"));
    let bytes = content(2_000_000);
    let sealed = objects.put("sealed", "k", &bytes, &Attributes::default()).unwrap();
    let plain = objects.put("plain", "k", b"plain", &Attributes::default()).unwrap();
    assert!(matches!(objects.link_tree(&tree, &[("a/b", &sealed)], &|| true), Err(StoreError::Cancelled)));
    assert!(!tree.exists());
    objects.link_tree(&tree, &[("a/b", &sealed), ("c", &plain)], &|| false).unwrap();
    assert!(fs::read(tree.join("a/b")).unwrap() == bytes);
    assert_eq!(fs::metadata(tree.join("a/b")).unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(fs::read(tree.join("c")).unwrap(), b"plain");
    assert_eq!(with_mark(&stage.data()), [tree.join("a/b")]);
    fs::remove_dir_all(&tree).unwrap();
    assert!(objects.reader("sealed", "k").unwrap().read_all().unwrap() == bytes);
    objects.delete("sealed", "k").unwrap();
    let gone = objects.link_tree(&tree, &[("a", &sealed)], &|| false).unwrap_err();
    assert!(matches!(gone, StoreError::ObjectGone { .. }), "{gone}");
}

/// A user who can write the files and their sums cannot make an object of them that opens.
#[test]
fn what_was_changed_with_its_sums_does_not_open() {
    let mut stage = Stage::new();
    let bytes = content(2_500_000);
    let meta = stage.objects().put("sealed", "k", &bytes, &Attributes::default()).unwrap();
    let path = stage.objects().path(&meta);
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut block = vec![0; 1 << 20];
    file.read_exact_at(&mut block, 0).unwrap();
    file.write_all_at(&block, 1 << 20).unwrap();
    let of_first = |sums: &[u8]| [&sums[..8], &sums[..8], &sums[16..]].concat();
    stage.open = None;
    let index = rusqlite::Connection::open(stage.data().join("objects.db")).unwrap();
    let sums: Vec<u8> = index.query_row("SELECT sums FROM block_sums", [], |row| row.get(0)).unwrap();
    index.execute("UPDATE block_sums SET sums = ?", [of_first(&sums)]).unwrap();
    drop(index);
    assert_eq!(verify(&stage.data(), &mut |_| {}).unwrap().damages, []);
    stage.reopen(&[1]);
    let reader = stage.objects().reader("sealed", "k").unwrap();
    assert!(reader.read(0, 10).unwrap() == bytes[..10]);
    let error = reader.read(1 << 20, 2 << 20).unwrap_err().to_string();
    assert!(error.contains("its bytes 1048576 to 2097151 do not open under its key"), "{error}");
    stage.open = None;
    let index = rusqlite::Connection::open(stage.data().join("objects.db")).unwrap();
    index.execute("UPDATE content_seals SET seals = X'00'", []).unwrap();
    drop(index);
    let damages = verify(&stage.data(), &mut |_| {}).unwrap().damages;
    assert_eq!(damages[0].detail, "it has 1 bytes of seals instead of 64");
}
