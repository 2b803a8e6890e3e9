//! `cargo test` over the workspace, its output counted.
//!
//! A Rust test that this machine cannot run prints `skipped: REASON` and returns; libtest calls it
//! passed, we do not. Test programs without libtest print the same lines, a test each, but not its
//! closing one.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use anyhow::{Context, Result};

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, cargo, shown},
};

/// The whole workspace, the documentation's tests too.
const WORKSPACE: &[&str] = &["--workspace", "--no-fail-fast", "--"];

/// What is compiled with process groups' feature `nccl` alone.
const NCCL: [&[&str]; 2] = [
    &["-p", "shoal-comm", "--features", "nccl", "--test", "nccl", "--"],
    &["-p", "shoal-comm", "--features", "nccl", "--lib", "--", "nccl"],
];

/// More than so many that failed are not tried again: that is no bad luck.
const MOST_AGAIN: usize = 5;

/// Runs every Rust test; what failed is tried once more, alone. Their `python3` is the one in
/// `python_dir`, which has the real clients.
pub(crate) fn run(workspace: &Workspace, python_dir: Option<&Path>, outcome: &mut Outcome) -> Result<()> {
    run_all(workspace, &[WORKSPACE], python_dir, outcome)
}

/// The same of the tests of groups over NCCL. Those that need no GPU run everywhere.
pub(crate) fn nccl(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    run_all(workspace, &NCCL, None, outcome)
}

fn run_all(workspace: &Workspace, runs: &[&[&str]], python_dir: Option<&Path>, outcome: &mut Outcome) -> Result<()> {
    for arguments in runs {
        let mut first = Outcome::default();
        let succeeded = run_one(workspace, arguments, python_dir, &mut first)?;
        let mut again = Outcome::default();
        for name in &first.failed {
            let passed = first.failed.len() <= MOST_AGAIN && passes_alone(workspace, arguments, python_dir, name)?;
            again.count(name, passed);
        }
        if !succeeded && first.failed.is_empty() {
            first.fail("cargo test");
            again.fail("cargo test");
        }
        outcome.add(first, again);
    }
    Ok(())
}

fn passes_alone(workspace: &Workspace, arguments: &[&str], python_dir: Option<&Path>, name: &str) -> Result<bool> {
    println!("once more, alone: {name}");
    let mut alone = Outcome::default();
    let succeeded = run_one(workspace, &[arguments, &["--exact", name]].concat(), python_dir, &mut alone)?;
    Ok(succeeded && alone.passed > 0)
}

/// Whether all went well, besides what `outcome` says.
fn run_one(
    workspace: &Workspace,
    arguments: &[&str],
    python_dir: Option<&Path>,
    outcome: &mut Outcome,
) -> Result<bool> {
    let mut command = cargo(workspace);
    // Options of the test programs are the last.
    command.arg("test").args(arguments).arg("--show-output").stdout(Stdio::piped());
    if let Some(dir) = python_dir {
        command.env("PATH", path_with(dir)?);
    }
    eprintln!("$ {}", shown(&command));
    let mut child = command.spawn().context("could not run cargo test")?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut reader = Reader::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if reader.read(&line, outcome) {
            println!("{line}");
        }
    }
    reader.end(outcome);
    Ok(child.wait()?.success())
}

fn path_with(dir: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_owned()).chain(env::split_paths(&path));
    env::join_paths(dirs).context("a directory on PATH has a colon in its name")
}

/// Understands the output of test programs, line by line.
#[derive(Debug, Default)]
struct Reader {
    /// Between `successes:` and what follows it: output of tests that passed.
    in_successes: bool,
    /// Whose output this is.
    current: Option<String>,
    /// Tests of this program that passed so far, by their own lines.
    passed: usize,
    /// Tests of this program that skipped themselves; its closing line counts them as passed.
    skipped: usize,
}

impl Reader {
    /// Takes one line; says whether a person wants to see it.
    fn read(&mut self, line: &str, outcome: &mut Outcome) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            // What a test prints can spoil its own line, never this one.
            self.passed = passed(counts).saturating_sub(self.skipped);
            self.end(outcome);
            return true;
        }
        if line.starts_with("running ") && line.split(' ').nth(1).is_some_and(|count| count.parse::<usize>().is_ok()) {
            self.end(outcome);
        } else if line == "failures:" || line == "successes:" {
            self.in_successes = line == "successes:";
            self.current = None;
        }
        if self.in_successes {
            if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
                self.current = Some(name.to_owned());
            } else if let Some(reason) = line.strip_prefix("skipped: ")
                && let Some(name) = self.current.take()
            {
                outcome.skipped.push(Skip { name, reason: reason.to_owned() });
                self.skipped += 1;
            }
            return false;
        }
        if let Some((name, result)) = line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
            let skip = result
                .strip_prefix("skipped: ")
                .or_else(|| Some(result.strip_prefix("ignored")?.trim_start_matches(", ")));
            match (result.split(' ').next(), skip) {
                (_, Some(reason)) => outcome.skipped.push(Skip { name: name.to_owned(), reason: reason.to_owned() }),
                (Some("ok"), None) => self.passed += 1,
                (Some("FAILED"), None) => outcome.fail(name),
                _ => {}
            }
        }
        true
    }

    /// A program has ended.
    fn end(&mut self, outcome: &mut Outcome) {
        outcome.passed += self.passed;
        *self = Self::default();
    }
}

/// The number in `ok. 3 passed; 0 failed; ...`.
fn passed(counts: &str) -> usize {
    let before = counts.split(" passed").next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passed, failed, skipped with reasons, and what is shown.
    fn read(text: &str) -> (usize, Vec<String>, Vec<String>, Vec<&str>) {
        let mut outcome = Outcome::default();
        let mut reader = Reader::default();
        let shown = text.lines().filter(|line| reader.read(line, &mut outcome)).collect();
        reader.end(&mut outcome);
        let skipped = outcome.skipped.into_iter().map(|skip| format!("{}: {}", skip.name, skip.reason)).collect();
        (outcome.passed, outcome.failed, skipped, shown)
    }

    #[test]
    fn libtest_output_is_counted() {
        let text = "
running 4 tests
test a ... ok
test b ... FAILED
test c ... ignored, slow
test d ... ok

successes:

---- a stdout ----
hello
---- d stdout ----
skipped: needs root

successes:
    a
    d

failures:

---- b stdout ----
thread panicked

failures:
    b

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        let (passed, failed, skipped, shown) = read(text);
        assert_eq!((passed, failed), (6, vec!["b".to_owned()]));
        assert_eq!(skipped, ["c: slow", "d: needs root"]);
        assert!(shown.contains(&"thread panicked") && !shown.contains(&"hello"));
    }

    #[test]
    fn programs_without_libtest_are_counted_by_their_lines() {
        let text = "
test root::one ... ok (12ms)
test root::two ... FAILED
test rootless::one ... skipped: this machine allows Processes only
root: 1 passed, 1 skipped, 1 failed
running 1 test
test a ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
test b::c ... ok
";
        let (passed, failed, skipped, _) = read(text);
        assert_eq!((passed, failed), (3, vec!["root::two".to_owned()]));
        assert_eq!(skipped, ["rootless::one: this machine allows Processes only"]);
    }
}
