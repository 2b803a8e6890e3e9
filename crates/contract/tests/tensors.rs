//! Saved tensors: files of AWS's own smdebug 1.0.34 (`tensors/make.py` wrote them and lists what
//! its reader finds), the way back to its bytes, and hostile bytes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use shoal_contract::tensors::{
    Collection, Collections, ElementType, Event, Index, IndexEntry, Location, Mode, Records, Reduction, ReductionKind,
    Tensor, TensorError, write_record,
};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tensors/aws")
}

fn read(path: &str) -> Vec<u8> {
    fs::read(directory().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn index(step: u64) -> Index {
    Index::parse(&read(&Location::Index { step, worker: "worker_0".into() }.path())).unwrap()
}

/// The one event of a record.
fn event(record: &[u8]) -> Event<'_> {
    Event::parse(Records::new(record).next().unwrap().unwrap()).unwrap().unwrap()
}

#[test]
fn values_are_those_that_awss_reader_finds() {
    let expected: Vec<Value> = serde_json::from_slice(&read("../aws.json")).unwrap();
    let mut found = 0;
    for step in [0, 1, 2, 3] {
        let index = index(step);
        let events = read(index.event_file.as_ref().unwrap());
        for entry in &index.tensors {
            let event = event(&events[entry.start as usize..][..entry.length as usize]);
            assert_eq!(event.tensor.name, entry.name);
            assert_eq!((event.step, event.mode, event.mode_step), (step, index.mode, index.mode_step));
            assert!(event.wall_time > 1.7e9);
            let is_this = |row: &&Value| {
                row[0] == entry.name.as_str() && row[1] == index.mode.name() && row[2] == index.mode_step
            };
            match expected.iter().find(is_this) {
                Some(row) => {
                    assert_eq!(row[3], serde_json::json!(event.tensor.shape), "{}", entry.name);
                    assert_eq!(row[4], serde_json::json!(event.tensor.values().unwrap()), "{}", entry.name);
                    found += 1;
                }
                None => assert!(Reduction::parse(&entry.name).is_some(), "{}", entry.name),
            }
        }
    }
    assert_eq!(found, expected.len());
    assert!(found > 20, "{found}");
}

#[test]
fn every_type_is_read() {
    let index = index(9);
    let events = read(index.event_file.as_ref().unwrap());
    let mut names = Vec::new();
    for (content, entry) in Records::new(&events).zip(&index.tensors) {
        let event = Event::parse(content.unwrap()).unwrap().unwrap();
        let tensor = event.tensor;
        names.push((entry.name.as_str(), tensor.element.name()));
        match entry.name.as_str() {
            "type/c8" | "type/c16" => {
                let error = tensor.values().unwrap_err().to_string();
                assert!(error.ends_with("has no values to read"), "{error}");
            }
            "type/?" => assert_eq!(tensor.values().unwrap(), [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]),
            "type/scalar" => assert_eq!((tensor.scalar(), tensor.shape.as_slice()), (Some(2.5), &[1][..])),
            "type/empty" => assert_eq!((tensor.len(), tensor.shape.as_slice()), (0, &[0, 3][..])),
            "type/text" => assert_eq!(tensor.texts, ["a", "é"]),
            _ => {
                assert_eq!(tensor.values().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 100.0], "{}", entry.name);
                assert_eq!(tensor.shape, [2, 3]);
            }
        }
    }
    let types = ["f2 float16", "i1 int8", "u4 uint32", "i8 int64", "c16 complex128", "? bool", "text string"];
    for (name, element) in types.iter().map(|it| it.split_once(' ').unwrap()) {
        assert!(names.contains(&(&format!("type/{name}"), element)), "{name}");
    }
}

