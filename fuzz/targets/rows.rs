//! Training data of any bytes: read, or refused with its place.
#![no_main]

use std::{fs, sync::OnceLock};

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    static DIRECTORY: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| tempfile::tempdir_in("/dev/shm").expect("a directory in memory")).path();
    let Some((choice, data)) = input.split_first() else { return };
    fs::write(directory.join("data"), data).expect("room in memory");
    let content_type = if choice & 1 == 0 { "text/csv" } else { "text/libsvm" };
    if let Err(message) = shoal_algos::read_rows(directory, content_type, choice & 2 == 0) {
        assert!(message.contains("data") && message.len() < 2000, "{message}");
    }
});
