//! `cargo xtask bench [NAME ..]`: measurements by `tools/bench`, of a release build, beside other
//! programs.

mod peers;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::Result;

use crate::{
    environment::Environments,
    workspace::{Workspace, cargo, succeeds},
};

/// The file that has a section for each measurement; docs/benchmarks.md is written by hand from it.
const REPORT: &str = "docs/notes/measured.md";

/// With a name: builds, and runs that measurement with the arguments behind it. Without one: all of
/// them, and a clean release build, timed.
///
/// # Errors
/// Programs cannot be run, or a peer cannot be installed.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let arguments: Vec<String> = env::args().skip(2).collect();
    if arguments.is_empty() {
        return all(workspace);
    }
    let mut build = cargo(workspace);
    build.args(["build", "--release", "--package", "shoal-cli", "--package", "shoal-bench"]);
    Ok(succeeds(&mut build)? && succeeds(&mut bench(workspace, &workspace.target, arguments))?)
}

fn bench(workspace: &Workspace, target: &Path, arguments: impl IntoIterator<Item = String>) -> Command {
    let mut command = Command::new(target.join("release/shoal-bench"));
    command.current_dir(&workspace.root).args(arguments);
    command
}

fn all(workspace: &Workspace) -> Result<bool> {
    let environments = Environments::find(workspace)?;
    let (python, sdk_v3) = (environments.clients()?, environments.sdk_v3()?);
    let target = workspace.target.join("bench");
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    let Some(build_s) = build(workspace, &target)? else { return Ok(false) };
    peers::install()?;
    let ray = peers::python_with_ray()?;
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let path = |path: &PathBuf| path.to_string_lossy().into_owned();
    let mut start =
        words(&["start", "--build-s", &build_s.to_string(), "--peer", &path(&ray), "--sdk", &path(&python)]);
    start.extend(sdk_v3.iter().flat_map(|python| ["--sdk-v3".to_owned(), path(python)]));
    let mut benches = vec![start];
    benches.extend(["jobs", "telemetry", "s3", "xgboost"].map(|name| words(&[name])));
    benches.push(words(&["tuning", "--peer", &path(&ray)]));
    // Short, as everybody has a turn with every size.
    let mut comm = words(&["comm", "--bytes", "4,1024,65536,1048576,16777216", "--seconds", "0.1", "--turns", "2"]);
    comm.extend(peers::of_comm()?.into_iter().map(|peer| format!("--peer={peer}")));
    benches.push(comm);
    let mut fine = true;
    for arguments in benches {
        fine &= succeeds(bench(workspace, &target, arguments).args(["--write", REPORT]))?;
    }
    Ok(fine)
}

/// Builds `shoal` in an empty directory, then what measures it; the answer is the seconds of the
/// former.
fn build(workspace: &Workspace, target: &Path) -> Result<Option<f64>> {
    let release = |package: &str| {
        let mut build = cargo(workspace);
        build.args(["build", "--release", "--package", package]).env("CARGO_TARGET_DIR", target);
        build
    };
    let started = Instant::now();
    let is_built = succeeds(&mut release("shoal-cli"))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((is_built && succeeds(&mut release("shoal-bench"))?).then_some(seconds))
}