#[test]
fn what_is_written_again_has_the_same_bytes() {
    for step in [0, 1, 2, 3, 9] {
        let index = index(step);
        let events = read(index.event_file.as_ref().unwrap());
        let mut again = Vec::new();
        for content in Records::new(&events) {
            write_record(&mut again, &Event::parse(content.unwrap()).unwrap().unwrap().to_bytes(), false);
        }
        assert_eq!(again, events, "step {step}");
        assert_eq!(Index::parse(&index.to_bytes()).unwrap(), index);
        let file = read(&Location::Index { step, worker: "worker_0".into() }.path());
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        assert_eq!(json(&index.to_bytes()), json(&file));
    }
}

#[test]
fn collections_and_reductions() {
    let bytes = read(&Location::Collections { worker: "worker_0".into() }.path());
    let collections = Collections::parse(&bytes).unwrap();
    assert_eq!(collections.workers(), 1);
    let gradients = &collections.collections["gradients"];
    assert_eq!(gradients.include_regex, ["^gradient"]);
    assert!(gradients.tensor_names.contains(&"gradient/Sequential_0.weight".to_owned()));
    assert_eq!(collections.save_steps("losses", Mode::Eval).unwrap().save_interval, 1);
    assert!(!collections.collections["losses"].save_histogram);
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    assert_eq!(json(&collections.to_bytes()), json(&bytes));
    let index = index(0);
    let mean = Reduction { kind: ReductionKind::Mean, is_absolute: false }.tensor_name("Sequential_0.bias");
    assert!(index.tensors.iter().any(|entry| entry.name == mean));
    let sparse = br#"{"collections":{"x":{"name":"x","include_regex":false,"tensor_names":null}}}"#;
    assert_eq!(Collections::parse(sparse).unwrap().collections["x"].tensor_names, [""; 0]);
    let own = Collections::new(3, [Collection::new("x", &["^x"], &["y"])]);
    assert_eq!(Collections::parse(&own.to_bytes()).unwrap(), own);
    assert_eq!(own.workers(), 3);
}

/// A tensor of bytes, as other writers may send it.
fn tensor(element: ElementType, shape: &[u64], bytes: Vec<u8>) -> Vec<u8> {
    let tensor =
        Tensor { name: "t".into(), element, shape: shape.to_vec(), bytes: Cow::Owned(bytes), texts: Vec::new() };
    Event { wall_time: 0.5, step: 3, mode: Mode::Eval, mode_step: 1, tensor }.to_bytes()
}

