//! Project chores: `cargo xtask test | ci | tidy | codegen`.
//!
//! `test` is the README's test command: it sets up what the tests need (a Python environment with the real clients, libxgboost),
//! runs the Rust tests and the client tests, and closes with one line of counts. `ci` is `test` and every other check that a
//! change has to pass. `tidy` executes the rules of ARCHITECTURE.md. `codegen` rewrites the generated sources.

mod clients;
mod codegen;
mod outcome;
mod rust_tests;
mod skips;
mod tidy;
mod workspace;

use std::{
    env,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Result, bail};
use outcome::Outcome;
use workspace::{Workspace, cargo, succeeds};

fn main() -> ExitCode {
    let task = env::args().nth(1).unwrap_or_default();
    match run(&task) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all is well.
fn run(task: &str) -> Result<bool> {
    let workspace = Workspace::find()?;
    match task {
        "test" => {
            let outcome = test(&workspace)?;
            Ok(outcome.report())
        }
        "ci" => {
            let mut outcome = test(&workspace)?;
            checks(&workspace, &mut outcome)?;
            Ok(outcome.report())
        }
        "tidy" => {
            let problems = tidy::problems(&workspace)?;
            problems.iter().for_each(|problem| eprintln!("{problem}"));
            eprintln!("tidy: {} problems", problems.len());
            Ok(problems.is_empty())
        }
        "codegen" => codegen::run().map(|()| true),
        other => bail!("no such task {other:?}; there are: test, ci, tidy, codegen"),
    }
}

/// Rust tests, then the real clients against the binary that they built.
fn test(workspace: &Workspace) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    if !succeeds(cargo(workspace).args(["test", "--workspace", "--no-run"]))? {
        outcome.fail("the workspace does not build");
        return Ok(outcome);
    }
    let shoal = workspace.target.join("debug/shoal");
    if !succeeds(Command::new(&shoal).arg("setup"))? {
        outcome.fail("shoal setup");
    }
    rust_tests::run(workspace, &mut outcome)?;
    clients::run(workspace, &shoal, &mut outcome)?;
    if env::var_os("CI").is_some_and(|value| value == "true") {
        outcome.refuse_skips(skips::is_honest);
    }
    Ok(outcome)
}

/// What a change must pass beside its tests; each counts as one test.
fn checks(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    let locked = ["metadata", "--locked", "--format-version", "1"];
    outcome.count("Cargo.lock", succeeds(cargo(workspace).args(locked).stdout(Stdio::null()))?);
    outcome.count("fmt", succeeds(cargo(workspace).args(["fmt", "--all", "--", "--check"]))?);
    let problems = tidy::problems(workspace)?;
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    outcome.count("tidy", problems.is_empty());
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    outcome.count("clippy", succeeds(cargo(workspace).args(clippy))?);
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    outcome.count("docs", succeeds(cargo(workspace).args(docs).env("RUSTDOCFLAGS", "-D warnings"))?);
    Ok(())
}
