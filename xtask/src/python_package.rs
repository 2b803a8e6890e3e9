//! `py`: the Python package, built into a wheel by maturin, installed into an environment of its
//! own, and tested there; what needs torch with each interpreter that `SHOAL_TORCH_PYTHON` names
//! (separated by `:`), such as one with the newest torch and one with an older, else with the
//! environment of PyTorch's image.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    environment::Environments,
    outcome::{Outcome, Skip},
    pytest::pytest,
    workspace::{Workspace, shown, succeeds},
};

/// How many files of tests run at a time, each whole in one worker: tests wait for their ranks to
/// start, and for faults to be noticed.
const SIDE_BY_SIDE: &str = "2";

/// If more tests than these fail, the machine is not the cause.
const MOST_TESTS_AGAIN: usize = 10;

/// Builds, installs and tests it with the interpreter of an environment that has maturin and
/// pytest.
pub(crate) fn run(workspace: &Workspace, python: &Path, torch: Option<&Path>, outcome: &mut Outcome) -> Result<()> {
    if install(workspace, python, outcome)? {
        test(workspace, python, torch, outcome)?;
    }
    Ok(())
}

/// Builds it and installs it into that environment; whether it is there then. What compiles
/// afterwards delays no test.
pub(crate) fn install(workspace: &Workspace, python: &Path, outcome: &mut Outcome) -> Result<bool> {
    let Some(wheel) = built(workspace, python)? else {
        outcome.fail("the Python package does not build");
        return Ok(false);
    };
    let mut install = Command::new(python);
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"])
        .arg(wheel);
    if !succeeds(&mut install)? {
        outcome.fail("the Python package's wheel cannot be installed");
        return Ok(false);
    }
    Ok(true)
}

/// Tests what is installed.
pub(crate) fn test(workspace: &Workspace, python: &Path, torch: Option<&Path>, outcome: &mut Outcome) -> Result<()> {
    let folder = workspace.root.join("py");
    let named = env::var_os("SHOAL_TORCH_PYTHON").unwrap_or_default();
    let mut torches: Vec<_> =
        env::split_paths(&named).filter(|interpreter| !interpreter.as_os_str().is_empty()).collect();
    if torches.is_empty() {
        torches.extend(torch.map(Path::to_owned));
    }
    let all = [PathBuf::from("tests")];
    let oracles = Environments::find(workspace)?.debugger_oracles().inspect_err(|error| eprintln!("{error:#}"));
    if oracles.is_err() {
        outcome.fail("the environment of py/debugger_oracles.lock");
    }
    let oracles = oracles.ok().flatten();
    let package_tests = |torch| package_tests(workspace, python, torch, oracles.as_deref());
    let Some((first, others)) = torches.split_first() else {
        return finish(&|| package_tests(None), &all, "", outcome);
    };
    if let Some(label) = version(first, outcome)? {
        finish(&|| package_tests(Some(first)), &all, &label, outcome)?;
    }
    for interpreter in others {
        if let Some(label) = version(interpreter, outcome)? {
            finish(&|| package_tests(Some(interpreter)), &of_torch(&folder)?, &label, outcome)?;
        }
    }
    Ok(())
}

/// Builds the wheel; `None` if it does not build.
pub(crate) fn built(workspace: &Workspace, python: &Path) -> Result<Option<PathBuf>> {
    let [wheels, draft] = ["wheels", "wheels-draft"].map(|name| workspace.target.join(name));
    if draft.exists() {
        fs::remove_dir_all(&draft)?;
    }
    let mut build = Command::new(python);
    build.current_dir(workspace.root.join("py")).args([
        "-m",
        "maturin",
        "build",
        "--locked",
        "--profile",
        "dev",
        "--interpreter",
    ]);
    build.arg(python).arg("--target-dir").arg(&workspace.target).arg("--out").arg(&draft);
    if !succeeds(&mut build)? {
        return Ok(None);
    }
    // Servers of tests that run meanwhile see a whole wheel, or none as long as there was none.
    let built = fs::read_dir(&draft)?.next().context("maturin wrote no wheel")??;
    fs::create_dir_all(&wheels)?;
    let wheel = wheels.join(built.file_name());
    fs::rename(built.path(), &wheel)?;
    for other in fs::read_dir(&wheels)? {
        let other = other?.path();
        if other != wheel {
            fs::remove_file(other)?;
        }
    }
    Ok(Some(wheel))
}

/// Writes the list of torch's own tests that Gloo passes, by the first interpreter that
/// `SHOAL_TORCH_PYTHON` names.
pub(crate) fn renew_torch_suite(workspace: &Workspace, python: &Path) -> Result<bool> {
    let mut renew = Command::new(python);
    renew.current_dir(workspace.root.join("py")).arg("tests/torch_suite.py");
    succeeds(&mut renew)
}

