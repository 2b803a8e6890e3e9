//! `cargo test` over the workspace, its output counted.
//!
//! A Rust test that this machine cannot run prints `skipped: REASON` and returns; libtest calls it passed, we do not.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result};

use crate::{
    outcome::{Outcome, Skip},
    workspace::{Workspace, cargo, shown},
};

/// Runs every Rust test, the documentation's too.
pub(crate) fn run(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    let mut command = cargo(workspace);
    command.args(["test", "--workspace", "--no-fail-fast", "--", "--show-output"]).stdout(Stdio::piped());
    eprintln!("$ {}", shown(&command));
    let mut child = command.spawn().context("could not run cargo test")?;
    let stdout = child.stdout.take().context("stdout is piped")?;
    let mut reader = Reader::default();
    let before = outcome.failed.len();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if reader.read(&line, outcome) {
            println!("{line}");
        }
    }
    if !child.wait()?.success() && outcome.failed.len() == before {
        outcome.fail("cargo test");
    }
    Ok(())
}

/// Understands libtest's output, line by line.
#[derive(Debug, Default)]
struct Reader {
    /// Between `successes:` and what follows it: output of tests that passed.
    in_successes: bool,
    /// Whose output this is.
    current: Option<String>,
    /// Tests of this binary that skipped themselves; the result line counts them as passed.
    skipped: usize,
}

impl Reader {
    /// Takes one line; says whether a person wants to see it.
    fn read(&mut self, line: &str, outcome: &mut Outcome) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            outcome.passed += passed(counts).saturating_sub(self.skipped);
            *self = Self::default();
            return true;
        }
        if line == "failures:" || line == "successes:" {
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
        if let Some((name, result)) = line.strip_prefix("test ").and_then(|rest| rest.rsplit_once(" ... ")) {
            if result == "FAILED" {
                outcome.fail(name);
            } else if let Some(reason) = result.strip_prefix("ignored") {
                outcome.skipped.push(Skip { name: name.to_owned(), reason: reason.trim_start_matches(", ").to_owned() });
            }
        }
        true
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
        let mut outcome = Outcome::default();
        let mut reader = Reader::default();
        let shown: Vec<_> = text.lines().filter(|line| reader.read(line, &mut outcome)).collect();
        assert_eq!(outcome.passed, 6);
        assert_eq!(outcome.failed, ["b"]);
        let skips = outcome.skipped.iter().map(|skip| (skip.name.as_str(), skip.reason.as_str())).collect::<Vec<_>>();
        assert_eq!(skips, [("c", "slow"), ("d", "needs root")]);
        assert!(shown.contains(&"thread panicked") && !shown.contains(&"hello"));
    }
}
