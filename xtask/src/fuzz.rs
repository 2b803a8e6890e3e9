//! `cargo xtask fuzz [TARGET [SECONDS]]`: coverage-guided fuzzing of everything that reads what
//! strangers send.
//!
//! The targets are programs of the workspace `fuzz/`, linked with libFuzzer and instrumented by the
//! stable compiler's own flags. What a target finds is kept in `fuzz/corpus/<target>`, and an input
//! that breaks it in `fuzz/artifacts`; neither is committed.

use std::{env, fs, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, cargo, succeeds};

/// What there is, and what each one is given.
const TARGETS: &[&str] = &["requests", "signatures", "s3_paths", "rows", "messages", "ranks"];
/// How long each target runs unless told otherwise.
const SECONDS: &str = "60";
/// Coverage that libFuzzer reads.
const INSTRUMENTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                            -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Runs one target, or all of them sequentially; true if none of them broke.
///
/// # Errors
/// There is no such target, or cargo cannot be run.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let (wanted, seconds) = (env::args().nth(2), env::args().nth(3).unwrap_or_else(|| SECONDS.to_owned()));
    let targets: Vec<&str> =
        TARGETS.iter().copied().filter(|target| wanted.as_deref().is_none_or(|wanted| wanted == *target)).collect();
    ensure!(
        !targets.is_empty(),
        "no such fuzz target {:?}; there are: {}",
        wanted.unwrap_or_default(),
        TARGETS.join(", ")
    );
    let fuzz = workspace.root.join("fuzz");
    fs::create_dir_all(fuzz.join("artifacts"))?;
    let mut broken = Vec::new();
    for target in targets {
        let corpus = fuzz.join("corpus").join(target);
        fs::create_dir_all(&corpus)?;
        // With a target triple the flags spare build scripts, which have no libFuzzer to report to.
        let mut command = cargo(workspace);
        command.current_dir(&fuzz).args(["run", "--release", "--target", &host()?, "--bin", target, "--"]).arg(&corpus);
        command.args(["-rss_limit_mb=4096", "-timeout=20", "-max_len=8192", "-print_final_stats=1"]);
        command
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", fuzz.join("artifacts").display()));
        if !succeeds(command.env("RUSTFLAGS", INSTRUMENTED).env("CARGO_TARGET_DIR", workspace.target.join("fuzz")))? {
            broken.push(target);
        }
    }
    eprintln!(
        "fuzz: {}",
        if broken.is_empty() { "nothing found".to_owned() } else { format!("broken: {}", broken.join(", ")) }
    );
    Ok(broken.is_empty())
}

/// The compiler's own platform.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("could not run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).context("rustc -vV names no host")
}
