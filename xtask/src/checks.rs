//! What a change must pass beside its tests: lock file, formatting, tidy, clippy, models,
//! instruction counts, documentation.

use std::{
    env, fs,
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

use crate::{
    environment::Environments,
    instructions, lints,
    outcome::{Outcome, Skip},
    rust_tests, tidy,
    workspace::{Workspace, cargo, plain_cargo, succeeds},
};

/// The task: `cargo xtask checks [--report FILE]`, where FILE gets what [`Outcome::read`] reads.
///
/// # Errors
/// Programs cannot be run, or the file cannot be written.
pub(crate) fn task(workspace: &Workspace) -> Result<bool> {
    let mut outcome = Outcome::default();
    run(workspace, &mut outcome)?;
    if let Some(report) = env::args().skip_while(|word| word != "--report").nth(1) {
        fs::write(&report, outcome.json().to_string()).with_context(|| format!("could not write {report}"))?;
    }
    Ok(outcome.report())
}

/// The checks in a process of their own, of the least priority.
pub(crate) struct Beside {
    process: Child,
    log: PathBuf,
    report: PathBuf,
}

impl Beside {
    /// Begins them; what they print is kept.
    ///
    /// # Errors
    /// The process or its files cannot be made.
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let [log, report] = ["checks.log", "checks-report.json"].map(|name| workspace.target.join(name));
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let file = File::create(&log).with_context(|| format!("could not create {}", log.display()))?;
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).arg(env::current_exe()?).args(["checks", "--report"]).arg(&report);
        command.current_dir(&workspace.root).stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let process = command.spawn().context("could not run nice")?;
        println!("checks run beside: {}", log.display());
        Ok(Self { process, log, report })
    }

    /// Waits for their end, prints what they printed and counts it.
    ///
    /// # Errors
    /// Their files cannot be read.
    pub(crate) fn join(mut self, outcome: &mut Outcome) -> Result<()> {
        self.process.wait()?;
        print!("{}", String::from_utf8_lossy(&fs::read(&self.log)?));
        match fs::read(&self.report) {
            Ok(bytes) => outcome.read(&serde_json::from_slice(&bytes)?),
            Err(_) => outcome.fail("checks"),
        }
        Ok(())
    }
}

/// What a change must pass beside its tests; each counts as one test.
pub(crate) fn run(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    let locked = ["metadata", "--locked", "--format-version", "1"];
    outcome.count("Cargo.lock", succeeds(cargo(workspace).args(locked).stdout(Stdio::null()))?);
    outcome.count("fmt", succeeds(cargo(workspace).args(["fmt", "--all", "--", "--check"]))?);
    let problems = tidy::problems(workspace)?;
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    outcome.count("tidy", problems.is_empty());
    outcome.count("clippy", lints::find_nothing(workspace, &["--workspace", "--all-targets"])?);
    let with_nccl = ["-p", "shoal-comm", "--features", "nccl", "--lib", "--test", "nccl"];
    outcome.count("clippy with NCCL", lints::find_nothing(workspace, &with_nccl)?);
    rust_tests::nccl(workspace, outcome)?;
    let model = ["test", "--release", "-p", "shoal-comm", "--test", "loom"];
    let mut model_checked = plain_cargo(workspace);
    model_checked.args(model).env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", workspace.target.join("loom"));
    outcome.count("the flags of shared memory in a model (loom)", succeeds(&mut model_checked)?);
    instructions::check(workspace, outcome)?;
    arm64(workspace, outcome)?;
    let docs = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    outcome.count("docs", succeeds(plain_cargo(workspace).args(docs).env("RUSTDOCFLAGS", "-D warnings"))?);
    if let Err(error) = python(workspace, outcome) {
        eprintln!("{error:#}");
        outcome.fail("format of Python");
    }
    Ok(())
}

/// The formatting of Python.
fn python(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    let Some(python) = Environments::find(workspace)?.package()? else {
        let reason = "needs a package registry: ruff is fetched once and then kept in ~/.cache/shoal".to_owned();
        outcome.skipped.push(Skip { name: "format of Python".to_owned(), reason });
        return Ok(());
    };
    let mut ruff = Command::new(python);
    ruff.args(["-m", "ruff", "format", "--check", "--quiet", "--diff", "."]).current_dir(&workspace.root);
    outcome.count("format of Python", succeeds(&mut ruff)?);
    Ok(())
}

/// Process groups have code for x86-64 alone: without it they compile, too. Needs the standard
/// library of that target, not a linker.
fn arm64(workspace: &Workspace, outcome: &mut Outcome) -> Result<()> {
    let (name, target) = ("shoal-comm for arm64", "aarch64-unknown-linux-gnu");
    let library = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output()?;
    if !Path::new(String::from_utf8_lossy(&library.stdout).trim()).is_dir() {
        let reason = format!("needs the standard library of {target}: rustup target add {target}");
        outcome.skipped.push(Skip { name: name.to_owned(), reason });
        return Ok(());
    }
    let mut check = plain_cargo(workspace);
    check.args(["clippy", "-p", "shoal-comm", "--target", target, "--", "-D", "warnings"]);
    outcome.count(name, succeeds(&mut check)?);
    Ok(())
}
