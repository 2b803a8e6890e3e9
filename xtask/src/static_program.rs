//! `cargo xtask dist --static`: `shoal` for any Linux of this machine's kind, whatever its C
//! library, in `target/dist-static`. An init container copies it into pods whose image is the
//! user's own (docs/clusters.md). It starts agents and runs scripts as the other one does; it
//! cannot load libraries, so XGBoost and NCCL are for `cargo xtask dist`'s program.

use std::{fs, path::Path, process::Command};

use anyhow::{Result, ensure};

use crate::{
    dist::output,
    outcome::Outcome,
    pytest::pytest,
    workspace::{Workspace, cargo, succeeds},
};

const TARGET: &str = "x86_64-unknown-linux-musl";
/// C libraries (SQLite, zstd, ring) are compiled with it.
const COMPILER: &str = "musl-gcc";
/// What shows that it works: jobs of one and of two instances with the real clients.
const TESTS: [&str; 4] = [
    "test_echo.py",
    "test_hosts.py",
    "--deselect",
    // Trains with XGBoost, whose library it cannot load.
    "test_echo.py::test_the_platform_supplies_the_metrics_of_built_in_images",
];

/// Builds it, and sees that it is static and runs jobs.
///
/// # Errors
/// It cannot be built, or it is not what it must be.
pub(crate) fn run(workspace: &Workspace, python: &Path) -> Result<bool> {
    ensure_tools()?;
    let built = workspace.target.join("dist-static-build");
    let mut build = cargo(workspace);
    build.args(["build", "--release", "--locked", "--package", "shoal-cli", "--target", TARGET, "--target-dir"]);
    build.arg(&built).env("CC_x86_64_unknown_linux_musl", COMPILER);
    ensure!(succeeds(&mut build)?, "the static program does not build");
    let dir = workspace.target.join("dist-static");
    fs::create_dir_all(&dir)?;
    let program = dir.join("shoal");
    // A copy that runs cannot be written to.
    let fresh = dir.join("shoal.new");
    fs::copy(built.join(TARGET).join("release/shoal"), &fresh)?;
    fs::rename(&fresh, &program)?;
    check(&program)?;
    let mut tests = pytest(workspace, python, "tests/clients");
    tests.args(TESTS).env("SHOAL_BIN", &program);
    let mut outcome = Outcome::default();
    outcome.count("jobs by the static program", succeeds(&mut tests)?);
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let size = fs::metadata(&program)?.len() as f64 / f64::from(1 << 20);
    println!("{}: {size:.1} MiB", program.display());
    Ok(outcome.report())
}

fn ensure_tools() -> Result<()> {
    let libraries = output(Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]))?;
    ensure!(
        Path::new(libraries.trim()).exists(),
        "there is no standard library for {TARGET}: rustup target add {TARGET}"
    );
    let compiler = Command::new(COMPILER).arg("--version").output();
    ensure!(compiler.is_ok(), "there is no {COMPILER} (Debian: apt-get install musl-tools)");
    Ok(())
}

/// A static program names neither a loader nor libraries.
fn check(program: &Path) -> Result<()> {
    let headers = output(Command::new("readelf").args(["--program-headers", "--dynamic", "--wide"]).arg(program))?;
    for word in ["INTERP", "(NEEDED)"] {
        ensure!(!headers.contains(word), "{} is not static: it has {word}", program.display());
    }
    let version = output(Command::new(program).arg("--version").env_clear())?;
    ensure!(version.trim() == format!("shoal {}", env!("CARGO_PKG_VERSION")), "it prints {version:?}");
    Ok(())
}
