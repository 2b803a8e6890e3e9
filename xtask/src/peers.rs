//! What `cargo xtask bench` measures against: installed once, in fixed versions, outside the clone. Nothing of it is a dependency of ours.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// Where they lie, below the home directory; `shoal bench` looks there.
const PEERS: &str = ".cache/shoal/peers";
/// An S3 server over plain files (Apache-2.0), from the crate registry.
const S3S_FS: [&str; 7] = ["install", "s3s-fs", "--version", "0.14.1", "--features", "binary", "--locked"];
/// xgboost.dask (Apache-2.0, BSD), from PyPI. XGBoost 3.2.0 is the last one for Python 3.11.
const DASK: [&str; 4] = ["xgboost-cpu==3.2.0", "dask[array,dataframe]==2026.8.0", "distributed==2026.8.0", "scikit-learn"];

/// Ray Tune (Apache-2.0), from PyPI.
const RAY: &str = "ray[tune]==2.60.0";

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
        run(Command::new(dask.join("bin/python")).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(DASK))?;
    }
    let ray = ray(&peers);
    if !ray.join("bin/python").is_file() || !imports(&ray, "ray.tune") {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&ray))?;
        run(Command::new(ray.join("bin/python")).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", RAY]))?;
    }
    Ok(())
}

/// A Python that has Ray Tune, once [`install`] was there.
///
/// # Errors
/// There is no home directory.
pub(crate) fn python_with_ray() -> Result<PathBuf> {
    let home = PathBuf::from(env::var_os("HOME").context("there is no HOME to look for the peers below")?);
    Ok(ray(&home.join(PEERS)).join("bin/python"))
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
