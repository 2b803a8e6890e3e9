use std::fs::File;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::*;

/// An object whose bytes are numbers of their places.
#[derive(Default)]
struct Counted {
    fetches: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    pause: Duration,
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl Origin for Counted {
    fn fetch(&self, _: &str, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        thread::sleep(self.pause);
        match self.fails.load(Ordering::SeqCst) {
            true => Err(io::Error::other("refused")),
            false => Ok((offset..offset + length).map(byte).collect()),
        }
    }

    fn give_up(&self) {
        self.fails.store(true, Ordering::SeqCst);
    }
}

struct House {
    dir: tempfile::TempDir,
    fetches: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    parts: Arc<Parts>,
}

impl House {
    fn new(max_bytes: u64) -> Self {
        Self::at(tempfile::tempdir().unwrap(), max_bytes)
    }

    fn at(dir: tempfile::TempDir, max_bytes: u64) -> Self {
        Self::holding(IN_MEMORY, dir, max_bytes)
    }

    fn holding(most_in_memory: usize, dir: tempfile::TempDir, max_bytes: u64) -> Self {
        let origin = Counted { pause: Duration::from_millis(2), ..Counted::default() };
        let (fetches, fails) = (origin.fetches.clone(), origin.fails.clone());
        let cache = ObjectCache::new(dir.path().join("objects"), max_bytes);
        let parts = Parts::holding(most_in_memory, Box::new(origin), cache, Arc::default()).unwrap();
        Self { dir, fetches, fails, parts }
    }

    fn again(self, max_bytes: u64) -> Self {
        Self::at(self.dir, max_bytes)
    }

    fn check(&self, offset: u64, length: u64) {
        let content = self.parts.read_at(&entry(), offset, length, <[u8]>::to_vec).unwrap();
        let expected = Vec::from_iter((offset..(offset + length).min(SIZE)).map(byte));
        assert!(content == expected, "{offset}+{length}: {} bytes", content.len());
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

const SIZE: u64 = 5 * PART + 1000;

fn entry() -> ManifestEntry {
    ManifestEntry { path: "a".to_owned(), id: "aa01".to_owned(), size: SIZE, text: None }
}

#[test]
fn parts_are_fetched_once_and_come_from_the_cache_later() {
    let house = House::new(1 << 30);
    house.check(0, 10);
    house.check(PART - 5, 10);
    house.check(SIZE - 3, 100);
    house.check(SIZE, 10);
    house.check(0, SIZE);
    assert_eq!((house.fetches(), house.parts.fetched()), (6, SIZE), "each part once");
    let house = house.again(1 << 30);
    house.check(0, SIZE);
    assert_eq!(house.fetches(), 0);
    // What has changed on the disk is fetched again.
    let damaged = house.dir.path().join("objects/aa01-parts/data");
    File::options().write(true).open(damaged).unwrap().write_all_at(b"damaged", PART + 7).unwrap();
    let house = house.again(1 << 30);
    house.check(0, SIZE);
    assert_eq!(house.fetches(), 1);
}

#[test]
fn a_reader_in_order_finds_the_next_parts_and_one_that_jumps_fetches_no_others() {
    let house = House::new(1 << 30);
    house.check(3 * PART, 10);
    house.check(PART, 10);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(house.fetches(), 2, "nothing more than was read");
    house.check(2 * PART, 10);
    let since = Instant::now();
    while house.fetches() < 5 {
        assert!(since.elapsed() < Duration::from_secs(5), "{}", house.fetches());
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(house.fetches(), 5, "the part that was read and the two behind it");
}

#[test]
fn readers_at_once_fetch_once() {
    let house = House::new(1 << 30);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| house.check(0, SIZE));
        }
    });
    assert_eq!(house.fetches(), 6);
}

#[test]
fn without_room_in_the_cache_parts_are_in_memory_for_a_while() {
    let house = House::new(2 * PART);
    house.check(0, SIZE);
    house.check(0, SIZE);
    assert_eq!(house.fetches(), 6);
    let house = house.again(0);
    house.check(0, SIZE);
    assert_eq!(house.fetches(), 4, "two were stored before");
}

#[test]
fn what_leaves_memory_comes_from_the_cache_or_again() {
    for (max_bytes, fetches) in [(1 << 30, 6), (3 * PART, 6 + 3 + 3), (0, 6 + 6 + 6)] {
        let house = House::holding(1, tempfile::tempdir().unwrap(), max_bytes);
        // From the end, so that nothing is fetched ahead.
        let all = || (0..6).rev().for_each(|part| house.check(part * PART + 1, PART - 2));
        all();
        let in_memory = || house.parts.in_memory.lock().unwrap().len();
        assert_eq!((in_memory(), house.fetches()), (1, 6));
        all();
        all();
        assert_eq!(house.fetches(), fetches, "{max_bytes} bytes of cache");
        house.check(PART - 1, 1);
        assert_eq!(in_memory(), usize::from(max_bytes < 1 << 30), "what is in the cache stays until it is read");
    }
}

#[test]
fn what_cannot_be_had_is_an_error_and_may_be_had_later() {
    let house = House::new(1 << 30);
    house.fails.store(true, Ordering::SeqCst);
    house.parts.read_at(&entry(), 0, 10, |_| ()).unwrap_err();
    house.fails.store(false, Ordering::SeqCst);
    house.check(0, 10);
    house.parts.give_up();
    house.parts.read_at(&entry(), 4 * PART, 10, |_| ()).unwrap_err();
}

#[test]
fn a_stream_is_the_whole_object() {
    let house = House::new(1 << 30);
    let mut content = Vec::new();
    house.parts.stream(&entry()).read_to_end(&mut content).unwrap();
    assert!(content == Vec::from_iter((0..SIZE).map(byte)));
}

#[test]
fn many_objects_are_read_with_few_files_open() {
    let house = House::new(1 << 30);
    let read = |number: usize| {
        let entry = ManifestEntry { id: format!("{number:04x}"), size: 10, ..entry() };
        assert_eq!(house.parts.read_at(&entry, 0, 10, <[u8]>::to_vec).unwrap(), Vec::from_iter((0..10).map(byte)));
    };
    (0..3 * MAX_OPEN).for_each(read);
    assert_eq!(house.parts.open.lock().unwrap().by_id.len(), MAX_OPEN);
    (0..3 * MAX_OPEN).for_each(read);
    assert_eq!(house.fetches(), 3 * MAX_OPEN, "what was closed is in the cache");
}
