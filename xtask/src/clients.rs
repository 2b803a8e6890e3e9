//! `tests/clients`: the real AWS clients against the real binary, in Python environments of their
//! own.
//!
//! These tests watch and kill processes of a whole machine, so one may fail where the machine stood
//! still for a moment. The few that fail are tried once more, alone; those that pass then are named
//! in the end.
//!
//! As they wait more than they compute, several files run at a time, each whole in one worker with
//! one server. Files that need the machine for themselves are marked `alone` and run after the
//! others.

use std::{collections::BTreeSet, env, fs, path::Path};

use anyhow::Result;

use crate::{
    outcome::Outcome,
    pytest::pytest,
    workspace::{Workspace, succeeds},
};

/// Folders of `tests/clients` that are run apart, each in a process whose environment is
/// `shoal exec`'s; the second by SDK v3's interpreter.
const SDKS: [&str; 2] = ["sdk_v2", "sdk_v3"];

/// The marker of tests that run on all compute targets: jobs of one and of several instances, MPI,
/// checkpoints, interruptions, tuning, failures, stops. By hand any other test runs there by
/// `SHOAL_TEST_TARGET`.
const ON_TARGETS: &str = "targets";

/// The targets beside this machine, and how many files run there at a time: each worker of
/// Kubernetes' has a cluster of its own.
const TARGETS: [(&str, &str); 2] = [("slurm", "2"), ("kubernetes", "1")];

/// How many files run at a time.
const SIDE_BY_SIDE: &str = "3";

/// If tests of more files than these fail, the machine is not the cause.
const MOST_FILES_AGAIN: usize = 8;

/// Nor if more tests than these fail; one file's tests can share a server that did not come up.
const MOST_TESTS_AGAIN: usize = 40;

/// Runs pytest with the clients' interpreter, then each SDK's tests in a process of their own.
pub(crate) fn run(
    workspace: &Workspace,
    python: &Path,
    sdk_v3: Option<&Path>,
    shoal: &Path,
    outcome: &mut Outcome,
) -> Result<()> {
    let pytest = Pytest { workspace, shoal, soak: None, target: None };
    let but_sdks = SDKS.map(|folder| format!("--ignore={folder}"));
    let beside_others = ["-n", SIDE_BY_SIDE, "--dist", "loadfile", "-m", "not alone"].map(str::to_owned);
    pytest.run(python, &[&beside_others[..], &but_sdks].concat(), outcome)?;
    pytest.run(python, &[&["-m", "alone"].map(str::to_owned)[..], &but_sdks].concat(), outcome)?;
    let files = files_with(&workspace.root.join("tests/clients"), &format!("pytest.mark.{ON_TARGETS}"))?;
    for (target, workers) in TARGETS {
        let words = ["-n", workers, "--dist", "loadfile", "-m", ON_TARGETS].map(str::to_owned);
        let pytest = Pytest { workspace, shoal, soak: None, target: Some(target) };
        pytest.run(python, &[&words[..], &files].concat(), outcome)?;
    }
    for (folder, interpreter) in SDKS.into_iter().zip([Some(python), sdk_v3]) {
        if let Some(interpreter) = interpreter {
            pytest.run(interpreter, &[folder.to_owned()], outcome)?;
        }
    }
    Ok(())
}

/// Test files in which a text stands: only these are imported.
fn files_with(folder: &Path, text: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("test_") && name.ends_with(".py") && fs::read_to_string(entry.path())?.contains(text) {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

/// As often do the tests that kill kill in `cargo xtask soak`, unless `SHOAL_SOAK` is set.
const SOAK: &str = "20";

/// Files whose tests draw the moments of kills, and those whose faults are longer then.
const KILLING: [&str; 5] = [
    "test_killed.py",
    "test_killed_under_load.py",
    "test_tuning_killed.py",
    "test_slurm_faults.py",
    "test_kubernetes_faults.py",
];

/// Runs the tests that kill, many times as long.
pub(crate) fn soak(workspace: &Workspace, python: &Path, shoal: &Path, outcome: &mut Outcome) -> Result<()> {
    let soak = Some(env::var("SHOAL_SOAK").unwrap_or_else(|_| SOAK.to_owned()));
    let pytest = Pytest { workspace, shoal, soak, target: None };
    // Without a second try: what fails here once is what was looked for.
    let first = pytest.once(python, &KILLING.map(str::to_owned))?;
    outcome.add(Outcome::default(), first);
    Ok(())
}

struct Pytest<'a> {
    workspace: &'a Workspace,
    shoal: &'a Path,
    /// `SHOAL_SOAK`, where it differs from ours.
    soak: Option<String>,
    /// The compute target that runs the tests' jobs, if it is not this machine.
    target: Option<&'a str>,
}

impl Pytest<'_> {
    fn run(&self, python: &Path, what: &[String], outcome: &mut Outcome) -> Result<()> {
        let first = self.once(python, what)?;
        let files: BTreeSet<_> = first.failed.iter().filter_map(|name| name.split("::").next()).collect();
        let again = match files.len() {
            1..=MOST_FILES_AGAIN
                if first.failed.len() <= MOST_TESTS_AGAIN && first.failed.iter().all(|name| name.contains("::")) =>
            {
                println!("once more, alone: {}", first.failed.join(" "));
                self.once(python, &first.failed)?
            }
            _ => Outcome { failed: first.failed.clone(), ..Outcome::default() },
        };
        outcome.add(first, again);
        Ok(())
    }

    fn once(&self, python: &Path, what: &[String]) -> Result<Outcome> {
        let report = self.workspace.target.join("clients-report.json");
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let mut pytest = pytest(self.workspace, python, "tests/clients");
        pytest.arg("--durations=20").args(what);
        pytest.env("SHOAL_BIN", self.shoal).env("SHOAL_TEST_REPORT", &report);
        pytest.envs(self.target.map(|target| ("SHOAL_TEST_TARGET", target)));
        if let Some(soak) = &self.soak {
            // A test then takes as many times as long, and none is ended.
            pytest.env("SHOAL_SOAK", soak).arg("--timeout=0");
        }
        let success = succeeds(&mut pytest)?;
        let mut outcome = Outcome::default();
        if let Ok(bytes) = fs::read(&report) {
            outcome.read(&serde_json::from_slice(&bytes)?);
        }
        if !success && outcome.failed.is_empty() {
            outcome.fail("pytest");
        }
        Ok(outcome)
    }
}
