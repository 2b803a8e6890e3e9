//! Python environments with the real clients: made from lock files, kept under the user's cache for
//! the next run.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{Workspace, succeeds};

/// Installs the rest: pip's own resolver does not come to an end with SDK v3.
const UV: &str = "uv==0.13.8";
/// How uv and pip say that a registry cannot be reached.
pub(crate) const UNREACHABLE: [&str; 2] = ["Failed to fetch", "NewConnectionError"];

/// Where environments come from and go to.
pub(crate) struct Environments {
    sources: PathBuf,
    cache: PathBuf,
    python: String,
    version: Vec<u8>,
}

impl Environments {
    /// Looks for a Python.
    ///
    /// # Errors
    /// There is none, or it is older than 3.10.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self> {
        let python = env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        let look = ["-c", "import sys; print(sys.version); sys.exit(sys.version_info < (3, 10))"];
        let version = Command::new(&python).args(look).output();
        let version = version
            .with_context(|| format!("could not run {python}; install Python 3.10 or newer, or name it in $PYTHON"))?;
        ensure!(version.status.success(), "{python} is older than 3.10; name a newer one in $PYTHON");
        let home = env::var_os("HOME").context("HOME is not set")?;
        let cache = Path::new(&home).join(".cache/shoal");
        Ok(Self { sources: workspace.root.clone(), cache, python, version: version.stdout })
    }

    /// boto3, SDK v2, the AWS CLI and pytest: the interpreter of the environment that the tests
    /// cannot do without.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn clients(&self) -> Result<PathBuf> {
        match self.made("sdk-v2", "tests/clients/requirements.lock")? {
            Made::Ready(interpreter) => Ok(interpreter),
            Made::Unreachable => bail!("the package registry cannot be reached"),
        }
    }

    /// SDK v3 and pytest; `None` if the registry cannot be reached.
    ///
    /// # Errors
    /// It cannot be made for another reason.
    pub(crate) fn sdk_v3(&self) -> Result<Option<PathBuf>> {
        Ok(match self.made("sdk-v3", "tests/clients/sdk_v3.lock")? {
            Made::Ready(interpreter) => Some(interpreter),
            Made::Unreachable => None,
        })
    }

    /// maturin and pytest, for the Python package; `None` if the registry cannot be reached.
    ///
    /// # Errors
    /// It cannot be made for another reason.
    pub(crate) fn package(&self) -> Result<Option<PathBuf>> {
        Ok(match self.made("package", "py/requirements.lock")? {
            Made::Ready(interpreter) => Some(interpreter),
            Made::Unreachable => None,
        })
    }

    /// AWS's smdebug and TensorBoard, which read what the package's Debugger writes; `None` if the
    /// registry cannot be reached.
    ///
    /// # Errors
    /// It cannot be made for another reason.
    pub(crate) fn debugger_oracles(&self) -> Result<Option<PathBuf>> {
        Ok(match self.made("debugger-oracles", "py/debugger_oracles.lock")? {
            Made::Ready(interpreter) => Some(interpreter),
            Made::Unreachable => None,
        })
    }

    /// The interpreter of an environment with exactly what a lock file lists.
    fn made(&self, name: &str, lock: &str) -> Result<Made> {
        let lock = self.sources.join(lock);
        let mut hasher = DefaultHasher::new();
        (UV, &self.version).hash(&mut hasher);
        fs::read(&lock).with_context(|| format!("could not read {}", lock.display()))?.hash(&mut hasher);
        let dir = self.cache.join(format!("{name}-{:016x}", hasher.finish()));
        let interpreter = dir.join("bin/python");
        let complete = dir.join("complete");
        if complete.exists() {
            return Ok(Made::Ready(interpreter));
        }
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        ensure!(
            succeeds(Command::new(&self.python).args(["-m", "venv"]).arg(&dir))?,
            "{} could not make a virtual environment (Debian: apt-get install python3-venv)",
            self.python
        );
        for arguments in [&["pip", "install", "--quiet", "--disable-pip-version-check", UV][..], &uv(&lock)?] {
            let output = Command::new(&interpreter).arg("-m").args(arguments).output()?;
            let text = String::from_utf8_lossy(&output.stderr);
            eprint!("{text}");
            if !output.status.success() {
                ensure!(UNREACHABLE.iter().any(|sign| text.contains(sign)), "could not install {}", lock.display());
                return Ok(Made::Unreachable);
            }
        }
        fs::write(complete, "")?;
        Ok(Made::Ready(interpreter))
    }
}

/// What became of an environment.
enum Made {
    /// Its interpreter.
    Ready(PathBuf),
    /// Nothing, for want of a network.
    Unreachable,
}

/// Every package is in the lock, so there is nothing to resolve; a cache of uv's own would be a
/// second copy.
fn uv(lock: &Path) -> Result<[&str; 8]> {
    let lock = lock.to_str().context("the checkout's path is not UTF-8")?;
    Ok(["uv", "pip", "install", "--quiet", "--no-cache", "--no-deps", "-r", lock])
}
