use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use shoal_link::Input;

use super::*;

struct House {
    dir: tempfile::TempDir,
    reported: Receiver<Event>,
    pipes: Option<Pipes>,
}

impl House {
    fn new(objects: &[(&str, &[u8])], pipe: Pipe) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (tree, data) = (dir.path().join("tree"), dir.path().join("data"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&data).unwrap();
        let mut manifest = String::new();
        for (path, content) in objects {
            fs::write(tree.join(path), content).unwrap();
            let entry = ManifestEntry {
                path: (*path).to_owned(),
                id: (*path).to_owned(),
                size: content.len() as u64,
                text: None,
            };
            manifest += &(serde_json::to_string(&entry).unwrap() + "\n");
        }
        fs::write(tree.join(MANIFEST), manifest).unwrap();
        let train = Channel {
            name: "train".to_owned(),
            tree: Input::Local(tree.display().to_string()),
            delivery: Delivery::Pipe(pipe),
            content_type: None,
            distribution: "FullyReplicated".to_owned(),
            record_wrapper: "None".to_owned(),
        };
        let (events, reported) = channel();
        let pipes = Some(Pipes::start(&data, &[train], &Fetched::default(), &events).unwrap());
        Self { dir, reported, pipes }
    }

    fn pipe(&self, epoch: u64) -> PathBuf {
        self.dir.path().join("data").join(format!("train_{epoch}"))
    }

    /// As scripts do: they wait until the pipe exists.
    fn open(&self, epoch: u64) -> File {
        let since = Instant::now();
        while !self.pipe(epoch).exists() {
            assert!(since.elapsed() < Duration::from_secs(10), "no pipe of epoch {epoch}");
            thread::sleep(Duration::from_millis(1));
        }
        File::open(self.pipe(epoch)).unwrap()
    }

    fn read(&self, epoch: u64) -> Vec<u8> {
        let mut content = Vec::new();
        self.open(epoch).read_to_end(&mut content).unwrap();
        content
    }

    fn finish(&mut self) -> Vec<String> {
        let (pipes, since) = (self.pipes.take().unwrap(), Instant::now());
        let notes = pipes.finish();
        assert!(since.elapsed() < Duration::from_secs(2), "a feeder ends with the program");
        notes
    }
}

const PLAIN: Pipe =
    Pipe { is_gzip: false, is_record_io: false, shuffle_seed: None, entries_per_sample: 1, shard: None };

#[test]
fn each_epoch_is_a_pipe_of_its_own_with_all_of_the_channel() {
    let big = vec![7; 3 << 20];
    let mut house = House::new(&[("a", b"first"), ("b", &big)], PLAIN);
    let is_pipe = |path: PathBuf| {
        let metadata = fs::symlink_metadata(path).unwrap();
        metadata.file_type().is_fifo() && metadata.permissions().mode() & 0o777 == 0o666
    };
    assert!(is_pipe(house.pipe(0)) && is_pipe(house.pipe(1)), "before the program starts");
    for epoch in 0..3 {
        assert!(house.read(epoch) == [b"first", &big[..]].concat(), "epoch {epoch}");
    }
    let notes = house.finish();
    assert_eq!(notes, [format!("channel train: {} bytes were read through pipes in 3 epochs", 3 * (5 + big.len()))]);
    assert!(!house.pipe(0).exists() && !house.pipe(1).exists());
}

#[test]
fn a_pipe_that_is_closed_early_is_an_epoch_and_the_next_begins_at_the_start() {
    let big = vec![7; 3 << 20];
    let mut house = House::new(&[("a", b"first"), ("b", &big)], PLAIN);
    for epoch in 0..3 {
        let mut start = [0; 5];
        house.open(epoch).read_exact(&mut start).unwrap();
        assert_eq!(&start, b"first");
    }
    assert_eq!(house.read(3).len(), 5 + big.len());
    let notes = house.finish();
    assert!(notes[0].contains("in 1 epochs, and in 3 that the program closed"), "{notes:?}");
}

#[test]
fn a_program_that_reads_nothing_or_no_more_is_not_waited_for() {
    let mut never = House::new(&[("a", b"first")], PLAIN);
    assert_eq!(never.finish(), ["channel train: no pipe of it was opened"]);
    let mut slow = House::new(&[("a", &vec![7; 8 << 20])], PLAIN);
    let mut open = slow.open(0);
    open.read_exact(&mut [0; 10]).unwrap();
    let notes = slow.finish();
    assert!(notes[0].contains("in 0 epochs, and in 1 that"), "{notes:?}");
    // What was written before is still read, once.
    let mut rest = Vec::new();
    open.read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 8 << 20);
    // Dropped without an end, as when an agent fails.
    drop(House::new(&[("a", b"first")], PLAIN));
}

#[test]
fn data_that_is_not_as_requested_is_reported_with_its_name() {
    let mut house = House::new(&[("a.gz", b"plain")], Pipe { is_gzip: true, ..PLAIN });
    assert_eq!(house.read(0), b"");
    let Ok(Event::Unfed { reason }) = house.reported.recv_timeout(Duration::from_secs(5)) else {
        panic!("nothing reported")
    };
    assert!(reason.starts_with("channel train: a.gz is not gzip"), "{reason}");
    house.finish();
}

#[test]
fn what_a_program_puts_in_a_pipes_place_is_replaced_and_never_followed() {
    let mut house = House::new(&[("a", b"first")], PLAIN);
    let secret = house.dir.path().join("secret");
    fs::write(&secret, "untouched").unwrap();
    for name in ["train_2", "train_3"] {
        symlink(&secret, house.dir.path().join("data").join(name)).unwrap();
    }
    for epoch in 0..4 {
        assert_eq!(house.read(epoch), b"first");
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "untouched");
    fs::remove_dir_all(house.dir.path().join("data")).unwrap();
    house.finish();
}
