//! Fetching the library: several processes at once, and without a package index.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use shoal_algos::xgboost::LIBRARY;

/// Set in the processes that fetch.
const FETCHER: &str = "SHOAL_TEST_FETCHER";

/// Becomes a process that fetches, if this process was started as one; the test of the same name
/// calls it.
pub(crate) fn become_fetcher() {
    if std::env::var_os(FETCHER).is_none() {
        return;
    }
    match LIBRARY.fetch(&mut |line| println!("{line}")) {
        Ok(path) => println!("found {}", path.file.display()),
        Err(error) => {
            println!("failed: {error}");
            std::process::exit(1);
        }
    }
}

fn fetch(cache: &Path, environment: &[(&str, &str)]) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["fetcher", "--exact", "--nocapture"])
        .env(FETCHER, "1")
        .env("SHOAL_CACHE", cache)
        .env_remove("XGB_LIB")
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_fetch_at_once() {
    let cache = tempfile::tempdir().unwrap();
    let fetching = [(); 2].map(|()| fetch(cache.path(), &[]));
    for child in fetching {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("fetching XGBoost") && text.contains("found "), "{text}");
    }
    let names: Vec<_> = std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [format!("xgboost-{}", LIBRARY.wheel.version).as_str()], "nothing else is left in the cache");
    // A third finds it without asking anyone.
    let output = fetch(cache.path(), &[("PATH", "/nowhere")]).wait_with_output().unwrap();
    assert!(output.status.success() && !String::from_utf8_lossy(&output.stdout).contains("fetching"));
}

#[test]
fn a_failed_fetch_says_what_to_do() {
    let offline = [
        ("PIP_INDEX_URL", "http://127.0.0.1:1/simple"),
        ("PIP_RETRIES", "0"),
        ("PIP_CONFIG_FILE", "/dev/null"),
        ("PIP_FIND_LINKS", ""),
    ];
    let without_python = [("PATH", "/nowhere")];
    for environment in [&offline[..], &without_python] {
        let cache = tempfile::tempdir().unwrap();
        let output = fetch(cache.path(), environment).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && text.contains("shoal setup") && text.contains("XGB_LIB"), "{text}");
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), 0, "{text}");
    }
}
