use std::cell::Cell;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn cache(max_bytes: u64) -> (tempfile::TempDir, ObjectCache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = ObjectCache::new(dir.path().join("objects"), max_bytes);
    (dir, cache)
}

fn sha256(content: &[u8]) -> String {
    hex_simd::encode_to_string(Sha256::digest(content), AsciiCase::Lower)
}

/// Places an object; returns whether it was fetched.
fn place(cache: &ObjectCache, id: &str, content: &[u8], target: &Path) -> bool {
    let fetched = Cell::new(false);
    let mut fetch = |to: &mut File| {
        fetched.set(true);
        to.write_all(content)?;
        Ok(sha256(content))
    };
    cache.place(id, content.len() as u64, target, &mut fetch, &mut || false).unwrap();
    assert_eq!(fs::read(target).unwrap(), content);
    fetched.get()
}

#[test]
fn an_object_is_fetched_once_and_again_when_it_has_changed() {
    let (dir, cache) = cache(1 << 20);
    let target = |name: &str| dir.path().join(name);
    assert!(place(&cache, "aa01", b"content", &target("one")));
    assert!(!place(&cache, "aa01", b"content", &target("two")));
    assert_eq!(fs::metadata(target("two")).unwrap().nlink(), 3, "it takes space once");
    assert_eq!(fs::metadata(target("two")).unwrap().mode() & 0o777, MODE);
    // A plain process of the same user has written into it.
    fs::remove_file(target("two")).unwrap();
    fs::write(target("one"), b"changed").unwrap();
    assert!(place(&cache, "aa01", b"content", &target("three")));
    assert_eq!(fs::read(target("one")).unwrap(), b"changed", "what others have is not replaced below them");
}

#[test]
fn the_least_recently_used_go_first_and_what_a_job_reads_stays() {
    let (dir, cache) = cache(20);
    let used = |id: &str, name: &str| place(&cache, id, b"0123456789", &dir.path().join(name));
    for (id, name) in [("aa01", "one"), ("bb01", "two"), ("cc01", "three")] {
        assert!(used(id, name));
    }
    for name in ["one", "two"] {
        fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert!(!used("aa01", "again"));
    fs::remove_file(dir.path().join("again")).unwrap();
    cache.trim().unwrap();
    assert!(!cache.dir.join("bb01").exists(), "used before the others");
    assert!(cache.dir.join("aa01").exists() && cache.dir.join("cc01").exists());
    cache.make_room().unwrap();
    assert!(!cache.dir.join("aa01").exists());
    assert!(cache.dir.join("cc01").exists(), "a job reads it");
}

#[test]
fn nothing_is_left_of_an_object_that_does_not_fit() {
    let (dir, cache) = cache(20);
    let mut full = |file: &mut File| -> Result<String, PlaceError> {
        file.write_all(b"half")?;
        Err(io::Error::from(io::ErrorKind::StorageFull).into())
    };
    let placed = cache.place("aa01", 10, &dir.path().join("one"), &mut full, &mut || false);
    assert!(matches!(placed, Err(PlaceError::Io(error)) if error.kind() == io::ErrorKind::StorageFull));
    assert!(!cache.dir.join("aa01").exists());
}

#[test]
fn what_the_server_has_encrypted_goes_with_the_job() {
    let (dir, cache) = cache(1 << 20);
    let target = |name: &str| dir.path().join(name);
    for (id, name) in [("privateaa01", "one"), ("aa01", "two")] {
        place(&cache, id, b"content", &target(name));
    }
    drop(cache.parts("privatebb01", 7).unwrap());
    cache.trim().unwrap();
    assert!(cache.has("privateaa01", 7), "a job reads it");
    assert!(!cache.dir.join("privatebb01-parts/data").exists());
    ["one", "two"].into_iter().for_each(|name| fs::remove_file(target(name)).unwrap());
    cache.trim().unwrap();
    assert!(!cache.has("privateaa01", 7) && cache.has("aa01", 7));
}

#[test]
fn what_arrives_damaged_is_fetched_again_once() {
    let (dir, cache) = cache(1 << 20);
    let tries = Cell::new(0);
    let damaged_until = |last: u32| {
        let mut fetch = |to: &mut File| {
            tries.set(tries.get() + 1);
            to.write_all(if tries.get() < last { b"damaged" } else { b"content" })?;
            Ok(sha256(b"content"))
        };
        cache.place("aa01", 7, &dir.path().join(format!("at-{last}")), &mut fetch, &mut || false)
    };
    let error = damaged_until(9).unwrap_err();
    assert!(matches!(&error, PlaceError::Damaged { id, .. } if id == "aa01"), "{error}");
    assert_eq!(tries.get(), 2);
    tries.set(0);
    damaged_until(2).unwrap();
}

#[test]
fn two_at_once_fetch_once() {
    let (dir, cache) = cache(1 << 20);
    let fetched = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (cache, fetched, target) = (&cache, &fetched, dir.path().join(number.to_string()));
            scope.spawn(move || {
                let mut fetch = |to: &mut File| {
                    fetched.fetch_add(1, Ordering::SeqCst);
                    to.write_all(b"content")?;
                    Ok(sha256(b"content"))
                };
                cache.place("aa01", 7, &target, &mut fetch, &mut || false).unwrap();
                assert_eq!(fs::read(target).unwrap(), b"content");
            });
        }
    });
    assert_eq!(fetched.into_inner(), 1);
    let _held = cache.lock("aa01").unwrap().unwrap();
    let stopped = cache.place("aa02", 7, &dir.path().join("never"), &mut |_| unreachable!(), &mut || true);
    assert!(matches!(stopped, Err(PlaceError::Stopped)));
}

