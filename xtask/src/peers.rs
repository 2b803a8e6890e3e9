//! What `cargo xtask bench` measures against: installed once, in fixed versions, outside the clone. Nothing of it is a dependency of ours.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// Where both lie, below the home directory; `shoal bench` looks there.
const PEERS: &str = ".cache/shoal/peers";
/// An S3 server over plain files (Apache-2.0), from the crate registry.
const S3S_FS: [&str; 7] = ["install", "s3s-fs", "--version", "0.14.1", "--features", "binary", "--locked"];
/// xgboost.dask (Apache-2.0, BSD), from PyPI. XGBoost 3.2.0 is the last one for Python 3.11.
const DASK: [&str; 4] = ["xgboost-cpu==3.2.0", "dask[array,dataframe]==2026.8.0", "distributed==2026.8.0", "scikit-learn"];

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
    if !has_xgboost(&dask) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dask))?;
        run(Command::new(dask.join("bin/python")).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(DASK))?;
    }
    Ok(())
}

fn has_xgboost(environment: &Path) -> bool {
    let mut python = Command::new(environment.join("bin/python"));
    python.args(["-c", "import xgboost, dask.dataframe, distributed"]).output().is_ok_and(|output| output.status.success())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("could not run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed", command.get_program().display());
    Ok(())
}
