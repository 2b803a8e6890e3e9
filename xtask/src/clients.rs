//! `tests/clients`: the real AWS clients against the real binary, in a Python environment of their own.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, succeeds},
};

/// Runs pytest with the interpreter of [`environment`].
pub(crate) fn run(workspace: &Workspace, python: &Path, shoal: &Path, outcome: &mut Outcome) -> Result<()> {
    let tests = workspace.root.join("tests/clients");
    let report = workspace.target.join("clients-report.json");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut pytest = Command::new(python);
    pytest.current_dir(&tests).args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]);
    pytest.env("SHOAL_BIN", shoal).env("SHOAL_TEST_REPORT", &report).env("PYTHONDONTWRITEBYTECODE", "1");
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

/// The interpreter of an environment with what tests/clients/requirements.txt lists; kept under the user's cache for the next run.
///
/// # Errors
/// There is no Python 3.10 or newer, or the requirements cannot be installed.
pub(crate) fn environment(workspace: &Workspace) -> Result<PathBuf> {
    let requirements = &workspace.root.join("tests/clients/requirements.txt");
    let python = env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let version = Command::new(&python).args(["-c", "import sys; print(sys.version); sys.exit(sys.version_info < (3, 10))"]).output();
    let version = version.with_context(|| format!("could not run {python}; install Python 3.10 or newer, or name it in $PYTHON"))?;
    ensure!(version.status.success(), "{python} is older than 3.10; name a newer one in $PYTHON");

    let mut hasher = DefaultHasher::new();
    fs::read(requirements).with_context(|| format!("could not read {}", requirements.display()))?.hash(&mut hasher);
    version.stdout.hash(&mut hasher);
    let home = env::var_os("HOME").context("HOME is not set")?;
    let dir = Path::new(&home).join(format!(".cache/shoal/clients-{:016x}", hasher.finish()));
    let interpreter = dir.join("bin/python");
    let complete = dir.join("complete");
    if complete.exists() {
        return Ok(interpreter);
    }
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    ensure!(
        succeeds(Command::new(&python).args(["-m", "venv"]).arg(&dir))?,
        "{python} could not make a virtual environment (Debian: apt-get install python3-venv)"
    );
    let mut pip = Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(requirements);
    ensure!(succeeds(&mut pip)?, "pip could not install {}", requirements.display());
    fs::write(complete, "")?;
    Ok(interpreter)
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
