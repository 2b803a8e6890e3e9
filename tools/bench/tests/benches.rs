//! Each bench at its smallest, as `cargo xtask bench NAME` runs it: the real server, the real
//! library, real data.

#![expect(clippy::unwrap_used, reason = "a set-up that fails is a failed test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_shoal-bench");

/// A bench, which keeps its temporary files here.
fn bench(temporary: &Path) -> Command {
    let mut command = Command::new(BENCH);
    command.env("TMPDIR", temporary).env_remove("AWS_ENDPOINT_URL");
    command
}

/// The program that users run, from the same build.
fn shoal() -> Command {
    let program = Path::new(BENCH).with_file_name("shoal");
    assert!(program.is_file(), "there is no {}: cargo build --package shoal-cli", program.display());
    Command::new(program)
}

/// Whether libxgboost can be had; if not, says why the test is skipped.
fn has_library() -> bool {
    let setup = shoal().arg("setup").output().unwrap();
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

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_bench_writes_its_section() {
    let (true, Some(data)) = (has_library(), shared_data()) else { return };
    let temporary = tempfile::tempdir().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "# Benchmarks\n\n## start\n\nold numbers\n").unwrap();
    let mut bench = bench(temporary.path());
    bench.args(["start", "--runs", "1", "--jobs", "3", "--data"]).arg(data).arg("--write").arg(file.path());
    let output = bench.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(file.path()).unwrap();
    for part in [
        "# Benchmarks",
        "## start",
        "submit to Completed",
        "first line of a `shoal/host` program",
        "idle server after 3 ended jobs | ",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("old numbers"), "{text}");
    assert!(entries(temporary.path()).is_empty(), "{:?} stayed", entries(temporary.path()));
}

/// Every other bench at its smallest; the peers are not there, and each says what it needs.
#[test]
fn small_benches_find_what_they_stored() {
    let (temporary, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (what, flags, expected) in [
        ("jobs", &["--jobs", "300", "--calls", "40"][..], "jobs admitted per second"),
        (
            "telemetry",
            &["--agents", "2", "--lines", "4000", "--points", "4000", "--runs", "1"],
            "metric points durable per second",
        ),
        ("s3", &["--large", "20", "--small", "100", "--runs", "1"], "s3s-fs 0.14.1 is not here"),
    ] {
        let output = bench(temporary.path()).arg(what).args(flags).env("HOME", home.path()).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{what}: {text}");
    }
    let output = bench(temporary.path()).arg("xgboost").env("HOME", home.path()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cargo xtask bench"), "{output:?}");
    assert!(entries(temporary.path()).is_empty(), "{:?} stayed", entries(temporary.path()));
}

#[test]
fn process_groups_are_measured_and_a_section_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("benchmarks.md");
    fs::write(&file, "# Benchmarks\n").unwrap();
    let measured = |more: &[&str]| {
        let mut command = bench(dir.path());
        command
            .args(["comm", "--ranks", "2", "--bytes", "4,131072", "--seconds", "0.001", "--turns", "1", "--write"])
            .arg(&file);
        command.args(more).output().unwrap()
    };
    let output = measured(&["--ops", "allreduce,alltoall"]);
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written, format!("# Benchmarks\n\n{}", text(&output.stdout)));
    for medium in ["shared memory", "TCP over loopback"] {
        for what in ["allreduce 4 B", "allreduce 128 KiB", "alltoall 128 KiB"] {
            let row = written.lines().find(|line| line.starts_with(&format!("| {medium}, 2 ranks, {what} |")));
            let cells: Vec<_> =
                row.unwrap_or_else(|| panic!("{what} over {medium} in {written}")).split('|').map(str::trim).collect();
            let [_, _, registered, private, _] = cells[..] else { panic!("{cells:?}") };
            for cell in [registered, private] {
                let (least, median) = cell.split_once(" / ").unwrap();
                assert!(least.parse::<f64>().unwrap() > 0.0 && median.parse::<f64>().unwrap() > 0.0, "{cell}");
            }
        }
    }
    let wrong = measured(&["--peer", "gloo=/nowhere"]);
    assert_eq!(code(&wrong), Some(1));
    assert!(text(&wrong.stderr).contains("mpicc and mpirun"), "{}", text(&wrong.stderr));
    assert_eq!(code(&measured(&["--ops", "scan"])), Some(2));
}

#[test]
fn timelines_of_ranks_become_one_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (recorded, trace) = (dir.path().join("recorded"), dir.path().join("trace.json"));
    let mut command = bench(dir.path());
    command.args([
        "comm",
        "--ranks",
        "2",
        "--over",
        "shm",
        "--bytes",
        "4",
        "--ops",
        "allreduce",
        "--seconds",
        "0.001",
        "--turns",
        "1",
    ]);
    let output = command.env("SHOAL_COMM_TIMELINE", &recorded).output().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let merge = |path: &Path| shoal().args(["timeline", "merge"]).arg(path).arg("-o").arg(&trace).output().unwrap();
    let output = merge(&recorded);
    assert_eq!(
        (code(&output), text(&output.stdout)),
        (Some(0), format!("{}: 2 ranks\n", trace.display())),
        "{}",
        text(&output.stderr)
    );
    let merged: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let of = |rank: u64| {
        merged["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(move |event| event["pid"] == rank && event["name"] == "all-reduce")
    };
    assert!(of(0).count() > 6 && of(0).count() == of(1).count(), "{} and {}", of(0).count(), of(1).count());
    assert_eq!(code(&merge(&recorded.join("rank-1.json"))), Some(0));
    let wrong = merge(dir.path());
    assert_eq!(code(&wrong), Some(1));
    assert!(text(&wrong.stderr).contains("SHOAL_COMM_TIMELINE="), "{}", text(&wrong.stderr));
}
