//! Makes an environment: a virtual environment of an interpreter of this machine, with the packages
//! of its lock file, read-only in the end.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::run::run;
use crate::{Environment, EnvironmentError, Record, Source, Watcher, python, room};

/// Makes it in `directory`, which is not there yet.
pub(crate) fn make(
    environment: &Environment,
    directory: &Path,
    source: &Source,
    lock: &File,
    watcher: &mut dyn Watcher,
) -> Result<Record, EnvironmentError> {
    let (begun, name) = (Instant::now(), &environment.name);
    room::ensure(directory.parent().unwrap_or(directory), 0, &format!("the environment {name}"))?;
    let base = python::find(name, &environment.pythons, source)?;
    watcher.line(&format!(
        "making the environment {name}, once for this machine: Python {}, {} packages from {}",
        base.version,
        environment.packages(),
        source.place()
    ));
    let mut venv = source.command(&base.executable);
    venv.args(["-I", "-m", "venv"]).arg(directory);
    run(venv, "python -m venv", name, lock, watcher)?;
    let file = directory.join("lock.txt");
    fs::write(&file, &environment.lock).map_err(EnvironmentError::io("write", &file))?;
    let (install, step) = source.install(&directory.join("bin/python"), &file);
    run(install, step, name, lock, watcher)?;
    let record = Record {
        name: name.clone(),
        site_packages: site_packages(directory, &base.version),
        interpreter: base.executable,
        prefix: base.prefix,
        python: base.version,
        below: None,
        bytes: seal(directory).map_err(EnvironmentError::io("make read-only", directory))?,
        made: now(),
    };
    watcher.line(&format!(
        "the environment {name} is ready: {} MB in {:.0} s",
        record.bytes >> 20,
        begun.elapsed().as_secs_f64()
    ));
    Ok(record)
}

/// Where a virtual environment has its packages.
pub(crate) fn site_packages(directory: &Path, version: &str) -> std::path::PathBuf {
    let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
    directory.join(format!("lib/python{minor}/site-packages"))
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Makes everything readable for all and writable for nobody; gives the size in bytes. Links are
/// left alone.
pub(crate) fn seal(path: &Path) -> io::Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(metadata.len());
    }
    let mut bytes = metadata.len();
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            bytes += seal(&entry?.path())?;
        }
    }
    let mode = metadata.permissions().mode();
    let readable = if metadata.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    fs::set_permissions(path, fs::Permissions::from_mode(readable))?;
    Ok(bytes)
}
