//! `shoal demo` as a newcomer runs it: the real server, the real library, real data.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The binary, which keeps its temporary files here.
fn shoal(temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env("TMPDIR", temporary).env_remove("AWS_ENDPOINT_URL");
    command
}

/// Whether libxgboost can be had; if not, says why the test is skipped.
fn has_library() -> bool {
    let setup = shoal(&std::env::temp_dir()).arg("setup").output().unwrap();
    if !setup.status.success() {
        println!("skipped: needs libxgboost: {}", String::from_utf8_lossy(&setup.stderr).trim());
    }
    setup.status.success()
}

/// The published data sets; `None` says why the test is skipped.
fn shared_data() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !dir.is_dir() {
        println!("skipped: needs ../shared/data");
        return None;
    }
    Some(dir)
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A demo's story.
fn told(flags: &[&OsStr]) -> String {
    let temporary = tempfile::tempdir().unwrap();
    let demo = shoal(temporary.path()).arg("demo").args(flags).output().unwrap();
    let text = String::from_utf8_lossy(&demo.stdout).into_owned();
    assert!(demo.status.success(), "{text}{}", String::from_utf8_lossy(&demo.stderr));
    assert!(entries(temporary.path()).is_empty(), "{:?} stayed", entries(temporary.path()));
    text
}

/// The numbers of the line of this name.
fn numbers(text: &str, name: &str) -> Vec<f64> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(name))
        .unwrap_or_else(|| panic!("no {name:?} in {text}"));
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn wine_is_the_same_on_one_and_three_instances_and_tuning_wins() {
    if !has_library() {
        return;
    }
    let text = told(&[]);
    for part in [
        "Red wine quality",
        "815 rows to train on, 272 to validate, 272 held out, 11 features; 100 rounds and rmse throughout",
        "(bound 1e-4)",
        "· train   • validation",
        "30 trials of Hyperband",
        "Tuning wins.",
        "· defaults   • tuned",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let (defaults, tuned) = (numbers(&text, "XGBoost's defaults "), numbers(&text, "tuned "));
    assert!(tuned[0] < defaults[0] - 0.02 && tuned[1] < defaults[1], "{text}");
    // Rounds of those that are compared, then what the search ran of all.
    assert_eq!((defaults[2], tuned[2]), (100.0, 100.0), "{text}");
    let search = numbers(&text, "the search, 30 trials");
    assert!(search[0] < 1000.0 && search[1] == 3000.0, "{text}");
    // No more than four trials at once have run for so long.
    assert!(search[2] > 0.0 && search[2] < 4.0 * search[3], "{text}");
}

#[test]
fn bank_marketing_is_what_was_published() {
    let (true, Some(data)) = (has_library(), shared_data()) else { return };
    let text = told(&["--data".as_ref(), data.as_ref()]);
    // As AWS's notebook has it: 59 features of 41,188 calls, 70 % to train on.
    assert!(text.contains("28832 rows to train on, 8238 to validate, 4118 held out, 59 features"), "{text}");
    let (defaults, tuned) = (numbers(&text, "XGBoost's defaults "), numbers(&text, "tuned "));
    assert!(defaults[1] < 0.77 && tuned[1] >= 0.78, "{text}");
}

#[test]
fn a_demo_that_is_kept_leaves_at_ctrl_c() {
    if !has_library() {
        return;
    }
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = shoal(temporary.path()).args(["demo", "--keep"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let data_dir =
        lines.filter_map(|line| line.trim().strip_prefix("export SHOAL_DATA_DIR=").map(str::to_owned)).next().unwrap();
    let list = shoal(temporary.path())
        .args(["jobs", "list", "--status", "Completed", "--data-dir", &data_dir])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&list.stdout)
            .lines()
            .filter(|line| line.starts_with("wine-1 ") || line.starts_with("wine-3 "))
            .count(),
        2
    );
    // The standard library can send no SIGINT.
    assert!(Command::new("kill").args(["-INT", &demo.id().to_string()]).status().unwrap().success());
    assert_eq!(demo.wait().unwrap().code(), Some(0));
    assert!(entries(temporary.path()).is_empty(), "{:?} stayed", entries(temporary.path()));
}
