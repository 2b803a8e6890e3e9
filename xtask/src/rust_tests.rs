//! The workspace's Rust tests: its test programs, two at a time, then the documentation's tests.
//! What they print is counted.
//!
//! A Rust test that this machine cannot run prints `skipped: REASON` and returns; libtest calls it
//! passed, we do not. Test programs without libtest print the same lines, a test each, but not its
//! closing one.

use std::{
    env,
    ffi::OsString,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, cargo, messages, shown},
};

/// Test programs at a time: each runs a test for each core, and many of those wait.
const SIDE_BY_SIDE: usize = 2;

/// What is compiled with process groups' feature `nccl` alone, and which tests of it.
const NCCL: [(&[&str], Option<&str>); 2] = [
    (&["-p", "shoal-comm", "--features", "nccl", "--test", "nccl"], None),
    (&["-p", "shoal-comm", "--features", "nccl", "--lib"], Some("nccl")),
];

/// If more fail, none is tried again: that is no bad luck.
const MOST_AGAIN: usize = 5;

/// Runs every Rust test; what failed is tried once more, alone. Their `python3` is the one in
/// `python_dir`, which has the real clients.
pub(crate) fn run(workspace: &Workspace, python_dir: Option<&Path>, outcome: &mut Outcome) -> Result<()> {
    let mut suites = programs(workspace, &["--workspace"], None)?;
    suites.push(Suite::of_documentation());
    run_all(&suites, python_dir, outcome)
}

/// The same of the tests of groups over NCCL. Those that need no GPU run everywhere.
pub(crate) fn nccl(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    for (what, filter) in NCCL {
        run_all(&programs(workspace, what, filter)?, None, outcome)?;
    }
    Ok(())
}

/// What prints as libtest does: a test program, or cargo with the documentation's tests.
#[derive(Debug)]
struct Suite {
    program: PathBuf,
    /// Before the options that libtest reads.
    arguments: Vec<String>,
    /// The package's folder, where cargo starts its programs; none: cargo itself, which compiles
    /// again what depends on the variables of a package.
    package: Option<PathBuf>,
}

impl Suite {
    fn of_documentation() -> Self {
        let program = env!("CARGO").into();
        let arguments = ["test", "--doc", "--workspace", "--no-fail-fast", "--"].map(str::to_owned);
        Self { program, arguments: arguments.into(), package: None }
    }

    fn command(&self, python_dir: Option<&Path>) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg("--show-output").stdin(Stdio::null());
        if let Some(package) = &self.package {
            command.current_dir(package).env("CARGO_MANIFEST_DIR", package);
        }
        if let Some(dir) = python_dir {
            command.env("PATH", path_with(dir)?);
        }
        Ok(command)
    }

    fn run(&self, python_dir: Option<&Path>) -> Result<Ended> {
        ended(self.command(python_dir)?)
    }

    fn passes_alone(&self, python_dir: Option<&Path>, name: &str) -> Result<bool> {
        println!("once more, alone: {name}");
        let mut command = self.command(python_dir)?;
        command.args(["--exact", name]);
        let alone = ended(command)?;
        print!("{}", alone.shown);
        Ok(alone.succeeded && alone.outcome.passed > 0)
    }
}

/// The test programs of `cargo test WHAT`; of each, the tests that `filter` names.
fn programs(workspace: &Workspace, what: &[&str], filter: Option<&str>) -> Result<Vec<Suite>> {
    let mut build = cargo(workspace);
    build.args(["test", "--no-run"]).args(what);
    let (messages, succeeded) = messages(&mut build)?;
    if !succeeded {
        bail!("the tests do not build: {}", shown(&build));
    }
    let mut suites: Vec<_> = messages.iter().filter_map(|message| suite(message, filter)).collect();
    suites.sort_by(|one, other| (&one.package, &one.program).cmp(&(&other.package, &other.program)));
    Ok(suites)
}

/// The test program that a message of cargo's is about.
fn suite(message: &Value, filter: Option<&str>) -> Option<Suite> {
    if message["profile"]["test"] != true {
        return None;
    }
    Some(Suite {
        program: message["executable"].as_str()?.into(),
        arguments: filter.map(str::to_owned).into_iter().collect(),
        package: Path::new(message["manifest_path"].as_str()?).parent().map(Path::to_owned),
    })
}

fn run_all(suites: &[Suite], python_dir: Option<&Path>, outcome: &mut Outcome) -> Result<()> {
    let (next, ends) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(suite) = suites.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let end = suite.run(python_dir);
                    let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Ok(end) = &end {
                        print!("{}", end.shown);
                    }
                    ends.push((suite, end));
                }
            });
        }
    });
    let ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    let ends = ends.into_iter().map(|(suite, end)| Ok((suite, end?))).collect::<Result<Vec<_>>>()?;
    let failed: usize = ends.iter().map(|(_, end)| end.outcome.failed.len()).sum();
    for (suite, mut end) in ends {
        let mut again = Outcome::default();
        for name in &end.outcome.failed {
            again.count(name, failed <= MOST_AGAIN && suite.passes_alone(python_dir, name)?);
        }
        if !end.succeeded && end.outcome.failed.is_empty() {
            let name = suite.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            end.outcome.fail(&name);
            again.fail(&name);
        }
        outcome.add(end.outcome, again);
    }
    Ok(())
}

/// What a suite has printed.
struct Ended {
    outcome: Outcome,
    /// What a person wants to see of it.
    shown: String,
    /// Whether all went well, besides what `outcome` says.
    succeeded: bool,
}

fn ended(mut command: Command) -> Result<Ended> {
    let mut text = format!("$ {}\n", shown(&command));
    // Both in one pipe, in their order.
    let (mut reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().with_context(|| format!("could not run {}", shown(&command)))?;
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output)?;
    let (mut reader, mut outcome) = (Reader::default(), Outcome::default());
    for line in String::from_utf8_lossy(&output).lines() {
        if reader.read(line, &mut outcome) {
            text.push_str(line);
            text.push('\n');
        }
    }
    reader.end(&mut outcome);
    Ok(Ended { outcome, shown: text, succeeded: child.wait()?.success() })
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
