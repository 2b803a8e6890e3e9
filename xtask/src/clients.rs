//! `tests/clients`: the real AWS clients against the real binary, in Python environments of their own.

use std::{fs, path::Path, process::Command};

use anyhow::Result;
use serde_json::Value;

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, succeeds},
};

/// Folders of `tests/clients` that are run apart, each in a process whose environment is `shoal exec`'s; the second by SDK v3's interpreter.
const SDKS: [&str; 2] = ["sdk_v2", "sdk_v3"];

/// Runs pytest with the clients' interpreter, then each SDK's tests in a process of their own.
pub(crate) fn run(workspace: &Workspace, python: &Path, sdk_v3: Option<&Path>, shoal: &Path, outcome: &mut Outcome) -> Result<()> {
    let mut others = Command::new(python);
    others.args(["-m", "pytest"]).args(SDKS.map(|folder| format!("--ignore={folder}")));
    pytest(workspace, others, shoal, outcome)?;
    for (folder, interpreter) in SDKS.into_iter().zip([Some(python), sdk_v3]) {
        if let Some(interpreter) = interpreter {
            let mut tests = Command::new(interpreter);
            tests.args(["-m", "pytest", folder]);
            pytest(workspace, tests, shoal, outcome)?;
        }
    }
    Ok(())
}

fn pytest(workspace: &Workspace, mut pytest: Command, shoal: &Path, outcome: &mut Outcome) -> Result<()> {
    let report = workspace.target.join("clients-report.json");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    pytest.current_dir(workspace.root.join("tests/clients")).args(["-q", "-p", "no:cacheprovider"]);
    pytest.env("SHOAL_BIN", shoal).env("SHOAL_TEST_REPORT", &report);
    // What is imported is compiled once, and not into the checkout.
    pytest.env("PYTHONPYCACHEPREFIX", workspace.target.join("pycache"));
    let before = outcome.failed.len();
    let success = succeeds(&mut pytest)?;
    if let Ok(bytes) = fs::read(&report) {
        count(&serde_json::from_slice(&bytes)?, outcome);
    }
    if !success && outcome.failed.len() == before {
        outcome.fail("pytest");
    }
    Ok(())
}

/// Adds what conftest.py wrote: a list of `{name, outcome, reason}`.
fn count(report: &Value, outcome: &mut Outcome) {
    for test in report.as_array().into_iter().flatten() {
        let name = test["name"].as_str().unwrap_or("a client test");
        match test["outcome"].as_str() {
            Some("passed") => outcome.passed += 1,
            Some("skipped") => {
                let reason = test["reason"].as_str().unwrap_or("no reason given");
                outcome.skipped.push(Skip { name: name.to_owned(), reason: reason.to_owned() });
            }
            _ => outcome.fail(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_are_counted() {
        let report = json!([
            {"name": "test_a", "outcome": "passed"},
            {"name": "test_b", "outcome": "failed"},
            {"name": "test_c", "outcome": "error"},
            {"name": "test_d", "outcome": "skipped", "reason": "needs root"},
        ]);
        let mut outcome = Outcome::default();
        count(&report, &mut outcome);
        assert_eq!((outcome.passed, outcome.failed.len(), outcome.skipped.len()), (1, 2, 1));
        assert_eq!(outcome.skipped[0].reason, "needs root");
    }
}