/// pytest in the package's folder, with a line for each test; the caller adds what to run.
fn package_tests(workspace: &Workspace, python: &Path, torch: Option<&Path>, oracles: Option<&Path>) -> Command {
    let mut tests = pytest(workspace, python, "py");
    tests.args(["-rA", "--durations=20"]).stdout(Stdio::piped());
    for (name, interpreter) in [("SHOAL_TORCH_PYTHON", torch), ("SHOAL_DEBUGGER_ORACLES", oracles)] {
        match interpreter {
            Some(interpreter) => tests.env(name, interpreter),
            None => tests.env_remove(name),
        };
    }
    tests
}

/// ` (torch VERSION)` of an interpreter; one that has none, though it was named, is a failure.
fn version(interpreter: &Path, outcome: &mut Outcome) -> Result<Option<String>> {
    let ask = Command::new(interpreter).args(["-c", "import torch; print(torch.__version__)"]).output();
    let output = ask.with_context(|| format!("SHOAL_TORCH_PYTHON: could not run {}", interpreter.display()))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        outcome.fail(&format!("SHOAL_TORCH_PYTHON names {}, which has no torch", interpreter.display()));
        return Ok(None);
    }
    Ok(Some(format!(" (torch {})", String::from_utf8_lossy(&output.stdout).trim())))
}

/// The tests that another torch could change, from the package's folder.
fn of_torch(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder.join("tests"))? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(|name| name.starts_with("test_torch") && name.ends_with(".py")) {
            files.push(Path::new("tests").join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// Runs pytest and counts, with `label` behind the names. The few tests that fail are tried once
/// more, one at a time: ranks that wait for each other fail where the machine was busy for too
/// long.
fn finish(tests: &dyn Fn() -> Command, what: &[PathBuf], label: &str, outcome: &mut Outcome) -> Result<()> {
    let mut side_by_side = tests();
    side_by_side.args(["-n", SIDE_BY_SIDE, "--dist", "loadfile"]).args(what);
    let first = once(side_by_side, label)?;
    let names = first.failed.iter().map(|name| name.strip_suffix(label).unwrap_or(name));
    let again = match first.failed.len() {
        1..=MOST_TESTS_AGAIN if first.failed.iter().all(|name| name.contains("::")) => {
            println!("once more, alone: {}", first.failed.join(" "));
            let mut alone = tests();
            alone.args(names);
            once(alone, label)?
        }
        _ => Outcome { failed: first.failed.clone(), ..Outcome::default() },
    };
    outcome.add(first, again);
    Ok(())
}

fn once(mut tests: Command, label: &str) -> Result<Outcome> {
    eprintln!("$ {}{label}", shown(&tests));
    let output = tests.spawn().and_then(std::process::Child::wait_with_output).context("could not run pytest")?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let mut outcome = Outcome::default();
    count(&text, label, &mut outcome);
    if !output.status.success() && outcome.failed.is_empty() {
        outcome.fail(&format!("pytest of the Python package{label}"));
    }
    Ok(outcome)
}

/// Reads the closing summary of `pytest -rA`, a line per test; lines before it may be a program's
/// own.
fn count(text: &str, label: &str, outcome: &mut Outcome) {
    let summary = text.rfind("= short test summary info =").map_or("", |from| &text[from..]);
    for line in summary.lines() {
        match line.split_once(' ') {
            Some(("PASSED", _)) => outcome.passed += 1,
            // `FAILED t.py::t - why`
            Some(("FAILED" | "ERROR", test)) => {
                let (name, reason) = test.split_once(" - ").map_or((test, None), |(name, reason)| (name, Some(reason)));
                let name = format!("{name}{label}");
                outcome.fail(&name);
                outcome.reasons.extend(reason.map(|reason| (name, reason.to_owned())));
            }
            // `SKIPPED [3] tests/t.py:7: why`
            Some(("SKIPPED", which)) => {
                let (name, reason) = which.split_once(": ").unwrap_or((which, "for no reason that it says"));
                outcome.skipped.push(Skip { name: format!("py/{name}{label}"), reason: reason.to_owned() });
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
        let text = "..F [100%]\nERROR    driver.py:247 what a program logged\n= short test summary info =\nPASSED t.py::a\nPASSED t.py::b\nFAILED t.py::c - AssertionError\nERROR t.py::d\nSKIPPED [2] t.py:7: needs torch: x\n1 failed";
        count(text, " (torch 2)", &mut outcome);
        assert_eq!(
            (outcome.passed, &outcome.failed[..]),
            (2, &["t.py::c (torch 2)", "t.py::d (torch 2)"].map(str::to_owned)[..])
        );
        assert_eq!(Vec::from_iter(outcome.reasons.values()), ["AssertionError"]);
        assert_eq!(
            outcome.skipped,
            [Skip { name: "py/[2] t.py:7 (torch 2)".to_owned(), reason: "needs torch: x".to_owned() }]
        );
    }

    #[test]
    fn another_torch_has_the_tests_that_it_can_change() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../py");
        let files = of_torch(&folder).expect("the package is there");
        assert!(
            files.contains(&PathBuf::from("tests/test_torch.py"))
                && !files.contains(&PathBuf::from("tests/test_tuner.py")),
            "{files:?}"
        );
        assert!(files.iter().all(|file| folder.join(file).is_file()));
    }
}
