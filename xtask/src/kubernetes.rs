//! `cargo xtask kubernetes`: Kubernetes' own programs for the tests, which no registry has ready
//! for use. They are built once, in a quarter of an hour, and kept in `~/.cache/shoal`, where
//! tests/clients/k8s_cluster.py finds them; the build's own cache of gigabytes is removed.

use std::{
    env, fs,
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, succeeds};

/// What builds them, and the packages that check manifests.
const SOURCES: [&str; 2] = ["xtask/kubernetes/build.sh", "tests/clients/kubernetes.lock"];

/// The directory with `bin` and `tools`, built if it is not there.
///
/// # Errors
/// It cannot be built here: the output has the reason.
pub(crate) fn prepare(workspace: &Workspace) -> Result<PathBuf> {
    let sources = SOURCES.map(|path| workspace.root.join(path));
    let mut hasher = DefaultHasher::new();
    for path in &sources {
        fs::read(path).with_context(|| format!("could not read {}", path.display()))?.hash(&mut hasher);
    }
    let home = env::var_os("HOME").context("HOME is not set")?;
    let cache = Path::new(&home).join(".cache/shoal");
    let dir = cache.join(format!("kubernetes-1.20.2-{:016x}", hasher.finish()));
    fs::create_dir_all(&dir)?;
    // Another checkout may be building the same.
    let lock = File::create(dir.join("lock"))?;
    lock.lock()?;
    let complete = dir.join("complete");
    if complete.exists() {
        return Ok(dir);
    }
    eprintln!("building Kubernetes' programs for the tests, once: a quarter of an hour");
    let [script, packages] = &sources;
    let mut build = Command::new("nice");
    build.args(["-n", "5", "bash"]).arg(script).arg(&dir).arg(packages);
    ensure!(succeeds(&mut build)?, "could not build Kubernetes' programs; tests that need them are skipped");
    fs::write(complete, "")?;
    Ok(dir)
}