#[test]
fn parts_stay_while_they_are_read_and_count_what_is_there() {
    let (_dir, cache) = cache(0);
    let (data, sums) = cache.parts("aa01", 1 << 30).unwrap();
    data.write_all_at(b"part", 1 << 20).unwrap();
    sums.set_len(64).unwrap();
    cache.trim().unwrap();
    assert_eq!(data.metadata().unwrap().nlink(), 1, "a job reads it");
    let (again, _) = cache.parts("aa01", 1 << 30).unwrap();
    let mut part = [0; 4];
    again.read_exact_at(&mut part, 1 << 20).unwrap();
    assert_eq!(&part, b"part");
    drop((data, sums, again));
    let all = ObjectCache { max_bytes: 1 << 20, ..cache.clone() };
    all.trim().unwrap();
    assert!(cache.dir.join("aa01-parts/data").exists(), "it is small as far as it is there");
    cache.trim().unwrap();
    assert!(!cache.dir.join("aa01-parts").exists());
    let (_, sums) = cache.parts("aa01", 7).unwrap();
    assert_eq!(sums.metadata().unwrap().len(), 0);
    cache.parts("../up", 7).unwrap_err();
}

#[test]
fn parts_that_are_all_here_become_an_object() {
    let (dir, cache) = cache(1 << 30);
    let (size, content) = (PART + 7, vec![7; PART as usize + 7]);
    let files = PartFiles::open(&cache, "aa01", size).unwrap();
    files.store(0, &content[..PART as usize]).unwrap();
    assert!(!cache.join_parts("aa01", size, &mut || false).unwrap(), "one is missing");
    assert_eq!(cache.read_part("aa01", size, 0).unwrap().unwrap().len() as u64, PART);
    assert_eq!(cache.read_part("aa01", size, 1).unwrap(), None);
    files.store(1, &content[PART as usize..]).unwrap();
    assert!(cache.join_parts("aa01", size, &mut || false).unwrap());
    assert!(cache.has("aa01", size) && !cache.has("aa01", size + 1));
    assert!(!dir.path().join("objects/aa01-parts").exists());
    assert_eq!(cache.read_part("aa01", size, 1).unwrap().unwrap(), [7; 7]);
    assert!(!place(&cache, "aa01", &content, &dir.path().join("it")), "nothing more is fetched");
}

#[test]
fn an_id_is_no_path() {
    let (dir, cache) = cache(1);
    for id in ["..", "a/b", "", "/etc"] {
        cache.place(id, 0, &dir.path().join("never"), &mut |_| unreachable!(), &mut || false).unwrap_err();
    }
}
