//! `py`: the Python package, built into a wheel by maturin, installed into an environment of its own, and tested there.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, shown, succeeds},
};

/// Builds, installs and tests it with the interpreter of an environment that has maturin and pytest.
pub(crate) fn run(workspace: &Workspace, python: &Path, outcome: &mut Outcome) -> Result<()> {
    let folder = workspace.root.join("py");
    let wheels = workspace.target.join("wheels");
    if wheels.exists() {
        fs::remove_dir_all(&wheels)?;
    }
    let mut build = Command::new(python);
    build.current_dir(&folder).args(["-m", "maturin", "build", "--locked", "--profile", "dev", "--interpreter"]);
    build.arg(python).arg("--target-dir").arg(&workspace.target).arg("--out").arg(&wheels);
    if !succeeds(&mut build)? {
        outcome.fail("the Python package does not build");
        return Ok(());
    }
    let wheel = fs::read_dir(&wheels)?.next().context("maturin wrote no wheel")??.path();
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]).arg(wheel);
    if !succeeds(&mut install)? {
        outcome.fail("the Python package's wheel cannot be installed");
        return Ok(());
    }
    let mut tests = Command::new(python);
    tests.current_dir(&folder).args(["-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "tests"]);
    tests.env("PYTHONPYCACHEPREFIX", workspace.target.join("pycache")).stdout(Stdio::piped());
    eprintln!("$ {}", shown(&tests));
    let output = tests.spawn().and_then(std::process::Child::wait_with_output).context("could not run pytest")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let before = outcome.failed.len();
    count(&text, outcome);
    if !output.status.success() && outcome.failed.len() == before {
        outcome.fail("pytest of the Python package");
    }
    Ok(())
}

/// Reads the closing summary of `pytest -rA`: a line per test.
fn count(text: &str, outcome: &mut Outcome) {
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("PASSED", _)) => outcome.passed += 1,
            Some(("FAILED" | "ERROR", test)) => outcome.fail(test),
            // `SKIPPED [3] tests/t.py:7: why`
            Some(("SKIPPED", which)) => {
                let (name, reason) = which.split_once(": ").unwrap_or((which, "for no reason that it says"));
                outcome.skipped.push(Skip { name: format!("py/{name}"), reason: reason.to_owned() });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_counted() {
        let mut outcome = Outcome::default();
        let text = "..F [100%]\n= short test summary info =\nPASSED t.py::a\nPASSED t.py::b\nFAILED t.py::c - AssertionError\nERROR t.py::d\nSKIPPED [2] t.py:7: needs torch: x\n1 failed";
        count(text, &mut outcome);
        assert_eq!((outcome.passed, outcome.failed.len()), (2, 2));
        assert_eq!(outcome.skipped, [Skip { name: "py/[2] t.py:7".to_owned(), reason: "needs torch: x".to_owned() }]);
    }
}
