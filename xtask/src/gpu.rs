//! `cargo xtask gpu [--bundle DIR]`: what needs GPUs. Makes a folder of the conformance test of
//! groups over NCCL, the compiled Python package and its tests, and runs it here, with the first
//! interpreter that `SHOAL_TORCH_PYTHON` names or that of PyTorch's environment; with `--bundle` it
//! is written to DIR, for a GPU machine that has no Rust.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{
    environment::Environments,
    frameworks,
    outcome::Outcome,
    python_package,
    workspace::{Workspace, cargo, shown, succeeds},
};

/// Whether all checks passed, or the folder is written.
///
/// # Errors
/// Something does not build, or there is no interpreter.
pub(crate) fn run(workspace: &Workspace) -> Result<bool> {
    let Some(python) = Environments::find(workspace)?.package()? else {
        bail!("the package registry cannot be reached")
    };
    let mut arguments = env::args().skip(2);
    let bundle = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => None,
        (Some("--bundle"), Some(folder)) => Some(env::current_dir()?.join(folder)),
        _ => bail!("usage: cargo xtask gpu [--bundle DIR]"),
    };
    let folder = bundle.clone().unwrap_or_else(|| workspace.target.join("gpu"));
    write(workspace, &python, &folder)?;
    if bundle.is_some() {
        println!("written: {0}; on the GPU machine: {0}/run", folder.display());
        return Ok(true);
    }
    succeeds(Command::new(&python).arg(folder.join("run")).env("SHOAL_TORCH_PYTHON", torch(workspace)?))
}

/// An interpreter that has PyTorch.
fn torch(workspace: &Workspace) -> Result<PathBuf> {
    let named = env::var_os("SHOAL_TORCH_PYTHON").unwrap_or_default();
    if let Some(first) = env::split_paths(&named).find(|path| !path.as_os_str().is_empty()) {
        return Ok(first);
    }
    ensure!(succeeds(cargo(workspace).args(["build", "-p", "shoal-cli"]))?, "the command shoal does not build");
    let python = frameworks::prepare(&workspace.target.join("debug/shoal"), workspace, &mut Outcome::default())?;
    python
        .context("PyTorch's environment could not be made; name an interpreter that has PyTorch in SHOAL_TORCH_PYTHON")
}

/// Makes the folder anew. One that is there must be ours: it has a `run` in it.
fn write(workspace: &Workspace, python: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        let ours = folder.join("run").is_file() || fs::read_dir(folder)?.next().is_none();
        ensure!(ours, "{} has other files in it; name another folder, or remove it", folder.display());
        fs::remove_dir_all(folder)?;
    }
    let test = conformance_test(workspace)?;
    let Some(wheel) = python_package::built(workspace, python)? else { bail!("the Python package does not build") };
    let (packages, tests) = (folder.join("python"), folder.join("tests"));
    fs::create_dir_all(&packages)?;
    fs::copy(&test, folder.join("nccl-conformance")).with_context(|| format!("could not copy {}", test.display()))?;
    let unpack = ["-c", "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall(sys.argv[2])"];
    ensure!(
        succeeds(Command::new(python).args(unpack).arg(&wheel).arg(&packages))?,
        "{} cannot be unpacked",
        wheel.display()
    );
    fs::create_dir(&tests)?;
    for entry in fs::read_dir(workspace.root.join("py/tests"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "py")
            && let Some(name) = path.file_name()
        {
            fs::copy(&path, tests.join(name))?;
        }
    }
    let run = folder.join("run");
    fs::rename(tests.join("gpu_run.py"), &run)?;
    ensure!(succeeds(Command::new("chmod").arg("+x").arg(run))?, "chmod failed");
    Ok(())
}

/// The program of `cargo test -p shoal-comm --features nccl --test nccl`.
fn conformance_test(workspace: &Workspace) -> Result<PathBuf> {
    let mut build = cargo(workspace);
    build.args(["test", "-p", "shoal-comm", "--features", "nccl", "--test", "nccl"]);
    build.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    eprintln!("$ {}", shown(&build));
    let output = build.stderr(Stdio::inherit()).output().context("could not run cargo test")?;
    ensure!(output.status.success(), "the conformance test of groups over NCCL does not build");
    executable(&String::from_utf8_lossy(&output.stdout)).context("cargo names no program of the test nccl")
}

/// Where cargo's messages say that the test's program is.
fn executable(messages: &str) -> Option<PathBuf> {
    let of_test = |message: &Value| message["target"]["name"] == "nccl" && message["executable"].is_string();
    let message = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(of_test)?;
    message["executable"].as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_cargos_messages() {
        let messages = concat!(
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"shoal_comm\"},\"executable\":null}\n",
            "not json\n",
            "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"nccl\"},\"executable\":\"/t/debug/deps/nccl-1\"}\n",
        );
        assert_eq!(executable(messages), Some(PathBuf::from("/t/debug/deps/nccl-1")));
        assert_eq!(executable(""), None);
    }
}
