//! The directory in which Python environments lie.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::shelf::{Cached, Kept, Shelf, Taken, digest, hexadecimal};
use crate::{Environment, EnvironmentError, Record, Source, Watcher, build, overlay, requirements};

/// Environments of this machine.
#[derive(Debug, Clone)]
pub struct Cache {
    shelf: Shelf<Record>,
    source: Source,
    /// What jobs require must not be fetched.
    is_isolated: bool,
}

/// An environment that is whole, and stays while this lives.
#[derive(Debug)]
pub struct Prepared {
    taken: Taken<Record>,
    /// What a job's requirements lie over.
    below: Option<Box<Prepared>>,
}

impl Kept for Record {
    /// With its interpreter, too.
    fn is_whole(&self, directory: &Path) -> bool {
        self.interpreter.is_file() && directory.join("bin/python").exists()
    }

    fn rests_on_another(&self) -> bool {
        self.below.is_some()
    }
}

impl Cache {
    /// The cache in the directory `root`, which need not be there.
    pub fn new(root: PathBuf, source: Source) -> Self {
        Self { shelf: Shelf::new(root), source, is_isolated: false }
    }

    /// The interpreter that this environment would be made with on this machine.
    ///
    /// # Errors
    /// There is none; the text says what to install.
    pub fn interpreter(&self, environment: &Environment) -> Result<PathBuf, EnvironmentError> {
        crate::python::find(&environment.name, &environment.pythons, &self.source).map(|python| python.executable)
    }

    /// The same for a job for which nothing may be fetched: what it requires comes from the cache
    /// or the wheel house.
    #[must_use]
    pub fn isolated(&self) -> Self {
        Self { is_isolated: true, ..self.clone() }
    }

    /// The environment, made if it is not there: with its lock file's packages, read-only. If
    /// somebody else makes it already, that is waited for.
    ///
    /// # Errors
    /// It cannot be made, and nothing of it is left; or the watcher waits no more.
    pub fn prepare(&self, environment: &Environment, watcher: &mut dyn Watcher) -> Result<Prepared, EnvironmentError> {
        let digest = digest(&[&environment.pythons.join(","), &environment.lock]);
        let place = self.shelf.place(&environment.name, &digest);
        let taken = self.shelf.obtain(&place, &for_people(&environment.name), watcher, |lock, watcher| {
            build::make(environment, &place.directory, &self.source, lock, watcher)
        })?;
        Ok(Prepared { taken, below: None })
    }

    /// What a job requires, laid over an environment: as [`Cache::prepare`], and cached by the
    /// environment, the requirements' text (a `requirements.txt`), where packages come from and the
    /// content of `wheel`, a package without dependencies that goes on top. Without any, it is the
    /// environment itself.
    ///
    /// # Errors
    /// As [`Cache::prepare`]; a requirement that is none of an index (see [`crate::check`]), or one
    /// to be fetched where that is not allowed.
    pub fn overlay(
        &self,
        below: Prepared,
        requirements: &str,
        wheel: Option<&Path>,
        watcher: &mut dyn Watcher,
    ) -> Result<Prepared, EnvironmentError> {
        let requirements = requirements::check(requirements)?;
        if requirements.is_empty() && wheel.is_none() {
            return Ok(below);
        }
        let of_wheel = wheel.map(|file| fs::read(file).map_err(EnvironmentError::io("read", file))).transpose()?;
        let of_wheel = of_wheel.map(|content| hexadecimal(&Sha256::digest(content)));
        let (base, directory) = (&below.taken.record, &below.taken.directory);
        let path = directory.to_string_lossy();
        let origin = if requirements.is_empty() { String::new() } else { self.source.origin() };
        let origin = Some(&*origin).filter(|origin| !origin.is_empty());
        let parts: Vec<&str> = [&*path, &*requirements].into_iter().chain(of_wheel.as_deref()).chain(origin).collect();
        let digest = digest(&parts);
        let place = self.shelf.place(&format!("{}-job", base.name), &digest);
        let what = format!("{} with what is required on top", for_people(&base.name));
        let taken = self.shelf.obtain(&place, &what, watcher, |lock, watcher| {
            if self.is_isolated && self.fetches(&requirements) {
                return Err(EnvironmentError::Isolated(base.name.clone()));
            }
            overlay::make(base, directory, &requirements, wheel, &place.directory, &self.source, lock, watcher).map_err(
                |error| match error {
                    EnvironmentError::Failed { name, step, how, said, unreachable } => {
                        EnvironmentError::NotInstalled { name, step, how, said, unreachable }
                    }
                    other => other,
                },
            )
        })?;
        Ok(Prepared { taken, below: Some(Box::new(below)) })
    }

    /// Whether checked requirements take anything from elsewhere: pip follows `--find-links` even
    /// where it may ask no index.
    fn fetches(&self, requirements: &str) -> bool {
        let is_link = |line: &str| line.starts_with("-f") || line.starts_with("--find-links");
        !requirements.is_empty() && (self.source.wheel_house.is_none() || requirements.lines().any(is_link))
    }

    /// All that lies in the cache, by name.
    ///
    /// # Errors
    /// The cache cannot be read.
    pub fn list(&self) -> Result<Vec<Cached<Record>>, EnvironmentError> {
        self.shelf.list()
    }

    /// Removes what nobody has wanted for so long and nobody uses; gives what was removed.
    /// Requirements of jobs go before what they lie over.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn prune(&self, older_than: Duration) -> Result<Vec<Cached<Record>>, EnvironmentError> {
        self.shelf.prune(older_than)
    }
}

impl Prepared {
    /// What is known of it.
    pub fn record(&self) -> &Record {
        &self.taken.record
    }

    /// Its interpreter.
    pub fn python(&self) -> PathBuf {
        self.taken.directory.join("bin/python")
    }

    /// What programs need to see, read-only and at the same path: itself, what it lies over, and
    /// the interpreter's installation where that is none of the system's.
    pub fn shown(&self) -> Vec<PathBuf> {
        let mut shown = vec![self.taken.directory.clone()];
        match &self.below {
            Some(below) => shown.extend(below.shown()),
            None if self.taken.record.prefix.starts_with("/usr") => {}
            None => shown.push(self.taken.record.prefix.clone()),
        }
        shown
    }

    /// Directories that come first in programs' `PATH`.
    pub fn path(&self) -> Vec<PathBuf> {
        let below = self.below.iter().flat_map(|below| below.path());
        [self.taken.directory.join("bin")].into_iter().chain(below).collect()
    }

    /// Directories of programs' `PYTHONPATH`, so that scripts of the environment below (`torchrun`)
    /// find what lies over it, too.
    pub fn python_path(&self) -> Vec<PathBuf> {
        self.below.iter().map(|_| self.taken.record.site_packages.clone()).collect()
    }
}

/// In messages.
fn for_people(name: &str) -> String {
    format!("the environment {name}")
}
