//! `tests/clients`: the real AWS clients against the real binary, in Python environments of their own.
//!
//! These tests watch and kill processes of a whole machine, so one may fail where the machine stood still for a moment. The few that fail are
//! tried once more, alone; those that pass then are named in the end, so that nobody overlooks them.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::Result;

use crate::{
    outcome::Outcome,
    pytest::pytest,
    workspace::{Workspace, succeeds},
};

/// Folders of `tests/clients` that are run apart, each in a process whose environment is `shoal exec`'s; the second by SDK v3's interpreter.
const SDKS: [&str; 2] = ["sdk_v2", "sdk_v3"];

/// If tests of more files than these fail, the machine is not the cause.
const MOST_FILES_AGAIN: usize = 8;

/// Nor if more tests than these fail; one file's tests can share a server that did not come up.
const MOST_TESTS_AGAIN: usize = 40;

/// Runs pytest with the clients' interpreter, then each SDK's tests in a process of their own.
pub(crate) fn run(workspace: &Workspace, python: &Path, sdk_v3: Option<&Path>, shoal: &Path, outcome: &mut Outcome) -> Result<()> {
    let pytest = Pytest { workspace, shoal };
    pytest.run(python, &SDKS.map(|folder| format!("--ignore={folder}")), outcome)?;
    for (folder, interpreter) in SDKS.into_iter().zip([Some(python), sdk_v3]) {
        if let Some(interpreter) = interpreter {
            pytest.run(interpreter, &[folder.to_owned()], outcome)?;
        }
    }
    Ok(())
}

struct Pytest<'a> {
    workspace: &'a Workspace,
    shoal: &'a Path,
}

impl Pytest<'_> {
    fn run(&self, python: &Path, what: &[String], outcome: &mut Outcome) -> Result<()> {
        let first = self.once(python, what)?;
        let files: BTreeSet<_> = first.failed.iter().filter_map(|name| name.split("::").next()).collect();
        let again = match files.len() {
            1..=MOST_FILES_AGAIN if first.failed.len() <= MOST_TESTS_AGAIN && first.failed.iter().all(|name| name.contains("::")) => {
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