#[test]
fn a_shape_that_does_not_match_its_bytes_is_an_error() {
    for (shape, bytes, expected) in [
        (vec![2, 3], 20, "tensor t: shape [2, 3] of float32 needs 24 bytes, but 20 bytes are there"),
        (vec![], 8, "tensor t: shape [] of float32 needs 4 bytes, but 8 bytes are there"),
        (vec![0], 4, "tensor t: shape [0] of float32 needs 0 bytes, but 4 bytes are there"),
        (vec![1 << 40, 1 << 40], 4, "of float32 needs more than can be counted, but 4 bytes are there"),
        (vec![1 << 62], 4, "needs more than can be counted"),
    ] {
        let error = Event::parse(&tensor(ElementType::Float32, &shape, vec![0; bytes])).unwrap_err();
        assert!(matches!(error, TensorError::Shape { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

/// A directory of two workers as we write it. `create_trial` of smdebug 1.0.34 reads it, too: by
/// hand, on `target/tmp/tensors`.
#[test]
fn a_directory_of_our_own_reads_back() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tensors");
    let _ = fs::remove_dir_all(&root);
    let place = |location: &Location, bytes: &[u8]| {
        let path = root.join(location.path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for worker in ["worker_0", "worker_1"] {
        let worker = worker.to_owned();
        let collections = Collections::new(2, [Collection::new("weights", &["weight"], &["fc.weight"])]);
        place(&Location::Collections { worker: worker.clone() }, &collections.to_bytes());
        for step in [0, 1500] {
            let tensor = Tensor::of_f32("fc.weight", &[2, 2], &[step as f32, 1.0, -2.5, f32::NAN]);
            let saved = Event { wall_time: 1e9, step, mode: Mode::Train, mode_step: step / 2, tensor };
            let mut events = Vec::new();
            write_record(&mut events, &saved.to_bytes(), false);
            let location = Location::Events { step, worker: worker.clone() };
            place(&location, &events);
            let entry = IndexEntry { name: "fc.weight".into(), start: 0, length: events.len() as u64 };
            let index = Index {
                mode: Mode::Train,
                mode_step: step / 2,
                event_file: Some(location.path()),
                tensors: vec![entry],
                shapes: Vec::new(),
            };
            place(&Location::Index { step, worker: worker.clone() }, &index.to_bytes());
            let index =
                Index::parse(&fs::read(root.join(Location::Index { step, worker: worker.clone() }.path())).unwrap());
            let events = fs::read(root.join(index.unwrap().event_file.unwrap())).unwrap();
            let read = event(&events);
            assert_eq!(read.tensor.values().unwrap()[..3], [step as f64, 1.0, -2.5]);
            assert_eq!((read.step, read.mode_step), (step, step / 2));
        }
    }
    place(&Location::End, b"");
}

#[test]
fn sixteen_bit_floats() {
    for (element, bits, expected) in [
        (ElementType::Float16, [0x3c00_u16, 0x7c00, 0x0001], [1.0, f64::INFINITY, 5.960_464_477_539_063e-8]),
        (ElementType::BFloat16, [0x3f80, 0xff80, 0x4049], [1.0, f64::NEG_INFINITY, 3.140_625]),
    ] {
        let content = tensor(element, &[3], bits.iter().flat_map(|bits| bits.to_le_bytes()).collect());
        assert_eq!(Event::parse(&content).unwrap().unwrap().tensor.values().unwrap(), expected);
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Damaged content never panics, and what is read of it is no longer than the content itself.
#[test]
fn damaged_bytes_are_errors() {
    let files: Vec<Vec<u8>> = [0, 2, 9].iter().map(|step| read(index(*step).event_file.as_ref().unwrap())).collect();
    let indexes: Vec<Vec<u8>> = [0, 9].iter().map(|step| index(*step).to_bytes()).collect();
    let (mut read, mut refused) = (0, 0);
    for seed in 0..2000 {
        let mut random = Random(seed);
        let mut bytes = files[random.below(files.len())].clone();
        let records: Vec<Vec<u8>> = Records::new(&bytes).map(|content| content.unwrap().to_vec()).collect();
        let mut content = records[random.below(records.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(content.len());
            match random.below(3) {
                0 => content[at] ^= 1 << random.below(8),
                1 => content.truncate(at + 1),
                _ => content.insert(at, random.below(256) as u8),
            }
        }
        match Event::parse(&content) {
            Ok(Some(event)) => {
                let tensor = &event.tensor;
                assert!(tensor.bytes.len() <= 8 * content.len(), "seed {seed}: {tensor:?}");
                let _ = tensor.values();
                read += 1;
            }
            Ok(None) => {}
            Err(error) => {
                assert!(error.to_string().len() < 2000, "seed {seed}");
                refused += 1;
            }
        }
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        bytes.truncate(random.below(bytes.len()) + 1);
        assert!(Records::new(&bytes).count() <= records.len(), "seed {seed}");
        let mut index = indexes[random.below(indexes.len())].clone();
        let at = random.below(index.len());
        index[at] = random.below(256) as u8;
        let _ = Index::parse(&index);
        let _ = Collections::parse(&index);
    }
    assert!(read > 100 && refused > 1000, "{read} read, {refused} refused");
}

#[test]
fn mistakes_in_an_index_are_explained() {
    for (text, expected) in [
        ("", "the index file cannot be read: EOF"),
        (r#"{"meta":{"mode":"TEST","mode_step":0}}"#, "mode is \"TEST\"; modes are TRAIN, EVAL, PREDICT and GLOBAL"),
        (
            r#"{"meta":{"mode":"EVAL","mode_step":0},"tensor_payload":[{"tensorname":"a","start_idx":0,"length":1}]}"#,
            "tensors without event_file_name",
        ),
    ] {
        let error = Index::parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
