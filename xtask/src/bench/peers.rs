//! What `cargo xtask bench` measures against: installed once, in fixed versions, outside the clone.
//! Nothing of it is a dependency of ours.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// Where they lie, below the home directory; `tools/bench` looks there.
const PEERS: &str = ".cache/shoal/peers";
/// An S3 server over plain files (Apache-2.0), from the crate registry.
const S3S_FS: [&str; 7] = ["install", "s3s-fs", "--version", "0.14.1", "--features", "binary", "--locked"];
/// xgboost.dask (Apache-2.0, BSD), from PyPI. XGBoost 3.2.0 is the last one for Python 3.11.
const DASK: [&str; 4] =
    ["xgboost-cpu==3.2.0", "dask[array,dataframe]==2026.8.0", "distributed==2026.8.0", "scikit-learn"];

/// Ray Tune and Ray Train (Apache-2.0), from PyPI.
const RAY: &str = "ray[train,tune]==2.60.0";

/// Intel MPI (Intel Simplified Software License), from PyPI: the newest of which the registry has
/// all that it needs.
const INTEL_MPI: [&str; 2] = ["impi-rt==2021.18.1", "impi-devel==2021.18.1"];

/// Installs those that are not there.
///
/// # Errors
/// An installer fails; what it says is on standard error.
pub(crate) fn install() -> Result<()> {
    let peers = PathBuf::from(env::var_os("HOME").context("there is no HOME to install the peers below")?).join(PEERS);
    fs::create_dir_all(&peers)?;
    if !peers.join("bin/s3s-fs").is_file() {
        run(Command::new("cargo").args(S3S_FS).arg("--root").arg(&peers))?;
    }
    let dask = peers.join("dask-xgboost-3.2.0");
    if !imports(&dask, "xgboost, dask.dataframe, distributed") {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dask))?;
        run(Command::new(dask.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(DASK))?;
    }
    let ray = ray(&peers);
    if !ray.join("bin/python").is_file() || !imports(&ray, "ray.tune, ray.train, pydantic") {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&ray))?;
        run(Command::new(ray.join("bin/python")).args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            RAY,
        ]))?;
    }
    let intel = intel_mpi(&peers);
    if !intel.join("bin/mpirun").is_file() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&intel))?;
        run(Command::new(intel.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(INTEL_MPI))?;
    }
    Ok(())
}

/// What `cargo xtask bench comm` measures beside ours, as its `--peer` takes them, once [`install`]
/// was there: Intel MPI, the MPI that `mpirun` on the path is, and Gloo of the first interpreter
/// that `SHOAL_TORCH_PYTHON` names.
///
/// # Errors
/// There is no home directory.
pub(crate) fn of_comm() -> Result<Vec<String>> {
    let home = PathBuf::from(env::var_os("HOME").context("there is no HOME to look for the peers below")?);
    let mut found = vec![format!("IntelMPI={}", intel_mpi(&home.join(PEERS)).join("bin").display())];
    let path = env::var_os("PATH").unwrap_or_default();
    if let Some(dir) = env::split_paths(&path).find(|dir| dir.join("mpirun").is_file() && dir.join("mpicc").is_file()) {
        found.push(format!("MPI={}", dir.display()));
    }
    let named = env::var_os("SHOAL_TORCH_PYTHON").unwrap_or_default();
    found.extend(
        env::split_paths(&named).find(|python| python.is_file()).map(|python| format!("Gloo={}", python.display())),
    );
    Ok(found)
}

/// A Python that has Ray, once [`install`] was there.
///
/// # Errors
/// There is no home directory.
pub(crate) fn python_with_ray() -> Result<PathBuf> {
    let home = PathBuf::from(env::var_os("HOME").context("there is no HOME to look for the peers below")?);
    Ok(ray(&home.join(PEERS)).join("bin/python"))
}

fn intel_mpi(peers: &Path) -> PathBuf {
    peers.join("impi-2021.18.1")
}

fn ray(peers: &Path) -> PathBuf {
    peers.join("ray-2.60.0")
}

fn imports(environment: &Path, modules: &str) -> bool {
    let mut python = Command::new(environment.join("bin/python"));
    python.args(["-c", &format!("import {modules}")]).output().is_ok_and(|output| output.status.success())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("could not run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed", command.get_program().display());
    Ok(())
}
